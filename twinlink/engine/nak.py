"""The receiving half of repair: asks for what is missing, holds what came after it, says what will not come."""

import time
from collections.abc import Callable, Sequence

from .. import events as ev
from ..events import Event
from ..message import Message
from ..process.signals import Undisturbed
from ..protocol.frames import MAX_RANGES, MAX_SEQUENCE, Kind, Malformed, Why, ask_body
from ..protocol.frames import frame as make_frame
from ..protocol.rangeset import RangeSet
from ..protocol.receive.flow import Incoming, Stream
from ..protocol.receive.reorder_buffer import Reassembly
from ..transports import Transport
from .delivery_checks import Gaps

_time_ns = time.time_ns


class Repair:
    """Of one link; for streams of senders that send again what they are asked for."""

    def __init__(
        self,
        transport: Transport,
        epoch: int,
        report: Callable[[Event], None],
        gaps: Gaps,
        deliver: Callable[[Incoming, Stream, Reassembly, Message], None],
    ) -> None:
        """``deliver`` is called with messages in order, and counts each in `Reassembly.due`."""
        self._transport = transport
        self._epoch = epoch
        self._report = report
        self._gaps = gaps
        self._deliver = deliver

    def take(self, incoming: Incoming, ack_topic: bytes, stream: Stream, message: Message, again: bool) -> bool:
        """Take in a message that is not simply the next one; False where it was given up before.  Raises Malformed."""
        tracker, sequence = stream.tracker, message.sequence
        if sequence > MAX_SEQUENCE:
            raise Malformed("sequence")
        self._reach(ack_topic, stream, sequence)
        pending = stream.pending
        if pending is None or not pending.hold(message):
            if again:
                stream.repeated += 1
            else:
                tracker.duplicates += 1
                self._report(ev.Duplicate(_time_ns(), incoming.flow, stream.epoch, sequence))
            given_up = sequence in tracker.missing or (pending is not None and pending.gave_up(sequence))
            return not given_up
        tracker.received += 1
        stream.repaired += again
        self._release(incoming, stream)
        return True

    def take_row(self, incoming: Incoming, stream: Stream, messages: Sequence[Message], again: bool) -> bool:
        """Take in messages in a row; False, and nothing is done, unless all are missing, or all new behind a gap."""
        pending = stream.pending
        if pending is None or messages[-1].sequence > MAX_SEQUENCE:
            return False
        if messages[0].sequence == stream.tracker.next:
            self._expect(stream, messages[-1].sequence + 1)
        if not pending.hold_all(messages):
            return False
        stream.tracker.received += len(messages)
        if again:
            stream.repaired += len(messages)
        self._release(incoming, stream)
        return True

    def decline(self, incoming: Incoming, ack_topic: bytes, stream: Stream, sequence: int) -> bool:
        """Go past a message that is not taken in, and is no gap; False where it has been taken in before."""
        tracker, pending = stream.tracker, stream.pending
        if pending is None and sequence == tracker.next:
            tracker.next = sequence + 1
            return True
        self._reach(ack_topic, stream, sequence)
        pending = stream.pending
        with Undisturbed():
            if pending is not None and pending.give_up([(sequence, sequence + 1)], silently=True):
                self._release(incoming, stream)
                return True
        return sequence in stream.declined

    def _reach(self, ack_topic: bytes, stream: Stream, sequence: int) -> None:
        """This message is here: ask for what was sent before it and is found missing by that."""
        if sequence >= stream.tracker.next:
            if (found := self._expect(stream, sequence)) is not None:
                due = stream.pending.due if stream.pending else found[0]
                self._ask(ack_topic, stream, [found], due)
            self._expect(stream, sequence + 1)

    def _expect(self, stream: Stream, end: int) -> tuple[int, int] | None:
        """Everything below ``end`` was sent: the range that is thereby found missing."""
        if end <= stream.tracker.next:
            return None
        if stream.pending is None:
            stream.pending = Reassembly(stream.tracker.next)
        found = stream.pending.expect(end)
        stream.tracker.next = end  # last: where Ctrl-C comes between, the next message shows what is missing
        return found

    def _ask(self, ack_topic: bytes, stream: Stream, missing: list[tuple[int, int]], known: int) -> None:
        """Name the ``missing`` ranges and, as not all of their refusals may have arrived, those that were declined.

        Of what there is no room to name nothing is said: it is not below ``known``.
        """
        if len(missing) > MAX_RANGES:
            known = min(known, missing[MAX_RANGES][0])
            missing = missing[:MAX_RANGES]
        if stream.declined:
            declined, room = list(stream.declined), MAX_RANGES - len(missing)
            if len(declined) > room:
                known = min(known, declined[room][0])
            missing = list(RangeSet([*missing, *declined[:room]]))
        body = ask_body(stream.epoch, known, missing)
        self._transport.send(ack_topic, make_frame(Kind.ASK, self._epoch, 0, _time_ns(), body))

    def _release(self, incoming: Incoming, stream: Stream) -> None:
        """Deliver what is due."""
        pending = stream.pending
        if pending is None:
            return
        for released in pending.release():
            if isinstance(released, Message):
                self._deliver(incoming, stream, pending, released)
                continue
            first, end, silently = released
            with Undisturbed():
                pending.pass_over(first, end)
                if not silently:
                    self._gaps.pass_over(incoming, stream, first, end)
        if pending.complete:
            stream.pending = None

    def gone(
        self, incoming: Incoming, ack_topic: bytes, stream: Stream, why: Why, ranges: list[tuple[int, int]], unsent: int
    ) -> None:
        """Take in what will not come.  Everything below ``unsent`` was sent before.

        What of that is missing is asked for: all of it where there are no ranges, else only when something is newly
        found missing that is not among them.  The sender may hold it for lost, and would not ask what became of it.
        """
        found = self._expect(stream, max([unsent, *(end for _, end in ranges)]))
        for first, end in ranges:
            stream.declined.take(first, end)
        if stream.pending is not None:
            given_up = stream.pending.give_up(ranges, why is Why.CONFLATED)
            stream.conflated += given_up if why is Why.CONFLATED else 0
            self._release(incoming, stream)
        if ranges and (found is None or found[0] >= unsent):
            return
        missing = list(stream.pending.missing) if stream.pending else []
        if ranges and found and not any(first < unsent and end > found[0] for first, end in missing):
            return
        self._ask(ack_topic, stream, missing, stream.tracker.next)

    def place(self, incoming: Incoming, stream: Stream, first: int) -> None:
        """What is below ``first`` was never owed to us: it is no gap."""
        if stream.pending is not None:
            stream.pending.give_up([(0, first)], silently=True)
            self._release(incoming, stream)

    def ask_again(self, ack_topic: bytes, stream: Stream) -> None:
        """Ask for all that is missing: our ask may be lost, and the sender asks about what it owes us only."""
        if stream.pending is not None and stream.pending.missing:
            self._ask(ack_topic, stream, list(stream.pending.missing), stream.tracker.next)

    def give_up(self, incoming: Incoming, stream: Stream, delivers: bool = True) -> None:
        """The session will not come back: what it still owed is a gap; so is what is held, unless this ``delivers``."""
        if stream.pending is not None:
            if not delivers:
                stream.tracker.received -= stream.pending.drop()
            stream.pending.give_up_all()
            self._release(incoming, stream)
