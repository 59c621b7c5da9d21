"""ZeroMQ PUB/SUB: one socket pair for each direction, frames ``[topic, header + payload]``.

The listener binds its PUB to the endpoint's port and its SUB to the next one up; the connector connects its SUB and
PUB to them.  A raw SUB socket at the listener's port receives the traffic (docs/protocol.md).
"""

import os
import select
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import zmq

from ..errors import TransportError
from ..process.ip_address import bracketed, is_address
from ..process.malloc import keep_freed_memory
from ..process.resolver import RepeatedLookup, listen_addresses
from ..protocol.frames import HELLO_TOPIC, MAGIC
from .base import Frame, Options, Transport, advice, check_descriptors
from .connection_guard import PublisherGuard, SubscriberGuard
from .tcp_connection import tcp_counters_available
from .zeromq_guard import PUB_DOMAIN, SUB_DOMAIN, ZeromqGuard
from .zeromq_joining import JOINING, Joining

ACK_INITIAL = ord("a")
# Integers, because access to members of an enumeration is slow.
SNDMORE, NOBLOCK, EVENTS, POLLIN = int(zmq.SNDMORE), int(zmq.NOBLOCK), int(zmq.EVENTS), int(zmq.POLLIN)
# A subscriber to the topic of hellos is a node of ours.  A connector subscribes to the rest of the traffic after the
# listener's hello: before, it does not acknowledge, and nothing would limit the rate of what it is sent.  Until then it
# also subscribes to JOINING and its epoch, which tells the listener.
TOPICS = (HELLO_TOPIC, b"ack/")
TRAFFIC = b"traffic/"
VIEW_OCTETS = 64 * 1024  # below, a copy is quicker than a view; predicted by the frame before
HANDSHAKE_MS = 1000  # times the patience; otherwise 30 s for a silent connection, such as a tunnel's
ATTEMPT_MS = 1000  # one round trip: over a longer one a peer would be declared down
ANEW = 3  # times the handshake's time-out: after so long without a peer, no pending attempt can succeed
DESCRIPTORS = 18  # of files and sockets, with one peer, and two for each of libzmq's threads
FAREWELL_MS = 100  # to send queued frames at close
SUBSCRIPTIONS = 16  # pending, of one connection
SUBSCRIPTION_OCTETS = 1024  # of the longest
LOOK_SUBSCRIPTIONS = 1024  # read per call, so that a flood of them blocks nothing else
KEEPALIVE_S = 5
BACKLOG = 1024  # TCP connections that wait to be accepted
SHORT_PART = 255  # octets; ZMTP frames a longer part by 9 octets instead of 2
JOIN_S = 0.002  # delay of a peer's subscription after the hello that answers ours, unless TCP lost it
RESOLVE_S = 0.2  # time-out of the resolver for the name of the listener, after which `open` goes on
HELD_LOOK_S = 0.001


@dataclass(frozen=True)
class ZeromqOptions(Options):
    """Options of transport ``zeromq``.

    The link bounds messages in flight (``window`` octets and 131,072 messages per flow), so the high-water marks, which
    count messages, are beyond what seven full flows hold: PUB drops at its mark in silence, and a full SUB stops
    answering heartbeats.  Foreign programs, such as a raw subscriber that stops reading or a raw publisher that floods,
    are limited in octets instead: a connection that exceeds one of those limits is ended.
    """

    send_hwm: int = 1_000_000  # messages for each subscriber
    receive_hwm: int = 1_000_000  # messages from each publisher; beyond it TCP holds the publisher back
    os_send_buffer: int = 0  # octets; 0 leaves it to the kernel's autotuning, which was never slower
    os_receive_buffer: int = 0
    heartbeat_ms: int = 200  # detects half-open TCP, and stopped peers
    heartbeat_timeout_ms: int = 1000
    reconnect_ms: int = 30  # plus a random time of up to as much
    reconnect_max_ms: int = 0  # always the same
    connect_timeout_ms: int = 50  # at first, see renew; TCP itself would try again after 1, 3, 7 s
    io_threads: int = field(default=1, metadata={"most": 64})  # libzmq aborts if it cannot start them all
    connections: int = 400  # on each of a listener's two ports
    handshakes: int = 128  # of them, those that have not completed the handshake; then the oldest is ended
    handshake_ms: int = 2000  # limit of a listener for the handshake: two round trips.  1 s if nothing comes
    subscription_octets: int = 4096  # of one connection, ever; 8 times as many of all.  libzmq takes 50 for each
    unsent_octets: int = 128 * 1024 * 1024  # queued for one connection
    unread_octets: int = 256 * 1024 * 1024  # received from all connections, and not read yet


class ZeromqTransport(Transport):
    """pyzmq >= 26."""

    options_class = ZeromqOptions
    options: ZeromqOptions
    ports = 2
    scouts = True

    @property
    def threads(self) -> int:
        return 2 + self.options.io_threads

    def open(self) -> None:
        check_descriptors(DESCRIPTORS + 2 * self.options.io_threads)
        keep_freed_memory()  # not over Zenoh, where it gains nothing
        self._context = zmq.Context(io_threads=self.options.io_threads)
        self._closed = False
        self._copies = True  # whether the next frame is copied; otherwise it is a view of libzmq's memory
        self._patience = 1
        self._limit_ms = self.options.connect_timeout_ms
        self._connected_to = ""
        self._tries_since = 0.0  # when it connected last, or lost its last peer
        self._lookup: RepeatedLookup | None = None  # None for an address, which needs no resolver
        self._nodes_listening = 0  # subscriptions to the topic of hellos
        self._joining = Joining()
        self._joining_topics = self._joining.topics
        self._sent_octets = self._sent_messages = 0
        self._read_octets = self._read_messages = 0
        self._drained = False  # whether everything was read since the guard looked
        self._joins_as = b"" if self.listening or self.epoch is None else b"%s%016x" % (JOINING, self.epoch)
        self._greeted = True
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
            self._sub.setsockopt(zmq.SUBSCRIBE, TRAFFIC)
            self.parted()
            # After each signal pyzmq's recv and poll restart their time-out: with one every 50 ms they never return.
            self._poll = select.poll()
            self._poll.register(self._sub.fileno(), select.POLLIN)
            # Bypasses pyzmq's Python layer, which checks for types that our frames never have: half the cost of a send.
            self._recv, self._send = self._sub.recv, super(zmq.Socket, self._pub).send
            self._get: Callable[[int], Any] = super(zmq.Socket, self._sub).get
            self._guard = self._guarded() if tcp_counters_available() else None
            first, second = self.endpoint.port, self.endpoint.port + 1
            if self.listening:
                hosts = listen_addresses(self.endpoint.host)  # bind takes addresses, not names of hosts
                for made, port in ((self._pub, first), (self._sub, second)):
                    made.setsockopt(zmq.BACKLOG, BACKLOG)
                    made.setsockopt(zmq.HANDSHAKE_IVL, self.options.handshake_ms)
                    for host in hosts:
                        made.setsockopt(zmq.IPV6, int(":" in host))
                        made.bind(_address(host, port))
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
            what = "listen on" if self.listening else "connect to"
            known = error.errno is not None and 0 < error.errno < 1000  # not libzmq's own, nor the resolver's
            reason = os.strerror(error.errno) if known and error.errno else str(error.strerror or error)
            raise TransportError(
                f"zeromq cannot {what} {self.endpoint} (ports {self.endpoint.port} and {self.endpoint.port + 1}): "
                f"{reason}{advice(reason)}"
            ) from error

    def _guarded(self) -> ZeromqGuard:
        options = self.options
        limits = (f"zeromq {self.endpoint}", options.connections, options.handshakes, self.limits_exceeded)

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
            admits=self.listening,
        )

    def _socket(self, kind: int) -> "zmq.Socket[bytes]":
        made = self._context.socket(kind)
        options = self.options
        made.setsockopt(zmq.LINGER, 0)
        # Refuses ZMTP before 3: libzmq mistakes answers of foreign programs for it, and aborts.
        made.setsockopt(zmq.ZAP_DOMAIN, PUB_DOMAIN if kind == zmq.XPUB else SUB_DOMAIN)
        made.setsockopt(zmq.SNDHWM, options.send_hwm)
        made.setsockopt(zmq.RCVHWM, options.receive_hwm)
        if options.os_send_buffer:
            made.setsockopt(zmq.SNDBUF, options.os_send_buffer)
        if options.os_receive_buffer:
            made.setsockopt(zmq.RCVBUF, options.os_receive_buffer)
        if self.listening:
            # libzmq 4.3.5 aborts the process if its heartbeat is due on a connection that was reset while its queue was
            # full, which any program can bring about.  The connectors' heartbeats have a lifetime instead, after which
            # the connection ends here as well, and TCP's own find other half-open connections.
            made.setsockopt(zmq.TCP_KEEPALIVE, 1)
            made.setsockopt(zmq.TCP_KEEPALIVE_IDLE, KEEPALIVE_S)
            made.setsockopt(zmq.TCP_KEEPALIVE_INTVL, KEEPALIVE_S)
        else:
            made.setsockopt(zmq.HEARTBEAT_IVL, options.heartbeat_ms)
            made.setsockopt(zmq.HEARTBEAT_TIMEOUT, options.heartbeat_timeout_ms)
            made.setsockopt(zmq.HEARTBEAT_TTL, options.heartbeat_timeout_ms)
        # A ping waits behind queued frames, and its time-out begins when it leaves.  If TCP makes no progress, only its
        # own limit ends the connection; without one it would retry after 6, 13 and 26 s, and go on then.
        # It is longer, so that TCP can retransmit a lost packet twice on a path with some delay.
        made.setsockopt(zmq.TCP_MAXRT, options.heartbeat_timeout_ms * 3 // 2)
        made.setsockopt(zmq.RECONNECT_IVL, options.reconnect_ms)
        made.setsockopt(zmq.RECONNECT_IVL_MAX, options.reconnect_max_ms)
        made.setsockopt(zmq.MAXMSGSIZE, self.max_frame)
        return made

    def _connect(self, host: str) -> None:
        """Connect both sockets to the same address: each would resolve the name itself, perhaps differently."""
        with self._send_lock:
            for made, port in ((self._sub, self.endpoint.port), (self._pub, self.endpoint.port + 1)):
                if self._connected_to:
                    made.disconnect(_address(self._connected_to, port))
                made.setsockopt(zmq.IPV6, int(":" in host))
                made.setsockopt(zmq.CONNECT_TIMEOUT, self._limit_ms)
                made.setsockopt(zmq.HANDSHAKE_IVL, HANDSHAKE_MS * self._patience)
                made.connect(_address(host, port))
            self._connected_to = host
            self._tries_since = time.monotonic()

    def _move(self, within_s: float = 0.0) -> None:
        """Connect to the host's new address, if the resolver has returned another one."""
        if self._lookup is not None and (host := self._lookup.poll(within_s)):
            self._connect(host)

    def send(self, topic: bytes, frame: bytes) -> None:
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

    def _send_now(self, topic: bytes, frame: bytes) -> None:
        with self._send_lock:
            if not self._closed:
                self._send(topic, SNDMORE)
                try:
                    self._send(frame)
                except BaseException:
                    self._send(b"")  # after Ctrl-C: end the message, or the next frame would become a part of it
                    raise
                octets = len(frame)
                self._sent_octets += octets + len(topic) + (11 if octets > SHORT_PART else 4)
                self._sent_messages += 1
                if self._joining_topics:
                    self._look()

    def offer(self, topic: bytes, frame: bytes) -> None:
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
            if begins and self._guard is not None:
                self._guard.subscribed(int(told.get("__fd")), len(topic))
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
            self._sub.setsockopt(zmq.SUBSCRIBE, TRAFFIC)
            self._sub.setsockopt(zmq.UNSUBSCRIBE, self._joins_as)

    def parted(self) -> None:
        if self._greeted and self._joins_as:
            self._greeted = False
            self._tries_since = time.monotonic()
            self._sub.setsockopt(zmq.SUBSCRIBE, self._joins_as)
            self._sub.setsockopt(zmq.UNSUBSCRIBE, TRAFFIC)
        self._move()

    def receive(self, timeout_s: float) -> tuple[bytes, Frame] | None:
        recv = self._recv
        topic, self._topic = self._topic, b""
        if not topic:
            try:
                if timeout_s > 0 and not self._get(EVENTS) & POLLIN:
                    self._drained = True
                    if not self._poll.poll(timeout_s * 1000):
                        return None
                topic = recv(NOBLOCK)
            except zmq.Again:
                self._drained = True
                return None
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


def _address(host: str, port: int) -> str:
    return f"tcp://{bracketed(host)}:{port}"
