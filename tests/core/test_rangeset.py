"""RangeSet against a set of numbers."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from twinlink.protocol.rangeset import RangeSet

NUMBER = st.integers(0, 40)
STEPS = st.lists(st.one_of(st.tuples(st.just("add"), NUMBER, NUMBER), st.tuples(st.just("remove"), NUMBER, NUMBER)))


@given(STEPS)
def test_it_is_a_set_kept_as_ranges(steps: list[tuple[str, int, int]]) -> None:
    ranges, model = RangeSet(), set[int]()
    for action, first, end in steps:
        if action == "add":
            ranges.add(first, end)
            model |= set(range(first, end))
        else:
            assert ranges.remove(first) == (first in model)
            model.discard(first)
        listed = list(ranges)
        assert {number for low, high in listed for number in range(low, high)} == model
        assert all(low < high for low, high in listed)
        assert all(before[1] < after[0] for before, after in pairwise(listed))  # not even touching
        assert ranges.count() == len(model)
        assert len(ranges) == len(listed)
        assert bool(ranges) == bool(model)
        assert all((number in ranges) == (number in model) for number in range(42))
        assert first >= end or ranges.covers(first, end) == (set(range(first, end)) <= model)


@given(st.lists(st.tuples(NUMBER, NUMBER)))
def test_the_lowest_range_can_be_dropped_until_none_is_left(pairs: list[tuple[int, int]]) -> None:
    ranges = RangeSet(pairs)
    assert [ranges.drop_first_range() for _ in range(len(ranges))] == list(RangeSet(pairs))
    assert not ranges


def test_a_person_can_read_it() -> None:
    assert str(RangeSet([(3, 8), (9, 10)])) == "3-7, 9 (6 messages)"
    assert str(RangeSet([(9, 10)])) == "9 (1 message)"
    assert str(RangeSet((2 * n, 2 * n + 1) for n in range(20))).endswith("14, and 12 more ranges (20 messages)")
