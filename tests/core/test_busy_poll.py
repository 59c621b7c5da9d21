"""Who waits looks before it sleeps where that is quicker, and not where messages come at a pace of their own."""

from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from twinlink.runtime.busy_poll import FIRST, GAIN, LONGEST_EPOCH, MAX_POLL_NS, RUN, SECOND, TRIAL, BusyPoll

MIN_WAIT_NS = 15_000


def looks(poll: BusyPoll, waits: int, wait_ns: Callable[[bool], float]) -> float:
    """The part of so many waits that looked; ``wait_ns`` says how long one takes, slept or looked."""
    looked = 0
    for _ in range(waits):
        looked += poll.polls
        took_ns = int(wait_ns(poll.polls))
        poll.on_wait(took_ns, took_ns)
    return looked / waits


def gains(slept_ns: int, looked_ns: int) -> bool:
    counted = RUN - 1
    return counted * (slept_ns - looked_ns) > GAIN * (counted * slept_ns)


def noisy(slept_ns: float, looked_ns: float) -> Callable[[bool], float]:
    noise = Random(1)
    return lambda looks: (looked_ns if looks else slept_ns) * noise.lognormvariate(0, 0.15)


def test_a_closed_loop_is_looked_for() -> None:
    assert looks(BusyPoll(), 20_000, noisy(150_000, 80_000)) > 0.95


@pytest.mark.parametrize("ns", [500, 50_000, 120_000, 450_000, 10_000_000])
def test_a_stream_is_slept_for_whatever_its_pace(ns: int) -> None:
    assert looks(BusyPoll(), 50_000, noisy(ns, ns)) < 0.05


def test_where_it_is_not_allowed_it_is_not_tried_either() -> None:
    assert looks(BusyPoll(allowed=False), 20_000, noisy(150_000, 80_000)) == 0


def test_a_handful_of_messages_does_not_wait_for_a_trial() -> None:
    assert looks(BusyPoll(), FIRST, noisy(150_000, 80_000)) == 1


@given(st.integers(MIN_WAIT_NS, 2 * MAX_POLL_NS), st.floats(0.1, 1.5))
def test_a_trial_tells_which_is_shorter(slept_ns: int, ratio: float) -> None:
    poll, looked_ns = BusyPoll(), int(slept_ns * ratio)
    looks(poll, FIRST + TRIAL, lambda looks: looked_ns if looks else slept_ns)
    assert poll.polls == (gains(slept_ns, looked_ns) and looked_ns < MAX_POLL_NS)


def test_what_it_does_to_the_rest_of_the_round_trip_counts_as_well() -> None:
    poll = BusyPoll()
    for _ in range(FIRST + TRIAL):
        poll.on_wait(50_000 if poll.polls else 100_000, 200_000)
    assert not poll.polls


def test_two_ends_of_a_loop_find_out_one_after_the_other_what_they_gain_together() -> None:
    ends = BusyPoll(), BusyPoll(first=False)
    for _ in range(LONGEST_EPOCH):
        ns = 80_000 if ends[0].polls and ends[1].polls else 150_000
        for end in ends:
            end.on_wait(ns, ns)
    assert all(end.polls for end in ends)


def test_within_two_hundred_messages_both_ends_give_up_what_gains_nothing() -> None:
    ends = BusyPoll(), BusyPoll(first=False)
    for _ in range(SECOND + TRIAL):
        for end in ends:
            end.on_wait(100_000, 100_000)
    assert SECOND + TRIAL < 200
    assert not any(end.polls for end in ends)


@settings(max_examples=40)  # each of thousands of waits
@given(st.lists(st.tuples(st.integers(MIN_WAIT_NS, MAX_POLL_NS), st.floats(0.3, 1.3)), min_size=1, max_size=5))
def test_what_has_changed_is_noticed_at_the_next_trial(phases: list[tuple[int, float]]) -> None:
    poll = BusyPoll()
    for slept_ns, ratio in phases:
        looked_ns = int(slept_ns * ratio)
        looks(poll, LONGEST_EPOCH + 2 * TRIAL, lambda looks: looked_ns if looks else slept_ns)  # noqa: B023
        part = looks(poll, 2000, lambda looks: looked_ns if looks else slept_ns)  # noqa: B023
        assert (part > 0.9) if gains(slept_ns, looked_ns) else (part < 0.1)


def test_who_rests_does_not_look_and_goes_on_as_before() -> None:
    poll = BusyPoll()
    for _ in range(10):
        looks(poll, 20_000, noisy(150_000, 80_000))
        poll.on_wait(10**8, 10**8)
        assert looks(poll, 1000, lambda looks: 10**8) == 0
    assert looks(poll, 20_000, noisy(150_000, 80_000)) > 0.95


def test_a_stall_now_and_then_changes_nothing() -> None:
    quick, chance = noisy(150_000, 80_000), Random(2)
    assert looks(BusyPoll(), 20_000, lambda looks: 10**7 if chance.random() < 0.02 else quick(looks)) > 0.95
