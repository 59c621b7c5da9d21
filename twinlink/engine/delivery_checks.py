"""What is checked before a message is delivered: is it the next one, and is it young enough."""

import time
from collections.abc import Callable

from .. import events as ev
from ..events import Event
from ..message import Message
from ..protocol.frames import MAX_SEQUENCE, MalformedFrame
from ..protocol.receive.flow import PeerStream, ReceiveFlow
from ..protocol.receive.sequence import Arrival
from ..sync import State

_monotonic_ns, _time_ns = time.monotonic_ns, time.time_ns


class GapReporter:
    """Of one link."""

    def __init__(self, report: Callable[[Event], None]) -> None:
        self._report = report

    def on_arrival(self, receive_flow: ReceiveFlow, stream: PeerStream, sequence: int) -> bool:
        """Report what a number says that is not the next one, where nothing is sent again; whether to deliver it.

        Raises MalformedFrame.
        """
        if sequence > MAX_SEQUENCE:
            raise MalformedFrame("sequence")
        flow, expected = receive_flow.flow, stream.tracker.next
        arrival = stream.tracker.arrive(sequence)
        if arrival is Arrival.AFTER_GAP:
            self._missed(receive_flow, stream, expected, sequence)
        elif arrival is Arrival.LATE:
            self._report(ev.Reordered(_time_ns(), flow, stream.epoch, sequence))
        elif arrival is Arrival.DUPLICATE:
            self._report(ev.Duplicate(_time_ns(), flow, stream.epoch, sequence))
        return arrival is not Arrival.DUPLICATE

    def reject(self, receive_flow: ReceiveFlow, stream: PeerStream, sequence: int) -> bool:
        """Go past a message that is not taken in, and is no gap; what did not come before it is one.

        False where it has been taken in before.
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
            receive_flow.sync.missed(end - first, _monotonic_ns())
        self._report(ev.Gap(_time_ns(), receive_flow.flow, stream.epoch, first, end))


class AgeFilter:
    """For flows of which somebody watches the age, or gave it a limit."""

    def __init__(self, report: Callable[[Event], None]) -> None:
        self._report = report

    def admits(self, receive_flow: ReceiveFlow, stream: PeerStream, message: Message) -> bool:
        """Whether it is to be delivered."""
        now, sync = _time_ns(), receive_flow.sync
        if receive_flow.max_age_ns is not None and now - message.sent_ns > receive_flow.max_age_ns:
            receive_flow.drop_stale(stream, message)
            if sync is not None:
                sync.missed(1, _monotonic_ns())
            return False
        if sync is not None:
            sync.arrived(message.sequence, message.sent_ns, now, _monotonic_ns(), stream.epoch)
            if sync.state is not State.IN_SYNC:
                self.report_changes(receive_flow)
        return True

    def report_changes(self, receive_flow: ReceiveFlow) -> None:
        """Report what is new about the age of a flow."""
        sync = receive_flow.sync
        if sync is not None and (state := sync.look(_monotonic_ns())) is not None:
            now = _time_ns()
            self._report(ev.SyncChanged(now, receive_flow.flow, state.value, sync.age_ns(), sync.completeness()))
        for epoch, first, end in receive_flow.stale.take():
            self._report(ev.Stale(_time_ns(), receive_flow.flow, epoch, first, end))
