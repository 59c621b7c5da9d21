"""Guards the connections of a pair of ZeroMQ sockets, on a thread of its own."""

import contextlib
import math
import struct
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

import zmq

from ..process.guarded_thread import GuardedThread
from ..process.internal_errors import InternalErrors
from .connection_guard import LEAST_CHECK_S, ConnectionGuard, PublisherGuard, SubscriberGuard
from .refusals import Refusal, Refusals
from .zeromq_handshakes import FAILED, SUCCEEDED, ConnectorHandshakes, Handshakes

if TYPE_CHECKING:
    from .zeromq_curve import ZeromqCurve

EVENT = struct.Struct("=hi")  # its kind, and the descriptor of the connection
BEGINS = {int(zmq.EVENT_ACCEPTED), int(zmq.EVENT_CONNECTED)}
EVENTS = int(zmq.EVENT_ACCEPTED | zmq.EVENT_CONNECTED | zmq.EVENT_DISCONNECTED | zmq.EVENT_MONITOR_STOPPED)
EVENTS |= SUCCEEDED | sum(FAILED)
OTHER_KEY_S = 1.5  # a connector that expects another key of this side may be trying each key that it trusts
LEAST_IDLE = 10  # a check takes at most this part of the time
ADMISSION = "inproc://zeromq.zap.01"  # RFC 27/ZAP
TRY_AGAIN = b"300"  # the peer is disconnected without a word
PUB_DOMAIN, SUB_DOMAIN = b"twinlink-pub", b"twinlink-sub"


class ZeromqGuard:
    """Watches the connections of ``pub`` and ``sub`` from the monitors of libzmq.

    Args:
        pub: an XPUB socket, and ``sub``: a SUB socket, neither bound nor connected yet.
        subscribers: guards the connections of ``pub``.
        publishers: guards the connections of ``sub``.
        sent: octets and messages that ``pub`` has sent.
        read: octets and messages received from ``sub``, and whether it was found empty since the last call.
        on_foreign: called on the guard's thread when a connection to a listener spoke another protocol.
        refusals: takes the connections to a listener that were refused.
        errors: takes what is raised on the guard's thread.
        connector: finds out why the handshakes of a connector fail.  None: of a listener; its guard decides which
            connections complete their handshake, and `ZAP_DOMAIN` names their socket.
        curve: which keys are trusted; None: no side has a key.
    """

    def __init__(
        self,
        pub: "zmq.Socket[bytes]",
        sub: "zmq.Socket[bytes]",
        subscribers: SubscriberGuard,
        publishers: PublisherGuard,
        sent: Callable[[], tuple[int, int]],
        read: Callable[[], tuple[tuple[int, int], bool]],
        on_foreign: Callable[[], None],
        refusals: Refusals,
        errors: InternalErrors,
        connector: ConnectorHandshakes | None,
        curve: "ZeromqCurve | None",
    ) -> None:
        self._subscribers, self._publishers = subscribers, publishers
        self._sent, self._read = sent, read
        self._on_foreign = on_foreign
        self._refusals, self._connector, self._curve = refusals, connector, curve
        self._keys: dict[tuple[bool, int], str] = {}  # that connections have proved: whether of ``pub``, and descriptor
        self._proved: deque[tuple[bool, int, str]] = deque()
        self._expect_other_key: dict[str, tuple[float, Refusal]] = {}  # by host: since when, monotonic
        self._trust_version = 0
        self._handshakes: dict[zmq.Socket[bytes], Handshakes] = {}
        self._subscribed: deque[tuple[int, int]] = deque()
        self._poller = zmq.Poller()
        self._monitors: dict[zmq.Socket[bytes], ConnectionGuard] = {}
        self._watched = (pub, sub)
        context = pub.context
        for watched, guard in ((pub, subscribers), (sub, publishers)):
            address = f"inproc://twinlink-{id(watched)}"
            watched.monitor(address, EVENTS)
            monitor = context.socket(zmq.PAIR)
            monitor.setsockopt(zmq.RCVHWM, 0)  # a full one would block libzmq's thread
            monitor.connect(address)
            self._poller.register(monitor, zmq.POLLIN)
            self._monitors[monitor] = guard
            self._handshakes[monitor] = Handshakes()
        self._admission: zmq.Socket[bytes] | None = None
        if connector is None:
            self._admission = context.socket(zmq.REP)
            self._admission.bind(ADMISSION)
            self._poller.register(self._admission, zmq.POLLIN)
        self._running = len(self._monitors)
        self._thread = GuardedThread(self._run, "twinlink-zeromq-guard", errors, again=lambda: self._running > 0)

    def start(self) -> None:
        """Start the thread.  Raises RuntimeError if the process can start no more."""
        try:
            self._thread.start()
        except BaseException:  # Ctrl-C included
            self.stop()
            raise

    def subscribed(self, fd: int, octets: int) -> None:
        """A connection of ``pub`` has subscribed to a topic of so many octets; from any thread."""
        self._subscribed.append((fd, octets))

    def proved(self, of_pub: bool, fd: int, key: str) -> None:
        """A connection of ``pub``, or else of ``sub``, has proved that it has this key; from any thread."""
        self._proved.append((of_pub, fd, key))

    def stop(self) -> None:
        """End the thread, before the sockets are closed and while no other thread uses them."""
        for watched in self._watched:  # first: an event without a reader would block libzmq's thread
            watched.disable_monitor()
        if self._thread.ident is not None:
            self._thread.join()
        for monitor in self._monitors:
            monitor.close(0)
        if self._admission is not None:
            self._admission.close(0)

    def _run(self) -> None:
        delay = 0.0
        while self._running:
            for ready, _ in self._poller.poll(math.ceil(max(LEAST_CHECK_S, delay) * 1000)):
                if ready in self._monitors:
                    self._take_events(ready)
                else:
                    self._admit(ready)
            began = time.monotonic()
            with contextlib.suppress(IndexError):
                while True:
                    self._subscribers.subscribed(*self._subscribed.popleft(), began)
            if self._curve is not None:
                self._end_untrusted(self._curve)
            if self._connector is not None:
                self._connector.check(began)
            self._report_other_keys(began)
            delay = self._subscribers.check(began, self._sent())
            delay = min(delay, self._publishers.check(began, *self._read()))
            delay = max(delay, LEAST_IDLE * (time.monotonic() - began))

    def _take_events(self, monitor: "zmq.Socket[bytes]") -> None:
        """Take in what has happened to the connections, and the end of the monitor."""
        guard, handshakes, now = self._monitors[monitor], self._handshakes[monitor], time.monotonic()
        with contextlib.suppress(zmq.Again):
            while True:
                kind, value = EVENT.unpack(monitor.recv_multipart(zmq.NOBLOCK)[0])
                if kind == zmq.EVENT_MONITOR_STOPPED:
                    self._poller.unregister(monitor)
                    self._running -= 1
                    return
                if self._connector is not None:
                    self._connector.on_event(kind, value, now)
                if handshakes.take(kind, value):
                    self._on_foreign()
                if kind in BEGINS:
                    guard.opened(value, now)
                elif kind == zmq.EVENT_DISCONNECTED:
                    self._on_end(guard, value, handshakes.reason)

    def _on_end(self, guard: ConnectionGuard, fd: int, reason: str) -> None:
        connection = guard.connection(fd)
        if reason and connection is not None and self._connector is None:
            refusal = Refusal("", connection.address, reason)
            if reason == "key":
                self._expect_other_key.setdefault(connection.peer[0], (time.monotonic(), refusal))
            else:
                self._refusals.add(refusal)
        self._keys.pop((guard is self._subscribers, fd), None)
        guard.closed(fd)

    def _report_other_keys(self, now: float) -> None:
        """Report hosts with connectors that expect another key of this side, and have not tried the right one."""
        for host, (since, refusal) in list(self._expect_other_key.items()):
            if now - since > OTHER_KEY_S:
                del self._expect_other_key[host]
                self._refusals.add(refusal)

    def _end_untrusted(self, curve: "ZeromqCurve") -> None:
        """End the connections of a listener with keys that are no longer trusted; the others stay."""
        with contextlib.suppress(IndexError):
            while True:
                of_pub, fd, key = self._proved.popleft()
                self._keys[of_pub, fd] = key
        curve.watched.refresh()
        trusted, version = curve.watched.by_curve, curve.watched.version
        if version == self._trust_version or self._connector is not None:
            return
        self._trust_version = version
        for guard in (self._subscribers, self._publishers):
            for fd in guard.descriptors():
                connection = guard.connection(fd)
                if connection is not None and self._keys.get((guard is self._subscribers, fd)) not in trusted:
                    connection.end()

    def _admit(self, socket: "zmq.Socket[bytes]") -> None:
        """Answer whether a connection may complete its handshake (RFC 27/ZAP)."""
        version, request, domain, host, _, mechanism, *credentials = socket.recv_multipart()
        status, user = TRY_AGAIN, b""
        try:
            status, user = self._decide(domain, host.decode(), mechanism, b"".join(credentials))
        finally:  # without an answer the socket would take no further request
            socket.send_multipart([version, request, status, b"", user, b""])

    def _decide(self, domain: bytes, host: str, mechanism: bytes, credentials: bytes) -> tuple[bytes, bytes]:
        """Status and user id of an answer."""
        guard = self._subscribers if domain == PUB_DOMAIN else self._publishers
        if not guard.admits(host, time.monotonic()):
            return TRY_AGAIN, b""
        if self._curve is None:
            return b"200", b""
        user, refusal = self._curve.admit(mechanism, credentials, host)
        self._expect_other_key.pop(host, None)  # its key of this side is the right one
        if refusal is not None:
            self._refusals.add(refusal)
        return b"200" if refusal is None else b"400", user
