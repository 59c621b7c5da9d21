"""The receiving side of all flows of a session: messages come in, in frames of any kind.  No I/O, no clock."""

from itertools import repeat

from ...message import Message
from ...run import Run
from ..context import MESSAGES, QUEUED, Context
from ..fragmentation import FragmentReassembler, FrameTooLong
from ..frames import (
    HEADER_OCTETS,
    MAX_PAYLOAD,
    MAX_SEQUENCE,
    RETRANSMIT_WORD,
    RUN_AT,
    AnyFrame,
    Frame,
    Hello,
    Kind,
    MalformedFrame,
    SplitFrame,
    nak_body,
    parse_abandoned,
    parse_bundle,
    parse_run,
)
from ..limits import LimitCounters, Limits
from ..peers import PeerManager
from ..send.flow_control import MAX_UNCONSUMED
from .acks import AckQueue, end_of_run
from .age_filter import AgeFilter
from .flow import MESSAGE_OVERHEAD_OCTETS, PeerStream, ReceiveFlow
from .flows import FlowTable, ack_topic
from .gap_detection import GapDetection
from .nak import SelectiveRepeat
from .reorder_buffer import ReorderBuffer
from .unclaimed import UnclaimedLimiter
from .window import ReceiveWindow

UNCLAIMED_OCTETS = MAX_UNCONSUMED * MESSAGE_OVERHEAD_OCTETS * 7 // 8  # below what a flow may have in flight, all tiny

_ONE = range(1)
_new = tuple.__new__  # a named tuple's own constructor takes three times as long


class MessageReceiver:
    """data -> order -> queue or handler -> ack;  a gap -> nak;  abandoned -> gap.

    Methods that take a frame raise MalformedFrame.

    Attributes:
        flows: by name.
        flow: the receiving side of a flow, made when it is first named.
        acks: that are to be sent.
        awaits_tick: some flow may have something to announce, to request or to report.
        report_refused: sends senders a refusal of what there was no room for.
    """

    def __init__(
        self, context: Context, peer_manager: PeerManager, limits: Limits, limit_counters: LimitCounters
    ) -> None:
        self.acks = AckQueue(context.epoch)
        self._context, self._peer_manager = context, peer_manager
        self._deliveries = context.deliveries
        self.awaits_tick = False
        self._age_filter = AgeFilter(context)
        self._repair = SelectiveRepeat(context, self._deliver)
        self._detection = GapDetection(context, self._deliver_at_once)
        window = limits.window
        self._window = ReceiveWindow(
            context, window, limits.receive_buffer, self._repair, limit_counters, lambda: peer_manager.up
        )
        self._flow_table = FlowTable(
            context, peer_manager, self._repair, self._detection, self._window, limits.max_flows, limit_counters
        )
        self.report_refused = self._window.report_refused
        self.flow, self.flows = self._flow_table.flow, self._flow_table.flows
        self._by_topic, self._add_flow = self._flow_table.by_topic, self._flow_table.add
        self._reassembler = FragmentReassembler(limits.max_payload + HEADER_OCTETS, limits.receive_buffer // 4)
        self._limit_counters = limit_counters
        # Below the window of a sender like this one by a whole message: its flow control must not stop it before.
        held_octets = min(max(window - limits.max_payload, window // 8), UNCLAIMED_OCTETS)
        self._unclaimed = UnclaimedLimiter(context, self.flows, held_octets, self._understands_rejection, self.acks)

    # The path of a message

    def on_message(
        self, topic: bytes, frame: AnyFrame, epoch: int, sequence: int, sent_ns: int, retransmitted: bool, in_bulk: bool
    ) -> None:
        """Take in a data or retransmit frame."""
        self.awaits_tick = True
        receive_flow = self._by_topic.get(topic) or self._add_flow(topic, epoch)
        if receive_flow is None:
            self._unclaimed.reject_unheld(ack_topic(topic), epoch, ((sequence, sent_ns),))
            return
        stream = receive_flow.streams.get(epoch)
        if stream is None:
            if retransmitted:
                return  # it is for another peer
            stream = self._flow_table.add_stream(receive_flow, epoch, sequence)
        payload = memoryview(frame.payload) if type(frame) is SplitFrame else memoryview(frame)[HEADER_OCTETS:]
        stream.received_octets += (size := len(payload))
        fields = (payload, receive_flow.flow, sequence, epoch, stream.node, sent_ns, self._context.now_ns)
        message = _new(Message, fields)
        if (
            sequence != stream.tracker.next
            or not stream.in_order
            or receive_flow.watched
            or not receive_flow.subscribed
        ):
            self._on_message(stream, message, retransmitted, in_bulk and receive_flow.handler is None)
            return
        # The fast lane: what `_take_in` does for several, for one message that is its stream's next, on a flow without
        # checks.  A frame takes 1.9 us with it, and 2.3 us without.
        tracker, handler, deliveries = stream.tracker, receive_flow.handler, self._deliveries
        if handler is None or deliveries or receive_flow.queue:
            if stream.waiting_octets + size > stream.granted_octets or len(receive_flow.queue) > MAX_UNCONSUMED:
                self._on_message(stream, message, retransmitted, in_bulk and handler is None)
                return
            if handler is not None:
                deliveries.append((receive_flow, _ONE, receive_flow.flow, QUEUED))
            tracker.next = sequence + 1  # from here on as in `_take_in`
            tracker.received += 1
            stream.waiting_octets += size
            receive_flow.queue.append(message)
        else:
            tracker.next = sequence + 1
            tracker.received += 1
            if sequence >= stream.consumed:
                stream.consumed = sequence + 1
            deliveries.append((handler, (message,), receive_flow.flow, MESSAGES))
        # What has a handler is acknowledged at once: the handler may take its time.
        record, acks = (sequence, sent_ns, self._context.now_ns), self.acks
        if (in_bulk and handler is None) or acks.batch_for is not None:
            acks.add(stream, record, in_bulk and handler is None)
        else:
            acks.due.append((stream, (record,), 0))  # as `AckQueue.add`

    def on_bundle(self, topic: bytes, frame: Frame, epoch: int, in_bulk: bool) -> None:
        """Take in a bundle: runs of messages whose numbers are in a row."""
        self.awaits_tick = True
        receive_flow = self._by_topic.get(topic) or self._add_flow(topic, epoch)
        words, sequences, sent_ns, payloads = parse_bundle(frame, epoch)
        if receive_flow is None:
            self._unclaimed.reject_unheld(ack_topic(topic), epoch, tuple(zip(sequences, sent_ns, strict=True)))
            return
        stream, at, count = receive_flow.streams.get(epoch), 0, len(words)
        received_ns, flow = self._context.now_ns, receive_flow.flow
        while at < count:
            retransmitted = words[at] == RETRANSMIT_WORD
            if stream is None:
                if retransmitted:
                    at += 1
                    continue
                stream = self._flow_table.add_stream(receive_flow, epoch, sequences[at])
            end = end_of_run(words, sequences, at)
            stream.received_octets += sum(map(len, payloads[at:end]))
            fields = zip(
                payloads[at:end], repeat(flow), sequences[at:end], repeat(epoch), repeat(stream.node), sent_ns[at:end],
                repeat(received_ns),
            )  # fmt: skip
            has_room = self._window.has_room(stream, len(frame))
            messages = list(map(_new, repeat(Message), fields))
            self._on_run(stream, messages, retransmitted, has_room)
            at = end
        if not in_bulk or self._deliveries:
            self.acks.flush()

    def on_run(self, topic: bytes, frame: Frame, epoch: int, first: int, sent_ns: int) -> None:
        """Take in a run; where it is simply what comes next, and waits for the application, in one piece."""
        self.awaits_tick = True
        count, size = parse_run(frame, first)
        receive_flow = self._by_topic.get(topic) or self._add_flow(topic, epoch)
        if receive_flow is None:
            messages = tuple(zip(range(first, first + count), repeat(sent_ns), strict=False))
            self._unclaimed.reject_unheld(ack_topic(topic), epoch, messages)
            return
        stream = receive_flow.streams.get(epoch) or self._flow_table.add_stream(receive_flow, epoch, first)
        now_ns, octets = self._context.now_ns, count * size
        run = Run(
            memoryview(frame)[RUN_AT:], receive_flow.flow, first, count, size, epoch, stream.node, sent_ns, now_ns
        )
        stream.received_octets += octets
        has_room = self._window.has_room(stream, len(frame))
        is_next = first == stream.tracker.next and stream.in_order
        if is_next and has_room and receive_flow.subscribed and not receive_flow.watched and not receive_flow.handler:
            tracker, end = stream.tracker, first + count
            tracker.next = end  # in a row, as in `_take_in`
            tracker.received += count
            stream.waiting_octets += octets
            receive_flow.runs += 1
            receive_flow.queue.append(run)
            self.acks.add_range(stream, range(first, end), now_ns)
        else:
            self._on_run(stream, list(run), False, has_room)
        self.acks.flush()

    def _on_run(self, stream: PeerStream, messages: list[Message], retransmitted: bool, has_room: bool) -> None:
        """Take in messages in a row of a bundle: they are acknowledged together, if they can be."""
        first, receive_flow = messages[0].sequence, stream.receive_flow
        unchecked = receive_flow.subscribed and not receive_flow.watched
        together = unchecked and len(messages) > 1 and has_room
        if together and first == stream.tracker.next and stream.in_order:
            self._take_in(stream, messages, is_next=True)
        elif not (together and stream.gaps.receive_run(stream, messages, retransmitted)):
            for message in messages:
                self._on_message(stream, message, retransmitted, batched=True)
            return
        self.acks.add_range(stream, range(first, first + len(messages)), self._context.now_ns)

    def _take_in(self, stream: PeerStream, messages: list[Message], is_next: bool) -> None:
        """Have messages in a row delivered; ``is_next``: they are the stream's next ones.

        Ctrl-C comes where a call ends.  So the last statements of each branch stand in a row without one: either a
        message is delivered and counted, or it is missing and will be retransmitted.  Deferring signals instead takes
        10 us.
        """
        tracker, receive_flow, deliveries = stream.tracker, stream.receive_flow, self._deliveries
        handler, flow = receive_flow.handler, receive_flow.flow
        count, end = len(messages), messages[-1].sequence + 1
        if handler is None or deliveries or receive_flow.queue:
            if handler is not None:
                deliveries.append((receive_flow, range(count), flow, QUEUED))
            octets = sum([len(message[0]) for message in messages])
            if is_next:
                tracker.next = end
                tracker.received += count
            stream.waiting_octets += octets
            receive_flow.queue += messages
            return
        consumed = max(stream.consumed, end)  # here: below, a call would let an interrupt lose the messages
        if is_next:
            tracker.next = end
            tracker.received += count
        stream.consumed = consumed
        deliveries.append((handler, messages, flow, MESSAGES))

    # Off the path: what is not simply the next message of a flow without checks

    def _on_message(self, stream: PeerStream, message: Message, retransmitted: bool, batched: bool) -> None:
        """``batched``: as of `AckQueue.add`."""
        payload, _, sequence, _, _, sent_ns, received_ns = message
        receive_flow = stream.receive_flow
        if stream.superseded:
            stream.stale += 1
            return
        if len(payload) > receive_flow.max_payload:
            self._reject_too_long(stream, sequence, sent_ns, batched)
            return
        if (
            not receive_flow.subscribed
            and not self._unclaimed.admit(len(payload))
            and self._unclaimed.reject(stream, sequence, sent_ns, batched)
        ):
            return
        if not self._window.admits(stream, sequence, len(payload)):
            return
        if sequence == stream.tracker.next and stream.in_order:
            self._deliver_at_once(stream, message, is_next=True)
        elif sequence in stream.rejected:
            self._unclaimed.reject(stream, sequence, sent_ns, batched)
            return
        elif not stream.gaps.receive(stream, message, retransmitted):
            return  # its sender counts it as lost, and so does this side
        self.acks.add(stream, (sequence, sent_ns, received_ns), batched)
        self._window.request(stream)

    def _deliver_at_once(self, stream: PeerStream, message: Message, is_next: bool = False) -> None:
        """A message is delivered, unless it is too old; ``is_next``: it is the stream's next one."""
        if not stream.receive_flow.watched or self._age_filter.admits(stream, message):
            self._take_in(stream, [message], is_next)
        elif is_next:
            stream.tracker.next = message.sequence + 1
            stream.tracker.received += 1

    def _deliver(self, stream: PeerStream, reorder_buffer: ReorderBuffer, message: Message) -> None:
        """A message whose turn has come in the reorder buffer goes to the application."""
        receive_flow = stream.receive_flow
        if receive_flow.watched and not self._age_filter.admits(stream, message):
            stream.waiting_octets -= len(message.payload)
            reorder_buffer.next_due += 1
            return
        if receive_flow.handler is not None:
            self._deliveries.append((receive_flow, _ONE, receive_flow.flow, QUEUED))
        reorder_buffer.next_due += 1  # in a row, as in `_take_in`
        receive_flow.queue.append(message)

    def on_fragment(self, topic: bytes, fragment: Frame, epoch: int, sent_ns: int, known: bool) -> memoryview | None:
        """Take in a fragment; returns the frame that it completes.  ``known``: it is from a peer."""
        receive_flow = self._by_topic.get(topic) or self._add_flow(topic, epoch)
        try:
            most = MAX_PAYLOAD if receive_flow is None else receive_flow.max_payload
            received = self._reassembler.receive(topic, fragment, known, most)
        except FrameTooLong as error:
            self._on_too_long(receive_flow, epoch, error.args[0], sent_ns)
            return None
        if isinstance(received, memoryview):
            return received
        if known:
            progress = self.acks.fragment_progress(epoch, sent_ns, received, self._context.now_ns)
            self._context.outbox.append((ack_topic(topic), progress))
        return None

    def _on_too_long(self, receive_flow: ReceiveFlow | None, epoch: int, sequence: int, sent_ns: int) -> None:
        """The first fragment has arrived of a message that is longer than this link or the application takes.

        What its flow takes, the sender does not know, and is sent a rejection.  The limit of the link is in the hellos:
        such a message is a gap.
        """
        if receive_flow is None or self._peer_manager.find(epoch) is None or sequence > MAX_SEQUENCE:
            self._limit_counters.exceeded("max_payload")
            return
        stream = receive_flow.streams.get(epoch) or self._flow_table.add_stream(receive_flow, epoch, sequence)
        if stream.superseded:
            return
        if receive_flow.max_payload < MAX_PAYLOAD:
            self._reject_too_long(stream, sequence, sent_ns)
        else:
            self._limit_counters.exceeded("max_payload")
            stream.gaps.skip(stream, sequence)

    def _reject_too_long(self, stream: PeerStream, sequence: int, sent_ns: int, batched: bool = False) -> None:
        self._limit_counters.exceeded("max_payload")
        if not self._window.is_jump(stream, sequence):
            self._unclaimed.reject(stream, sequence, sent_ns, batched)

    def on_abandoned(self, topic: bytes, frame: Frame, epoch: int, next_to_send: int) -> None:
        """Take in that messages will not come; without ranges it is a probe."""
        self.awaits_tick = True
        reason, ranges = parse_abandoned(frame)
        if next_to_send > MAX_SEQUENCE:
            raise MalformedFrame("sequence")
        receive_flow = self._by_topic.get(topic) or self._add_flow(topic, epoch)
        if receive_flow is None:
            if not ranges:  # have it send again what it still keeps, to be rejected
                self._context.send_control(ack_topic(topic), Kind.NAK, nak_body(epoch, 0, [(0, next_to_send)]))
            return
        stream = receive_flow.streams.get(epoch)
        if stream is None:
            if self._peer_manager.find(epoch) is None:
                return
            stream = self._flow_table.add_stream(receive_flow, epoch, next_to_send, has_arrived=False)
        if stream.superseded or not self._window.admits_announced(stream, ranges, next_to_send):
            return
        stream.gaps.on_abandoned(stream, reason, ranges, next_to_send)
        self._window.request(stream, probed=not ranges)
        if not ranges:
            receive_flow.consume_gaps(stream)
            self.acks.add_credit_update(stream)  # the last one may have been lost as well

    # Peers

    def on_hello(self, epoch: int, hello: Hello, new: bool) -> None:
        """Take in which flows a session retransmits; ``new``: it was not known before."""
        # data may overtake the hello that names its flow, or the first one
        for flow in list(self.flows) if new else hello.detect & self.flows.keys():
            if (stream := self.flows[flow].streams.get(epoch)) is not None:
                stream.node = hello.node
                stream.gaps = self._repair if hello.repairs and flow not in hello.detect else self._detection
                if not stream.gaps.requests:
                    self._repair.abandon(stream)

    def on_start_sequence(self, epoch: int) -> None:
        """A peer has said from where on it owes this side something, after some of it has come."""
        for receive_flow in list(self.flows.values()):
            stream = receive_flow.streams.get(epoch)
            if stream is None:
                continue
            first_arrived, stream.first_arrived = stream.first_arrived, None
            if first_arrived is not None:
                first = self._peer_manager.start_sequence(epoch, receive_flow.flow)
                stream.gaps.on_start_sequence(stream, first, first_arrived)
            self._repair.resend_nak(stream)

    def on_session_end(self, epoch: int, successor: int | None) -> None:
        """A session will not return: what is missing of it is a gap, and what is held behind that is delivered.

        But not after messages of its ``successor``, which may be here before it is known to be one; and whatever still
        comes of a session that has a successor is stale.
        """
        self._reassembler.forget(epoch)
        for receive_flow in list(self.flows.values()):
            if (stream := receive_flow.streams.get(epoch)) is not None:
                newer = None if successor is None else receive_flow.streams.get(successor)
                self._repair.abandon(stream, delivers=newer is None or not newer.tracker.received)
                if successor is not None:
                    stream.superseded, stream.in_order = True, False
                    stream.window_end = None  # nothing is requested

    def on_session_revived(self, epoch: int) -> None:
        """A session that was taken for replaced is alive: it goes on where it was."""
        for receive_flow in list(self.flows.values()):
            stream = receive_flow.streams.get(epoch)
            if stream is not None and stream.superseded:
                stream.superseded, stream.in_order = False, True

    # Flows

    def deliver_queued(self, receive_flow: ReceiveFlow) -> None:
        """The handler of the flow is to get all that waits in its queue."""
        if receive_flow.queue:
            self._deliveries.append((receive_flow, range(receive_flow.queued), receive_flow.flow, QUEUED))

    def _understands_rejection(self, epoch: int) -> bool:
        peer = self._peer_manager.find(epoch)
        return peer is not None and peer.repairs

    def on_tick(self) -> None:
        """To be called ten times a second or more: what was consumed is announced, what was refused requested."""
        self._unclaimed.on_tick()
        self._limit_counters.on_tick()
        self._window.report_refused()
        if not self.awaits_tick:
            return
        self.awaits_tick = False
        for receive_flow in list(self.flows.values()):
            for stream in list(receive_flow.streams.values()):
                if stream.unreported_octets:
                    self.acks.add_credit_update(stream)
                if stream.granted_octets:
                    self._window.on_tick(stream)
                    self.awaits_tick |= stream.window_end is not None
            if receive_flow.watched:
                self._age_filter.report_changes(receive_flow)
                self.awaits_tick = True
            if receive_flow.queue:
                self.awaits_tick = True
                if receive_flow.handler is not None and not self._deliveries:
                    self.deliver_queued(receive_flow)  # Ctrl-C has cut off a call

    def report_undelivered(self) -> None:
        """Report what was not delivered and has not been reported yet: the session ends."""
        self._unclaimed.report()
        for receive_flow in list(self.flows.values()):
            self._age_filter.report_changes(receive_flow)
