"""The search for the highest rate without loss."""

from collections.abc import Callable

import pytest

from twinlink.measure import search


def offer_to(capacity_hz: float) -> Callable[[float], search.Trial]:
    """A channel that carries so many messages a second and no more."""

    def offer(rate_hz: float) -> search.Trial:
        asked = 50 + int(rate_hz / 2)
        return search.judge(rate_hz, asked, asked, asked, (asked - 1) / min(rate_hz, capacity_hz))

    return offer


@pytest.mark.parametrize("capacity_hz", [20.0, 1000.0, 47_123.0, 1e6])
@pytest.mark.parametrize("guess", [0.1, 0.9, 1.0, 1.3, 8.0])
def test_what_it_finds_is_carried_and_close_to_what_can_be(capacity_hz: float, guess: float) -> None:
    trials, found = search.highest(offer_to(capacity_hz), guess * capacity_hz)
    assert found is not None
    assert len(trials) <= search.MAX_TRIALS
    assert (1 - 2 * search.PRECISION) * capacity_hz <= found <= (1 + 2 * search.SLACK) * capacity_hz
    assert found == max(trial.rate_hz for trial in trials if trial.lossless)


def test_a_channel_that_always_loses_has_no_such_rate() -> None:
    trials, found = search.highest(lambda rate: search.judge(rate, 100, 100, 99, 0.0), 1000.0)
    assert found is None
    assert len(trials) == search.MAX_TRIALS
    assert not any(trial.lossless for trial in trials)
    assert {trial.lost for trial in trials} == {1}


def test_to_keep_everything_is_not_enough_when_it_comes_too_late() -> None:
    assert search.judge(100.0, 101, 101, 101, 1.0).lossless
    assert search.judge(100.0, 101, 101, 101, 1.04).lossless
    assert not search.judge(100.0, 101, 101, 101, 1.1).lossless
    assert not search.judge(100.0, 101, 100, 100, 0.99).lossless  # the sender could not
    assert not search.judge(100.0, 101, 101, 100, 1.0).lossless
