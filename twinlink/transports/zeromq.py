"""ZeroMQ PUB/SUB: one socket pair for each direction, frames ``[topic, header + payload]``, long ones in two parts.

The listener binds its PUB to the endpoint's port and its SUB to the next one up; the connector connects its SUB and
PUB to them.  A raw SUB socket at the listener's port receives the traffic (docs/protocol.md).
"""

import select
import threading
import time
from collections.abc import Callable
from os import sched_yield
from typing import TYPE_CHECKING, Any

import zmq

from ..process.ip_address import is_address
from ..process.malloc import keep_freed_memory
from ..process.resolver import RepeatedLookup, listen_addresses
from ..protocol.frames import HELLO_TOPIC, MAGIC, AnyFrame, MessageFrame, SplitFrame
from . import zeromq_split
from .base import Frame, Transport, check_descriptors
from .connection_guard import PublisherGuard, SubscriberGuard
from .tcp_connection import tcp_counters_available
from .zeromq_guard import ZeromqGuard
from .zeromq_handshakes import NEXT_KEY_S, ConnectorHandshakes
from .zeromq_joining import JOINING, Joining
from .zeromq_options import ZeromqOptions
from .zeromq_socket import address, make_socket, not_opened
from .zeromq_split import REFERENCE_OCTETS, SPLIT, TRAFFIC, TrafficReaders

if TYPE_CHECKING:
    from .zeromq_curve import ZeromqCurve

__all__ = ["ZeromqOptions", "ZeromqTransport"]

ACK_INITIAL = ord("a")
# Integers, because access to members of an enumeration is slow.
SNDMORE, NOBLOCK, EVENTS, POLLIN = int(zmq.SNDMORE), int(zmq.NOBLOCK), int(zmq.EVENTS), int(zmq.POLLIN)
RCVMORE = int(zmq.RCVMORE)
# A subscriber to the topic of hellos is a node of ours.  A connector subscribes to the rest of the traffic after the
# listener's hello: before, it does not acknowledge, and nothing would limit the rate of what it is sent.  Until then it
# also subscribes to JOINING and its epoch, which tells the listener.
TOPICS = (HELLO_TOPIC, b"ack/")
VIEW_OCTETS = 64 * 1024  # below, a copy is quicker than a view; predicted by the frame before
HANDSHAKE_MS = 1000  # times the patience; otherwise 30 s for a silent connection, such as a tunnel's
ATTEMPT_MS = 1000  # one round trip: over a longer one a peer would be declared down
ANEW = 3  # times the handshake's time-out: after so long without a peer, no pending attempt can succeed
DESCRIPTORS = 18  # of files and sockets, with one peer, and two for each of libzmq's threads
FAREWELL_MS = 100  # to send queued frames at close
SUBSCRIPTIONS = 16  # pending, of one connection
SUBSCRIPTION_OCTETS = 1024  # of the longest
LOOK_SUBSCRIPTIONS = 1024  # read per call, so that a flood of them blocks nothing else
BACKLOG = 1024  # TCP connections that wait to be accepted
SHORT_PART = 255  # octets; ZMTP frames a longer part by 9 octets instead of 2
JOIN_S = 0.002  # delay of a peer's subscription after the hello that answers ours, unless TCP lost it
RESOLVE_S = 0.2  # time-out of the resolver for the name of the listener, after which `open` goes on
HELD_LOOK_S = 0.001


class ZeromqTransport(Transport):
    """pyzmq >= 26."""

    options_class = ZeromqOptions
    options: ZeromqOptions
    takes_identity = True
    ports = 2
    scouts = True
    takes_split = True

    @property
    def threads(self) -> int:
        return 2 + self.options.io_threads + zeromq_split.threads()

    def open(self) -> None:
        check_descriptors(DESCRIPTORS + 2 * self.options.io_threads)
        keep_freed_memory()  # not over Zenoh, where it gains nothing
        self._context = zmq.Context(io_threads=self.options.io_threads)
        self._closed = False
        self._copies = True  # whether the next frame is copied; otherwise it is a view of libzmq's memory
        self._patience = 1
        self._limit_ms = self.options.connect_timeout_ms
        self._connected_to = self._host = ""
        self._tries_since = 0.0  # when it connected last, or lost its last peer
        self._lookup: RepeatedLookup | None = None  # None for an address, which needs no resolver
        self._nodes_listening = 0  # subscriptions to the topic of hellos
        self._readers = TrafficReaders()
        self._joining = Joining()
        self._joining_topics = self._joining.topics
        self._sent_octets = self._sent_messages = 0
        self._read_octets = self._read_messages = 0
        self._drained = False  # whether everything was read since the guard looked
        self._joins_as = b"" if self.listening or self.epoch is None else b"%s%016x" % (JOINING, self.epoch)
        self._greeted = True
        self._curve = self._authenticated()
        self._handshakes = None if self.listening else ConnectorHandshakes(self.endpoint.port, self._curve)
        self._bound: list[tuple[zmq.Socket[bytes], str]] = []
        self._guard: ZeromqGuard | None = None
        self._topic = b""  # a topic that was received in place of a frame
        self._urgent: list[None] = []  # one item for each ack or hello that waits for the socket
        self._send_lock = threading.Lock()  # a socket belongs to one thread at a time
        try:
            self._pub = self._socket(zmq.XPUB)  # a PUB that receives subscriptions
            self._pub.setsockopt(zmq.RCVHWM, SUBSCRIPTIONS)
            self._pub.setsockopt(zmq.MAXMSGSIZE, SUBSCRIPTION_OCTETS)
            self._pub.setsockopt(zmq.XPUB_VERBOSER, 1)  # each subscription, also to a topic that others have
            self._sub = self._socket(zmq.SUB)
            for topic in TOPICS:
                self._sub.setsockopt(zmq.SUBSCRIBE, topic)
            self._subscribe_to_traffic()
            self.parted()
            # After each signal pyzmq's recv and poll restart their time-out: with one every 50 ms they never return.
            self._poll = select.poll()
            self._poll.register(self._sub.fileno(), select.POLLIN)
            # Bypasses pyzmq's Python layer, which checks for types that our frames never have: half the cost of a send.
            self._recv = self._sub.recv
            self._send: Callable[..., object] = super(zmq.Socket, self._pub).send
            self._get: Callable[[int], Any] = super(zmq.Socket, self._sub).get
            self._guard = self._guarded() if tcp_counters_available() else None
            if self.listening:
                self._bind()
            elif is_address(self.endpoint.host):
                self._connect(self.endpoint.host)
            else:
                self._lookup = RepeatedLookup(self.endpoint.host, self.endpoint.port)
                self._move(RESOLVE_S)
            if self._guard is not None:
                self._guard.start()
        except BaseException as error:  # Ctrl-C as well
            if self._guard is not None:
                self._guard.stop()
            self._context.destroy(linger=0)  # with an open socket, ending the context blocks for ever
            if not isinstance(error, zmq.ZMQError | OSError):
                raise
            raise not_opened(self.endpoint, self.listening, error) from error

    def _authenticated(self) -> "ZeromqCurve | None":
        if self.identity is None:
            return None
        from .zeromq_curve import ZeromqCurve  # needs a package that other links do without

        return ZeromqCurve(self.identity, self.listening)

    def _bind(self) -> None:
        for host in listen_addresses(self.endpoint.host):  # bind takes addresses, not names of hosts
            for made, port in ((self._pub, self.endpoint.port), (self._sub, self.endpoint.port + 1)):
                made.setsockopt(zmq.BACKLOG, BACKLOG)
                made.setsockopt(zmq.HANDSHAKE_IVL, self.options.handshake_ms)
                made.setsockopt(zmq.IPV6, int(":" in host))
                made.bind(address(host, port))
                self._bound.append((made, address(host, port)))

    def _guarded(self) -> ZeromqGuard:
        options = self.options
        where = f"zeromq {self.endpoint}"
        limits = where, options.connections, options.handshakes, self.limits_exceeded, self.listening

        def read() -> tuple[tuple[int, int], bool]:
            drained, self._drained = self._drained, False
            return (self._read_octets, self._read_messages), drained

        def on_foreign() -> None:
            self.foreign_connections += 1

        return ZeromqGuard(
            self._pub,
            self._sub,
            SubscriberGuard(
                *limits, subscription_octets=options.subscription_octets, unsent_octets=options.unsent_octets
            ),
            PublisherGuard(*limits, unread_octets=options.unread_octets),
            sent=lambda: (self._sent_octets, self._sent_messages),
            read=read,
            on_foreign=on_foreign,
            refusals=self.refusals,
            errors=self.internal_errors,
            connector=self._handshakes,
            curve=self._curve,
        )

    def _socket(self, kind: int) -> "zmq.Socket[bytes]":
        made = make_socket(self._context, kind, self.options, self.listening, self.max_frame)
        if self._curve is not None:
            self._curve.set_up(made)
        return made

    def _connect(self, host: str) -> None:
        """Connect both sockets to the same address: each would resolve the name itself, perhaps differently."""
        self._tries_since = time.monotonic()
        if self._handshakes is not None:
            self._host, self._handshakes.host = host, host.strip("[]")
            self._handshakes.concluded = False
        trusts = self._curve is None or self._curve.prepare()
        with self._send_lock:
            for made, port in ((self._sub, self.endpoint.port), (self._pub, self.endpoint.port + 1)):
                if self._connected_to:
                    made.disconnect(address(self._connected_to, port))
                if not trusts:  # no key to expect: nothing is connected
                    continue
                if self._curve is not None:
                    self._curve.set_up(made)
                made.setsockopt(zmq.IPV6, int(":" in host))
                made.setsockopt(zmq.CONNECT_TIMEOUT, self._limit_ms)
                made.setsockopt(zmq.HANDSHAKE_IVL, HANDSHAKE_MS * self._patience)
                made.connect(address(host, port))
            self._connected_to = host if trusts else ""
        self.sender = self._curve.listener if self._curve is not None else None

    def _move(self, within_s: float = 0.0) -> None:
        """Connect to the host's new address, if the resolver has returned another one."""
        if self._lookup is not None and (host := self._lookup.poll(within_s)):
            self._connect(host)

    def send(self, topic: bytes, frame: MessageFrame) -> None:
        # Locks are not fair: threads that send continuously would delay acks by seconds.
        if topic[0] == ACK_INITIAL or topic == HELLO_TOPIC:
            try:
                self._urgent.append(None)
                self._send_now(topic, frame)
                if topic == HELLO_TOPIC:
                    self._read_subscriptions()
            finally:
                self._urgent.pop()
        else:
            while self._urgent or (self._joining.held_until and self._joining.is_held()):
                time.sleep(0 if self._urgent else HELD_LOOK_S)
            self._send_now(topic, frame)

    def _send_now(self, topic: bytes, frame: MessageFrame) -> None:
        with self._send_lock:
            if not self._closed:
                part: Frame | SplitFrame = frame
                copies = True
                if type(frame) is SplitFrame:
                    self._look()
                    if self._readers.split:
                        topic, part = zeromq_split.first_part(topic, frame), frame.payload
                        copies = len(part) < REFERENCE_OCTETS
                    else:
                        part = bytes(frame)
                self._send(topic, SNDMORE)
                try:
                    self._send(part, 0, copies)
                except BaseException:
                    self._send(b"")  # after Ctrl-C: end the message, or the next frame would become a part of it
                    raise
                octets = len(part)
                self._sent_octets += octets + len(topic) + (11 if octets > SHORT_PART else 4)
                self._sent_messages += 1
                if self._joining_topics:
                    self._look()

    def offer(self, topic: bytes, frame: MessageFrame) -> None:
        # A node that has just connected will say hello.  Data sent now would be ahead of our hello, and without a peer
        # that acknowledges there is no limit to them.
        self._read_subscriptions()
        if not self._nodes_listening:
            self.send(topic, frame)

    def _read_subscriptions(self) -> None:
        with self._send_lock:
            if not self._closed:
                self._look()

    def _look(self) -> None:
        """Read new subscriptions, and those that no subscriber has any more."""
        for _ in range(LOOK_SUBSCRIPTIONS):
            if not int(self._pub.get(zmq.EVENTS)) & zmq.POLLIN:
                return
            told = self._pub.recv(copy=False)
            begins, topic = told.bytes[:1] == b"\1", told.bytes[1:]
            if (fd := zeromq_split.descriptor(told)) is not None:
                self._readers.changed(fd, topic, begins)
                if begins and self._guard is not None:
                    self._guard.subscribed(fd, len(topic))
                    if self._curve is not None and self.listening:
                        self._guard.proved(True, fd, str(told.get("User-Id")))
            if topic == HELLO_TOPIC:
                self._nodes_listening = max(0, self._nodes_listening + (1 if begins else -1))
            elif begins and topic.startswith(JOINING):
                self._joining_topics.add(topic)
            elif topic in self._joining_topics:
                self._joining.ended(topic)

    def joins(self, epoch: int, hears_us: bool) -> bool:
        topic = b"%s%016x" % (JOINING, epoch)
        self._read_subscriptions()
        if topic in self._joining_topics and hears_us:
            time.sleep(JOIN_S)
            self._read_subscriptions()
        self._joining.held_until = 0.0
        return self._joining.goes_on(topic, hears_us)

    def greeted(self) -> None:
        if not self._greeted:
            self._greeted = True
            self._subscribe_to_traffic()
            self._sub.setsockopt(zmq.UNSUBSCRIBE, self._joins_as)

    def parted(self) -> None:
        if self._greeted and self._joins_as:
            self._greeted = False
            self._tries_since = time.monotonic()
            self._sub.setsockopt(zmq.SUBSCRIBE, self._joins_as)
            self._sub.setsockopt(zmq.UNSUBSCRIBE, TRAFFIC)
            self._sub.setsockopt(zmq.UNSUBSCRIBE, SPLIT)
        self._move()

    def _subscribe_to_traffic(self) -> None:
        self._sub.setsockopt(zmq.SUBSCRIBE, SPLIT)  # first: a reader of traffic alone gets whole frames
        self._sub.setsockopt(zmq.SUBSCRIBE, TRAFFIC)

    def receive(self, timeout_s: float) -> tuple[bytes, AnyFrame] | None:
        if self._curve is not None and self.listening:
            return self._receive_authenticated(self._curve, timeout_s)
        recv = self._recv
        topic, self._topic = self._topic, b""
        if not topic:
            try:
                if timeout_s > 0 and not self._get(EVENTS) & POLLIN:
                    self._drained = True
                    if self._curve is not None:
                        timeout_s = self._try_keys(self._curve, timeout_s)
                    if not self._poll.poll(timeout_s * 1000):
                        return None
                topic = recv(NOBLOCK)
            except zmq.Again:
                self._drained = True
                return None
        if topic[:6] == SPLIT:
            return self._receive_split(topic)
        # Whether a part is the last of its message is not queried, which would take twice as long as to receive it.
        # A foreign message of one or many parts is recognised by how its parts begin.
        try:
            frame: Frame = recv(NOBLOCK) if self._copies else recv(NOBLOCK, copy=False).buffer
        except zmq.Again:  # parts of one message arrive together
            return b"", b""
        octets = len(frame)
        self._read_octets += octets + len(topic) + (11 if octets > SHORT_PART else 4)
        self._read_messages += 1
        self._copies = octets < VIEW_OCTETS
        if frame[:2] != MAGIC and bytes(frame[:8]).startswith((b"ack/", TRAFFIC)):
            self._topic = bytes(frame)
            return b"", b""
        return topic, frame

    def _receive_split(self, first: bytes) -> tuple[bytes, AnyFrame]:
        """The rest of a message in two parts.  What its payload is says nothing, so its end is queried."""
        if not self._get(RCVMORE):
            return b"", b""
        last = self._recv(NOBLOCK, copy=False)
        self._on_read(first, len(last))
        if last.more:
            while last.more:
                last = self._recv(NOBLOCK, copy=False)
            return b"", b""
        return zeromq_split.received(first, last.buffer)

    def _on_read(self, topic: bytes, octets: int) -> None:
        self._read_octets += octets + len(topic) + (11 if octets > SHORT_PART else 4)
        self._read_messages += 1

    def poll(self, until_mono_ns: int) -> tuple[bytes, AnyFrame] | None:
        get = self._get
        while not get(EVENTS) & POLLIN:  # which takes 1.2 us; to receive nothing takes 3
            if time.monotonic_ns() >= until_mono_ns:
                self._drained = True
                return None
            sched_yield()
        return self.receive(0)

    def _receive_authenticated(self, curve: "ZeromqCurve", timeout_s: float) -> tuple[bytes, AnyFrame] | None:
        try:
            if timeout_s > 0 and not self._get(EVENTS) & POLLIN:
                self._drained = True
                if not self._poll.poll(timeout_s * 1000):
                    return None
            received = curve.receive(self._sub)
        except zmq.Again:
            self._drained = True
            return None
        self.sender = received.sender
        self._on_read(received.topic, len(received.frame))
        if received.topic[:6] == SPLIT:
            return zeromq_split.received(received.topic, memoryview(received.frame))
        if received.topic == HELLO_TOPIC and self._guard is not None:
            self._guard.proved(False, received.fd, received.key)
        return received.topic, received.frame

    def _try_keys(self, curve: "ZeromqCurve", timeout_s: float) -> float:
        """A connector tries another key for the listener if it is time; returns how long to wait at most, in s."""
        if self._handshakes is None or not self._handshakes.failing or curve.all_tried:
            return timeout_s
        self._tick_connector(curve, self._handshakes)
        return min(timeout_s, NEXT_KEY_S)

    def tick(self) -> None:
        curve, handshakes = self._curve, self._handshakes
        if curve is not None:
            curve.watched.refresh()
        if handshakes is not None:
            self.authentication_problem = handshakes.problem
            if curve is not None:
                self._tick_connector(curve, handshakes)
        elif curve is not None:
            with self._send_lock:
                curve.rebind(self._bound)

    def _tick_connector(self, curve: "ZeromqCurve", handshakes: ConnectorHandshakes) -> None:
        self.authentication_problem = handshakes.problem if curve.watched.valid else curve.trusts_none
        retry = handshakes.calls_for_retry(time.monotonic() - self._tries_since)
        if self._host and (retry or curve.is_stale):
            if curve.listener is None or (retry and not handshakes.key_fits):
                curve.pin_next()
            self._connect(self._host)
        elif not handshakes.failing:
            curve.keep_pinned()
        self.sender = curve.listener

    def renew(self, patience: int) -> None:
        if self.listening:
            return
        # If another protocol answers, libzmq stops its attempts silently.
        anew = time.monotonic() - self._tries_since > ANEW * HANDSHAKE_MS / 1000 * patience
        if anew or patience != self._patience:
            self.reached(patience)
        if self._lookup is not None:
            self._lookup.next_address()
            self._move()

    def reached(self, patience: int) -> None:
        self._patience = patience
        least_ms = self.options.connect_timeout_ms
        self._limit_ms = max(least_ms, min(least_ms * (2 * patience - 1), ATTEMPT_MS))
        if self._connected_to:
            self._connect(self._connected_to)

    def close(self) -> None:
        with self._send_lock:
            self._closed = True
            if self._guard is not None:
                self._guard.stop()
            self._pub.close(FAREWELL_MS)
        self._sub.close()
        self._context.term()
