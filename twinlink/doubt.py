"""Messages that were handed over and had to give up their place before it was known whether they arrived."""

from collections.abc import Iterable, Sequence

from .ranges import RangeSet


class Doubt:
    """For each peer that owes an ack, what it may or may not have; settled when it says so, or is given up."""

    def __init__(self) -> None:
        self._of: dict[int, RangeSet] = {}  # peer epoch -> sequences

    def add(self, epochs: Iterable[int], sequence: int) -> None:
        """These peers may have it."""
        for epoch in epochs:
            self._of.setdefault(epoch, RangeSet()).add(sequence, sequence + 1)

    def answer(
        self, epoch: int, known: int, missing: Sequence[tuple[int, int]]
    ) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
        """A peer lacks the ``missing`` ranges and has all else below ``known``.

        Returns what is lost by that, and what is there and in doubt no more; a message that any peer lacks is lost.
        """
        doubt = self._of.get(epoch)
        if doubt is None:
            return [], []
        lost = [one for first, end in missing for one in doubt.take(first, end)]
        self._lose(lost)
        there = RangeSet(doubt.take(0, known))
        if not doubt:
            del self._of[epoch]
        for other in self._of.values():
            for first, end in other:
                there.take(first, end)
        return lost, list(there)

    def forget(self, epoch: int) -> list[tuple[int, int]]:
        """A peer will never say: what is lost by that."""
        lost = list(self._of.pop(epoch, ()))
        self._lose(lost)
        return lost

    def _lose(self, lost: list[tuple[int, int]]) -> None:
        for doubt in self._of.values():
            for first, end in lost:
                doubt.take(first, end)

    def all(self) -> RangeSet:
        """Everything that somebody may or may not have."""
        together = RangeSet()
        for doubt in self._of.values():
            for first, end in doubt:
                together.add(first, end)
        return together
