"""CURVE (ZeroMQ RFC 26) on a pair of ZeroMQ sockets: which peers a listener admits, and which one a connector meets.

A listener proves its key to every connector, and asks each for its own: the answer to ZAP (RFC 27) is the key, which
libzmq then gives with every message of that connection.  A connector pins the listener's key, so what it receives is
from that peer.
"""

import logging
import math
import time
from typing import NamedTuple

import zmq
from zmq.utils import z85

from ..errors import TransportError
from ..identity import certificates
from ..identity.trust_file import TrustedPeer
from ..identity.watched import WatchedIdentity
from ..protocol.authentication import AuthenticatedPeer
from ..protocol.frames import HELLO_TOPIC
from . import identity_advice
from .base import Frame
from .refusals import Refusal
from .tcp_connection import tcp_counters_available

CURVE = b"CURVE"  # in a request of ZAP
NOBLOCK = int(zmq.NOBLOCK)  # an integer, because access to members of an enumeration is slow
VIEW_OCTETS = 64 * 1024  # below, a copy is quicker than a view
NO_DESCRIPTOR = -1
UNBOUND_S = 1.0  # after which it is said that a port cannot be bound again

logger = logging.getLogger("twinlink")


class Received(NamedTuple):
    """A message, the peer that its connection has proved to be of (None: not trusted any more), and the connection."""

    topic: bytes
    frame: Frame
    sender: AuthenticatedPeer | None
    key: str
    fd: int


class ZeromqCurve:
    """CURVE of one transport.

    Any thread may read its identity; the connector's part is for the thread that receives.
    """

    def __init__(self, watched: WatchedIdentity, listening: bool) -> None:
        if not tcp_counters_available():
            raise TransportError("zeromq with an identity needs Linux, to end the connections of revoked peers")
        if not zmq.has("curve"):
            raise TransportError("libzmq was built without CURVE here: pip install --force-reinstall pyzmq")
        self.watched = watched
        self._listening = listening
        self._tried: list[TrustedPeer] = []  # by a connector, since the last success
        self.pinned: TrustedPeer | None = None
        self._own = watched.identity  # the keys in use
        self._unbound: list[tuple[zmq.Socket[bytes], str]] = []
        self._unbound_since = 0.0

    def set_up(self, socket: "zmq.Socket[bytes]") -> None:
        """Set the options of a socket, before it is bound or connected, and again when a key has changed."""
        identity = self._own
        socket.setsockopt(zmq.CURVE_SECRETKEY, identity.curve_secret)
        if self._listening:
            socket.setsockopt(zmq.CURVE_SERVER, 1)
            socket.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)  # without a handler, nothing passes
        elif self.pinned is not None:
            socket.setsockopt(zmq.CURVE_PUBLICKEY, identity.curve_public)
            socket.setsockopt(zmq.CURVE_SERVERKEY, self.pinned.curve_public)

    # A listener

    def admit(self, mechanism: bytes, credentials: bytes, address: str) -> tuple[bytes, Refusal | None]:
        """The key that a connector has proved, as text, if it is trusted; else empty, with the refusal."""
        key = z85.encode(credentials).decode() if mechanism == CURVE and len(credentials) == 32 else ""
        self.watched.refresh(at_once=key not in self.watched.by_curve)  # it may have been trusted just now
        if key in self.watched.by_curve:
            return key.encode(), None
        return b"", self._refusal(key, address)

    def _refusal(self, key: str, address: str) -> Refusal:
        identity = self.watched.identity
        for peer in identity.revoked:
            if peer.curve_public.decode() == key:
                return Refusal(peer.name, address, "revoked")
        for peer in identity.trusted:
            if peer.curve_public.decode() == key:
                return Refusal(peer.name, address, self.watched.why_not(peer.name))
        return Refusal(certificates.fingerprint(z85.decode(key)) if key else "", address, "unknown")

    def receive(self, sub: "zmq.Socket[bytes]") -> Received:
        """The next message of a listener's socket, which needs no waiting for.  Raises zmq.Again.

        What is not of two parts is returned empty: its parts must not be taken for those of another peer's message.
        """
        first = sub.recv(NOBLOCK, copy=False)
        topic, key = first.bytes, str(first.get("User-Id"))
        sender = self.watched.by_curve.get(key)
        if not first.more:
            return Received(b"", b"", sender, key, NO_DESCRIPTOR)
        last = sub.recv(NOBLOCK, copy=False)
        if last.more:
            while last.more:
                last = sub.recv(NOBLOCK, copy=False)
            return Received(b"", b"", sender, key, NO_DESCRIPTOR)
        frame = last.bytes if len(last) < VIEW_OCTETS else last.buffer
        fd = int(first.get("__fd")) if topic == HELLO_TOPIC else NO_DESCRIPTOR
        return Received(topic, frame, sender, key, fd)

    @property
    def has_new_secret(self) -> bool:
        """Whether this side's keys have been rotated, and the sockets have the old one."""
        return self._own.curve_secret != self.watched.identity.curve_secret

    def rebind(self, bound: list[tuple["zmq.Socket[bytes]", str]]) -> None:
        """Have the sockets of a listener use this side's new key, if it has one; to be called again and again.

        Their connections end, and the peers come back.
        """
        if self.has_new_secret:
            self._own = self.watched.identity
            for made, address in bound:
                if (made, address) not in self._unbound:
                    made.unbind(address)
                self.set_up(made)
            self._unbound, self._unbound_since = list(bound), time.monotonic()
        while self._unbound:
            made, address = self._unbound[0]
            try:
                made.bind(address)
            except zmq.ZMQError as error:  # libzmq releases the port in its own time
                if time.monotonic() - self._unbound_since > UNBOUND_S:
                    self._unbound_since = math.inf  # said once
                    logger.error("zeromq cannot listen on %s again after a rotation of keys: %s", address, error)
                return
            self._unbound.pop(0)

    # A connector

    @property
    def trusts_none(self) -> str:
        """What a connector without any trusted key says to a person."""
        return identity_advice.none_trusted(self.watched.identity.folder)

    def prepare(self) -> bool:
        """Use this side's keys as they are now, and pin one if none is; returns whether one is."""
        self._own = self.watched.identity
        return self.pinned is not None or self.pin_next()

    def pin_next(self) -> bool:
        """Pin the key of the next peer that is trusted; returns whether there is one."""
        valid = list(reversed(self.watched.valid))
        left = [peer for peer in valid if peer not in self._tried]
        if left:
            self._tried.append(left[0])
        elif self.pinned in valid:  # another round
            at = valid.index(self.pinned) + 1
            left = valid[at:] + valid[:at]
        else:
            left = valid
        self.pinned = left[0] if left else None
        return self.pinned is not None

    def keep_pinned(self) -> None:
        """The key that is pinned is the listener's: begin with it next time."""
        self._tried = [self.pinned] if self.pinned is not None else []

    @property
    def all_tried(self) -> bool:
        """Whether no trusted key is left that a connector has not pinned since its last success."""
        return all(peer in self._tried for peer in self.watched.valid)

    @property
    def listener(self) -> AuthenticatedPeer | None:
        """The peer with the pinned key, while it is trusted."""
        return self.watched.by_curve.get(self.pinned.curve_public.decode()) if self.pinned else None

    @property
    def is_stale(self) -> bool:
        """Whether a connector uses a key that does not count any more, or has none where there is one."""
        if self.pinned is None:
            return bool(self.watched.valid)
        return self.listener is None or self.has_new_secret
