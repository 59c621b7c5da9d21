"""Who decides: the model's time in shadow, and each reason that ends it."""

import numpy as np
import pytest
from numpy.typing import NDArray

from examples.train import probation
from examples.train.probation import Probation

N = 40


def prbs(*numbers: int) -> NDArray[np.bool_]:
    found = np.zeros(N, bool)
    found[list(numbers)] = True
    return found


LOUD, QUIET = np.ones(N, bool), np.zeros(N, bool)


def stages(found: Probation) -> list[tuple[str, str]]:
    return [(change.stage, change.reason) for change in found.changes()]


def test_the_rule_decides_in_shadow_and_the_model_when_it_is_live() -> None:
    found = Probation(N, live_after=10)
    rule, model = prbs(1, 2), prbs(2, 3)
    answers = [found.add(rule, model, LOUD) for _ in range(12)]
    assert [(answer == model).all() for answer in answers] == [False] * 10 + [True] * 2
    assert stages(found) == [("live", "")]
    assert (found.counts["both"], found.counts["model"], found.counts["rule"]) == (12, 12, 12)
    assert found.counts["live_records"] == 2


def test_without_an_end_of_shadow_the_rule_decides() -> None:
    found = Probation(N, live_after=None)
    assert all((found.add(prbs(1), prbs(2), LOUD) == prbs(1)).all() for _ in range(3000))
    assert found.stage == "shadow"


def test_a_record_without_an_answer_is_decided_by_the_rule() -> None:
    found = Probation(N, live_after=0)
    assert (found.add(prbs(1), prbs(2), LOUD) == prbs(2)).all()
    assert (found.add(prbs(1), None, LOUD) == prbs(1)).all()
    assert found.counts["late"] == 1


def live() -> Probation:
    found = Probation(N, live_after=0)
    found.add(prbs(1), prbs(1), LOUD)
    found.judge(prbs(1)[None])
    assert stages(found) == [("live", "")]
    return found


def late(found: Probation) -> None:
    for _ in range(probation.MOST_LATE + 1):
        found.add(prbs(1), None, LOUD)


def large(found: Probation) -> None:
    for _ in range(probation.SIZE_RECORDS):
        found.add(prbs(1), LOUD, LOUD)


def withheld(found: Probation) -> None:
    for _ in range(probation.WINDOW):
        found.add(prbs(1), prbs(1, 2, 3, 4), QUIET)


def wrong(found: Probation) -> None:
    for _ in range(probation.LEAST_JUDGED):
        found.add(prbs(1), prbs(2), LOUD)
        found.judge(prbs(1)[None])


def fidelity(found: Probation) -> None:
    found.roll_back("fidelity", "low")


REASONS = {"late": late, "size": large, "withheld": withheld, "wrong": wrong, "fidelity": fidelity}


@pytest.mark.parametrize("reason", REASONS)
def test_each_reason_takes_a_live_model_back_for_good(reason: str) -> None:
    found = live()
    REASONS[reason](found)
    assert stages(found) == [("rolled back", reason)]
    assert all((found.add(prbs(5), prbs(6), LOUD) == prbs(5)).all() for _ in range(2000))
    assert stages(found) == []


@pytest.mark.parametrize("reason", REASONS)
def test_in_shadow_they_keep_a_model_from_deciding(reason: str) -> None:
    found = Probation(N, live_after=3000)
    found.add(prbs(1), prbs(1), LOUD)
    REASONS[reason](found)
    if reason in probation.ANEW:  # they say nothing of the model
        assert (found.stage, found.counts["shadow_anew"]) == ("shadow", 1)
    else:
        assert stages(found) == [("rolled back", reason)]


def test_what_the_rule_withholds_as_well_is_not_held_against_the_model() -> None:
    found = live()
    for _ in range(500):
        found.add(prbs(1, 2, 3, 4), prbs(1, 2, 3, 4), QUIET)
    assert found.stage == "live"


def test_a_model_that_is_right_where_they_differ_stays() -> None:
    found = live()
    for _ in range(500):
        found.add(prbs(1), prbs(1, 2), LOUD)
        found.judge(prbs(1, 2)[None])
    assert found.stage == "live"
    assert (found.counts["model_wrong"], found.counts["rule_wrong"]) == (0, 500)
