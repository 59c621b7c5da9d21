"""Admission control of unclaimed flows: what there is no room to hold is rejected, and both sides name it."""

from collections.abc import Callable, Mapping, Sequence

from ... import events as ev
from ..context import Context
from ..frames import MAX_ACK_RECORDS, MAX_SEQUENCE, REJECTED, Kind, MalformedFrame, ack_body
from .acks import AckQueue
from .flow import MESSAGE_OVERHEAD_OCTETS, PeerStream, ReceiveFlow
from .sequence import MAX_GAPS

REPORT_INTERVAL_NS = 1_000_000_000
COUNT_INTERVAL_NS = 10_000_000  # between two counts of what all flows hold


class UnclaimedLimiter:
    """Limits what the unclaimed flows of one session hold."""

    def __init__(
        self,
        context: Context,
        flows: Mapping[str, ReceiveFlow],
        limit: int,
        understands: Callable[[int], bool],
        acks: AckQueue,
    ) -> None:
        """At most ``limit`` octets are held of all ``flows`` without a subscription together.

        ``understands(epoch)``: whether that session knows what a rejection means.
        """
        self._context = context
        self._flows = flows
        self._limit = limit
        self._octets = 0  # an upper bound of what is held
        self._counted_mono_ns = self._reported_mono_ns = 0
        self._understands = understands
        self._acks = acks

    def admit(self, octets: int) -> bool:
        """Whether a payload of so many octets can be held; if so it counts."""
        octets += MESSAGE_OVERHEAD_OCTETS
        if self._octets + octets > self._limit:  # the bound contains flows that have been subscribed meanwhile
            if self._context.mono_ns - self._counted_mono_ns < COUNT_INTERVAL_NS:
                return False
            self._counted_mono_ns = self._context.mono_ns
            held = [receive_flow for receive_flow in list(self._flows.values()) if not receive_flow.subscribed]
            self._octets = sum(one.queued_octets + MESSAGE_OVERHEAD_OCTETS * len(one.queue) for one in held)
            if self._octets + octets > self._limit:
                return False
        self._octets += octets
        return True

    def reject(self, stream: PeerStream, sequence: int, sent_ns: int, batched: bool) -> bool:
        """Drop a message and send its sender a rejection; False where the message has arrived before.

        ``batched``: as of `AckQueue.add`.
        Raises MalformedFrame.
        """
        with self._context.uninterrupted():
            if sequence > MAX_SEQUENCE:
                raise MalformedFrame("sequence")
            if not stream.gaps.reject(stream, sequence):
                return False
            if sequence not in stream.rejected:
                stream.rejected.add(sequence, sequence + 1)
                if len(stream.rejected) > MAX_GAPS:  # no nak has room for so many
                    stream.rejected.drop_first_range()
                if sequence not in stream.tracker.missing:  # else a gap has named it
                    self._count(stream, sequence)
            if self._understands(stream.epoch):
                self._acks.add(stream, (sequence, sent_ns, REJECTED), batched)
            else:
                stream.consumed = stream.acked = max(stream.consumed, sequence + 1)
                self._acks.add_credit_update(stream)
            return True

    def reject_unheld(self, ack_topic: bytes, epoch: int, messages: Sequence[tuple[int, int]]) -> None:
        """Reject messages (sequence, T1) of a flow that cannot be held."""
        for at in range(0, len(messages) if self._understands(epoch) else 0, MAX_ACK_RECORDS):
            records = [(sequence, sent_ns, REJECTED) for sequence, sent_ns in messages[at : at + MAX_ACK_RECORDS]]
            consumed = max(sequence for sequence, _, _ in records) + 1
            self._context.send_control(ack_topic, Kind.ACK, ack_body(epoch, consumed, records))

    def _count(self, stream: PeerStream, sequence: int) -> None:
        receive_flow = stream.receive_flow
        stream.rejected_count += 1
        receive_flow.rejected.add(stream.epoch, sequence)
        if receive_flow.sync is not None:
            receive_flow.sync.missed(1, self._context.mono_ns)

    def on_tick(self) -> None:
        """Report what has been rejected, once a second: a peer may send for ever on a flow without a subscription."""
        if self._context.mono_ns - self._reported_mono_ns >= REPORT_INTERVAL_NS:
            self._reported_mono_ns = self._context.mono_ns
            self.report()

    def report(self) -> None:
        """Report what has been rejected and not been reported."""
        context = self._context
        with context.uninterrupted():
            for receive_flow in list(self._flows.values()):
                for epoch, first, end in receive_flow.rejected.take():
                    context.report(ev.Unclaimed(context.now_ns, receive_flow.flow, epoch, first, end))
