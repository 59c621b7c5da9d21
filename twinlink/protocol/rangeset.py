"""Sets of sequence numbers as half-open ranges: small however many numbers they hold."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator


class RangeSet:
    """Disjoint, ascending, non-adjacent half-open ranges ``(first, end)`` of non-negative integers.

    ``add`` and ``remove`` cost a binary search and a list splice.
    """

    __slots__ = ("_ends", "_starts")

    def __init__(self, ranges: Iterable[tuple[int, int]] = ()) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        for first, end in ranges:
            self.add(first, end)

    def add(self, first: int, end: int) -> None:
        """Put every number in ``[first, end)`` into the set."""
        if first >= end:
            return
        low = bisect_left(self._ends, first)  # the first range that touches or follows
        high = bisect_right(self._starts, end)  # the first range beyond
        if low < high:
            first = min(first, self._starts[low])
            end = max(end, self._ends[high - 1])
        self._starts[low:high] = [first]
        self._ends[low:high] = [end]

    def remove(self, number: int) -> bool:
        """Take one number out; says whether it was there."""
        index = bisect_right(self._starts, number) - 1
        if index < 0 or number >= self._ends[index]:
            return False
        first, end = self._starts[index], self._ends[index]
        if first + 1 == end:
            del self._starts[index], self._ends[index]
        elif number == first:
            self._starts[index] = number + 1
        else:
            self._ends[index] = number
            if number + 1 < end:
                self._starts.insert(index + 1, number + 1)
                self._ends.insert(index + 1, end)
        return True

    def take(self, first: int, end: int) -> list[tuple[int, int]]:
        """Take every number in ``[first, end)`` out; returns the ranges that were there."""
        low = bisect_right(self._ends, first)
        high = bisect_left(self._starts, end)
        if low >= high:
            return []
        cut = list(zip(self._starts[low:high], self._ends[low:high], strict=True))
        taken = [(max(start, first), min(stop, end)) for start, stop in cut]
        left = [(cut[0][0], first)] if cut[0][0] < first else []
        right = [(end, cut[-1][1])] if end < cut[-1][1] else []
        self._starts[low:high] = [start for start, _ in left + right]
        self._ends[low:high] = [stop for _, stop in left + right]
        return taken

    def first_range(self) -> tuple[int, int] | None:
        """The lowest range."""
        return (self._starts[0], self._ends[0]) if self._starts else None

    def drop_first_range(self) -> tuple[int, int]:
        """Take the lowest range out and return it."""
        return self._starts.pop(0), self._ends.pop(0)

    def clear(self) -> None:
        """Take everything out."""
        self._starts.clear()
        self._ends.clear()

    def covers(self, first: int, end: int) -> bool:
        """Whether every number in ``[first, end)``, which is not empty, is in the set."""
        index = bisect_right(self._starts, first) - 1
        return index >= 0 and end <= self._ends[index]

    def overlaps(self, first: int, end: int) -> bool:
        """Whether any number in ``[first, end)``, which is not empty, is in the set."""
        return bisect_right(self._ends, first) < bisect_left(self._starts, end)

    def count(self) -> int:
        """How many numbers the set holds."""
        return sum(self._ends) - sum(self._starts)

    def __contains__(self, number: int) -> bool:
        index = bisect_right(self._starts, number) - 1
        return index >= 0 and number < self._ends[index]

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return iter(list(zip(self._starts, self._ends, strict=True)))

    def __len__(self) -> int:
        """How many ranges the set holds."""
        return len(self._starts)

    def __str__(self) -> str:
        """For a person: ``3-7, 9 (6 messages)``."""
        parts = [str(first) if end == first + 1 else f"{first}-{end - 1}" for first, end in list(self)[:8]]
        if len(self) > 8:
            parts.append(f"and {len(self) - 8} more ranges")
        count = self.count()
        return f"{', '.join(parts)} ({count} message{'' if count == 1 else 's'})"

    def __repr__(self) -> str:
        return f"RangeSet({list(self)})"
