"""Loss: what is lost until it is reported, and evictions that are not confirmed yet.

No I/O, no clock.
"""

from collections.abc import Collection, Iterator, Sequence

from ..frames import MAX_SEQUENCE, AbandonReason
from ..rangeset import RangeSet

ANY_PEER = None
WITHHOLD_NS = 1_000_000_000  # five probes
MAX_GROUPS = 64  # of peers, with what they may have
MAX_REMEMBERED = 4096  # ranges of each kind: in lasting overload what is dropped alternates with what is not

REASONS = {
    AbandonReason.EVICTED: "it was not acknowledged in time and had to make room for newer messages",
    AbandonReason.DROPPED: "the flow was full, and its overflow policy dropped it",
}

NO_PEER = "no peer was up"
NOT_ACKED = "it was not acknowledged within two seconds, and the flow does not repair"
SKIPPED = "its sender had no message with this number"
NOT_TAKEN = "the peer's application takes nothing on this flow, or nothing so long"


Loss = tuple[int, int, str, frozenset[int]]  # first, end, reason, epochs of the peers that owed an ack


class LossLedger:
    """A message that turns out to have arrived after all, where it was missed, is taken out again.

    Attributes:
        count: how many are lost.
        unflushed: of them, what no flush has named yet; of many ranges the latest.
        unreported: of them, what no event has reported yet, by reason and the peers that owed an ack.
    """

    def __init__(self) -> None:
        self.count = 0
        self.unflushed = RangeSet()
        self.unreported: dict[tuple[str, frozenset[int]], RangeSet] = {}
        self._unflushed_for: dict[str, RangeSet] = {}  # by reason; also what has turned out to have arrived since
        self._may_have: dict[
            frozenset[int] | None, RangeSet
        ] = {}  # by the peers whose acks would show it, or any peer's

    def add(
        self,
        first: int,
        end: int,
        reason: str,
        unacked_by: Collection[int] | None = (),
        lost_by: Collection[int] = (),
        counted: bool = False,
    ) -> None:
        """Sequences from ``first`` to below ``end`` are lost: the peers ``lost_by`` will not get them.

        A late ack from every peer of ``unacked_by``, or from ``ANY_PEER`` where none owed one, revokes the loss.
        ``counted``: they count as lost already, and an event is to name these peers, too.
        """
        epochs = frozenset(unacked_by or ())
        self.unreported.setdefault((reason, frozenset(lost_by) or epochs), RangeSet()).add(first, end)
        if counted:
            return
        if unacked_by is ANY_PEER or unacked_by:
            self._remember(ANY_PEER if unacked_by is ANY_PEER else epochs, first, end)
        _add(self.unflushed, first, end)
        _add(self._unflushed_for.setdefault(reason, RangeSet()), first, end)
        if len(self._unflushed_for) > MAX_GROUPS:  # a reason may name a peer
            del self._unflushed_for[next(iter(self._unflushed_for))]
        # last: what Ctrl-C leaves uncounted is added again, see `SendFlow.recover_after_interrupt`
        self.count += end - first

    def add_skipped(self, first: int, end: int) -> None:
        """These have never been messages: they count as lost, and no flush names what its caller has skipped."""
        self.add(first, end, SKIPPED, counted=True)
        self.count += end - first

    def on_late_ack(self, sequence: int, epoch: int) -> bool:
        """A message arrived at this peer; returns whether it counted as lost until now, and does no more."""
        for group, may_have in self._may_have.items():
            if (group is ANY_PEER or epoch in group) and may_have.remove(sequence):
                break
        else:
            return False
        if group is not ANY_PEER and group != {epoch}:
            self._remember(group - {epoch}, sequence, sequence + 1)
            return False
        self.count -= 1
        self.unflushed.remove(sequence)
        for lost in self.unreported.values():
            lost.remove(sequence)
        return True

    def on_present(self, epoch: int, known: int, missing: RangeSet) -> int:
        """This peer has all below ``known`` but what is ``missing``; returns how many counted as lost until now.

        Of what several peers may have it says nothing.
        """
        may_have = self._may_have.get(frozenset((epoch,)))
        if may_have is None:
            return 0
        lost = RangeSet(may_have.take(0, known))
        still = [one for first, end in missing for one in lost.take(first, end)]
        for first, end in still:
            may_have.add(first, end)
        for first, end in lost:
            self.unflushed.take(first, end)
            for unreported in self.unreported.values():
                unreported.take(first, end)
        self.count -= lost.count()
        return lost.count()

    def _remember(self, group: frozenset[int] | None, first: int, end: int) -> None:
        _add(self._may_have.setdefault(group, RangeSet()), first, end)
        if len(self._may_have) > MAX_GROUPS:
            del self._may_have[next(iter(self._may_have))]

    def take_unflushed(self, below: int) -> list[str]:
        """A flush names what is lost below this number and no flush has named; returns why, each reason once."""
        lost, reasons = RangeSet(self.unflushed.take(0, below)), []
        for reason, ranges in list(self._unflushed_for.items()):
            if any(lost.take(first, end) for first, end in ranges.take(0, below)):
                reasons.append(reason)
            if not ranges:
                del self._unflushed_for[reason]
        return reasons

    def take_unreported(self, most: int) -> list[Loss]:
        """The first so many ranges that no event has reported yet, and why; from now on they count as reported."""
        reported: list[Loss] = []
        for (reason, epochs), lost in list(self.unreported.items()):
            if ranges := list(lost)[: most - len(reported)]:
                reported += [(first, end, reason, epochs) for first, end in ranges]
                lost.take(0, ranges[-1][1])
            if not lost:
                del self.unreported[reason, epochs]
        return reported


def _add(ranges: RangeSet, first: int, end: int) -> None:
    ranges.add(first, end)
    if len(ranges) > MAX_REMEMBERED:
        ranges.drop_first_range()


class UnconfirmedEvictions:
    """Evicted messages whose delivery is unknown, for each peer that owes an ack, until it answers or is given up.

    What a peer says it lacks may still be there, unread, behind what it has answered: a connection that has ended is
    read to its end beside the next.  So this is announced to it as abandoned, and it is probed again.  What it has not
    acknowledged by then, and lacks no more, it has given up: that is lost.  Whether other peers have it stays open.
    """

    def __init__(self) -> None:
        self._unknown: dict[int, RangeSet] = {}  # peer epoch -> sequences
        self._missing: dict[int, RangeSet] = {}  # peer epoch -> those that it has said it lacks
        self._withholds_since_mono_ns = 0  # an answer to one peer for the sake of others; 0: it does not
        self._lost = RangeSet()  # of these, what counts as lost already, since another peer lacks it

    @property
    def open(self) -> bool:
        """Whether there is any."""
        return bool(self._unknown or self._missing)

    def awaits_answer(self, up: frozenset[int]) -> bool:
        """Whether a peer that is ``up`` has said what it lacks, and is to be probed again."""
        return not up.isdisjoint(self._missing)

    def add(self, epochs: Collection[int], sequence: int, lost: bool) -> None:
        """These peers may have it; ``lost``: it counts as lost already."""
        for epoch in epochs:
            self._unknown.setdefault(epoch, RangeSet()).add(sequence, sequence + 1)
        if lost:
            self._lost.add(sequence, sequence + 1)

    def on_ack(self, epoch: int, sequence: int) -> bool:
        """A peer has it; whether it is unconfirmed no more, and not lost."""
        if not any(of[epoch].remove(sequence) for of in (self._unknown, self._missing) if epoch in of):
            return False
        arrived = not any(sequence in ranges for ranges in (*self._all(), self._lost))
        self._tidy()
        return arrived

    def on_nak(
        self, epoch: int, known: int, missing: Sequence[tuple[int, int]]
    ) -> tuple[list[tuple[int, int, bool]], list[tuple[int, int]]]:
        """A peer lacks the ``missing`` ranges, and has, or has given up, all else below ``known``.

        Returns what is lost to it by that, and whether it counts as lost already; and what is there and unconfirmed no
        more.
        """
        of, lacked = self._unknown.get(epoch, RangeSet()), self._missing.get(epoch, RangeSet())
        still = RangeSet(one for first, end in missing for one in (*of.take(first, end), *lacked.take(first, end)))
        lost, there = lacked.take(0, known), RangeSet(of.take(0, known))
        for first, end in still:
            self._missing.setdefault(epoch, RangeSet()).add(first, end)
        for ranges in (*self._all(), self._lost) if there else ():
            for first, end in ranges:
                there.take(first, end)
        return self._lose(lost), list(there)

    def answerable(
        self, missing: Sequence[tuple[int, int]], others: Collection[int], now_mono_ns: int
    ) -> Sequence[tuple[int, int]]:
        """The part of what a peer lacks that can be announced: not what ``others`` may still acknowledge.

        After the announcement their answers do not distinguish what they have from what they have given up.  So the
        next probe asks them first; but a peer that does not answer is not waited for.
        """
        if not self.open:
            return missing
        answerable = RangeSet(missing)
        unknown = [one for epoch in others for one in self._unknown.get(epoch, ())]
        if not [taken for first, end in unknown for taken in answerable.take(first, end)]:
            self._withholds_since_mono_ns = 0
            return missing
        self._withholds_since_mono_ns = self._withholds_since_mono_ns or now_mono_ns
        return missing if now_mono_ns - self._withholds_since_mono_ns > WITHHOLD_NS else list(answerable)

    def on_abandoned(self, first: int, end: int) -> None:
        """These are announced to all peers as abandoned: one that has not acknowledged them gives up what it lacks.

        So may one that is down, which may hear this side: what it does not lack when it is back counts as lost to it.
        """
        for epoch, ranges in self._unknown.items():
            if taken := ranges.take(first, end):
                lacked = self._missing.setdefault(epoch, RangeSet())
                for one in taken:
                    lacked.add(*one)
        self._tidy()

    def on_peer_ended(self, epoch: int) -> list[tuple[int, int, bool]]:
        """A peer will never say: what is lost to it by that, and whether it counts as lost already."""
        return self._lose([*self._unknown.pop(epoch, ()), *self._missing.pop(epoch, ())])

    def _lose(self, lost: list[tuple[int, int]]) -> list[tuple[int, int, bool]]:
        """One peer will not get these."""
        named: list[tuple[int, int, bool]] = []
        for first, end in lost:
            new = RangeSet([(first, end)])
            for counted in self._lost.take(first, end):
                new.take(*counted)
                named.append((*counted, True))
            named += [(*one, False) for one in new]
            self._lost.add(first, end)
        self._tidy()
        return named

    def _all(self) -> Iterator[RangeSet]:
        yield from self._unknown.values()
        yield from self._missing.values()

    def _tidy(self) -> None:
        self._unknown = {epoch: ranges for epoch, ranges in self._unknown.items() if ranges}
        self._missing = {epoch: ranges for epoch, ranges in self._missing.items() if ranges}
        first_ranges = [ranges.first_range() for ranges in self._all()]
        self._lost.take(0, min((one[0] for one in first_ranges if one), default=MAX_SEQUENCE + 1))

    def all(self) -> RangeSet:
        """Everything that some peer may or may not have, and that does not count as lost."""
        ranges = RangeSet(one for ranges in self._all() for one in ranges)
        for first, end in self._lost:
            ranges.take(first, end)
        return ranges
