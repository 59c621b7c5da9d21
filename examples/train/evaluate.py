"""The model beside the rule that it replaces, on runs that neither has seen: counts of each run.

The rule is the detector's filtered answer, by which `twinlink-replay` decides (docs/detection.md).  Both get the same
records, one by one.  A cell is one PRB of one record.
"""

import time
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from twinlink_replay.detection.detector import Detector
from twinlink_replay.detection.features import prb_features, subcarrier_power
from twinlink_replay.twin.controller import Controller

from twinlink.control import PrbBlock

from .features import FeatureTrack
from .labelled import Run
from .model import Answers, Array, Model

BINS = 10  # of the reliability diagram
RECORD_NS = 10_000_000
VALIDITY_MS = 2000
SETTLED = 500  # records after which the rule has learned what it learns online

Mask = NDArray[np.bool_]


@dataclass(slots=True)
class Counts:
    """Cells: interferers missed, and reported falsely; those with an interferer, and all."""

    missed: int
    false: int
    interfered: int
    cells: int

    @classmethod
    def of(cls, answers: Mask, interfered: Mask) -> "Counts":
        """Of answers and truth of the same shape."""
        missed, false = int((interfered & ~answers).sum()), int((answers & ~interfered).sum())
        return cls(missed, false, int(interfered.sum()), answers.size)


@dataclass(slots=True)
class RunScore:
    """One run.

    Attributes:
        seed: of its scene.
        counts: of `model` and `rule`: the answers; `model settled` and `rule settled`: those from record `SETTLED` on;
            `model blocks` and `rule blocks`: the PRBs that the twin's controller has blocked by them.
        confusion: cells by truth and class of the model.
        bins: of the model's probability of an interferer: cells, sum of the probabilities, cells with one.
        brier: sum of the squared errors of that probability.
        times_ns: of each record, of `model` and `rule`: features and decision.
    """

    seed: int
    counts: dict[str, Counts]
    confusion: NDArray[np.int64]
    bins: NDArray[np.float64]
    brier: float
    times_ns: dict[str, NDArray[np.int64]] = field(default_factory=dict)


def score(run: Run, model: Model) -> RunScore:
    """Both, on one run."""
    probabilities, model_answers, model_ns = _by_model(run, model)
    rule_answers, rule_ns = _by_rule(run)
    counts = {}
    for name, answers in (("model", model_answers), ("rule", rule_answers)):
        counts[name] = Counts.of(answers, run.interfered)
        counts[f"{name} settled"] = Counts.of(answers[SETTLED:], run.interfered[SETTLED:])
        counts[f"{name} blocks"] = Counts.of(_blocked(answers), run.interfered)
    n_classes = len(model.classes)
    chosen = probabilities.argmax(axis=-1)
    confusion = np.bincount(run.classes.ravel().astype(np.int64) * n_classes + chosen.ravel(), minlength=n_classes**2)
    interference = model.interference(probabilities).astype(np.float64)
    bins = np.minimum((interference * BINS).astype(int), BINS - 1).ravel()
    there = run.interfered.ravel().astype(np.float64)
    weights = np.ones_like(there), interference.ravel(), there
    table: NDArray[np.float64] = np.stack([np.bincount(bins, each, BINS) for each in weights])
    brier = float(np.square(interference.ravel() - there).sum())
    times = {"model": model_ns, "rule": rule_ns}
    return RunScore(run.seed, counts, confusion.reshape(n_classes, n_classes), table, brier, times)


def _by_model(run: Run, model: Model) -> tuple[Array, Mask, NDArray[np.int64]]:
    """Probabilities, answers and times of the model."""
    track, answers = FeatureTrack(run.n_prbs), Answers(model, run.n_prbs)
    probabilities, answered, times = [], [], []
    for k in range(len(run.samples)):
        begin = time.perf_counter_ns()
        found = model.probabilities(track.add(run.samples[k : k + 1]))
        answered.append(answers.add(model.interference(found)))
        times.append(time.perf_counter_ns() - begin)
        probabilities.append(found)
    return np.concatenate(probabilities), np.concatenate(answered), np.array(times)


def _by_rule(run: Run) -> tuple[Mask, NDArray[np.int64]]:
    """Answers and times of the detector, as `twinlink-replay` runs it."""
    detector, answered, times = Detector(run.n_prbs), [], []
    for k in range(len(run.samples)):
        begin = time.perf_counter_ns()
        samples = run.samples[k : k + 1]
        answered.append(detector.add(prb_features(subcarrier_power(samples), samples)).interfered)
        detector.smoothed()
        times.append(time.perf_counter_ns() - begin)
    return np.concatenate(answered), np.array(times)


def _blocked(answers: Mask) -> Mask:
    """The PRBs that the twin's controller has blocked when each record comes."""
    controller = Controller(answers.shape[1], "train", VALIDITY_MS)
    blocked, standing = np.zeros(answers.shape, bool), np.zeros(answers.shape[1], bool)
    for k, row in enumerate(answers):
        blocked[k] = standing
        for item in controller.observe(row, k * RECORD_NS, k * RECORD_NS, k * RECORD_NS):
            if isinstance(item, PrbBlock):
                standing = np.zeros_like(standing)
                standing[list(item.prbs)] = True
    return blocked
