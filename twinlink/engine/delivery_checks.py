"""What is checked before a message is delivered: is it the next one, and is it young enough."""

import time
from collections.abc import Callable

from .. import events as ev
from ..events import Event
from ..message import Message
from ..protocol.frames import MAX_SEQUENCE, Malformed
from ..protocol.receive.flow import Incoming, Stream
from ..protocol.receive.sequence import Arrival
from ..sync import State

_monotonic_ns, _time_ns = time.monotonic_ns, time.time_ns


class Gaps:
    """Of one link."""

    def __init__(self, report: Callable[[Event], None]) -> None:
        self._report = report

    def arrive(self, incoming: Incoming, stream: Stream, sequence: int) -> bool:
        """Report what a number says that is not the next one, where nothing is sent again; whether to deliver it.

        Raises Malformed.
        """
        if sequence > MAX_SEQUENCE:
            raise Malformed("sequence")
        flow, expected = incoming.flow, stream.tracker.next
        arrival = stream.tracker.arrive(sequence)
        if arrival is Arrival.AFTER_GAP:
            self._missed(incoming, stream, expected, sequence)
        elif arrival is Arrival.LATE:
            self._report(ev.Reordered(_time_ns(), flow, stream.epoch, sequence))
        elif arrival is Arrival.DUPLICATE:
            self._report(ev.Duplicate(_time_ns(), flow, stream.epoch, sequence))
        return arrival is not Arrival.DUPLICATE

    def decline(self, incoming: Incoming, stream: Stream, sequence: int) -> bool:
        """Go past a message that is not taken in, and is no gap; what did not come before it is one.

        False where it has been taken in before.
        """
        tracker = stream.tracker
        if sequence not in stream.declined and tracker.has(sequence):
            return False
        if tracker.next < 0:
            tracker.begin(sequence)
        elif tracker.next < sequence:
            self.pass_over(incoming, stream, tracker.next, sequence)
        if tracker.next == sequence:
            tracker.next = sequence + 1
        return True

    def pass_over(self, incoming: Incoming, stream: Stream, first: int, end: int) -> None:
        """Count and report ``first`` to ``end - 1`` as a gap."""
        stream.tracker.pass_over(first, end)
        self._missed(incoming, stream, first, end)

    def _missed(self, incoming: Incoming, stream: Stream, first: int, end: int) -> None:
        if incoming.sync is not None:
            incoming.sync.missed(end - first, _monotonic_ns())
        self._report(ev.Gap(_time_ns(), incoming.flow, stream.epoch, first, end))


class Freshness:
    """For flows of which somebody watches the age, or gave it a limit."""

    def __init__(self, report: Callable[[Event], None]) -> None:
        self._report = report

    def admits(self, incoming: Incoming, stream: Stream, message: Message) -> bool:
        """Whether it is to be delivered."""
        now, sync = _time_ns(), incoming.sync
        if incoming.max_age_ns is not None and now - message.sent_ns > incoming.max_age_ns:
            incoming.drop_stale(stream, message)
            if sync is not None:
                sync.missed(1, _monotonic_ns())
            return False
        if sync is not None:
            sync.arrived(message.sequence, message.sent_ns, now, _monotonic_ns(), stream.epoch)
            if sync.state is not State.IN_SYNC:
                self.look(incoming)
        return True

    def look(self, incoming: Incoming) -> None:
        """Report what is new about the age of a flow."""
        sync = incoming.sync
        if sync is not None and (state := sync.look(_monotonic_ns())) is not None:
            now = _time_ns()
            self._report(ev.SyncChanged(now, incoming.flow, state.value, sync.age_ns(), sync.completeness()))
        for epoch, first, end in incoming.stale.take():
            self._report(ev.Stale(_time_ns(), incoming.flow, epoch, first, end))
