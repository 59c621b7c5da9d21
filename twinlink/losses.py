"""What a sender has lost, until everybody who is to know has been told."""

from collections.abc import Collection

from .ranges import RangeSet
from .wire import Why

ANYBODY = None
MAX_GROUPS = 64  # of peers of whom it is remembered what they may have
MAX_REMEMBERED = 4096  # ranges of each kind: in lasting overload what is dropped alternates with what is not

REASONS = {
    Why.EVICTED: "it was not acknowledged in time and had to make room for newer messages",
    Why.DROPPED: "the flow was full, and its overflow policy dropped it",
}

NOBODY = "no peer was up"
UNANSWERED = "it was not acknowledged within two seconds, and the flow does not repair"
TAKES_NOTHING = "the peer's application takes nothing on this flow"


class Losses:
    """A message that turns out to have arrived after all, where it was missed, is taken out again.

    Attributes:
        count: how many are lost.
        unflushed: of them, what no flush has named yet; of many ranges the latest.
        unreported: of them, what no event has told yet, by reason.
    """

    def __init__(self) -> None:
        self.count = 0
        self.unflushed = RangeSet()
        self.unreported: dict[str, RangeSet] = {}
        self._may_have: dict[frozenset[int] | None, RangeSet] = {}  # by those whose acks would show it, or anybody's

    def add(self, first: int, end: int, reason: str, owed_by: Collection[int] | None = ()) -> None:
        """Sequences from ``first`` to below ``end`` are lost.

        If acks come yet of all that owed one, or of ``ANYBODY`` where nobody did, they are not.
        """
        if owed_by is ANYBODY or owed_by:
            self._remember(ANYBODY if owed_by is ANYBODY else frozenset(owed_by), first, end)
        _add(self.unflushed, first, end)
        self.unreported.setdefault(reason, RangeSet()).add(first, end)
        self.count += end - first  # last: what Ctrl-C leaves uncounted is added again, see `Outgoing.mend`

    def found(self, sequence: int, epoch: int) -> bool:
        """A message arrived at this peer; returns whether it counted as lost until now, and does no more."""
        for group, may_have in self._may_have.items():
            if (group is ANYBODY or epoch in group) and may_have.remove(sequence):
                break
        else:
            return False
        if group is not ANYBODY and group != {epoch}:
            self._remember(group - {epoch}, sequence, sequence + 1)
            return False
        self.count -= 1
        self.unflushed.remove(sequence)
        for lost in self.unreported.values():
            lost.remove(sequence)
        return True

    def _remember(self, group: frozenset[int] | None, first: int, end: int) -> None:
        _add(self._may_have.setdefault(group, RangeSet()), first, end)
        if len(self._may_have) > MAX_GROUPS:
            del self._may_have[next(iter(self._may_have))]

    def report(self, most: int) -> list[tuple[int, int, str]]:
        """The first so many ranges that no event has told yet, and why; from now on they count as told."""
        told: list[tuple[int, int, str]] = []
        for reason, lost in list(self.unreported.items()):
            if ranges := list(lost)[: most - len(told)]:
                told += [(first, end, reason) for first, end in ranges]
                lost.take(0, ranges[-1][1])
            if not lost:
                del self.unreported[reason]
        return told


def _add(ranges: RangeSet, first: int, end: int) -> None:
    ranges.add(first, end)
    if len(ranges) > MAX_REMEMBERED:
        ranges.drop_first_range()
