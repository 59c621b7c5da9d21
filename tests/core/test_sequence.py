"""SequenceTracker against a model that remembers every number."""

from hypothesis import given
from hypothesis import strategies as st

from twinlink.protocol.receive.sequence import MAX_GAPS, Arrival, SequenceTracker


class Model:
    """What a tracker should say, with everything remembered one by one."""

    def __init__(self, first: int | None) -> None:
        self.first = first
        self.seen: list[int] = []

    def arrive(self, sequence: int) -> Arrival:
        if sequence in self.seen:
            return Arrival.DUPLICATE
        start = self.first if self.first is not None else (self.seen[0] if self.seen else sequence)
        highest = max([*self.seen, start - 1])
        self.seen.append(sequence)
        if sequence < start:
            return Arrival.NEXT  # sent before we joined: not owed to us, so neither late nor a gap
        if sequence == highest + 1:
            return Arrival.NEXT
        return Arrival.AFTER_GAP if sequence > highest else Arrival.LATE

    def missing(self) -> set[int]:
        if not self.seen:
            return set()
        start = self.first if self.first is not None else self.seen[0]
        return set(range(start, max(self.seen) + 1)) - set(self.seen)


@given(st.one_of(st.none(), st.integers(0, 8)), st.lists(st.integers(0, 30), max_size=60))
def test_every_arrival_is_named_exactly(first: int | None, arrivals: list[int]) -> None:
    tracker, model, counts = SequenceTracker(first), Model(first), dict.fromkeys(Arrival, 0)
    for sequence in arrivals:
        expected = model.arrive(sequence)
        assert tracker.arrive(sequence) is expected
        counts[expected] += 1
        assert {n for low, high in tracker.missing for n in range(low, high)} == model.missing()
    assert tracker.received == len(model.seen)
    assert tracker.duplicates == counts[Arrival.DUPLICATE]
    assert tracker.late == counts[Arrival.LATE]
    assert tracker.gaps == counts[Arrival.AFTER_GAP]


@given(st.permutations(range(12)))
def test_any_order_in_the_end_misses_nothing(arrivals: list[int]) -> None:
    tracker = SequenceTracker(0)
    for sequence in arrivals:
        tracker.arrive(sequence)
    assert (tracker.next, tracker.received, tracker.duplicates, tracker.missing.count()) == (12, 12, 0, 0)
    assert tracker.missing_count == 0


def test_memory_is_bounded_whatever_comes() -> None:
    tracker = SequenceTracker(0)
    for sequence in range(1, 4 * MAX_GAPS, 2):
        tracker.arrive(sequence)
    assert len(tracker.missing) == MAX_GAPS
    assert tracker.missing_count == 2 * MAX_GAPS  # all the same
    assert tracker.arrive(0) is Arrival.DUPLICATE  # the price: its gap has been forgotten
    assert tracker.arrive(4 * MAX_GAPS - 2) is Arrival.LATE
