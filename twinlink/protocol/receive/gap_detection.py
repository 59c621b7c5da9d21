"""Gaps of streams: reported at once where nothing is retransmitted.  No I/O, no clock."""

from collections.abc import Callable, Sequence

from ... import events as ev
from ...message import Message
from ..context import Context
from ..frames import MAX_RANGES, MAX_SEQUENCE, AbandonReason, Kind, MalformedFrame, nak_body
from ..rangeset import RangeSet
from .flow import PeerStream
from .sequence import Arrival


class GapReporter:
    """What both kinds of stream do: report a gap to the application, and tell the sender what is missing."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def report_gap(self, stream: PeerStream, first: int, end: int) -> None:
        """Count and report ``first`` to ``end - 1`` as a gap."""
        stream.tracker.record_gap(first, end)
        self._missed(stream, first, end)

    def _missed(self, stream: PeerStream, first: int, end: int) -> None:
        receive_flow, context = stream.receive_flow, self._context
        if receive_flow.sync is not None:
            receive_flow.sync.missed(end - first, context.mono_ns)
        context.report(ev.Gap(context.now_ns, receive_flow.flow, stream.epoch, first, end))

    def _send_nak(self, stream: PeerStream, missing: list[tuple[int, int]], known: int) -> None:
        """Name the ``missing`` ranges and, as not all of their rejections may have arrived, those that were rejected.

        A range that there is no room for is not below ``known``, so the nak does not name it.
        """
        if len(missing) > MAX_RANGES:
            known = min(known, missing[MAX_RANGES][0])
            missing = missing[:MAX_RANGES]
        if stream.rejected:
            rejected, room = list(stream.rejected), MAX_RANGES - len(missing)
            if len(rejected) > room:
                known = min(known, rejected[room][0])
            missing = list(RangeSet([*missing, *rejected[:room]]))
        self._context.send_control(stream.receive_flow.ack_topic, Kind.NAK, nak_body(stream.epoch, known, missing))


class GapDetection(GapReporter):
    """The streams whose senders retransmit nothing: what is missing is a gap, and may come late.

    As `flow.GapHandler` says.
    """

    requests = False

    def __init__(self, context: Context, deliver: Callable[[PeerStream, Message], None]) -> None:
        """``deliver`` is called with each message."""
        super().__init__(context)
        self._deliver = deliver

    def receive(self, stream: PeerStream, message: Message, retransmitted: bool) -> bool:
        """A gap before it, and that it is late or here already, is reported."""
        sequence, expected, context, flow = message.sequence, stream.tracker.next, self._context, message.flow
        if sequence > MAX_SEQUENCE:
            raise MalformedFrame("sequence")
        arrival = stream.tracker.arrive(sequence)
        if arrival is Arrival.AFTER_GAP:
            self._missed(stream, expected, sequence)
        elif arrival is Arrival.LATE:
            context.report(ev.Reordered(context.now_ns, flow, stream.epoch, sequence))
        elif arrival is Arrival.DUPLICATE:
            context.report(ev.Duplicate(context.now_ns, flow, stream.epoch, sequence))
            return True
        self._deliver(stream, message)
        return True

    def receive_run(self, stream: PeerStream, messages: Sequence[Message], retransmitted: bool) -> bool:
        """Each is taken in by itself."""
        return False

    def reject(self, stream: PeerStream, sequence: int) -> bool:
        """What did not come before it is a gap."""
        tracker = stream.tracker
        if sequence not in stream.rejected and tracker.has(sequence):
            return False
        if tracker.next < 0:
            tracker.start_at(sequence)
        elif tracker.next < sequence:
            self.report_gap(stream, tracker.next, sequence)
        if tracker.next == sequence:
            tracker.next = sequence + 1
        return True

    def skip(self, stream: PeerStream, sequence: int) -> None:
        """What comes next shows the gap."""

    def on_abandoned(
        self, stream: PeerStream, reason: AbandonReason, ranges: list[tuple[int, int]], next_to_send: int
    ) -> None:
        """At a probe a nak says what arrived, as acks may be lost; and nothing comes later that would show a gap."""
        tracker = stream.tracker
        if not ranges and tracker.next >= 0:
            if tracker.next < next_to_send:
                self.report_gap(stream, tracker.next, next_to_send)
            self._send_nak(stream, list(tracker.missing), tracker.next)

    def on_start_sequence(self, stream: PeerStream, first: int, first_arrived: int) -> None:
        """What is missing before that is a gap."""
        if first < first_arrived:
            self.report_gap(stream, first, first_arrived)
