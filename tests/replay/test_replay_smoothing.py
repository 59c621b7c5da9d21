"""The smoothed answers, their order and lag; and ``settle=False``, which gives the filtered answers alone."""

from collections.abc import Iterator
from dataclasses import astuple

import numpy as np
import pytest
from numpy.typing import NDArray
from twinlink_replay.detection.detector import BLOCK, STEP, Detector
from twinlink_replay.detection.features import PrbFeatures, prb_features, subcarrier_power

from tests.replay.evaluate import detect
from tests.replay.uplink_scenes import Interferer, Scene, hear

INTERFERER = (Interferer(50, 450, 30, 38, 12),)


def test_batches_of_any_size_give_the_same_answers() -> None:
    heard = hear(Scene(n_prbs=25, n_records=300, interferers=(Interferer(50, 200, 5, 9, 12),)), 11)
    one, many = detect(heard, batch=1), detect(heard, batch=7)
    agree = (one.smoothed == many.smoothed).mean(), (one.filtered == many.filtered).mean()
    assert min(agree) > 0.99  # not 1: the noise floor is updated between batches


def test_smoothed_answers_come_in_order_once_and_in_time() -> None:
    detector = Detector(4, settle_records=20)
    features = prb_features(subcarrier_power(np.full((1, 48, 2), 5, np.int16)))
    smoothed, due = 0, 20 + BLOCK
    for count in range(1, 501):
        detector.add(features)
        for answer in detector.smoothed():
            assert answer.first == smoothed
            assert count - smoothed > due + 4  # the work is spread over some records, so that none waits for all of it
            smoothed += len(answer.interfered)
        assert count - smoothed < due + 16
    for answer in detector.finish():
        smoothed += len(answer.interfered)
    assert smoothed == 500


def test_no_answer_depends_on_when_the_smoothing_that_is_due_is_done() -> None:
    heard = hear(Scene(n_prbs=12, n_records=450, interferers=(Interferer(50, 200, 5, 9, 12),)), 11)
    at_once, later = Detector(12), Detector(12)
    smoothed = []
    for part in one_by_one(prb_features(subcarrier_power(heard.samples), heard.samples)):
        answer = at_once.add(part)
        smoothed += at_once.smoothed()
        assert all(np.array_equal(*pair) for pair in zip(astuple(answer), astuple(later.add(part)), strict=True))
    smoothed += at_once.finish()
    for one, other in zip(smoothed, later.finish(), strict=True):
        assert all(np.array_equal(*pair) for pair in zip(astuple(one), astuple(other), strict=True))


@pytest.mark.parametrize("batch", [STEP - 1, pytest.param(STEP, marks=pytest.mark.thorough), 5 * STEP])
def test_smoothing_keeps_up_with_batches(batch: int) -> None:
    detector = Detector(4)
    features = prb_features(subcarrier_power(np.full((batch, 48, 2), 5, np.int16)))
    smoothed = 0
    for count in range(batch, 5000, batch):
        detector.add(features)
        smoothed += sum(len(answer.interfered) for answer in detector.smoothed())
        assert count - smoothed < detector.settle_records + 2 * BLOCK


def one_by_one(features: PrbFeatures) -> Iterator[PrbFeatures]:
    for k in range(len(features.power)):
        yield features.part(slice(k, k + 1))


def filtered(features: PrbFeatures, settle: bool) -> NDArray[np.bool_]:
    detector = Detector(features.power.shape[1], settle=settle)
    answers = [detector.add(part) for part in one_by_one(features)]
    assert bool(detector.finish()) is settle
    return np.stack([np.concatenate([getattr(a, name) for a in answers]) for name in ("interfered", "occupied")])


@pytest.mark.parametrize(
    "scene",
    [
        pytest.param(Scene(51, interferers=INTERFERER), id="noise"),
        pytest.param(
            Scene(51, modulations=(0,), interferers=INTERFERER),
            id="Gaussian UEs: the HMM restarts",
            marks=pytest.mark.thorough,
        ),
        pytest.param(
            Scene(51, dwell=20, modulations=(2, 4, -2), widths=(0.1, 0.3), delay_spread_ns=30, interferers=INTERFERER),
            id="precoded UEs: all restarts",
        ),
    ],
)
def test_without_smoothing_the_filtered_answers_are_the_same(scene: Scene) -> None:
    """The smoother finds no dwell here that changes the UEs' dwell times, the one way in which it has an effect."""
    heard = hear(scene, 5)
    features = prb_features(subcarrier_power(heard.samples), heard.samples)
    with_smoothing = filtered(features, settle=True)
    assert with_smoothing[0].any()
    np.testing.assert_array_equal(filtered(features, settle=False), with_smoothing)
