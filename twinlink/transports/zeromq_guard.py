"""Guards the connections of a pair of ZeroMQ sockets, on a thread of its own."""

import contextlib
import math
import struct
import threading
import time
from collections import deque
from collections.abc import Callable

import zmq

from .connection_guard import LEAST_CHECK_S, ConnectionGuard, PublisherGuard, SubscriberGuard

EVENT = struct.Struct("=hi")  # its kind, and the descriptor of the connection
BEGINS = {int(zmq.EVENT_ACCEPTED), int(zmq.EVENT_CONNECTED)}
SUCCEEDED = int(zmq.EVENT_HANDSHAKE_SUCCEEDED)
FAILED = {
    int(zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL),
    int(zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL),
    int(zmq.EVENT_HANDSHAKE_FAILED_AUTH),
}
EVENTS = int(zmq.EVENT_ACCEPTED | zmq.EVENT_CONNECTED | zmq.EVENT_DISCONNECTED | zmq.EVENT_MONITOR_STOPPED)
EVENTS |= SUCCEEDED | sum(FAILED)
LEAST_IDLE = 10  # a check takes at most this part of the time
ADMISSION = "inproc://zeromq.zap.01"  # RFC 27/ZAP
PUB_DOMAIN, SUB_DOMAIN = b"twinlink-pub", b"twinlink-sub"


class Handshakes:
    """Tells from a monitor's events which accepted connections spoke another protocol.

    libzmq names no connection when a handshake ends.  It reports a failure just before the end of the connection,
    except where the octets are not ZMTP's.
    """

    def __init__(self) -> None:
        self._succeeded = 0
        self._accepted: dict[int, int] = {}  # by descriptor: how many had succeeded then
        self._failed = False  # the last event was a failure

    def take(self, kind: int, fd: int) -> bool:
        """Take in an event; whether a connection has ended that certainly was not ZMTP's."""
        failed, self._failed = self._failed, kind in FAILED
        if kind == SUCCEEDED:
            self._succeeded += 1
        elif kind == zmq.EVENT_ACCEPTED:
            self._accepted[fd] = self._succeeded
        elif kind == zmq.EVENT_DISCONNECTED:
            return self._accepted.pop(fd, None) == self._succeeded and not failed
        return False


class ZeromqGuard:
    """Watches the connections of ``pub`` and ``sub`` from the monitors of libzmq.

    Args:
        pub: an XPUB socket, and ``sub``: a SUB socket, neither bound nor connected yet.
        subscribers: guards the connections of ``pub``.
        publishers: guards the connections of ``sub``.
        sent: octets and messages that ``pub`` has sent.
        read: octets and messages received from ``sub``, and whether it was found empty since the last call.
        on_foreign: called on the guard's thread when a connection to a listener spoke another protocol.
        admits: whether it decides which connections complete their handshake; `ZAP_DOMAIN` names their socket.
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
        admits: bool,
    ) -> None:
        self._subscribers, self._publishers = subscribers, publishers
        self._sent, self._read = sent, read
        self._on_foreign = on_foreign
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
        if admits:
            self._admission = context.socket(zmq.REP)
            self._admission.bind(ADMISSION)
            self._poller.register(self._admission, zmq.POLLIN)
        self._thread = threading.Thread(target=self._run, name="twinlink-zeromq-guard", daemon=True)

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
        delay, running = 0.0, len(self._monitors)
        while running:
            for ready, _ in self._poller.poll(math.ceil(max(LEAST_CHECK_S, delay) * 1000)):
                if ready in self._monitors:
                    running -= self._take_events(ready)
                else:
                    self._admit(ready)
            began = time.monotonic()
            with contextlib.suppress(IndexError):
                while True:
                    self._subscribers.subscribed(*self._subscribed.popleft(), began)
            delay = self._subscribers.check(began, self._sent())
            delay = min(delay, self._publishers.check(began, *self._read()))
            delay = max(delay, LEAST_IDLE * (time.monotonic() - began))

    def _take_events(self, monitor: "zmq.Socket[bytes]") -> bool:
        """Take in what has happened to the connections; returns whether the monitor has ended."""
        guard, handshakes, now = self._monitors[monitor], self._handshakes[monitor], time.monotonic()
        with contextlib.suppress(zmq.Again):
            while True:
                kind, fd = EVENT.unpack(monitor.recv_multipart(zmq.NOBLOCK)[0])
                if kind == zmq.EVENT_MONITOR_STOPPED:
                    self._poller.unregister(monitor)
                    return True
                if handshakes.take(kind, fd):
                    self._on_foreign()
                if kind in BEGINS:
                    guard.opened(fd, now)
                elif kind == zmq.EVENT_DISCONNECTED:
                    guard.closed(fd)
        return False

    def _admit(self, socket: "zmq.Socket[bytes]") -> None:
        """Answer whether a connection may complete its handshake (RFC 27/ZAP)."""
        version, request, domain, host = socket.recv_multipart()[:4]
        guard = self._subscribers if domain == PUB_DOMAIN else self._publishers
        admitted = guard.admits(host.decode(), time.monotonic())
        status = b"200" if admitted else b"300"  # the peer is disconnected without a word, and tries again
        socket.send_multipart([version, request, status, b"", b"", b""])
