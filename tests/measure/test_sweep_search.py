"""The search for the highest rate without loss."""

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from twinlink_measure import search
from twinlink_measure.cell_run import FLOODS, CellRun, RoundResult
from twinlink_measure.cells import Plan
from twinlink_measure.setting import Pair

from twinlink.appkit import records


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
    assert len({trial.rate_hz for trial in trials}) <= search.MAX_RATES
    assert (1 - 2 * search.PRECISION) * capacity_hz <= found <= (1 + 2 * search.SLACK) * capacity_hz
    assert found == max(trial.rate_hz for trial in trials if trial.lossless)


def test_a_channel_that_always_loses_has_no_such_rate() -> None:
    trials, found = search.highest(lambda rate: search.judge(rate, 100, 100, 99, 0.0), 1000.0)
    assert found is None
    assert len(trials) == search.MAX_RATES  # once each: what was lost stays lost
    assert not any(trial.lossless for trial in trials)
    assert {trial.lost for trial in trials} == {1}


def test_to_keep_everything_is_not_enough_when_it_comes_too_late() -> None:
    assert search.judge(100.0, 101, 101, 101, 1.0).lossless
    assert search.judge(100.0, 101, 101, 101, 1.04).lossless
    assert not search.judge(100.0, 101, 101, 101, 1.1).lossless
    assert not search.judge(100.0, 101, 100, 100, 0.99).lossless  # the sender could not
    assert not search.judge(100.0, 101, 101, 100, 1.0).lossless


@pytest.mark.parametrize("held_up", range(10))
def test_a_trial_that_was_held_up_does_not_end_the_search_lower(held_up: int) -> None:
    carried = offer_to(1000.0)
    offered: list[float] = []

    def offer(rate_hz: float) -> search.Trial:
        trial = carried(rate_hz)
        offered.append(rate_hz)
        if len(offered) - 1 != held_up:
            return trial
        return search.judge(rate_hz, trial.sent, trial.sent, trial.received, trial.span_s + 0.1)

    _, found = search.highest(offer, 700.0)
    _, without = search.highest(offer_to(1000.0), 700.0)
    assert found == without
    assert len(offered) > held_up


def test_what_took_over_twice_as_long_is_not_tried_again() -> None:
    trials, _ = search.highest(offer_to(1000.0), 7000.0)
    assert [trial.rate_hz for trial in trials].count(7000.0) == 1


def test_rates_that_fall_below_the_first_do_not_hide_what_is_just_below_it() -> None:
    """Such as where messages of a high rate share frames and those of a lower one go alone."""
    most, least = offer_to(50_000.0), offer_to(800.0)
    _, found = search.highest(lambda rate: (least if 800 < rate < 45_000 else most)(rate), 60_000.0)
    assert found == pytest.approx(50_000.0, rel=2 * search.PRECISION)


class Simulated(CellRun):
    """Trials of a channel that carries 10,000 messages a second, on clocks that are a day apart.

    Each of ``held_up_s`` holds one trial up, in turn, before its message number ``held_up_at``.
    """

    def __init__(self, held_up_s: list[float], held_up_at: int = 0) -> None:
        self.cell = Plan(("zeromq",), (100,), ("rw-dt",), ("saturation",)).cells()[0]
        pair = cast(Pair, SimpleNamespace(real_world=None, digital_twin=None))
        super().__init__(Plan(("zeromq",), (100,)), pair, self.cell, 0, False)
        self.held_up_s, self.held_up_at = held_up_s, held_up_at
        self.asked: list[float | None] = []

    def warm_up(self, stopped: Any, least_s: float) -> None:
        """Nothing to do."""

    def trial(self, count: int, rate_hz: float | None, stopped: Any) -> RoundResult:
        """Each message leaves when it is due, and the channel takes 100 us for it, after what waits."""
        self.asked.append(rate_hz)
        held_up_s = self.held_up_s.pop(0) if self.held_up_s else 0.0
        due_s = np.arange(count) / rate_hz if rate_hz else np.zeros(count)
        ready_s, taken_s = due_s.copy(), np.arange(count) / 1e4
        ready_s[self.held_up_at :] = np.maximum(ready_s[self.held_up_at :], ready_s[self.held_up_at] + held_up_s)
        began_s = np.maximum.accumulate(ready_s - taken_s) + taken_s
        sent, received = np.zeros(count, records.SENT), np.zeros(count, records.RECEIVED)
        sent["sequence"] = received["sequence"] = np.arange(count)
        sent["scheduled_ns"] = sent["sent_ns"] = 10**18 + due_s * 1e9
        received["received_ns"] = 10**18 + 86_400 * 10**9 + (began_s + 1e-4) * 1e9
        elapsed_ns = int((began_s[-1] + 1e-4) * 1e9)
        return RoundResult(sent, received, {"elapsed_ns": elapsed_ns})


def test_a_trial_that_starts_late_and_stays_so_is_not_carried() -> None:
    simulated = Simulated([0.0, 0.0, 0.0, 0.2])
    simulated.run(lambda: False)
    first, second, *_ = simulated.cell["search"]["steps"]
    assert not first["lossless"]
    assert first["span_s"] == pytest.approx(first["due_s"] + 0.2, abs=0.01)
    assert second["lossless"]
    assert second["rate_hz"] == first["rate_hz"]


def test_what_a_search_had_found_stays_when_a_trial_does_not_end() -> None:
    class Broken(Simulated):
        def trial(self, count: int, rate_hz: float | None, stopped: Any) -> RoundResult:
            taken = super().trial(count, rate_hz, stopped)
            return replace(taken, status="peer lost", reason="it went") if len(self.asked) == FLOODS + 4 else taken

    whole, broken = Simulated([]), Broken([])
    whole.run(lambda: False)
    taken = broken.run(lambda: False)
    assert broken.cell["search"]["steps"] == whole.cell["search"]["steps"][:3]
    carried = [step["sent"] for step in broken.cell["search"]["steps"] if step["lossless"]]
    assert carried
    assert len(taken.sent) == carried[-1]
    assert (taken.status, taken.reason) == ("peer lost", "it went")
    assert broken.cell["search"]["highest_loss_free_hz"] is None  # it was not at its end


def test_a_hiccup_in_the_first_flood_does_not_decide_where_the_search_begins() -> None:
    simulated = Simulated([0.2], held_up_at=1)
    plain = simulated.run(lambda: False)
    floods, first = simulated.asked[:FLOODS], simulated.asked[FLOODS]
    assert floods == [None] * FLOODS
    assert first == pytest.approx(10_000, rel=0.01)
    assert len(plain.sent) >= 4500
    assert simulated.cell["search"]["highest_loss_free_hz"] == pytest.approx(10_000, rel=2 * search.PRECISION)
