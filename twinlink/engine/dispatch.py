"""The demultiplexer of frames that have arrived: the receiving half of a link, called by the thread that leads.

data -> order checked -> queue -> ack sent -> handler;  a gap -> ask sent;  gone -> gap reported;
ack, ask, progress -> `FeedbackDispatcher`;  hello, bye -> `PeerManager`.
"""

import logging
import struct
import threading
import time
from collections.abc import Callable
from itertools import repeat

from .. import events as ev
from ..events import Event
from ..message import Message
from ..options import URGENT_FLOW
from ..process.signals import defer_signals
from ..protocol.fragmentation import FragmentReassembler
from ..protocol.frames import (
    ACK_WORD,
    BUNDLE_WORD,
    DATA_WORD,
    FLOW_NAME,
    HEADER,
    HEADER_OCTETS,
    HELLO_TOPIC,
    MAX_ACK_RANGE,
    MAX_SEQUENCE,
    RETRANSMIT_WORD,
    Bundle,
    Kind,
    MalformedFrame,
    check,
    parse_abandoned,
    parse_bundle,
)
from ..protocol.receive.flow import MESSAGE_OVERHEAD_OCTETS, PeerStream, ReceiveFlow
from ..protocol.receive.reorder_buffer import ReorderBuffer
from ..protocol.send.flow_control import MAX_UNCONSUMED
from ..transports import Transport
from ..transports.base import Frame
from .acks import AckSender
from .callbacks import CallbackQueue
from .delivery_checks import AgeFilter, GapReporter
from .feedback import FeedbackDispatcher
from .nak import SelectiveRepeat
from .peers import PeerManager
from .unclaimed import UnclaimedLimiter

MAX_FLOWS = 1024  # flows each way; strangers can make us remember no more
UNCLAIMED_OCTETS = MAX_UNCONSUMED * MESSAGE_OVERHEAD_OCTETS * 7 // 8  # below what a flow may have in flight, all tiny

_monotonic_ns, _time_ns = time.monotonic_ns, time.time_ns
_new = tuple.__new__  # a named tuple's own constructor takes three times as long
_unpack_header = HEADER.unpack_from

logger = logging.getLogger("twinlink")


class FrameDispatcher:
    """Flows, peers and counters of one link.

    `dispatch`, `on_tick` and all they call run on the leading thread; the dictionaries are only added to, under a
    lock, so that other threads may read them.  Handlers, of events too, are called when no lock is held.

    Attributes:
        peer_manager: who is at the other end.
        ack_sender: those that this side sends.
        callbacks: those of the application's handlers.
        feedback: for what peers say about what this side has sent.
    """

    def __init__(
        self,
        transport: Transport,
        node: str,
        epoch: int,
        window: int,
        max_payload: int,
        report: Callable[[Event], None],
    ) -> None:
        self.peer_manager = PeerManager(transport, node, epoch, max_payload, report, self._on_session_end)
        self._heard_mono_ns = self.peer_manager.peers.heard_mono_ns
        self._age_filter = AgeFilter(report)
        self._gap_reporter = GapReporter(report)
        self._repair = SelectiveRepeat(transport, epoch, report, self._gap_reporter, self._deliver)
        self.ack_sender = AckSender(transport, epoch)
        self._reassembler = FragmentReassembler(transport.max_frame)
        self.flows: dict[str, ReceiveFlow] = {}
        # Below the window of a sender like us by a whole message: who is rejected must not be held up before.
        held_octets = min(max(window - max_payload, window // 8), UNCLAIMED_OCTETS)
        self._unclaimed = UnclaimedLimiter(
            self.flows, held_octets, self.peer_manager, self._gap_reporter, self._repair, self.ack_sender, report
        )
        self._flows_lock = threading.Lock()
        self.malformed: dict[str, list[int]] = {}  # reason -> count, monotonic ns of the last event
        self._epoch = epoch
        self._report = report
        self._by_topic: dict[bytes, tuple[ReceiveFlow, bytes]] = {}  # topic -> flow, its ack topic
        self.callbacks = CallbackQueue(report)
        self.feedback = FeedbackDispatcher(epoch, self.peer_manager, self.callbacks)
        self._on_ack = self.feedback.on_ack  # on the path of every message

    # The path of a message

    def dispatch(self, topic: bytes, frame: Frame, mono_ns: int, ack_now: bool) -> None:
        """Take in a frame that arrived at ``mono_ns``; its ack goes out at once, or with `AckSender.send_batch`."""
        try:
            word, length, epoch, sequence, sent_ns = _unpack_header(frame)
            if length != len(frame) - HEADER_OCTETS:
                check(frame)
            if epoch in self._heard_mono_ns:
                self._heard_mono_ns[epoch] = mono_ns
            retransmitted = word == RETRANSMIT_WORD
            if word == DATA_WORD or retransmitted:
                receive_flow, ack_topic = self._by_topic.get(topic) or self._new_flow(topic)
                if not retransmitted or epoch in receive_flow.streams:  # else it is for another peer
                    payload = memoryview(frame)[HEADER_OCTETS:]
                    ack_now = ack_now or receive_flow.handler is not None  # which may take its time
                    self._on_data(
                        receive_flow, ack_topic, payload, epoch, sequence, sent_ns, _time_ns(), ack_now, retransmitted
                    )
            elif word == ACK_WORD:
                self._on_ack(topic, frame, epoch, sent_ns, mono_ns)
            elif word == BUNDLE_WORD:
                self._on_bundle(topic, frame, epoch, ack_now)
            else:
                kind = check(frame)
                if kind is Kind.NAK:
                    self.feedback.on_nak(topic, frame, epoch, sent_ns, mono_ns)
                elif kind is Kind.ACK_RANGE:
                    self._on_ack(topic, frame, epoch, sent_ns, mono_ns, is_range=True)
                elif kind is Kind.ABANDONED:
                    self._on_abandoned(topic, frame, epoch, sequence)
                elif kind is Kind.FRAGMENT:
                    self._on_fragment(topic, frame, epoch, sent_ns, mono_ns)
                elif kind is Kind.FRAGMENT_PROGRESS:
                    self.feedback.on_fragment_progress(topic, frame, epoch, mono_ns)
                elif topic == HELLO_TOPIC:
                    self._on_hello(kind, frame, epoch, sequence, mono_ns)
                else:
                    raise MalformedFrame("topic")
        except struct.error:
            self._count_malformed("truncated", mono_ns)
        except MalformedFrame as error:
            self._count_malformed(error.args[0], mono_ns)
        finally:  # also when a transport fails: nothing of the next frame may come before
            if self.callbacks.pending:
                self.callbacks.run()

    def _on_data(
        self,
        receive_flow: ReceiveFlow,
        ack_topic: bytes,
        payload: Frame,
        epoch: int,
        sequence: int,
        sent_ns: int,
        received_ns: int,
        ack_now: bool,
        retransmitted: bool,
    ) -> None:
        stream = receive_flow.streams.get(epoch) or self._add_stream(receive_flow, epoch, sequence)
        handler, size = receive_flow.handler, len(payload)
        if (
            handler is None
            and not receive_flow.subscribed
            and not self._unclaimed.admit(size)
            and self._unclaimed.reject(receive_flow, ack_topic, stream, sequence, sent_ns)
        ):
            return
        callbacks, tracker = self.callbacks, stream.tracker
        message = _new(Message, (payload, receive_flow.flow, sequence, epoch, stream.node, sent_ns, received_ns))
        new = is_next = sequence == tracker.next and stream.reorder_buffer is None
        if not is_next:
            if stream.superseded:
                stream.stale += 1
            elif stream.repairs:
                if sequence in stream.rejected:
                    self._unclaimed.reject(receive_flow, ack_topic, stream, sequence, sent_ns)
                    return
                if not self._repair.receive(receive_flow, ack_topic, stream, message, retransmitted):
                    return  # its sender counts it as lost, and so does this side
            else:
                new = self._gap_reporter.on_arrival(receive_flow, stream, sequence)
        if new and receive_flow.watched:
            new = self._age_filter.admits(receive_flow, stream, message)
        waits = new and (handler is None or callbacks.running or bool(callbacks.pending or receive_flow.queue))
        if waits and handler is not None:
            callbacks.enqueue(self.deliver_next, receive_flow, receive_flow.flow)
        # In a row, without a call that ends in between: there Ctrl-C comes, and the message would be gone.
        if is_next:
            tracker.next = sequence + 1
            tracker.received += 1
        if waits:
            receive_flow.queued_octets += size
            receive_flow.queue.append(message)
        elif new and sequence >= stream.consumed:
            stream.consumed = sequence + 1
        # The ack goes out last, except that a handler may take its time: what a thread still does after sending
        # keeps the transport's own threads off the processor, and costs a round trip several times what it takes.
        try:
            if ack_now:
                self.ack_sender.send_now(ack_topic, stream, sequence, sent_ns, received_ns)
            else:
                self.ack_sender.add_to_batch(ack_topic, stream, (sequence, sent_ns, received_ns))
        finally:  # whether or not a transport fails, it has been taken
            if new and handler is not None and not waits:
                call = callbacks.call if ack_now else callbacks.enqueue
                call(handler, message, receive_flow.flow)

    def _on_bundle(self, topic: bytes, frame: Frame, epoch: int, ack_now: bool) -> None:
        """What came together is acknowledged together."""
        receive_flow, ack_topic = self._by_topic.get(topic) or self._new_flow(topic)
        received_ns = _time_ns()
        bundle = parse_bundle(frame, epoch)
        stream = receive_flow.streams.get(epoch)
        if stream is None or not self._on_run(receive_flow, ack_topic, stream, bundle, received_ns):
            for word, sequence, sent_ns, payload in zip(*bundle, strict=True):
                retransmitted = word == RETRANSMIT_WORD
                if not retransmitted or epoch in receive_flow.streams:
                    self._on_data(
                        receive_flow, ack_topic, payload, epoch, sequence, sent_ns, received_ns, False, retransmitted
                    )
        if ack_now or self.callbacks.pending:
            self.ack_sender.send_batch()

    def _on_run(
        self, receive_flow: ReceiveFlow, ack_topic: bytes, stream: PeerStream, bundle: Bundle, received_ns: int
    ) -> bool:
        """What `_on_data` does, for all of a bundle at once: that costs half, in bulk and in a repair.

        False, and nothing is done, unless the messages are in a row and there is nothing else to think of.
        """
        words, sequences, sent_ns, payloads = bundle
        if not 0 < len(words) <= MAX_ACK_RANGE or not receive_flow.subscribed or receive_flow.watched:
            return False
        first, count = sequences[0], len(sequences)
        end = first + count
        if sequences != tuple(range(first, end)):
            return False
        tracker = stream.tracker
        in_order = stream.reorder_buffer is None
        if in_order and first != tracker.next:
            return False
        flow, epoch, node, handler = receive_flow.flow, stream.epoch, stream.node, receive_flow.handler
        fields = zip(payloads, repeat(flow), sequences, repeat(epoch), repeat(node), sent_ns, repeat(received_ns))
        messages = list(map(_new, repeat(Message), fields))
        waits = in_order and (
            handler is None or self.callbacks.running or bool(self.callbacks.pending or receive_flow.queue)
        )
        if in_order:
            octets = sum(map(len, payloads))
            if waits and handler is not None:
                for _ in messages:
                    self.callbacks.enqueue(self.deliver_next, receive_flow, flow)
            tracker.next = end  # in a row, as above
            tracker.received += count
            if waits:
                receive_flow.queued_octets += octets
                receive_flow.queue += messages
            elif end > stream.consumed:
                stream.consumed = end
        elif words.count(words[0]) != count or not self._repair.receive_run(
            receive_flow, stream, messages, words[0] == RETRANSMIT_WORD
        ):
            return False
        try:
            self.ack_sender.send_range(ack_topic, stream, first, end, received_ns)
        finally:
            if in_order and not waits and handler is not None:
                self.callbacks.call_each(handler, messages, flow)
        return True

    # Off the path: what else arrives

    def _deliver(
        self, receive_flow: ReceiveFlow, stream: PeerStream, reorder_buffer: ReorderBuffer, message: Message
    ) -> None:
        """A message whose turn has come in a repair goes to the application, to its handler when the frame is done."""
        if receive_flow.watched and not self._age_filter.admits(receive_flow, stream, message):
            reorder_buffer.next_due += 1
            return
        if receive_flow.handler is not None:
            self.callbacks.enqueue(self.deliver_next, receive_flow, receive_flow.flow)
        size = len(message.payload)
        reorder_buffer.next_due += 1  # in a row, as above
        receive_flow.queued_octets += size
        receive_flow.queue.append(message)

    def deliver_next(self, receive_flow: ReceiveFlow) -> None:
        """Call the handler with what has come before it was there, or while one was running, which fills the window."""
        taken, handler = receive_flow.next_message(), receive_flow.handler
        if taken is None or handler is None:
            return
        message, stream = taken
        if stream is None and not receive_flow.queue:  # its acks have left, and none may follow
            stream = receive_flow.streams.get(message.epoch)
        if stream is not None:
            self.ack_sender.send_consumed(f"ack/{receive_flow.flow}".encode(), stream)
        handler(message)

    def _on_fragment(self, topic: bytes, frame: Frame, epoch: int, sent_ns: int, mono_ns: int) -> None:
        _, ack_topic = self._by_topic.get(topic) or self._new_flow(topic)
        known = epoch in self._heard_mono_ns
        received = self._reassembler.receive(topic, frame, known)
        if isinstance(received, memoryview):
            self.dispatch(topic, received, mono_ns, True)  # parts come close together, messages of that length do not
        elif known:
            self.ack_sender.send_fragment_progress(ack_topic, epoch, sent_ns, received)

    @defer_signals
    def _on_abandoned(self, topic: bytes, frame: Frame, epoch: int, next_to_send: int) -> None:
        reason, ranges = parse_abandoned(frame)
        if next_to_send > MAX_SEQUENCE:
            raise MalformedFrame("sequence")
        receive_flow, ack_topic = self._by_topic.get(topic) or self._new_flow(topic)
        stream = receive_flow.streams.get(epoch)
        if stream is None:
            if self.peer_manager.find(epoch) is None:
                return
            stream = self._add_stream(receive_flow, epoch, next_to_send)
        if stream.repairs:
            self._repair.on_abandoned(receive_flow, ack_topic, stream, reason, ranges, next_to_send)
        elif not ranges and 0 <= stream.tracker.next < next_to_send:  # nothing comes later that would show the gap
            self._gap_reporter.report_gap(receive_flow, stream, stream.tracker.next, next_to_send)
        if not ranges:
            self.ack_sender.send_batch()
            receive_flow.consume_gaps(stream)
            self.ack_sender.send(ack_topic, stream, [])  # how far it is consumed may have been lost as well

    @defer_signals
    def _on_hello(self, kind: Kind, frame: Frame, epoch: int, number: int, mono_ns: int) -> None:
        if epoch == self._epoch:
            raise MalformedFrame("reflected")
        if kind is Kind.BYE:
            self.peer_manager.on_bye(epoch)
            return
        received = self.peer_manager.on_hello(epoch, number, frame, mono_ns)
        if received is None:
            return
        hello, new = received
        if self.peer_manager.on_start_sequence(epoch, hello, mono_ns):
            self._on_start_sequence(epoch)
        for flow in hello.detect & self.flows.keys():
            if (stream := self.flows[flow].streams.get(epoch)) is not None and stream.repairs:
                stream.repairs = False  # data has overtaken the hello that says so: what is missing is not asked for
                self._repair.abandon(self.flows[flow], stream)
        for receive_flow in list(self.flows.values()) if new else ():  # data may overtake the first one, too
            if (stream := receive_flow.streams.get(epoch)) is not None:
                stream.node = hello.node
                stream.repairs = hello.repairs and receive_flow.flow not in hello.detect
                if not stream.repairs:  # what is missing will not be asked for
                    self._repair.abandon(receive_flow, stream)

    def _on_start_sequence(self, epoch: int) -> None:
        """A peer has said from where on it owes us something, after some of it has come."""
        for receive_flow in list(self.flows.values()):
            stream = receive_flow.streams.get(epoch)
            if stream is not None and stream.first_arrived is not None:
                first, first_arrived, stream.first_arrived = (
                    self.peer_manager.start_sequence(epoch, receive_flow.flow),
                    stream.first_arrived,
                    None,
                )
                if stream.repairs:
                    self._repair.on_start_sequence(receive_flow, stream, min(first, first_arrived))
                elif first < first_arrived:
                    self._gap_reporter.report_gap(receive_flow, stream, first, first_arrived)
            if stream is not None and stream.repairs:
                self._repair.resend_nak(f"ack/{receive_flow.flow}".encode(), stream)

    def _on_session_end(self, epoch: int, successor: int | None) -> None:
        """A session will not come back: what is missing of it is a gap, and what is held behind that is delivered.

        But not after messages of its ``successor``, which may be here before it is known to be one; and whatever still
        comes of a session that has one is stale.
        """
        self._reassembler.forget(epoch)
        for receive_flow in list(self.flows.values()):
            if (stream := receive_flow.streams.get(epoch)) is not None:
                newer = None if successor is None else receive_flow.streams.get(successor)
                self._repair.abandon(receive_flow, stream, delivers=newer is None or not newer.tracker.received)
                if successor is not None:
                    stream.superseded = True
                    stream.tracker.next = MAX_SEQUENCE + 1  # nothing is simply the next one any more

    # Off the path: flows, time

    def flow(self, name: str) -> ReceiveFlow:
        """The receiving side of a flow, made when it is first named here or by a peer."""
        with self._flows_lock:
            receive_flow = self.flows.get(name)
            if receive_flow is None:
                receive_flow = self.flows[name] = ReceiveFlow(name)
                self.peer_manager.has_urgent |= name == URGENT_FLOW
                self._by_topic[f"traffic/{name}".encode()] = (receive_flow, f"ack/{name}".encode())
            return receive_flow

    def _new_flow(self, topic: bytes) -> tuple[ReceiveFlow, bytes]:
        """A flow that a peer has named first, and its ack topic.  Raises MalformedFrame."""
        prefix, _, name = bytes(topic).partition(b"/")
        flow = name.decode("ascii", "replace")
        if prefix != b"traffic" or not FLOW_NAME.fullmatch(flow):
            raise MalformedFrame("topic")
        if len(self.flows) >= MAX_FLOWS:
            raise MalformedFrame("flows")
        self.flow(flow)
        return self._by_topic[bytes(topic)]

    def _add_stream(self, receive_flow: ReceiveFlow, epoch: int, sequence: int) -> PeerStream:
        """Begin a sender session on a flow with the message that has come first."""
        if epoch == self._epoch:
            raise MalformedFrame("reflected")
        peer = self.peer_manager.find(epoch)
        if (evicted := receive_flow.evictable_stream(self.peer_manager.up)) is not None:
            self._repair.abandon(receive_flow, evicted)
            receive_flow.forget(evicted)
        if peer is None:
            return receive_flow.add_stream(epoch, None, None, False)
        first, start_known = (
            self.peer_manager.start_sequence(epoch, receive_flow.flow),
            self.peer_manager.start_known(epoch),
        )
        repairs = peer.repairs and receive_flow.flow not in peer.detect
        if repairs or start_known:
            first = min(first, sequence)  # a hello may overtake data
        elif peer.repairs:
            first = sequence  # what is missing before it shows when the peer has said what it owes us
        stream = receive_flow.add_stream(epoch, peer.node, first, repairs)
        stream.first_arrived = sequence if peer.repairs and not start_known else None
        return stream

    def on_tick(self, now_mono_ns: int, drained_mono_ns: int) -> None:
        """To be called ten times a second or more; ``drained_mono_ns`` is when the transport was last found empty."""
        self.peer_manager.on_tick(now_mono_ns, drained_mono_ns)
        self._unclaimed.on_tick(now_mono_ns)
        for receive_flow in list(self.flows.values()):
            if receive_flow.watched:
                self._age_filter.report_changes(receive_flow)
            if receive_flow.handler is not None and not self.callbacks.pending:
                for _ in range(len(receive_flow.queue)):  # Ctrl-C has cut off a call
                    self.callbacks.enqueue(self.deliver_next, receive_flow, receive_flow.flow)
        self.callbacks.run()
        if not self.callbacks.pending and not self.callbacks.running:
            self.feedback.callbacks_done()

    def report_undelivered(self) -> None:
        """Report what was not delivered and has not been reported yet: the link ends."""
        self._unclaimed.report()
        for receive_flow in list(self.flows.values()):
            self._age_filter.report_changes(receive_flow)

    def _count_malformed(self, reason: str, mono_ns: int) -> None:
        state = self.malformed.setdefault(reason, [0, 0])
        state[0] += 1
        if state[0] == 1 or mono_ns - state[1] > 1_000_000_000:
            state[1] = mono_ns
            self._report(ev.Malformed(_time_ns(), reason, state[0]))
