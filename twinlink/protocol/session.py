"""The protocol of one link: frames and time come in; frames, messages and events come out.  No I/O, no clock.

data -> order -> queue or handler -> ack;  a gap -> nak;  abandoned -> gap;
ack, nak, fragment progress -> `FeedbackDispatcher`;  hello, bye -> `PeerManager`.
"""

import struct
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from itertools import repeat

from .. import events as ev
from ..events import Event
from ..message import Message
from .context import Calls, Context
from .fragmentation import FragmentReassembler
from .frames import (
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
    Frame,
    Kind,
    MalformedFrame,
    check,
    parse_abandoned,
    parse_bundle,
)
from .peers import Path, PeerManager
from .receive.acks import AckQueue
from .receive.delivery_checks import AgeFilter, GapReporter
from .receive.flow import MESSAGE_OVERHEAD_OCTETS, PeerStream, ReceiveFlow
from .receive.nak import SelectiveRepeat
from .receive.reorder_buffer import ReorderBuffer
from .receive.unclaimed import UnclaimedLimiter
from .send.endpoint import URGENT_FLOW, SendEndpoint
from .send.feedback import FeedbackDispatcher
from .send.flow_control import MAX_UNCONSUMED

MAX_FLOWS = 1024  # flows each way: strangers cannot make a session remember more
UNCLAIMED_OCTETS = MAX_UNCONSUMED * MESSAGE_OVERHEAD_OCTETS * 7 // 8  # below what a flow may have in flight, all tiny
MALFORMED_INTERVAL_NS = 1_000_000_000  # between two events for the same reason

_MESSAGES = frozenset((DATA_WORD, RETRANSMIT_WORD))
_new = tuple.__new__  # a named tuple's own constructor takes three times as long
_unpack_header = HEADER.unpack_from


class Session:
    """Flows, peers and counters of one link.

    The loop of its driver: `receive_frame`, then send `frames_to_send`, then make the ``calls`` that are pending; and
    `on_tick` ten times a second.  One thread at a time does that.  Dictionaries are only added to, so that other
    threads may read them.

    Attributes:
        peer_manager: the peers, and the senders of this side.
        acks: those that this side sends.
        feedback: what peers say of what this side has sent.
        flows: the receiving side, by name.
        outbox: frames to send, without acks.
        malformed: by reason, the count and the monotonic time of the last event.
    """

    def __init__(
        self,
        *,
        node: str,
        epoch: int,
        window: int,
        max_payload: int,
        max_frame: int,
        path: Path,
        calls: Calls,
        call_next: Callable[[ReceiveFlow], None],
        report: Callable[[Event], None],
        mono_ns: int,
        uninterrupted: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        """``call_next(flow)`` calls the flow's handler with the next message of its queue."""
        context = self._context = Context(epoch, report, uninterrupted)
        self.outbox = context.outbox
        self.peer_manager = PeerManager(context, path, node, max_payload, mono_ns, self._on_session_end)
        self._heard_mono_ns = self.peer_manager.peers.heard_mono_ns
        self._age_filter = AgeFilter(context)
        self._gap_reporter = GapReporter(context)
        self._repair = SelectiveRepeat(context, self._gap_reporter, self._deliver)
        self.acks = AckQueue(epoch)
        self._reassembler = FragmentReassembler(max_frame)
        self.flows: dict[str, ReceiveFlow] = {}
        # Below the window of a sender like this one by a whole message: its flow control must not stop it before.
        held_octets = min(max(window - max_payload, window // 8), UNCLAIMED_OCTETS)
        self._unclaimed = UnclaimedLimiter(
            context, self.flows, held_octets, self._understands_rejection, self._gap_reporter, self._repair, self.acks
        )
        self.malformed: dict[str, list[int]] = {}
        self._by_topic: dict[bytes, tuple[ReceiveFlow, bytes]] = {}  # topic -> flow, its ack topic
        self._calls = calls
        self._call_next = call_next
        self.feedback = FeedbackDispatcher(context, self.peer_manager, calls)

    # The path of a message

    def receive_frame(self, topic: bytes, frame: Frame, mono_ns: int, now_ns: int, in_bulk: bool = False) -> None:
        """Take in a frame that arrived at this time.

        ``in_bulk``: others are close behind it, so acks may wait for `AckQueue.flush`.
        """
        context = self._context
        context.mono_ns, context.now_ns = mono_ns, now_ns
        try:
            word, length, epoch, sequence, sent_ns = _unpack_header(frame)
            if length != len(frame) - HEADER_OCTETS:
                check(frame)
            if epoch in self._heard_mono_ns:
                self._heard_mono_ns[epoch] = mono_ns
            if word in _MESSAGES:
                receive_flow, ack_topic = self._by_topic.get(topic) or self._new_flow(topic)
                stream = receive_flow.streams.get(epoch)
                if stream is None:
                    if word == RETRANSMIT_WORD:
                        return  # it is for another peer
                    stream = self._add_stream(receive_flow, epoch, sequence)
                payload = memoryview(frame)[HEADER_OCTETS:]
                message = _new(Message, (payload, receive_flow.flow, sequence, epoch, stream.node, sent_ns, now_ns))
                self._on_messages(receive_flow, ack_topic, stream, [message], word == RETRANSMIT_WORD, in_bulk)
            elif word == ACK_WORD:
                self.feedback.on_ack(topic, frame, epoch, sent_ns)
            elif word == BUNDLE_WORD:
                self._on_bundle(topic, frame, epoch, in_bulk)
            else:
                self._on_other(check(frame), topic, frame, epoch, sequence, sent_ns)
        except struct.error:
            self._count_malformed("truncated")
        except MalformedFrame as error:
            self._count_malformed(error.args[0])

    def _on_messages(
        self,
        receive_flow: ReceiveFlow,
        ack_topic: bytes,
        stream: PeerStream,
        messages: list[Message],
        retransmitted: bool,
        in_bulk: bool,
    ) -> None:
        """Take in one message, or several whose numbers are in a row: they are acknowledged together."""
        count, (_, _, first, _, _, sent_ns, received_ns) = len(messages), messages[0]
        end = first + count
        checked = receive_flow.watched or not receive_flow.subscribed
        if first == stream.tracker.next and stream.reorder_buffer is None and not checked:
            self._take_in(receive_flow, stream, messages, end, is_next=True)
        elif (
            checked or count == 1 or not self._repair.receive_run(receive_flow, stream, messages, retransmitted)
        ):  # fmt: skip
            for message in messages:
                self._on_message(receive_flow, ack_topic, stream, message, retransmitted, in_bulk)
            return
        if count == 1:
            batched = in_bulk and receive_flow.handler is None  # a handler may take its time
            self.acks.add(ack_topic, stream, (first, sent_ns, received_ns), batched)
        else:
            self.acks.add_range(ack_topic, stream, range(first, end), received_ns)

    def _take_in(
        self, receive_flow: ReceiveFlow, stream: PeerStream, messages: list[Message], end: int, is_next: bool
    ) -> None:
        """Have messages in a row, up to ``end - 1``, delivered; ``is_next``: the stream's next ones.

        Ctrl-C comes where a call ends.  So the last statements of each branch stand in a row without one: either a
        message is delivered and counted, or it is missing and will be retransmitted.  Deferring signals instead takes
        10 us.
        """
        tracker, handler, calls = stream.tracker, receive_flow.handler, self._calls
        count = len(messages)
        if handler is None or calls.running or calls.pending or receive_flow.queue:
            if handler is not None:
                calls.enqueue(self._call_next, [receive_flow] * count, receive_flow.flow)
            octets = sum([len(message[0]) for message in messages])
            if is_next:
                tracker.next = end
                tracker.received += count
            receive_flow.queued_octets += octets
            receive_flow.queue += messages
            return
        call = (handler, messages, receive_flow.flow)
        if is_next:
            tracker.next = end
            tracker.received += count
        stream.consumed = max(stream.consumed, end)
        calls.pending.append(call)

    def _on_bundle(self, topic: bytes, frame: Frame, epoch: int, in_bulk: bool) -> None:
        """Take in a bundle: runs of messages whose numbers are in a row."""
        receive_flow, ack_topic = self._by_topic.get(topic) or self._new_flow(topic)
        words, sequences, sent_ns, payloads = parse_bundle(frame, epoch)
        stream, at, count = receive_flow.streams.get(epoch), 0, len(words)
        received_ns, flow = self._context.now_ns, receive_flow.flow
        while at < count:
            retransmitted = words[at] == RETRANSMIT_WORD
            if stream is None:
                if retransmitted:
                    at += 1
                    continue
                stream = self._add_stream(receive_flow, epoch, sequences[at])
            end = _end_of_run(words, sequences, at)
            fields = zip(
                payloads[at:end], repeat(flow), sequences[at:end], repeat(epoch), repeat(stream.node), sent_ns[at:end],
                repeat(received_ns),
            )  # fmt: skip
            messages = list(map(_new, repeat(Message), fields))
            self._on_messages(receive_flow, ack_topic, stream, messages, retransmitted, in_bulk=True)
            at = end
        if not in_bulk or self._calls.pending:
            self.acks.flush()

    # Off the path: what is not simply the next message of a flow without checks

    def _on_message(
        self,
        receive_flow: ReceiveFlow,
        ack_topic: bytes,
        stream: PeerStream,
        message: Message,
        retransmitted: bool,
        in_bulk: bool,
    ) -> None:
        payload, _, sequence, _, _, sent_ns, received_ns = message
        if (
            not receive_flow.subscribed
            and not self._unclaimed.admit(len(payload))
            and self._unclaimed.reject(receive_flow, ack_topic, stream, sequence, sent_ns)
        ):
            return
        tracker = stream.tracker
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
        if new and receive_flow.watched and not self._age_filter.admits(receive_flow, stream, message):
            new = False
            if is_next:
                tracker.next = sequence + 1
                tracker.received += 1
        if new:
            self._take_in(receive_flow, stream, [message], sequence + 1, is_next)
        batched = in_bulk and receive_flow.handler is None
        self.acks.add(ack_topic, stream, (sequence, sent_ns, received_ns), batched)

    def _deliver(
        self, receive_flow: ReceiveFlow, stream: PeerStream, reorder_buffer: ReorderBuffer, message: Message
    ) -> None:
        """A message whose turn has come in the reorder buffer goes to the application."""
        if receive_flow.watched and not self._age_filter.admits(receive_flow, stream, message):
            reorder_buffer.next_due += 1
            return
        if receive_flow.handler is not None:
            self._calls.enqueue(self._call_next, (receive_flow,), receive_flow.flow)
        size = len(message.payload)
        reorder_buffer.next_due += 1  # in a row, as in `_take_in`
        receive_flow.queued_octets += size
        receive_flow.queue.append(message)

    def _on_other(self, kind: Kind, topic: bytes, frame: Frame, epoch: int, sequence: int, sent_ns: int) -> None:
        if kind is Kind.NAK:
            self.feedback.on_nak(topic, frame, epoch, sent_ns)
        elif kind is Kind.ACK_RANGE:
            self.feedback.on_ack(topic, frame, epoch, sent_ns, is_range=True)
        elif kind is Kind.ABANDONED:
            with self._context.uninterrupted():
                self._on_abandoned(topic, frame, epoch, sequence)
        elif kind is Kind.FRAGMENT:
            self._on_fragment(topic, frame, epoch, sent_ns)
        elif kind is Kind.FRAGMENT_PROGRESS:
            self.feedback.on_fragment_progress(topic, frame, epoch)
        elif topic == HELLO_TOPIC:
            with self._context.uninterrupted():
                self._on_hello(kind, frame, epoch, sequence)
        else:
            raise MalformedFrame("topic")

    def _on_fragment(self, topic: bytes, frame: Frame, epoch: int, sent_ns: int) -> None:
        _, ack_topic = self._by_topic.get(topic) or self._new_flow(topic)
        context, known = self._context, epoch in self._heard_mono_ns
        received = self._reassembler.receive(topic, frame, known)
        if isinstance(received, memoryview):
            self.receive_frame(topic, received, context.mono_ns, context.now_ns)  # messages of that length are rare
        elif known:
            progress = self.acks.fragment_progress(epoch, sent_ns, received, context.now_ns)
            context.outbox.append((ack_topic, progress))

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
            receive_flow.consume_gaps(stream)
            self.acks.add_credit_update(ack_topic, stream)  # the last one may have been lost as well

    def _on_hello(self, kind: Kind, frame: Frame, epoch: int, number: int) -> None:
        if epoch == self._context.epoch:
            raise MalformedFrame("reflected")
        if kind is Kind.BYE:
            self.peer_manager.on_bye(epoch)
            return
        mono_ns = self._context.mono_ns
        received = self.peer_manager.on_hello(epoch, number, frame, mono_ns)
        if received is None:
            return
        hello, new = received
        if self.peer_manager.on_start_sequence(epoch, hello, mono_ns):
            self._on_start_sequence(epoch)
        for flow in hello.detect & self.flows.keys():
            if (stream := self.flows[flow].streams.get(epoch)) is not None and stream.repairs:
                stream.repairs = False  # data overtook the hello that says so: what is missing is not requested
                self._repair.abandon(self.flows[flow], stream)
        for receive_flow in list(self.flows.values()) if new else ():  # data may overtake the first hello, too
            if (stream := receive_flow.streams.get(epoch)) is not None:
                stream.node = hello.node
                stream.repairs = hello.repairs and receive_flow.flow not in hello.detect
                if not stream.repairs:  # what is missing will not be requested
                    self._repair.abandon(receive_flow, stream)

    def _on_start_sequence(self, epoch: int) -> None:
        """A peer has said from where on it owes this side something, after some of it has come."""
        for receive_flow in list(self.flows.values()):
            stream = receive_flow.streams.get(epoch)
            if stream is None:
                continue
            first_arrived, stream.first_arrived = stream.first_arrived, None
            if first_arrived is not None:
                first = self.peer_manager.start_sequence(epoch, receive_flow.flow)
                if stream.repairs:
                    self._repair.on_start_sequence(receive_flow, stream, min(first, first_arrived))
                elif first < first_arrived:
                    self._gap_reporter.report_gap(receive_flow, stream, first, first_arrived)
            if stream.repairs:
                self._repair.resend_nak(f"ack/{receive_flow.flow}".encode(), stream)

    def _on_session_end(self, epoch: int, successor: int | None) -> None:
        """A session will not return: what is missing of it is a gap, and what is held behind that is delivered.

        But not after messages of its ``successor``, which may be here before it is known to be one; and whatever still
        comes of a session that has a successor is stale.
        """
        self._reassembler.forget(epoch)
        for receive_flow in list(self.flows.values()):
            if (stream := receive_flow.streams.get(epoch)) is not None:
                newer = None if successor is None else receive_flow.streams.get(successor)
                self._repair.abandon(receive_flow, stream, delivers=newer is None or not newer.tracker.received)
                if successor is not None:
                    stream.superseded = True
                    stream.tracker.next = MAX_SEQUENCE + 1  # nothing is simply the next one any more

    # What goes out

    def frames_to_send(self, now_ns: int) -> Iterator[tuple[bytes, bytes]]:
        """Topic and frame of each frame that is due, in order.  A hello may be due besides: `hello`."""
        outbox = self._context.outbox
        while outbox:
            yield outbox.popleft()
        yield from self.acks.frames(now_ns)

    # Flows

    def flow(self, name: str) -> ReceiveFlow:
        """The receiving side of a flow, made when it is first named here or by a peer.  May be called by any thread."""
        receive_flow = self.flows.get(name)
        if receive_flow is None:
            receive_flow = self.flows.setdefault(name, ReceiveFlow(name))  # another thread may be quicker
            self.peer_manager.has_urgent |= name == URGENT_FLOW
            self._by_topic.setdefault(f"traffic/{name}".encode(), (receive_flow, f"ack/{name}".encode()))
        return receive_flow

    def add_sender(self, sender: SendEndpoint) -> None:
        """Have a sender told of peers and acks.  May be called by any thread."""
        self.peer_manager.add_sender(sender)
        self.feedback.add_sender(sender)

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
        if epoch == self._context.epoch:
            raise MalformedFrame("reflected")
        peers, flow = self.peer_manager, receive_flow.flow
        peer = peers.find(epoch)
        if (evicted := receive_flow.evictable_stream(peers.up)) is not None:
            self._repair.abandon(receive_flow, evicted)
            receive_flow.forget(evicted)
        if peer is None:
            return receive_flow.add_stream(epoch, None, None, False)
        first, start_known = peers.start_sequence(epoch, flow), peers.start_known(epoch)
        repairs = peer.repairs and flow not in peer.detect
        if repairs or start_known:
            first = min(first, sequence)  # a hello may overtake data
        elif peer.repairs:
            first = sequence  # what is missing before it shows when the peer has said what it owes this side
        stream = receive_flow.add_stream(epoch, peer.node, first, repairs)
        stream.first_arrived = sequence if peer.repairs and not start_known else None
        return stream

    def _understands_rejection(self, epoch: int) -> bool:
        peer = self.peer_manager.find(epoch)
        return peer is not None and peer.repairs

    # Time

    def on_tick(self, mono_ns: int, now_ns: int, drained_mono_ns: int) -> int | None:
        """To be called ten times a second or more; ``drained_mono_ns`` is when the transport was last found empty.

        Returns a multiple of the usual connection time-out where the transport is to connect anew, else None.
        """
        context = self._context
        context.mono_ns, context.now_ns = mono_ns, now_ns
        timeout_factor = self.peer_manager.on_tick(drained_mono_ns)
        self._unclaimed.on_tick()
        for receive_flow in list(self.flows.values()):
            if receive_flow.watched:
                self._age_filter.report_changes(receive_flow)
            if receive_flow.handler is not None and receive_flow.queue and not self._calls.pending:
                # Ctrl-C has cut off a call.
                self._calls.enqueue(self._call_next, [receive_flow] * len(receive_flow.queue), receive_flow.flow)
        return timeout_factor

    def report_undelivered(self, mono_ns: int, now_ns: int) -> None:
        """Report what was not delivered and has not been reported yet: the session ends."""
        context = self._context
        context.mono_ns, context.now_ns = mono_ns, now_ns
        self._unclaimed.report()
        for receive_flow in list(self.flows.values()):
            self._age_filter.report_changes(receive_flow)

    def _count_malformed(self, reason: str) -> None:
        context = self._context
        state = self.malformed.setdefault(reason, [0, 0])
        state[0] += 1
        if state[0] == 1 or context.mono_ns - state[1] > MALFORMED_INTERVAL_NS:
            state[1] = context.mono_ns
            context.report(ev.Malformed(context.now_ns, reason, state[0]))


def _end_of_run(words: tuple[int, ...], sequences: tuple[int, ...], at: int) -> int:
    """The index behind the run that begins at this one: same kind, numbers in a row, at most MAX_ACK_RANGE."""
    word, first, count = words[at], sequences[at], len(words)
    end = min(count, at + MAX_ACK_RANGE)
    if sequences[at:end] == tuple(range(first, first + end - at)) and words[at:end].count(word) == end - at:
        return end  # mostly a bundle is one run
    end = at + 1
    while end < count and words[end] == word and sequences[end] == first + end - at and end - at < MAX_ACK_RANGE:
        end += 1
    return end
