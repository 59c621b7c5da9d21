"""Checks before a message is delivered: whether it is the next one, and whether it is young enough."""

from ... import events as ev
from ...message import Message
from ...sync import State
from ..context import Context
from ..frames import MAX_SEQUENCE, MalformedFrame
from .flow import PeerStream, ReceiveFlow
from .sequence import Arrival


class GapReporter:
    """Reports gaps, and on flows without retransmission duplicates and late messages too."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def on_arrival(self, receive_flow: ReceiveFlow, stream: PeerStream, sequence: int) -> bool:
        """Report what an unexpected number means on a flow without retransmission; whether to deliver the message.

        Raises MalformedFrame.
        """
        if sequence > MAX_SEQUENCE:
            raise MalformedFrame("sequence")
        flow, expected, context = receive_flow.flow, stream.tracker.next, self._context
        arrival = stream.tracker.arrive(sequence)
        if arrival is Arrival.AFTER_GAP:
            self._missed(receive_flow, stream, expected, sequence)
        elif arrival is Arrival.LATE:
            context.report(ev.Reordered(context.now_ns, flow, stream.epoch, sequence))
        elif arrival is Arrival.DUPLICATE:
            context.report(ev.Duplicate(context.now_ns, flow, stream.epoch, sequence))
        return arrival is not Arrival.DUPLICATE

    def reject(self, receive_flow: ReceiveFlow, stream: PeerStream, sequence: int) -> bool:
        """Go past a message that is rejected, which is no gap; what did not come before it is one.

        False where the message has arrived before.
        """
        tracker = stream.tracker
        if sequence not in stream.rejected and tracker.has(sequence):
            return False
        if tracker.next < 0:
            tracker.start_at(sequence)
        elif tracker.next < sequence:
            self.report_gap(receive_flow, stream, tracker.next, sequence)
        if tracker.next == sequence:
            tracker.next = sequence + 1
        return True

    def report_gap(self, receive_flow: ReceiveFlow, stream: PeerStream, first: int, end: int) -> None:
        """Count and report ``first`` to ``end - 1`` as a gap."""
        stream.tracker.record_gap(first, end)
        self._missed(receive_flow, stream, first, end)

    def _missed(self, receive_flow: ReceiveFlow, stream: PeerStream, first: int, end: int) -> None:
        if receive_flow.sync is not None:
            receive_flow.sync.missed(end - first, self._context.mono_ns)
        self._context.report(ev.Gap(self._context.now_ns, receive_flow.flow, stream.epoch, first, end))


class AgeFilter:
    """For flows whose age is limited, or watched by a `Sync`."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def admits(self, receive_flow: ReceiveFlow, stream: PeerStream, message: Message) -> bool:
        """Whether the message is to be delivered."""
        now, mono_ns, sync = self._context.now_ns, self._context.mono_ns, receive_flow.sync
        if receive_flow.max_age_ns is not None and now - message.sent_ns > receive_flow.max_age_ns:
            receive_flow.drop_stale(stream, message)
            if sync is not None:
                sync.missed(1, mono_ns)
            return False
        if sync is not None:
            sync.arrived(message.sequence, message.sent_ns, now, mono_ns, stream.epoch)
            if sync.state is not State.IN_SYNC:
                self.report_changes(receive_flow)
        return True

    def report_changes(self, receive_flow: ReceiveFlow) -> None:
        """Report a change of the flow's state, and messages that were dropped as stale."""
        sync, context = receive_flow.sync, self._context
        if sync is not None and (state := sync.look(context.mono_ns)) is not None:
            age_ns, completeness = sync.age_ns(context.mono_ns), sync.completeness(context.mono_ns)
            context.report(ev.SyncChanged(context.now_ns, receive_flow.flow, state.value, age_ns, completeness))
        for epoch, first, end in receive_flow.stale.take():
            context.report(ev.Stale(context.now_ns, receive_flow.flow, epoch, first, end))
