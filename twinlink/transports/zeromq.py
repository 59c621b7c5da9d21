"""ZeroMQ PUB/SUB: one socket pair for each direction, frames ``[topic, header + payload]``.

The listener binds its PUB to the endpoint's port and its SUB to the next one up; the connector connects its SUB and
PUB to them.  A raw SUB socket at the listener's port sees the traffic (docs/protocol.md).
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
from ..process.malloc import keep_freed_memory
from ..process.resolver import RepeatedLookup, addresses, is_address
from ..protocol.frames import HELLO_TOPIC, MAGIC
from .base import Frame, Options, Transport, advice, check_descriptors

ACK_INITIAL = ord("a")
# Members of an enumeration take their time.
SNDMORE, NOBLOCK, EVENTS, POLLIN = int(zmq.SNDMORE), int(zmq.NOBLOCK), int(zmq.EVENTS), int(zmq.POLLIN)
# Whoever asks for hellos by name is a node of ours.  A connector asks for the rest of the traffic when the listener has
# said hello: to one that has only connected, and does not acknowledge yet, it would be sent as fast as to the others,
# whatever the path takes.  Until then it subscribes to JOINING and its epoch as well, so that the listener knows.
TOPICS = (HELLO_TOPIC, b"ack/")
TRAFFIC = b"traffic/"
JOINING = b"joining/"
VIEW_OCTETS = 64 * 1024  # below, a copy is quicker than a view; the frame before tells which this one will be
HANDSHAKE_MS = 1000  # times the patience; else 30 s, for what takes a connection and says nothing, as a tunnel may
ATTEMPT_MS = 1000  # connecting is one round trip, and over a longer one a peer would count as gone
ANEW = 3  # times the handshake's time: after so long alone, no attempt to connect is under way that could succeed
DESCRIPTORS = 14  # of files and sockets, with one peer, and two for each of libzmq's threads
FAREWELL_MS = 100  # what is unsent at close gets this long
SUBSCRIPTIONS = 16  # of one connection that wait to be read
SUBSCRIPTION_OCTETS = 1024
LOOK_SUBSCRIPTIONS = 256  # that are read at one go: a flood of them is not to keep everybody waiting
JOIN_S = 0.002  # what a peer subscribes to is here so long after the hello that answers ours, unless TCP lost it
LISTEN_RESOLVE_S = 5.0  # the resolver gets this long where we listen on a name
RESOLVE_S = 0.2  # and this long, before `open` goes on without it, where we connect to one
HELD_LOOK_S = 0.001
JOINED_S = 0.02  # and the other way round: so long nothing is sent to who gets everything, and is not up


@dataclass(frozen=True)
class ZeromqOptions(Options):
    """Options of transport ``zeromq``.

    The link bounds what is under way (``window`` octets and 131,072 messages for each flow), so the marks below, which
    count messages, only keep a stranger in check: a raw subscriber that stops reading, a raw publisher that floods.
    PUB drops at its mark, and a full SUB stops answering heartbeats: both lie beyond what seven full flows hold.
    """

    send_hwm: int = 1_000_000  # messages for each subscriber
    receive_hwm: int = 1_000_000  # messages from each publisher; beyond it TCP holds the publisher back
    os_send_buffer: int = 0  # octets; 0 leaves it to the kernel's autotuning, which was never slower
    os_receive_buffer: int = 0
    heartbeat_ms: int = 200  # finds half-open TCP, and peers that are stopped
    heartbeat_timeout_ms: int = 1000
    reconnect_ms: int = 30  # and up to as much again, by chance
    reconnect_max_ms: int = 0  # always the same
    connect_timeout_ms: int = 50  # at first, see renew; TCP itself would try again after 1, 3, 7 s
    io_threads: int = field(default=1, metadata={"most": 64})  # libzmq aborts when it cannot make them all


class ZeromqTransport(Transport):
    """pyzmq >= 26."""

    options_class = ZeromqOptions
    options: ZeromqOptions
    ports = 2
    scouts = True

    @property
    def threads(self) -> int:
        return 1 + self.options.io_threads

    def open(self) -> None:
        check_descriptors(DESCRIPTORS + 2 * self.options.io_threads)
        keep_freed_memory()  # over Zenoh nothing is quicker for it
        self._context = zmq.Context(io_threads=self.options.io_threads)
        self._closed = False
        self._copies = True  # whether the next frame is received by copying it; else as a view of libzmq's memory
        self._patience = 1
        self._limit_ms = self.options.connect_timeout_ms
        self._connected_to = ""
        self._tries_since = 0.0  # to connect anew, or while nobody is heard
        self._whereabouts: RepeatedLookup | None = None  # where an address is known it is the only one
        self._nodes_listen = False
        self._joining: set[bytes] = set()  # the topics of those who are
        self._held_until = 0.0
        self._joins_as = b"" if self.listening or self.epoch is None else b"%s%016x" % (JOINING, self.epoch)
        self._greeted = True
        self._topic = b""  # received where a frame should have been
        self._urgent: list[None] = []  # as long as there are acks and hellos waiting for the socket
        self._send_lock = threading.Lock()  # a socket belongs to one thread at a time
        try:
            self._pub = self._socket(zmq.XPUB)  # a PUB that says what is subscribed to
            self._pub.setsockopt(zmq.RCVHWM, SUBSCRIPTIONS)
            self._pub.setsockopt(zmq.MAXMSGSIZE, SUBSCRIPTION_OCTETS)
            self._sub = self._socket(zmq.SUB)
            for topic in TOPICS:
                self._sub.setsockopt(zmq.SUBSCRIBE, topic)
            self._sub.setsockopt(zmq.SUBSCRIBE, TRAFFIC)
            self.parted()
            # After each signal pyzmq's recv and poll wait for all of their time again, one every 50 ms without end.
            self._poll = select.poll()
            self._poll.register(self._sub.fileno(), select.POLLIN)
            # Past pyzmq's Python layer, which looks for what frames of ours never are: half the cost of a send.
            self._recv, self._send = self._sub.recv, super(zmq.Socket, self._pub).send
            self._get: Callable[[int], Any] = super(zmq.Socket, self._sub).get
            first, second = self.endpoint.port, self.endpoint.port + 1
            if self.listening:
                host = self.endpoint.host
                if not is_address(host):  # bind takes addresses, not names of hosts
                    host = addresses(host, LISTEN_RESOLVE_S)[0]
                for made, port in ((self._pub, first), (self._sub, second)):
                    made.setsockopt(zmq.IPV6, int(":" in host))
                    made.bind(_address(host, port))
            elif is_address(self.endpoint.host):
                self._connect(self.endpoint.host)
            else:
                self._whereabouts = RepeatedLookup(self.endpoint.host, self.endpoint.port)
                self._move(RESOLVE_S)
        except BaseException as error:  # Ctrl-C as well
            self._context.destroy(linger=0)  # while a socket is open, whoever ends the context waits for ever
            if not isinstance(error, zmq.ZMQError | OSError):
                raise
            what = "listen on" if self.listening else "connect to"
            known = error.errno is not None and 0 < error.errno < 1000  # not libzmq's own, nor the resolver's
            reason = os.strerror(error.errno) if known and error.errno else str(error.strerror or error)
            raise TransportError(
                f"zeromq cannot {what} {self.endpoint} (ports {self.endpoint.port} and {self.endpoint.port + 1}): "
                f"{reason}{advice(reason)}"
            ) from error

    def _socket(self, kind: int) -> "zmq.Socket[bytes]":
        made = self._context.socket(kind)
        options = self.options
        made.setsockopt(zmq.LINGER, 0)
        # Refuses ZMTP before 3, which libzmq takes many a stranger's answer for, and ends the process over it.
        made.setsockopt(zmq.ZAP_DOMAIN, b"twinlink")
        made.setsockopt(zmq.SNDHWM, options.send_hwm)
        made.setsockopt(zmq.RCVHWM, options.receive_hwm)
        if options.os_send_buffer:
            made.setsockopt(zmq.SNDBUF, options.os_send_buffer)
        if options.os_receive_buffer:
            made.setsockopt(zmq.RCVBUF, options.os_receive_buffer)
        made.setsockopt(zmq.HEARTBEAT_IVL, options.heartbeat_ms)
        made.setsockopt(zmq.HEARTBEAT_TIMEOUT, options.heartbeat_timeout_ms)
        # A ping waits behind what is unsent, and its time begins when it leaves.  Where TCP gets rid of nothing, only
        # TCP's own limit ends the connection; without one it would try again after 6, 13 and 26 s, and go on then.
        # It is longer, as TCP gets to send a lost packet again twice, on a path with some delay.
        made.setsockopt(zmq.TCP_MAXRT, options.heartbeat_timeout_ms * 3 // 2)
        made.setsockopt(zmq.RECONNECT_IVL, options.reconnect_ms)
        made.setsockopt(zmq.RECONNECT_IVL_MAX, options.reconnect_max_ms)
        made.setsockopt(zmq.MAXMSGSIZE, self.max_frame)
        return made

    def _connect(self, host: str) -> None:
        """Both sockets to the same address: each would ask the resolver itself, and could reach another host."""
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
        """Connect to where the host is now, if the resolver has said that it is somewhere else."""
        if self._whereabouts is not None and (host := self._whereabouts.poll(within_s)):
            self._connect(host)

    def send(self, topic: bytes, frame: bytes) -> None:
        # A lock is not fair: threads that send without a pause would keep the acks waiting for seconds.
        if topic[0] == ACK_INITIAL or topic == HELLO_TOPIC:
            try:
                self._urgent.append(None)
                self._send_now(topic, frame)
                if topic == HELLO_TOPIC:
                    self._look_who_listens()
            finally:
                self._urgent.pop()
        else:
            while self._urgent or (self._held_until and self._is_held()):
                time.sleep(0 if self._urgent else HELD_LOOK_S)
            self._send_now(topic, frame)

    def _send_now(self, topic: bytes, frame: bytes) -> None:
        with self._send_lock:
            if not self._closed:
                self._send(topic, SNDMORE)
                try:
                    self._send(frame)
                except BaseException:
                    self._send(b"")  # Ctrl-C: end the message, or the next frame would become a part of it
                    raise
                if self._joining:
                    self._look()

    def offer(self, topic: bytes, frame: bytes) -> None:
        # A node that has connected is about to say hello.  What it got now would be ahead of ours, and without a peer
        # that acknowledges there is no limit to that.
        self._look_who_listens()
        if not self._nodes_listen:
            self.send(topic, frame)

    def _look_who_listens(self) -> None:
        with self._send_lock:
            if not self._closed:
                self._look()

    def _look(self) -> None:
        """Read what has been subscribed to, by the first that did, and what no longer is, by anybody."""
        for _ in range(LOOK_SUBSCRIPTIONS):
            if not int(self._pub.get(zmq.EVENTS)) & zmq.POLLIN:
                return
            told = self._pub.recv()
            begins, topic = told[:1] == b"\1", told[1:]
            if topic == HELLO_TOPIC:
                self._nodes_listen = begins
            elif begins and topic.startswith(JOINING):
                self._joining.add(topic)
            elif topic in self._joining:
                self._joining.remove(topic)
                self._held_until = time.monotonic() + JOINED_S

    def _is_held(self) -> bool:
        """Whether somebody gets everything now, and its hello is still to be heard."""
        if time.monotonic() >= self._held_until:
            self._held_until = 0.0
        return self._held_until > 0

    def joins(self, epoch: int, hears_us: bool) -> bool:
        topic = b"%s%016x" % (JOINING, epoch)
        self._look_who_listens()
        if topic in self._joining and hears_us:
            time.sleep(JOIN_S)
            self._look_who_listens()
        self._held_until = 0.0
        return topic in self._joining

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
                if timeout_s > 0 and not self._get(EVENTS) & POLLIN and not self._poll.poll(timeout_s * 1000):
                    return None
                topic = recv(NOBLOCK)
            except zmq.Again:
                return None
        # Whether a part is the last of its message is not asked: that takes twice as long as to receive one.  A
        # stranger's message of one part or of many is found by how parts begin.
        try:
            frame: Frame = recv(NOBLOCK) if self._copies else recv(NOBLOCK, copy=False).buffer
        except zmq.Again:  # parts of one message arrive together
            return b"", b""
        self._copies = len(frame) < VIEW_OCTETS
        if frame[:2] != MAGIC and bytes(frame[:8]).startswith((b"ack/", TRAFFIC)):
            self._topic = bytes(frame)
            return b"", b""
        return topic, frame

    def renew(self, patience: int) -> None:
        if self.listening:
            return
        # Where something else answers, libzmq makes no more attempts, and does not say so.
        anew = time.monotonic() - self._tries_since > ANEW * HANDSHAKE_MS / 1000 * patience
        if anew or patience != self._patience:
            self.reached(patience)
        if self._whereabouts is not None:
            self._whereabouts.next_address()
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
            self._pub.close(FAREWELL_MS)
        self._sub.close()
        self._context.term()


def _address(host: str, port: int) -> str:
    return f"tcp://{f'[{host}]' if ':' in host and host[0] != '[' else host}:{port}"
