"""NAK-based selective repeat, receiving half: requests what is missing, and delivers in order what came after it."""

from collections.abc import Callable, Sequence

from ... import events as ev
from ...message import Message
from ..context import Context
from ..frames import MAX_SEQUENCE, AbandonReason, MalformedFrame
from .flow import PeerStream
from .gap_detection import GapReporter
from .reorder_buffer import ReorderBuffer


class SelectiveRepeat(GapReporter):
    """The streams of one session whose senders retransmit on request.  As `flow.GapHandler` says."""

    requests = True

    def __init__(self, context: Context, deliver: Callable[[PeerStream, ReorderBuffer, Message], None]) -> None:
        """``deliver`` is called with messages in order, and counts each in `ReorderBuffer.next_due`."""
        super().__init__(context)
        self._deliver = deliver

    def receive(self, stream: PeerStream, message: Message, retransmitted: bool) -> bool:
        """False where it was abandoned before."""
        tracker, sequence, context = stream.tracker, message.sequence, self._context
        if sequence > MAX_SEQUENCE:
            raise MalformedFrame("sequence")
        self._nak_before(stream, sequence)
        reorder_buffer = stream.reorder_buffer
        if reorder_buffer is None or not reorder_buffer.hold(message):
            if retransmitted:
                stream.repeated += 1
            else:
                tracker.duplicates += 1
                context.report(ev.Duplicate(context.now_ns, message.flow, stream.epoch, sequence))
            abandoned = sequence in tracker.missing or (
                reorder_buffer is not None and reorder_buffer.is_abandoned(sequence)
            )
            return not abandoned
        tracker.received += 1
        stream.repaired += retransmitted
        stream.waiting_octets += len(message.payload)
        self._release(stream)
        return True

    def receive_run(self, stream: PeerStream, messages: Sequence[Message], retransmitted: bool) -> bool:
        """True where all are missing, or all new behind a gap."""
        reorder_buffer = stream.reorder_buffer
        if reorder_buffer is None or messages[-1].sequence > MAX_SEQUENCE:
            return False
        if messages[0].sequence == stream.tracker.next:
            self._expect(stream, messages[-1].sequence + 1)
        if not reorder_buffer.hold_run(messages):
            return False
        stream.tracker.received += len(messages)
        stream.waiting_octets += sum([len(message.payload) for message in messages])
        if retransmitted:
            stream.repaired += len(messages)
        self._release(stream)
        return True

    def reject(self, stream: PeerStream, sequence: int) -> bool:
        """What did not come before it is requested."""
        tracker, reorder_buffer = stream.tracker, stream.reorder_buffer
        if reorder_buffer is None and sequence == tracker.next:
            tracker.next = sequence + 1
            return True
        self._nak_before(stream, sequence)
        reorder_buffer = stream.reorder_buffer
        with self._context.uninterrupted():
            if reorder_buffer is not None and reorder_buffer.abandon([(sequence, sequence + 1)], silently=True):
                self._release(stream)
                return True
        return sequence in stream.rejected

    def skip(self, stream: PeerStream, sequence: int) -> None:
        """Give up a message that this side cannot take: it is a gap."""
        with self._context.uninterrupted():
            self._nak_before(stream, sequence)
            if stream.reorder_buffer is not None:
                stream.reorder_buffer.abandon([(sequence, sequence + 1)], silently=False)
                self._release(stream)

    def _nak_before(self, stream: PeerStream, sequence: int) -> None:
        """Request what was sent before a message that is here, and is found missing by that."""
        if sequence >= stream.tracker.next:
            if (found := self._expect(stream, sequence)) is not None:
                next_due = stream.reorder_buffer.next_due if stream.reorder_buffer else found[0]
                self._send_nak(stream, [found], next_due)
            self._expect(stream, sequence + 1)

    def _expect(self, stream: PeerStream, end: int) -> tuple[int, int] | None:
        """Note that everything below ``end`` was sent; returns the range that is thereby found missing."""
        if end <= stream.tracker.next:
            return None
        if stream.reorder_buffer is None:
            stream.reorder_buffer, stream.in_order = ReorderBuffer(stream.tracker.next), False
        found = stream.reorder_buffer.expect(end)
        stream.tracker.next = end  # last: where Ctrl-C comes between, the next message shows what is missing
        return found

    def request(self, stream: PeerStream, end: int) -> None:
        """There is room for what was refused below ``end``."""
        found = self._expect(stream, end)
        if found is not None and stream.reorder_buffer is not None:
            self._send_nak(stream, [found], stream.reorder_buffer.next_due)

    def _release(self, stream: PeerStream) -> None:
        """Deliver what is due."""
        reorder_buffer = stream.reorder_buffer
        if reorder_buffer is None:
            return
        for released in reorder_buffer.release():
            if isinstance(released, Message):
                self._deliver(stream, reorder_buffer, released)
                continue
            first, end, silently = released
            with self._context.uninterrupted():
                reorder_buffer.skip(first, end)
                if not silently:
                    self.report_gap(stream, first, end)
        if reorder_buffer.complete:
            stream.reorder_buffer, stream.in_order = None, True

    def on_abandoned(
        self, stream: PeerStream, reason: AbandonReason, ranges: list[tuple[int, int]], next_to_send: int
    ) -> None:
        """A nak follows a probe, for all that is missing.

        With ranges one follows only when something is newly found missing that is not among them: the sender may hold
        it for lost, and would not probe for it.
        """
        found = self._expect_announced(stream, ranges, next_to_send)
        for first, end in ranges:
            stream.rejected.take(first, end)
        if stream.reorder_buffer is not None:
            abandoned = stream.reorder_buffer.abandon(ranges, reason is AbandonReason.CONFLATED)
            stream.conflated += abandoned if reason is AbandonReason.CONFLATED else 0
            self._release(stream)
        if ranges and (found is None or found[0] >= next_to_send):
            return
        missing = list(stream.reorder_buffer.missing) if stream.reorder_buffer else []
        if ranges and found and not any(first < next_to_send and end > found[0] for first, end in missing):
            return
        self._send_nak(stream, missing, stream.tracker.next)

    def _expect_announced(
        self, stream: PeerStream, ranges: list[tuple[int, int]], next_to_send: int
    ) -> tuple[int, int] | None:
        """As `_expect`, of what an ABANDONED frame says; where the window is closed, only of what takes no room."""
        end = max([next_to_send, *(end for _, end in ranges)])
        if stream.window_end is None:
            return self._expect(stream, end)
        stream.refused_end = max(stream.refused_end, end)
        for first, end in ranges:
            if first <= stream.tracker.next < end:
                self._expect(stream, end)
                stream.window_end = max(stream.window_end, end)
        return None

    def on_start_sequence(self, stream: PeerStream, first: int, first_arrived: int) -> None:
        """What is missing before that is no gap."""
        if stream.reorder_buffer is not None:
            stream.reorder_buffer.abandon([(0, min(first, first_arrived))], silently=True)
            self._release(stream)

    def resend_nak(self, stream: PeerStream) -> None:
        """Request all that is missing: the nak may be lost, and the sender probes only for what it owes this side."""
        if stream.reorder_buffer is not None and stream.reorder_buffer.missing:
            self._send_nak(stream, list(stream.reorder_buffer.missing), stream.tracker.next)

    def abandon(self, stream: PeerStream, delivers: bool = True) -> None:
        """The session will not return: what it still owed is a gap.

        So is what is held behind that, unless this ``delivers`` it.
        """
        if stream.reorder_buffer is not None:
            if not delivers:
                stream.waiting_octets -= stream.reorder_buffer.octets
                stream.tracker.received -= stream.reorder_buffer.drop_held()
            stream.reorder_buffer.abandon_all()
            self._release(stream)
