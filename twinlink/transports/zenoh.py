"""Zenoh with static endpoints, no scouting, no gossip: between peers, or as a client of routers.

In mode ``peer`` the connectors connect to the listener.  In mode ``client`` every node connects to one of the routers
it was given, and the namespace says which nodes belong together.

A frame is the payload of a put on the key expression ``traffic/<flow>`` or ``ack/<flow>``, with an identity below the
sender's name.  Acks and hellos have a priority of their own above the data.
"""

import contextlib
import dataclasses
import functools
import logging
import math
import os
import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, cast

import zenoh

from ..errors import ConfigurationError, TransportError
from ..process.guarded_thread import GuardedThread
from ..process.malloc import trim
from ..protocol.frames import HEADER_OCTETS, MessageFrame, SplitFrame
from .base import Endpoint, Frame, Transport, check_descriptors
from .zenoh_absent import AbsentSession, AbsentSubscriber, close_session
from .zenoh_config import TLS_OPEN_MS, TLS_RETRY_MS, ZenohOptions, check, configuration
from .zenoh_connections import ZenohConnections, clear_linger, connection_changes, count_connections
from .zenoh_errors import FORKED, NO_ROUTER, no_peer_at_router, not_opened, not_shared, reason, shared_memory_lack
from .zenoh_handshakes import ZenohHandshakes
from .zenoh_inbox import SEAL, SEAL_OCTETS, SEALED_OCTETS, TICK_S, ZenohInbox
from .zenoh_locators import Locators
from .zenoh_publishers import ZenohPublishers
from .zenoh_refusals import ZenohRefusals

if TYPE_CHECKING:
    from .zenoh_identity import Side, ZenohIdentity

# One thread to read and one to write: a round trip takes a tenth less than with Zenoh's default on two cores.  More
# threads connect and accept, because they may block (see LINGER).  ZENOH_RUNTIME in the environment has precedence.
RUNTIME = "(net: (worker_threads: 4), acc: (worker_threads: 2), rx: (worker_threads: 1), tx: (worker_threads: 1))"
# The backlog of a stall takes tens of MiB, and glibc's arenas keep their peak.  Memory is returned when traffic is
# interrupted anyway: this long after a connection came or went.
CALM_S = 2.0
FIFO_MESSAGES = 1_000_000  # more than seven full flows hold; a full one would block Zenoh's network thread
DESCRIPTORS = 16  # of files and sockets, with one peer
THREADS = 12  # with one peer
THREADS_THAT_STAY = 7  # of them, when a session ends
CLOSE_S = 0.25  # session.close() may hang on a lossy link; past this it goes on in a daemon thread
RELEASE_S = 1.0  # for the session before to release its port

logger = logging.getLogger("twinlink")


class ZenohTransport(Transport):
    """eclipse-zenoh >= 1.9."""

    options_class = ZenohOptions
    options: ZenohOptions
    takes_identity = True
    _authentication: "ZenohIdentity | None" = None  # until it opens: `config` also serves a bare session
    _process: ClassVar[int | None] = None  # that first used Zenoh: a fork of it could not connect
    _patience = 1  # see renew
    added_octets = SEAL_OCTETS
    takes_split = True
    # The content of its data queue while a batch of 48 or 64 KiB is being written.  A message that waits in it for
    # ``block_before_close_ms`` ends the connection, although data flow.
    direct_octets = 15 * 48 * 1024
    whole_octets = 17 * 64 * 1024
    hellos_overtake = True

    def __init__(self, endpoint: Endpoint, listening: bool, max_frame: int, options: ZenohOptions) -> None:
        super().__init__(endpoint, listening, max_frame, options)
        check(options, listening)
        self._client = options.mode == "client"
        self.scouts = not self._client  # a router that answers proves nothing about a peer

    def alternatives(self, endpoints: Sequence[Endpoint]) -> None:
        if not self._client:
            raise ConfigurationError(
                "zenoh connects to one listener; to give several routers, add the options mode=client and namespace"
            )
        self.endpoints = (self.endpoint, *endpoints)

    @property
    def threads(self) -> int:
        return THREADS if ZenohTransport._process is None else THREADS - THREADS_THAT_STAY

    def open(self) -> None:
        ZenohTransport._process = ZenohTransport._process or os.getpid()
        if ZenohTransport._process != os.getpid():
            raise TransportError(FORKED)
        check_descriptors(DESCRIPTORS)
        self._authentication = self._authenticated()
        self._handshakes = ZenohHandshakes(self.endpoints, self.identity, self._client, self.refusals)
        self._prefix = self._authentication.prefix if self._authentication is not None else ""
        self._refusals = ZenohRefusals(self.identity, self.refusals) if self.identity and self.listening else None
        self._publishers = ZenohPublishers(self._prefix)
        self._inbox = ZenohInbox(self._authentication)
        self._tcp = ZenohConnections(self.endpoint, self.options, self.limits_exceeded, self.identity is not None)
        self._joining = threading.Lock()
        self._joined = bytearray()  # a long frame: memory that was just used is quicker than new
        self._closing = threading.Event()
        self._failed_anew = False  # whether a session could not be opened after the identity has changed
        self._session = cast(zenoh.Session, AbsentSession())
        self._attempted_s = 0.0  # to open a session
        self.scouts = self.scouts and self._authentication is None  # otherwise see _keep_identity
        self._left, self._leaving, self._connected = False, threading.Lock(), False
        self.gives_up_ns = (self.options.lease_ms + self.options.block_before_close_ms) * 1_000_000
        os.environ.setdefault("ZENOH_RUNTIME", RUNTIME)
        name, errors = "twinlink-zenoh-tick", self.internal_errors
        self._ticker = GuardedThread(self._tick, name, errors, again=lambda: not self._left)
        try:
            if self._client or self._trusts_none():
                self._be_without_session()  # the ticker connects, since that may take long
            else:
                self._open_session()
        except (zenoh.ZError, OSError) as error:  # OSError: of the resolver
            what = f"{'listen on' if self.listening else 'connect to'} {self.endpoint}"
            raise TransportError(not_opened(what, error)) from error
        try:
            self._ticker.start()
        except BaseException:  # Ctrl-C included
            self.close()
            raise

    def _authenticated(self) -> "ZenohIdentity | None":
        if self.identity is None:
            return None
        if self.options.shared_memory:
            raise ConfigurationError("zenoh with an identity shares no memory, which is not encrypted: leave it out")
        from .zenoh_authority import ZenohAuthority  # these need a package that other links do without
        from .zenoh_identity import ZenohIdentity

        side: Side = "client" if self._client else "listener" if self.listening else "connector"
        kind = ZenohAuthority if self.identity.identity.authority else ZenohIdentity
        return kind(self.identity, side, self.options.namespace)

    def _trusts_none(self) -> bool:
        """Whether this is a connector that trusts no listener, or a client that trusts no router; else it pins one."""
        if self._authentication is None or self.listening:
            return False
        self._authentication.pin()
        return not self._authentication.names

    def tick(self) -> None:
        if not self.listening:
            self._handshakes.check(self._connections_up() > 0)
            self.authentication_problem = self._handshakes.problem
        if (authentication := self._authentication) is not None:
            authentication.watched.refresh()
            if not self.listening:
                authentication.pin(self._handshakes.certificate)
            if self._handshakes.peers is not None and (name := authentication.take_unknown()) is not None:
                self._handshakes.peers.on_unknown(name)
        if not self._client:  # see _keep_router
            self._keep_identity()

    def _keep_identity(self) -> None:
        """In mode peer: have a session with the keys as they are now, and none while the listener would refuse it.

        A failed handshake costs a listener 0.1 s (`zenoh_backlog`).  So connectors find out by few handshakes of their
        own when it accepts them, and do not scout a port that answers.
        """
        is_absent, waits = isinstance(self._session, AbsentSession), self._handshakes.is_refused
        is_stale = bool(self._authentication and self._authentication.is_stale) or self._tcp.backlog.is_long
        if not self.listening:
            self.scouts = self._handshakes.unreachable if self._authentication is not None else not waits
        if waits and not is_absent:
            self._close_aside(self._be_without_session())
        elif not waits and (is_stale or (is_absent and not self._trusts_none())):
            self._reidentify()

    def _reidentify(self) -> None:
        """Reopen the session, with the keys of now.  The old one ends first: it holds the port, and untrusted peers."""
        old = self._session
        if self._refusals is not None:
            self._refusals.check(old)
        if not isinstance(self._be_without_session(), AbsentSession):
            closer = self._close_aside(old)
            if closer.ident is not None:
                closer.join(RELEASE_S)
        if self._trusts_none():
            return
        try:
            self._open_session()
        except (zenoh.ZError, OSError) as error:
            if not self._failed_anew:
                what = f"{'listen on' if self.listening else 'connect to'} {self.endpoint} anew"
                logger.error("%s; it tries again", not_opened(what, error))
            self._failed_anew = True
        else:
            self._failed_anew = False

    def _connections_up(self) -> int:
        """How many peers, or in mode client routers, Zenoh is connected to."""
        names = None if self._authentication is None or self.listening else self._authentication.names
        return count_connections(self._session, self._client, names)

    def _has_just_tried(self, within_ms: int) -> bool:
        """Whether a session over TLS was opened within this time."""
        return self._authentication is not None and time.monotonic() - self._attempted_s < within_ms / 1000

    def _open_session(self) -> None:
        self._attempted_s = time.monotonic()
        if self.options.shared_memory and (lack := shared_memory_lack()):
            self._do_without_shared_memory(lack)
        try:
            session = zenoh.open(self.config())
        except zenoh.ZError as error:
            if not self.options.shared_memory or not (lack := shared_memory_lack(error)):
                raise
            self._do_without_shared_memory(lack)
            session = zenoh.open(self.config())
        finally:
            if self._authentication is not None:
                self._authentication.forget_passwords()
        try:
            self._declare(session)
            if self.listening:
                self._tcp.on_opened(self._locators.current())
        except BaseException:  # Ctrl-C included
            close_session(session)
            raise

    def _do_without_shared_memory(self, lack: str) -> None:
        self.options = dataclasses.replace(self.options, shared_memory=False)
        logger.warning("zenoh %s: %s", self.endpoint, not_shared(lack))

    def _declare(self, session: zenoh.Session) -> None:
        connections = session.info.declare_link_events_listener(zenoh.handlers.RingChannel(8), history=True)
        # One subscriber, so that one blocking recv sees everything: traffic/<flow>, ack/<flow> and the wake-up.
        expression = "*/*/*" if self._prefix else "*/*"
        subscriber = session.declare_subscriber(expression, zenoh.handlers.FifoChannel(FIFO_MESSAGES))
        waker = session.declare_publisher(
            f"{self._prefix}wake/{session.zid()}", allowed_destination=zenoh.Locality.SESSION_LOCAL
        )
        # All of them, or none if one fails.
        self._connections = connections
        self._inbox.use(subscriber, waker)
        self._connected = False  # when renew was last called
        self._session = session
        self._publishers.use(session)

    def renew(self, patience: int) -> None:
        # When a connection ends and the next one with the same peer is there at once, Zenoh 1.10 may take the new one's
        # routes away with the old: connected, alive, and nothing gets through.  A session has its own identity.
        if self._client:
            self._patience = patience  # of the next attempt, see _keep_router
            return
        if self.listening or self._has_just_tried(TLS_OPEN_MS):
            return
        connected, self._connected = self._connected, self._connections_up() > 0
        moved = not self._connected and self._locators.move()
        if patience == self._patience and not moved and not (connected and self._connected):
            return
        self._reopen(patience)

    def reached(self, patience: int) -> None:
        if not self._connections_up():  # otherwise its own attempt has just succeeded
            self._locators.move()
            self._reopen(patience)

    def _reopen(self, patience: int) -> None:
        if self._trusts_none() or self._handshakes.is_refused:
            return
        old, before = self._session, self._patience
        self._patience = patience  # the session is opened with it
        try:
            self._open_session()
        except (zenoh.ZError, OSError):
            self._patience = before
            return  # retried soon
        self._close_aside(old)

    def _close_aside(self, old: zenoh.Session) -> GuardedThread:
        """Close a session on a thread of its own, because it may take long."""
        closer = GuardedThread(functools.partial(close_session, old), "twinlink-zenoh-close", self.internal_errors)
        try:
            closer.start()
        except RuntimeError:  # no more threads, or the interpreter ends
            close_session(old)
        return closer

    def _tick(self) -> None:
        """Handle new connections, have the inbox tick, and close the session at the end, which may take long."""
        trim_at = math.inf
        if self._client:
            self._keep_router([])
        elif self.listening:
            self._tcp.check_handshakes(self._session)
        while not self._closing.wait(TICK_S):
            changes = connection_changes(self._connections)
            if changes:
                clear_linger()
                trim_at = min(trim_at, time.monotonic() + CALM_S)
            if self._client:
                self._keep_router(changes)
            elif self.listening:
                if changes:
                    self._publishers.let_drop(self._connections_up() > 1)
                    if self._refusals is not None:
                        self._refusals.check(self._session)
                self.foreign_connections += self._tcp.check(self._inbox.read, self._inbox.take_drained(), bool(changes))
                self._tcp.check_handshakes(self._session)
            if time.monotonic() > trim_at:
                trim_at = math.inf
                trim()
            self._inbox.tick()
        self._leave()

    def _keep_router(self, changes: list[zenoh.SampleKind]) -> None:
        """In mode client: connect to a router that answers, with a new session whenever one ended or keys changed.

        A Zenoh session would reconnect by itself, but may then lack its routes, see renew.
        """
        is_stale = self._authentication is not None and self._authentication.is_stale
        if zenoh.SampleKind.DELETE in changes or (is_stale and not isinstance(self._session, AbsentSession)):
            self._close_aside(self._be_without_session())
        absent = isinstance(self._session, AbsentSession)
        waits = self._has_just_tried(TLS_RETRY_MS) or self._handshakes.is_refused
        if absent and not waits and not self._trusts_none():
            self._locators.move()
            with contextlib.suppress(zenoh.ZError, OSError):  # no router answers: the next tick tries again
                self._open_session()

    def _be_without_session(self) -> zenoh.Session:
        """Go on without a session; returns the former one, which the caller closes."""
        before, absent = self._session, cast(Any, AbsentSubscriber(TICK_S))
        self._connections = absent
        self._inbox.use(absent, absent)
        self._session = cast(zenoh.Session, AbsentSession())
        self._publishers.use(self._session)
        return before

    def joins(self, epoch: int, hears_us: bool) -> bool:
        if self._handshakes.peers is not None:
            self._handshakes.peers.on_hello(self.sender, hears_us)
        return False

    def why_alone(self) -> str | None:
        if not self._client:
            return self._authentication.why_alone if self._authentication is not None else None
        if isinstance(self._session, AbsentSession):
            return NO_ROUTER
        return no_peer_at_router(self.options.namespace, self.identity is not None)

    @functools.cached_property
    def _locators(self) -> Locators:
        return Locators(self.endpoints, self.listening)

    def config(self) -> zenoh.Config:
        """The session's configuration, every choice explicit."""
        security = self._authentication.settings() if self._authentication is not None else {}
        locators = self._locators.current()
        return configuration(self.options, locators, self.listening, self.max_frame, self._patience, security)

    def join(self, header: bytes, payload: bytes | memoryview) -> bytes:
        return b"".join((header, payload, header[SEAL]))  # here, because one more copy of a megabyte takes long

    def send(self, topic: bytes, frame: MessageFrame) -> None:
        sealed, publisher = self._sealed(frame), None
        try:
            publisher = self._publishers.made.get(topic) or self._publishers.declare(topic)
            publisher.put(sealed)
        except zenoh.ZError as error:
            if not self._closing.is_set() and self._publishers.made.get(topic) is publisher:  # otherwise it was renewed
                raise TransportError(f"zenoh could not send on {topic.decode()}: {reason(error)}") from error

    def offer(self, topic: bytes, frame: MessageFrame) -> None:
        sealed = self._sealed(frame)
        with contextlib.suppress(zenoh.ZError):
            self._publishers.offer(topic, sealed)

    def _sealed(self, frame: MessageFrame) -> bytes | zenoh.ZBytes:
        """The frame with its seal, as it is put."""
        if type(frame) is SplitFrame:
            header, octets = frame.header[:HEADER_OCTETS], HEADER_OCTETS + len(frame.payload)
            with self._joining:
                if len(self._joined) != octets + SEAL_OCTETS:
                    self._joined = bytearray(octets + SEAL_OCTETS)
                joined = self._joined
                joined[:HEADER_OCTETS], joined[octets:] = header, header[SEAL]
                memoryview(joined)[HEADER_OCTETS:octets] = frame.payload
                return zenoh.ZBytes(joined)  # Zenoh copies whatever it is given
        if len(frame) != int.from_bytes(frame[4:8]) + SEALED_OCTETS:  # not from join
            frame += frame[SEAL]
        return frame

    def prefer(self, topic: bytes) -> None:
        self._publishers.prefer(topic)

    def receive(self, timeout_s: float) -> tuple[bytes, Frame] | None:
        if (received := self._inbox.receive(timeout_s)) is None:
            return None
        topic, frame, self.sender = received
        return topic, frame

    def close(self) -> None:
        self._closing.set()
        if self._ticker.ident is None:  # it could not be started
            self._leave()
        else:
            self._ticker.join(CLOSE_S)

    def _leave(self) -> None:
        with self._leaving:
            left, self._left = self._left, True
        if left:  # after Ctrl-C during the start of the ticker, the opening thread closed it
            return
        self._publishers.drop_all()
        self._inbox.leave()
        close_session(self._session)
