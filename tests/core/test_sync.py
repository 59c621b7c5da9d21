"""Sync: ages are what the definition says, states follow the table, whatever comes in whatever order."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinlink.sync import State, Sync, Thresholds

MS = 1_000_000
THRESHOLDS = Thresholds(stale_after=0.5, out_after=2.0, completeness=0.9)


@pytest.fixture
def sync() -> Sync:
    return Sync(THRESHOLDS)


def test_the_states_of_a_flow(sync: Sync) -> None:
    assert (sync.state, sync.look(0), sync.age_ns(0)) == (State.BOUND, None, None)
    sync.arrived(0, 1000 * MS, 1003 * MS, 10 * MS)
    assert sync.look(10 * MS) is State.IN_SYNC
    assert sync.look(11 * MS) is None
    assert sync.age_ns(110 * MS) == 103 * MS
    assert sync.look(508 * MS) is State.STALE
    assert sync.state == "stale"
    assert sync.look(2010 * MS) is State.OUT_OF_SYNC
    sync.arrived(1, 3000 * MS, 3001 * MS, 2020 * MS)
    assert sync.look(2020 * MS) is State.IN_SYNC
    sync.missed(1, 2021 * MS)
    assert sync.look(2021 * MS) is State.OUT_OF_SYNC
    assert sync.completeness(2021 * MS) == pytest.approx(2 / 3)
    sync.arrived(3, 14_000 * MS, 14_000 * MS, 13_100 * MS)  # the loss is forgotten
    assert sync.look(13_100 * MS) is State.IN_SYNC


def test_an_older_message_makes_nothing_fresher(sync: Sync) -> None:
    sync.arrived(1, 1000 * MS, 1001 * MS, 1 * MS)
    sync.arrived(0, 500 * MS, 1002 * MS, 2 * MS)
    assert sync.age_ns(2 * MS) == 2 * MS


def test_a_new_session_may_have_an_earlier_clock(sync: Sync) -> None:
    sync.arrived(7, 5000 * MS, 5001 * MS, 1 * MS, epoch=1)
    for at in (1000, 1001, 1002):
        sync.arrived(at, 1900 * MS + at * MS, 5000 * MS + at * MS, at * MS, epoch=2)
        assert sync.age_ns(at * MS) == (1000 * MS if at < 1001 else 3100 * MS)


def test_the_backlog_of_one_sender_does_not_make_old_what_another_sends(sync: Sync) -> None:
    for at in range(0, 3000, 100):
        sync.arrived(at, 10_000 * MS + at * MS, 10_003 * MS + at * MS, at * MS, epoch=1)
        sync.arrived(at // 100, 5000 * MS, 10_050 * MS + at * MS, (at + 47) * MS, epoch=2)
        assert sync.age_ns((at + 47) * MS) == 50 * MS
        sync.arrived(at, 10_048 * MS + at * MS, 10_050 * MS + at * MS, (at + 47) * MS, epoch=3)
        assert sync.age_ns((at + 47) * MS) == 2 * MS
    assert sync.look(3000 * MS) is State.IN_SYNC
    assert sync.peak_age_ns is not None
    assert sync.peak_age_ns < 100 * MS


def test_a_clock_that_was_set_back_does_not_make_what_comes_old(sync: Sync) -> None:
    hour = 3_600_000
    sync.arrived(0, hour * MS, 5 * MS, 1 * MS)
    sync.arrived(1, 20 * MS, 21 * MS, 17 * MS)
    assert sync.age_ns(17 * MS) == MS


def test_a_clock_that_is_ahead_does_not_keep_a_flow_in_sync(sync: Sync) -> None:
    hour = 3_600_000
    sync.arrived(0, hour * MS, 5 * MS, 1 * MS)
    assert sync.look(1 * MS) is State.IN_SYNC
    assert sync.look(502 * MS) is State.STALE
    assert sync.look(2002 * MS) is State.OUT_OF_SYNC
    assert sync.age_ns(2002 * MS) == (2006 - hour) * MS


@given(st.lists(st.tuples(st.integers(1, 3000), st.integers(0, 200)), min_size=2, max_size=50))
def test_mean_and_peak_are_those_of_the_curve(steps: list[tuple[int, int]]) -> None:
    """Against a sum over every millisecond: the curve grows by one a millisecond and falls when something comes."""
    sync, now, sent, curve, age = Sync(THRESHOLDS), 0, 0, [], None
    for gap, delay in steps:
        for _ in range(gap):
            if age is not None:
                curve.append(age + 0.5)
                age += 1
            now += 1
        if now - delay > sent or age is None:
            sent, age = now - delay, delay
        sync.arrived(now - delay, (now - delay) * MS, now * MS, now * MS)
    mean = sync.mean_age_ns(now * MS)
    assert mean is None or mean / MS == pytest.approx(sum(curve) / len(curve), rel=1e-6, abs=1e-3)
    assert sync.age_ns(now * MS) == age * MS if age is not None else True
