"""A model in its process: its answers, and what a process that ends or hangs means for the twin."""

import os
import signal
import time
from collections.abc import Iterator
from threading import Timer
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from twinlink_replay.detection.features import prb_features, subcarrier_power

from examples.train import judged_detector, scenes
from examples.train.features import FeatureTrack
from examples.train.judged_detector import Policy
from examples.train.model import Answers
from examples.train.model_process import CLASS, INTERFERED, ModelFailed, ModelProcess
from examples.train.probation import MOST_LATE, Change
from tests.train.models import by_power
from twinlink.testing import patience

N_PRBS = 24
PATIENCE_S = patience()


@pytest.fixture(scope="module")
def samples() -> NDArray[Any]:
    return scenes.make(3, 1.0, N_PRBS).samples


@pytest.fixture
def process() -> Iterator[ModelProcess]:
    with ModelProcess(by_power().encode()) as made:
        yield made


def test_its_answers_are_those_of_the_model_here(process: ModelProcess, samples: NDArray[Any]) -> None:
    model, track = by_power(), FeatureTrack(N_PRBS)
    answers = Answers(model, N_PRBS)
    for k in (0, 1, 3, 19):
        part = samples[k : k + max(1, 2 * k)]
        number = process.ask(part)
        assert number is not None
        octets = process.answer(number, time.monotonic() + PATIENCE_S)
        assert octets is not None
        found = model.probabilities(track.add(part))
        assert (((octets & INTERFERED) > 0) == answers.add(model.interference(found))).all()
        assert ((octets & CLASS) == found.argmax(axis=-1)).all()


def test_what_is_no_model_does_not_start() -> None:
    with pytest.raises(ModelFailed, match="did not start: its head"):
        ModelProcess(b"\0\0\0\2{}")


def policy_of(
    process: ModelProcess, limit_s: float, live_after: int = 0, replayed: bool = False
) -> tuple[Policy, list[Change]]:
    changes: list[Change] = []
    return Policy(process, limit_s, live_after, lambda: False, changes.append, lambda: replayed), changes


def feed(policy: Policy, samples: NDArray[Any]) -> list[NDArray[Any]]:
    detector = policy.make_detector(N_PRBS)
    found = []
    for k in range(len(samples)):
        part = samples[k : k + 1]
        found.append(detector.add(prb_features(subcarrier_power(part), part)).interfered[0])
    return found


def test_a_live_model_decides_and_one_that_ends_does_not(process: ModelProcess, samples: NDArray[Any]) -> None:
    policy, changes = policy_of(process, PATIENCE_S)
    loud = [(row > 0).any() for row in feed(policy, samples[:20])]
    assert any(loud)  # the rule needs longer than that to report what the UEs' power is for this model
    assert [change.stage for change in changes] == ["live"]
    os.kill(process.pid, signal.SIGKILL)
    rule_alone = feed(policy, samples[:5])
    assert [(change.stage, change.reason) for change in changes[1:]] == [("rolled back", "ended")]
    assert not np.stack(rule_alone).any()


def test_a_process_that_hangs_costs_its_time_limit_and_then_nothing(
    process: ModelProcess, samples: NDArray[Any]
) -> None:
    policy, changes = policy_of(process, 0.01)
    os.kill(process.pid, signal.SIGSTOP)
    feed(policy, samples[: MOST_LATE + 20])
    assert [(change.stage, change.reason) for change in changes][-1] == ("rolled back", "late")
    assert policy.probation is not None
    assert policy.probation.counts["late"] <= MOST_LATE + 1


def test_a_replay_waits_for_the_model_so_that_its_answers_are_the_same_at_every_pace(
    process: ModelProcess, samples: NDArray[Any]
) -> None:
    policy, changes = policy_of(process, 0.001, live_after=5, replayed=True)
    os.kill(process.pid, signal.SIGSTOP)
    goes_on = Timer(0.2, os.kill, (process.pid, signal.SIGCONT))
    goes_on.start()
    first = np.stack(feed(policy, samples[:40]))
    goes_on.join()
    assert policy.probation is not None
    assert (policy.probation.counts["late"], policy.probation.counts["live_records"]) == (0, 35)
    assert [change.stage for change in changes] == ["live"]
    assert (np.stack(feed(policy, samples[:40])) == first).all()  # another replay begins in shadow, too
    assert policy.probation.counts["records"] == 40


def test_a_replay_does_not_wait_for_ever(
    process: ModelProcess, samples: NDArray[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(judged_detector, "REPLAY_LIMIT_S", 0.05)
    policy, changes = policy_of(process, 0.001, replayed=True)
    os.kill(process.pid, signal.SIGSTOP)
    feed(policy, samples[:3])
    assert [(change.stage, change.reason) for change in changes] == [("rolled back", "ended")]
