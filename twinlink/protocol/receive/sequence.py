"""The receiving side's view of one sender session on one flow: what came, what is missing, what came twice."""

from enum import Enum

from ..rangeset import RangeSet

MAX_GAPS = 4096  # remembered; beyond it the oldest can no longer be distinguished from a duplicate when they come late


class Arrival(Enum):
    """What a sequence number meant when it arrived."""

    NEXT = "next"  # nothing to report; also what is late only because a hello overtook it
    AFTER_GAP = "after-gap"
    LATE = "late"
    DUPLICATE = "duplicate"


class SequenceTracker:
    """Feed it sequence numbers in the order of arrival.

    A tracker starts where the sender stood when this side joined (``first``): what was sent before was never owed
    to us and is not a gap.  Not knowing ``first``, the first arrival sets it.

    Attributes:
        next: one more than the highest sequence seen.
        missing: reported as gaps and not come since; of many gaps the latest.
        missing_count: all of these.
    """

    __slots__ = ("_before", "duplicates", "gaps", "late", "missing", "missing_count", "next", "received")

    def __init__(self, first: int | None = None) -> None:
        self.next = -1 if first is None else first
        self.missing = RangeSet()
        self.missing_count = 0
        self._before = RangeSet([(0, first or 0)])  # may still come, where a hello overtook data
        self.received = 0
        self.gaps = 0
        self.late = 0
        self.duplicates = 0

    def start_at(self, first: int) -> None:
        """Not knowing where the sender stood: this came first.  What is before it may still come, and is no gap."""
        self._before.add(0, first)
        self.next = first

    def has(self, sequence: int) -> bool:
        """Whether it has been seen, and not as a gap; of many gaps the oldest are not distinguished from that."""
        return sequence < self.next and sequence not in self.missing and sequence not in self._before

    def record_gap(self, first: int, end: int) -> None:
        """Count ``first`` to ``end - 1`` as a gap; ``end`` becomes the next number, unless that is beyond already."""
        self.missing.add(first, end)
        self.missing_count += end - first
        if len(self.missing) > MAX_GAPS:
            self.missing.drop_first_range()
        self.gaps += 1
        self.next = max(self.next, end)

    def arrive(self, sequence: int) -> Arrival:
        """Note an arrival, and return what it means.  After AFTER_GAP the gap is ``(old next, sequence)``."""
        if self.next < 0:
            self.start_at(sequence)
        if sequence == self.next:
            self.next = sequence + 1
            self.received += 1
            return Arrival.NEXT
        if sequence > self.next:
            self.record_gap(self.next, sequence)
            self.next = sequence + 1
            self.received += 1
            return Arrival.AFTER_GAP
        if self.missing.remove(sequence):
            self.missing_count -= 1
            self.late += 1
            self.received += 1
            return Arrival.LATE
        if self._before.remove(sequence):
            self.received += 1
            return Arrival.NEXT
        self.duplicates += 1
        return Arrival.DUPLICATE
