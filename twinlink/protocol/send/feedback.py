"""Feedback on what this node has sent: acks, naks, refusals and progress reach their flow.  No I/O."""

from ..context import ACKS, Context
from ..frames import (
    ACK_ONE,
    MalformedFrame,
    Records,
    parse_ack,
    parse_ack_range,
    parse_fragment_progress,
    parse_nak,
    parse_refused,
)
from ..peers import PeerManager
from .flow import SendFlow
from .flows import SendFlows
from .single import on_single_ack

ACK_ONE_OCTETS = ACK_ONE.size
# Where one message after the other is lost, an event for each would push out all others.
REPORT_INTERVAL_NS = 100_000_000

_unpack_ack_one = ACK_ONE.unpack


class FeedbackDispatcher:
    """Gives the feedback of the peers of one session to its flows.

    ``epoch`` is that of the peer that sent the frame.  All methods raise MalformedFrame, and do nothing where another
    node's messages are meant: what a listener sends reaches all its connectors.
    """

    def __init__(self, context: Context, peer_manager: PeerManager, send_flows: SendFlows) -> None:
        self._context = context
        self._epoch = context.epoch
        self._sessions = peer_manager.peers.sessions
        self._send_flows = send_flows
        self._by_topic = send_flows.by_ack_topic
        self._reported_mono_ns = 0

    def on_ack(self, topic: bytes, frame: bytes | memoryview, epoch: int, t3_ns: int, is_range: bool = False) -> None:
        """A peer has messages, or its application has consumed more; ``is_range``: it is an ack range."""
        context = self._context
        t4_ns, mono_ns = context.now_ns, context.mono_ns
        records: Records
        single, t2_ns = None, 0
        if is_range:
            acked_epoch, consumed, records, t2_ns = parse_ack_range(frame)
        elif len(frame) == ACK_ONE_OCTETS:
            _, _, _, _, _, acked_epoch, consumed, sequence, t1_ns, at_ns = _unpack_ack_one(frame)
            single = sequence, t1_ns, at_ns
            records = (single,)
        else:
            acked_epoch, consumed, records = parse_ack(frame)
        if acked_epoch != self._epoch:
            return
        peer = self._sessions.get(epoch)
        if records and peer is not None:  # without records it may tell of a message of long ago
            peer.confirmed_mono_ns = mono_ns
        flow = self._by_topic.get(topic)
        if flow is None:
            raise MalformedFrame("topic")
        handler, acks = flow.ack_handler, None
        try:
            if single is not None:
                acks = on_single_ack(flow, epoch, consumed, single, t3_ns, t4_ns, mono_ns)
            if acks is None:
                if isinstance(records, range):
                    acks = flow.on_ack_range(epoch, records, t2_ns, t3_ns, t4_ns, mono_ns, handler is not None)
                else:
                    acks = flow.on_ack(epoch, records, t3_ns, t4_ns, mono_ns)
                flow.on_consumed(epoch, consumed)
        except BaseException:
            flow.recover_after_interrupt()
            raise
        if flow.receivers.lagging:
            flow.pace_keeper.on_acked(epoch, records)
        if flow.queue.has_pending:
            self._send_flows.on_feedback(flow)
        if handler is not None and acks:
            flow.flow_control.unreported_acks += len(acks)
            context.deliveries.append((handler, acks, flow.flow, ACKS))
        if flow.losses.unreported and mono_ns - self._reported_mono_ns > REPORT_INTERVAL_NS:
            self._reported_mono_ns = mono_ns
            with context.uninterrupted():
                self._send_flows.report_losses()

    def on_nak(self, topic: bytes, frame: bytes | memoryview, epoch: int, t3_ns: int) -> None:
        """A peer says what it misses."""
        nak_epoch, known, missing = parse_nak(frame)
        if (flow := self._flow(topic, nak_epoch)) is None:
            return
        context = self._context
        try:
            acks = flow.on_nak(epoch, known, missing, t3_ns, context.now_ns, context.mono_ns)
        except BaseException:
            flow.recover_after_interrupt()
            raise
        self._send_flows.on_feedback(flow)
        if flow.ack_handler is not None and acks:
            flow.flow_control.unreported_acks += len(acks)
            context.deliveries.append((flow.ack_handler, acks, flow.flow, ACKS))

    def on_refused(self, topic: bytes, frame: bytes | memoryview, epoch: int) -> None:
        """A peer has no room for messages that arrived."""
        to_epoch, end = parse_refused(frame)
        if (flow := self._flow(topic, to_epoch)) is not None:
            self._send_flows.on_feedback(flow, flow.pace_keeper.on_refused(epoch, end))

    def on_fragment_progress(self, topic: bytes, frame: bytes | memoryview, epoch: int) -> None:
        """A peer says how much it has of a frame that leaves in fragments."""
        to_epoch, sent_ns, octets = parse_fragment_progress(frame)
        if (flow := self._flow(topic, to_epoch)) is None:
            return
        if (peer := self._sessions.get(epoch)) is not None:
            peer.confirmed_mono_ns = self._context.mono_ns
        flow.queue.fragments.on_progress(epoch, sent_ns, octets)
        self._send_flows.on_feedback(flow)

    def _flow(self, topic: bytes, epoch: int) -> SendFlow | None:
        """The flow with this ack topic; None when another node's is meant."""
        if epoch != self._epoch:
            return None
        if topic not in self._by_topic:
            raise MalformedFrame("topic")
        return self._by_topic[topic]
