"""A link: the one place where core, transport, clock and threads meet.

Who receives: whoever waits.  A thread in ``flush``, ``wait_ready`` or a receiver's loop takes the *lead* and reads
the transport itself, so that a message costs no hand-over between threads.  While nobody waits, the link's own thread
leads.  Exactly one thread leads at any time; handlers run on it, one at a time.
"""

import atexit
import logging
import os
import re
import secrets
import socket
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from . import events as ev
from .errors import ConfigurationError, LinkClosed, PeerTimeout
from .events import Event
from .inbox import EventStream, Receiver
from .incoming import Incoming, Stream
from .message import Ack, Message
from .outgoing import Outgoing
from .peers import HELLO_NS, SEARCH_NS, Change, PeerTable
from .ranges import RangeSet
from .sender import Sender
from .sequence import Arrival
from .transports import Transport
from .transports.base import Frame
from .wire import (
    ACK_ONE,
    ACK_ONE_LENGTH,
    HEADER_OCTETS,
    LINK_FLOW,
    MAGIC,
    MAX_ACK_RECORDS,
    VERSION,
    Hello,
    Kind,
    Malformed,
    ack_body,
    frame as make_frame,
    parse,
    parse_ack,
)

FLOW_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
MAX_FLOWS = 1024  # flows that strangers can make us remember
BUSY_NS = 30_000  # messages closer together than this come in bulk: drain, and acknowledge many at once
LEAD_KEPT_S = 0.002  # a thread that stopped waiting will probably wait again; the link's own thread steps back so long
IDLE_S = 0.1  # the longest that anybody sits in the transport
LINGER_S = 0.5  # close waits this long for acks that are still outstanding

_DATA, _ACK, _HELLO, _BYE = (int(kind) for kind in (Kind.DATA, Kind.ACK, Kind.HELLO, Kind.BYE))
_monotonic_ns, _time_ns = time.monotonic_ns, time.time_ns

logger = logging.getLogger("twinlink")
_open_links: "weakref.WeakSet[Link]" = weakref.WeakSet()


class Link:
    """One end of the channel; made by `twinlink.open`.  Every method may be called from any thread."""

    def __init__(
        self, transport: Transport, *, name: str, node: str | None, window: int, send_timeout: float, max_payload: int
    ) -> None:
        self.transport_name = name
        self.endpoint = str(transport.endpoint)
        self.listening = transport.listening
        self.node = node or f"{socket.gethostname()}-{os.getpid()}"
        self.epoch = secrets.randbits(64)
        self.max_payload = max_payload
        self.send_timeout = send_timeout
        self._window = window
        self._transport = transport
        self._peers = PeerTable(self.epoch)
        self._peers_lock = threading.RLock()
        self._senders: dict[str, Sender] = {}
        self._incoming: dict[str, Incoming] = {}
        self._receivers: dict[str, Receiver] = {}
        self._handlers: dict[str, Callable[[Message], None]] = {}
        self._on_data: dict[bytes, tuple[Incoming, bytes]] = {}  # topic -> flow, its ack topic
        self._on_ack: dict[bytes, Sender] = {}
        self._flows_lock = threading.Lock()
        self._malformed: dict[str, list[int]] = {}  # reason -> count, monotonic ns of the last event
        self._event_stream = EventStream(self)
        self._counters = {"acks_sent": 0, "handler_errors": 0}
        self._ack_sequence = 0
        self._batch: list[tuple[int, int, int]] = []
        self._batch_for: tuple[Incoming, bytes, Stream] | None = None
        self._last_mono_ns = 0
        self._calls: deque[Callable[[], None]] = deque()
        self._calling = False
        # the lead
        self._lead = threading.Lock()
        self._leader = 0
        self._waiters = 0
        self._led_at = 0.0
        self._progress = threading.Condition(threading.Lock())
        self._closing = threading.Event()
        self._closed = False
        self._close_lock = threading.Lock()

        transport.open()
        self._next_hello_ns = 0
        self._thread = threading.Thread(target=self._serve, name=f"twinlink-{self.node}", daemon=True)
        self._thread.start()
        _open_links.add(self)

    # The public side

    def sender(self, flow: str, *, on_ack: Callable[[Ack], None] | None = None) -> Sender:
        """The sending end of a flow; asking again gives the same one (and sets ``on_ack`` where given).

        ``on_ack`` is called on the thread that receives; it must not block.
        """
        self._check_flow(flow)
        with self._flows_lock:
            sender = self._senders.get(flow)
            if sender is None:
                core = Outgoing(flow, self._window)
                for epoch in self._peers.up:
                    core.peer_up(epoch)
                sender = self._senders[flow] = Sender(self, self._transport, core)
                self._on_ack[f"ack/{flow}".encode()] = sender
            if on_ack is not None:
                sender.on_ack = on_ack
            return sender

    def receiver(self, flow: str, *, handler: Callable[[Message], None] | None = None) -> Receiver:
        """The receiving end of a flow: iterate it, or give a handler.

        A handler is called for each message on the thread that receives, one at a time; it must not block.  What it
        raises is reported as HandlerError, and delivery goes on.
        """
        self._check_flow(flow)
        incoming = self._claim(flow)
        with self._flows_lock:
            receiver = self._receivers.get(flow)
            if receiver is None:
                receiver = self._receivers[flow] = Receiver(self, incoming)
        if handler is not None:
            self._handlers[flow] = handler
            while (message := receiver.take()) is not None:  # held from before
                self._call(handler, message, flow)
        return receiver

    def wait_ready(self, timeout: float = 5.0) -> None:
        """Return once a peer has said hello and confirmed ours; what is sent from then on reaches it.

        Raises:
            PeerTimeout: nobody did within ``timeout`` seconds.
            LinkClosed: the link was closed.
        """
        self.wait(lambda: bool(self._peers.up), timeout)
        if self._peers.up:
            return
        self._check_open()
        heard = ", ".join(peer.node for peer in self._peers.all())
        role, other = ("listening on", "connect") if self.listening else ("connecting to", "listen")
        hint = (
            f"{heard} is heard but does not confirm hearing us: check the way back (firewall, second port)"
            if heard
            else f"check that the other side runs with {other}= and transport {self.transport_name!r}, that the address"
            f" is right and that no firewall closes {self._ports()}"
        )
        raise PeerTimeout(f"no peer within {timeout:g} s, {role} {self.endpoint} over {self.transport_name}: {hint}")

    def peers(self) -> list[str]:
        """Names of the nodes that are up."""
        return sorted(peer.node for peer in self._peers.all() if peer.up)

    def events(self, *, handler: Callable[[Event], None] | None = None) -> EventStream:
        """Loss, gaps, peers that come and go: iterate it, or give a handler (`twinlink.events`).

        Events from before the first call are kept, up to a limit.
        """
        if handler is not None:
            self._event_stream.set_handler(handler)
        return self._event_stream

    def stats(self) -> dict[str, Any]:
        """Everything counted so far, as plain data: per flow sent and received, peers, malformed frames."""
        return {
            "transport": self.transport_name,
            "endpoint": self.endpoint,
            "node": self.node,
            "epoch": f"{self.epoch:016x}",
            "peers": self.peers(),
            "sent": {flow: sender.stats() for flow, sender in list(self._senders.items())},
            "received": {flow: incoming.stats() for flow, incoming in list(self._incoming.items())},
            "malformed": {reason: state[0] for reason, state in list(self._malformed.items())},
            "events_dropped": self._event_stream.dropped,
            **self._counters,
        }

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closing.is_set()

    def close(self) -> None:
        """Wait up to half a second for outstanding acks, say goodbye, and give everything back.

        Ends within a second from any state; a second call does nothing.  What stays unacknowledged is logged.
        """
        with self._close_lock:
            if self._closed:
                return
            in_call = self._leader == threading.get_ident()
            if not in_call and self._peers.up:
                self.wait(lambda: all(sender.settled for sender in list(self._senders.values())), LINGER_S)
            self._closing.set()
            with self._progress:
                self._progress.notify_all()
            if threading.current_thread() is not self._thread:
                self._thread.join(timeout=2 * IDLE_S)
            got_lead = in_call or self._lead.acquire(timeout=2 * IDLE_S)
            self._say(Kind.BYE)
            self._closed = True
            for sender in list(self._senders.values()):
                unacknowledged = sender.unacknowledged()
                if unacknowledged:
                    logger.warning("link to %s closed with unacknowledged messages on flow %s: %s",
                                   self.endpoint, sender.flow, describe(unacknowledged))  # fmt: skip
            if got_lead:
                self._transport.close()
            _open_links.discard(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # Waiting and leading

    def wait(self, done: Callable[[], object], timeout: float | None) -> None:
        """Return when ``done()`` holds, after ``timeout`` seconds, or when the link closes; lead meanwhile."""
        deadline = None if timeout is None else time.monotonic() + timeout
        nested = self._leader == threading.get_ident()  # called from a handler: this thread leads already
        self._waiters += 1
        try:
            while not done() and not self._closing.is_set():
                left = IDLE_S if deadline is None else min(IDLE_S, deadline - time.monotonic())
                if left <= 0:
                    return
                if nested:
                    self._pump(left)
                elif self._lead.acquire(blocking=False):
                    try:
                        self._leader = threading.get_ident()
                        while not done() and left > 0 and not self._closing.is_set():
                            self._pump(left)
                            if deadline is not None:
                                left = min(IDLE_S, deadline - time.monotonic())
                    finally:
                        self._leader = 0
                        self._led_at = time.monotonic()
                        self._lead.release()
                else:
                    with self._progress:
                        if not done():
                            self._progress.wait(left)
        finally:
            self._waiters -= 1

    def _serve(self) -> None:
        """The link's own thread: leads while nobody waits, and keeps the time."""
        while not self._closing.is_set():
            self._keep_time()
            if self._waiters or time.monotonic() - self._led_at < LEAD_KEPT_S or not self._lead.acquire(blocking=False):
                time.sleep(LEAD_KEPT_S)
                continue
            try:
                self._leader = threading.get_ident()
                while not self._waiters and not self._closing.is_set():
                    self._pump(self._until_hello_s())
                    if _monotonic_ns() >= self._next_hello_ns:
                        break
            finally:
                self._leader = 0
                self._lead.release()

    def _until_hello_s(self) -> float:
        return min(IDLE_S, max(0.001, (self._next_hello_ns - _monotonic_ns()) / 1e9))

    def _keep_time(self) -> None:
        now = _monotonic_ns()
        if now < self._next_hello_ns:
            return
        with self._peers_lock:
            self._changed(self._peers.expire(now))
            self._next_hello_ns = now + (HELLO_NS if self._peers.up else SEARCH_NS)
        self._say(Kind.HELLO)

    # The path of a message, receiving

    def _pump(self, timeout_s: float) -> None:
        """Receive and handle what comes within ``timeout_s``; one message, or a batch when they come in bulk."""
        received = self._transport.receive(timeout_s)
        if received is None:
            return
        now = _monotonic_ns()
        if now - self._last_mono_ns > BUSY_NS:
            self._last_mono_ns = now
            self._handle(*received, now, True)
        else:
            for _ in range(MAX_ACK_RECORDS):
                self._last_mono_ns = now
                self._handle(*received, now, False)
                received = self._transport.receive(0)
                if received is None:
                    break
                now = _monotonic_ns()
            else:
                pass
            if received is not None:
                self._handle(*received, now, False)
            self._send_batch()
        if self._waiters > (self._leader != self._thread.ident):
            with self._progress:
                self._progress.notify_all()

    def _handle(self, topic: bytes, frame: Frame, mono_ns: int, at_once: bool) -> None:
        try:
            kind, epoch, sequence, sent_ns = parse(frame)
            if kind == _DATA:
                found = self._on_data.get(topic) or self._new_flow(topic)
                self._data(*found, frame, epoch, sequence, sent_ns, mono_ns, at_once)
            elif kind == _ACK:
                self._ack(topic, frame, epoch, sent_ns, mono_ns)
            elif kind in (_HELLO, _BYE):
                self._greeting(topic, kind, epoch, frame, mono_ns)
            else:
                raise Malformed("kind")
        except Malformed as error:
            self._count_malformed(error.args[0], mono_ns)

    def _data(
        self, incoming: Incoming, ack_topic: bytes, frame: Frame,
        epoch: int, sequence: int, sent_ns: int, mono_ns: int, at_once: bool,
    ) -> None:  # fmt: skip
        received_ns = _time_ns()
        stream = incoming.streams.get(epoch) or self._join(incoming, epoch)
        handler = self._handlers.get(incoming.flow)
        if handler is not None:
            if sequence >= stream.consumed:
                stream.consumed = sequence + 1
        elif not incoming.claimed and incoming.refuses(len(frame) - HEADER_OCTETS):
            self._refuse(incoming, ack_topic, stream, sequence)
            return
        # The ack goes first: what follows is not part of the sender's round trip.
        if at_once:
            stream.unannounced = stream.unannounced_octets = 0
            ack_sequence = self._ack_sequence
            self._ack_sequence = ack_sequence + 1
            self._transport.send(
                ack_topic,
                ACK_ONE.pack(
                    MAGIC, VERSION, _ACK, ACK_ONE_LENGTH, self.epoch, ack_sequence, _time_ns(),
                    epoch, stream.consumed, sequence, sent_ns, received_ns,
                ),
            )  # fmt: skip
        else:
            batch_for = self._batch_for
            if batch_for is None or batch_for[2] is not stream:
                self._send_batch()
                self._batch_for = (incoming, ack_topic, stream)
            self._batch.append((sequence, sent_ns, received_ns))
            if len(self._batch) >= MAX_ACK_RECORDS:
                self._send_batch()
        expected = stream.tracker.next
        arrival = stream.tracker.arrive(sequence)
        if arrival is not Arrival.NEXT:
            self._report_arrival(incoming.flow, epoch, arrival, expected, sequence)
            if arrival is Arrival.DUPLICATE:
                return
        message = Message(
            memoryview(frame)[HEADER_OCTETS:], incoming.flow, sequence, epoch, stream.node, sent_ns, received_ns
        )
        if handler is not None:
            self._call(handler, message, incoming.flow)
        else:
            incoming.put(message)

    def _send_batch(self) -> None:
        if self._batch_for is None:
            return
        _, ack_topic, stream = self._batch_for
        records, self._batch, self._batch_for = self._batch, [], None
        self._send_ack(ack_topic, stream, records)

    def _send_ack(self, ack_topic: bytes, stream: Stream, records: list[tuple[int, int, int]]) -> None:
        stream.unannounced = stream.unannounced_octets = 0
        body = ack_body(stream.epoch, stream.consumed, records)
        sequence = self._ack_sequence
        self._ack_sequence = sequence + 1
        self._transport.send(ack_topic, make_frame(Kind.ACK, self.epoch, sequence, _time_ns(), body))

    def announce(self, incoming: Incoming, stream: Stream) -> None:
        """Tell a sender how far the application is; called when a receiver has taken enough."""
        if not self._closed:
            self._send_ack(f"ack/{incoming.flow}".encode(), stream, [])

    def _ack(self, topic: bytes, frame: Frame, epoch: int, sent_ns: int, mono_ns: int) -> None:
        received_ns = _time_ns()
        acked_epoch, consumed, records = parse_ack(frame)
        if acked_epoch != self.epoch:
            return  # for another node: a listener's acks reach all its connectors
        sender = self._on_ack.get(topic)
        if sender is None:
            raise Malformed("topic")
        lost, acks = sender.acknowledged(epoch, consumed, records, sent_ns, received_ns, mono_ns)
        if lost:
            self._report_lost(sender.flow, lost, "the peer went past it without acknowledging it")
        on_ack = sender.on_ack
        if on_ack is not None:
            for ack in acks:
                self._call(on_ack, ack, sender.flow)

    def _call(self, handler: Callable[[Any], None], argument: Any, flow: str) -> None:
        """Call a handler; not inside another one: a handler that waits gets its messages one after the other."""
        if self._calling:
            self._calls.append(lambda: self._call(handler, argument, flow))
            return
        self._calling = True
        try:
            handler(argument)
        except Exception as error:  # whatever an application does must not stop delivery
            self._counters["handler_errors"] += 1
            self.report(ev.HandlerError(_time_ns(), flow, repr(error)))
            logger.exception("a handler of flow %s raised; delivery goes on", flow)
        finally:
            self._calling = False
        if self._calls:
            self._calls.popleft()()

    # Off the path: flows, peers, events

    def _new_flow(self, topic: bytes) -> tuple[Incoming, bytes]:
        prefix, _, name = bytes(topic).partition(b"/")
        flow = name.decode("ascii", "replace")
        if prefix != b"traffic" or not FLOW_NAME.fullmatch(flow):
            raise Malformed("topic")
        if len(self._incoming) >= MAX_FLOWS:
            raise Malformed("flows")
        self._incoming_flow(flow)
        return self._on_data[bytes(topic)]

    def _incoming_flow(self, flow: str) -> Incoming:
        with self._flows_lock:
            incoming = self._incoming.get(flow)
            if incoming is None:
                incoming = self._incoming[flow] = Incoming(flow, self._window // 2)
                self._on_data[f"traffic/{flow}".encode()] = (incoming, f"ack/{flow}".encode())
            return incoming

    def _claim(self, flow: str) -> Incoming:
        incoming = self._incoming_flow(flow)
        incoming.claimed = True
        return incoming

    def _join(self, incoming: Incoming, epoch: int) -> Stream:
        if epoch == self.epoch:
            raise Malformed("reflected")
        with self._peers_lock:
            peer = self._peers.get(epoch)
            first = peer.flows.get(incoming.flow, 0) if peer else None
            return incoming.join(epoch, peer.node if peer else None, first, self._peers.up)

    def _refuse(self, incoming: Incoming, ack_topic: bytes, stream: Stream, sequence: int) -> None:
        if stream.refused == 0:
            self.report(ev.Unclaimed(_time_ns(), incoming.flow, stream.epoch, sequence))
        stream.refused += 1
        stream.consumed = max(stream.consumed, sequence + 1)
        self._send_batch()
        self._send_ack(ack_topic, stream, [])

    def _greeting(self, topic: bytes, kind: int, epoch: int, frame: Frame, mono_ns: int) -> None:
        if topic != b"traffic/" + LINK_FLOW.encode():
            raise Malformed("topic")
        if epoch == self.epoch:
            raise Malformed("reflected")
        if kind == _BYE:
            with self._peers_lock:
                self._changed(self._peers.bye(epoch))
            return
        hello = Hello.decode(memoryview(frame)[HEADER_OCTETS:])
        with self._peers_lock:
            new = self._peers.get(epoch) is None
            answer, changes = self._peers.hello(epoch, hello, mono_ns)
            if new:
                for incoming in list(self._incoming.values()):
                    if (stream := incoming.streams.get(epoch)) is not None:
                        stream.node = hello.node
            self._changed(changes)
        if answer:
            self._say(Kind.HELLO)

    def _changed(self, changes: list[Change]) -> None:
        for change in changes:
            peer = change.peer
            if change.reason is None:
                if change.replaces is not None:
                    self.report(ev.Restarted(_time_ns(), peer.node, change.replaces.epoch, peer.epoch))
                self.report(ev.PeerUp(_time_ns(), peer.node, peer.epoch))
            else:
                self.report(ev.PeerDown(_time_ns(), peer.node, peer.epoch, change.reason))
            with self._flows_lock:
                senders = list(self._senders.values())
            for sender in senders:
                lost = sender.peer_changed(peer.epoch, change.reason is None)
                if lost:
                    self._report_lost(sender.flow, lost, f"peer {peer.node} went down ({change.reason})")

    def _say(self, kind: Kind) -> None:
        """Send a hello or a bye."""
        with self._peers_lock:
            heard = frozenset(peer.epoch for peer in self._peers.all())
        flows = {flow: sender.next_sequence for flow, sender in list(self._senders.items())}
        body = Hello(self.node, heard, flows).encode() if kind is Kind.HELLO else b""
        self._transport.send(b"traffic/" + LINK_FLOW.encode(), make_frame(kind, self.epoch, 0, _time_ns(), body))

    @property
    def peers_up(self) -> frozenset[int]:
        """Epochs of the sessions that are up."""
        return self._peers.up

    def report(self, event: Event) -> None:
        """Give an event to whoever listens for events."""
        self._event_stream.put(event)

    def _report_lost(self, flow: str, lost: RangeSet, reason: str) -> None:
        for first, end in lost:
            self.report(ev.Lost(_time_ns(), flow, first, end, reason))

    def _report_arrival(self, flow: str, epoch: int, arrival: Arrival, expected: int, sequence: int) -> None:
        if arrival is Arrival.AFTER_GAP:
            self.report(ev.Gap(_time_ns(), flow, epoch, expected, sequence))
        elif arrival is Arrival.LATE:
            self.report(ev.Reordered(_time_ns(), flow, epoch, sequence))
        else:
            self.report(ev.Duplicate(_time_ns(), flow, epoch, sequence))

    def _count_malformed(self, reason: str, mono_ns: int) -> None:
        state = self._malformed.setdefault(reason, [0, 0])
        state[0] += 1
        if state[0] == 1 or mono_ns - state[1] > 1_000_000_000:
            state[1] = mono_ns
            self.report(ev.Malformed(_time_ns(), reason, state[0]))

    def _check_flow(self, flow: str) -> None:
        self._check_open()
        if not isinstance(flow, str) or not FLOW_NAME.fullmatch(flow):
            raise ConfigurationError(
                f"flow {flow!r}: a name has 1 to 63 letters, digits, dots, dashes or underscores "
                "and begins with a letter or digit"
            )

    def _check_open(self) -> None:
        if self._closing.is_set():
            raise LinkClosed(f"the link to {self.endpoint} is closed")

    def _ports(self) -> str:
        first, count = self._transport.endpoint.port, self._transport.ports
        return f"port {first}" if count == 1 else f"ports {first} to {first + count - 1}"


def describe(ranges: RangeSet) -> str:
    """Ranges for a person: ``3-7, 9 (6 messages)``."""
    parts = [str(first) if end == first + 1 else f"{first}-{end - 1}" for first, end in list(ranges)[:8]]
    if len(ranges) > 8:
        parts.append(f"and {len(ranges) - 8} more ranges")
    count = ranges.count()
    return f"{', '.join(parts)} ({count} message{'s' if count != 1 else ''})"


@atexit.register
def _close_all() -> None:
    for link in list(_open_links):
        link.close()
