"""Messages that were handed over and had to give up their place before it was known whether they arrived."""

from collections.abc import Collection, Iterator, Sequence

from .ranges import RangeSet


class Doubt:
    """For each peer that owes an ack, what it may or may not have; settled when it says so, or is given up.

    What a peer says it lacks may still be there, unread, behind what it has answered: a connection that has ended is
    read to its end beside the next.  So it is told that this will not come, and asked again.  What it has not
    acknowledged by then, and lacks no more, it has given up: that is lost.

    Attributes:
        open: whether there is any.
    """

    def __init__(self) -> None:
        self.open = False
        self._of: dict[int, RangeSet] = {}  # peer epoch -> sequences
        self._lacked: dict[int, RangeSet] = {}  # peer epoch -> those that it has said it lacks

    def asks(self, up: frozenset[int]) -> bool:
        """Whether somebody who is ``up`` has said what it lacks, and is to be asked again."""
        return not up.isdisjoint(self._lacked)

    def add(self, epochs: Collection[int], sequence: int) -> None:
        """These peers may have it."""
        self.open = self.open or bool(epochs)
        for epoch in epochs:
            self._of.setdefault(epoch, RangeSet()).add(sequence, sequence + 1)

    def arrived(self, epoch: int, sequence: int) -> bool:
        """A peer has it; whether it is in doubt no more."""
        if not any(of[epoch].remove(sequence) for of in (self._of, self._lacked) if epoch in of):
            return False
        self._tidy()
        return not any(sequence in ranges for ranges in self._all())

    def answer(
        self, epoch: int, known: int, missing: Sequence[tuple[int, int]]
    ) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
        """A peer lacks the ``missing`` ranges, and has, or has given up, all else below ``known``.

        Returns what is lost by that, and what is there and in doubt no more; a message that any peer lacks is lost.
        """
        of, lacked = self._of.get(epoch, RangeSet()), self._lacked.get(epoch, RangeSet())
        still = RangeSet(one for first, end in missing for one in (*of.take(first, end), *lacked.take(first, end)))
        lost, there = lacked.take(0, known), RangeSet(of.take(0, known))
        for first, end in still:
            self._lacked.setdefault(epoch, RangeSet()).add(first, end)
        self._lose(lost)
        for ranges in self._all():
            for first, end in ranges:
                there.take(first, end)
        return lost, list(there)

    def announced(self, first: int, end: int) -> None:
        """Everybody is told that these will not come: who has not acknowledged them by now gives up what it lacks."""
        for epoch, ranges in self._of.items():
            if taken := ranges.take(first, end):
                lacked = self._lacked.setdefault(epoch, RangeSet())
                for one in taken:
                    lacked.add(*one)
        self._tidy()

    def forget(self, epoch: int) -> list[tuple[int, int]]:
        """A peer will never say: what is lost by that."""
        lost = [*self._of.pop(epoch, ()), *self._lacked.pop(epoch, ())]
        self._lose(lost)
        return lost

    def _lose(self, lost: list[tuple[int, int]]) -> None:
        for ranges in self._all():
            for first, end in lost:
                ranges.take(first, end)
        self._tidy()

    def _all(self) -> Iterator[RangeSet]:
        yield from self._of.values()
        yield from self._lacked.values()

    def _tidy(self) -> None:
        self._of = {epoch: ranges for epoch, ranges in self._of.items() if ranges}
        self._lacked = {epoch: ranges for epoch, ranges in self._lacked.items() if ranges}
        self.open = bool(self._of or self._lacked)

    def all(self) -> RangeSet:
        """Everything that somebody may or may not have."""
        return RangeSet(one for ranges in self._all() for one in ranges)
