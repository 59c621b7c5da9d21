"""From training runs to a model: scikit-learn fits a small network, whose weights are taken out as arrays.

The network is trained on equal shares of the classes; their true shares, and a temperature, are then folded into its
last layer, so that its probabilities are those of the validation part.  Nothing is chosen at random but the cells of
the training part, by the seed; scikit-learn's own validation split, which is at random, is not used.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

import twinlink

from .features import NAMES, FeatureTrack
from .labelled import CLASSES, FIRST_INTERFERER, GAP, Run
from .model import Answers, Array, Model

if TYPE_CHECKING:
    from sklearn.neural_network import MLPClassifier

HIDDEN = 48, 24
EPOCHS = 12
CELLS = {"free": 1200, "ue": 2400, "noise": 2000, "tone": 2000, "sweep": 2000}  # of a run, at most
CHUNK = 64  # records whose features are made at once
TEMPERATURES = tuple(np.round(np.geomspace(0.6, 2.5, 24), 3))
ON = 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98
OFF = 0.05, 0.1, 0.2, 0.3, 0.5


class ScikitLearnMissing(twinlink.TwinlinkError, ImportError):
    """scikit-learn is not installed; the message names the extra that brings it."""


def check_installed() -> None:
    """Raises ScikitLearnMissing."""
    try:
        import sklearn.neural_network  # noqa: F401
    except ImportError as error:
        raise ScikitLearnMissing(
            f"training needs scikit-learn ({error}): pip install 'twinlink[train]'; a model that is there runs without"
        ) from None


@dataclass(frozen=True, slots=True)
class Prepared:
    """What a training run gives.

    Attributes:
        cells, classes: of the training part, shape ``(cells, features)`` and ``(cells,)``.
        held, truth: of the validation part, shape ``(records, n_prbs, features)``, float16, and ``(records, n_prbs)``.
    """

    cells: Array
    classes: NDArray[np.int8]
    held: NDArray[np.float16]
    truth: NDArray[np.int8]


def features_of(run: Run) -> Array:
    """The features of a run, shape ``(records, n_prbs, features)``."""
    track = FeatureTrack(run.n_prbs)
    return np.concatenate([track.add(run.samples[k : k + CHUNK]) for k in range(0, len(run.samples), CHUNK)])


def prepare(run: Run, seed: int) -> Prepared:
    """The parts of a run; of the training part as many cells of each class as `CELLS` says, by the seed."""
    rng = np.random.default_rng([seed, run.seed])
    features = features_of(run)
    first = features[: run.cut].reshape(-1, features.shape[-1])
    classes = run.classes[: run.cut].ravel()
    chosen = []
    for number, name in enumerate(CLASSES):
        there = np.flatnonzero(classes == number)
        chosen.append(np.sort(rng.permutation(there)[: CELLS[name]]))
    cells = np.concatenate(chosen)
    held = slice(run.cut + GAP, None)
    return Prepared(first[cells], classes[cells], features[held].astype(np.float16), run.classes[held])


def fit(prepared: Sequence[Prepared], seed: int, about: str) -> Model:
    """Train, calibrate, and choose the thresholds.

    Raises ScikitLearnMissing; ConfigurationError where the runs lack a class.
    """
    check_installed()
    cells = np.concatenate([one.cells for one in prepared])
    classes = np.concatenate([one.classes for one in prepared])
    if absent := [name for number, name in enumerate(CLASSES) if not (classes == number).any()]:
        raise twinlink.ConfigurationError(
            f"the training runs have no cell of class {', '.join(absent)}: take another --seed, or the whole set"
        )
    mean, scale = cells.mean(axis=0), 1 / np.maximum(cells.std(axis=0), 1e-3)
    network = _trained((cells - mean) * scale, classes, seed)
    layers = [
        (weights.astype(np.float32), bias.astype(np.float32))
        for weights, bias in zip(network.coefs_, network.intercepts_, strict=True)
    ]
    shares = np.bincount(classes, minlength=len(CLASSES)) / len(classes)
    true = np.concatenate([one.truth.ravel() for one in prepared])
    true_shares = np.maximum(np.bincount(true, minlength=len(CLASSES)), 1) / len(true)
    layers[-1] = layers[-1][0], layers[-1][1] + np.log(true_shares / shares).astype(np.float32)
    raw = Model(CLASSES, len(CLASSES) - FIRST_INTERFERER, NAMES, mean, scale, tuple(layers), ON[0], OFF[0], about)
    return _with_thresholds(_with_temperature(raw, prepared), prepared)


def _trained(cells: Array, classes: NDArray[np.int8], seed: int) -> "MLPClassifier":
    import warnings

    from sklearn.exceptions import ConvergenceWarning
    from sklearn.neural_network import MLPClassifier
    from threadpoolctl import threadpool_limits

    network = MLPClassifier(
        HIDDEN, batch_size=512, max_iter=EPOCHS, n_iter_no_change=EPOCHS, learning_rate_init=2e-3, alpha=1e-4,
        random_state=seed,
    )  # fmt: skip
    with threadpool_limits(1), warnings.catch_warnings():  # sums in another order would give other last digits
        warnings.simplefilter("ignore", ConvergenceWarning)  # the number of epochs is fixed
        network.fit(cells, classes)
    return network


def _with_temperature(model: Model, prepared: Sequence[Prepared]) -> Model:
    """The model whose last layer is divided by the temperature with the least log loss of the validation part."""
    logs = [np.log(np.maximum(model.probabilities(one.held.astype(np.float32)), 1e-12)) for one in prepared]

    def loss(temperature: float) -> float:
        total = 0.0
        for log, one in zip(logs, prepared, strict=True):
            scaled = log / np.float32(temperature)
            scaled -= np.log(np.exp(scaled).sum(axis=-1, keepdims=True))
            total -= float(np.take_along_axis(scaled, one.truth[..., None].astype(np.intp), axis=-1).sum())
        return total

    best = np.float32(min(TEMPERATURES, key=loss))
    weights, bias = model.layers[-1]
    return replace(model, layers=(*model.layers[:-1], (weights / best, bias / best)))


def _with_thresholds(model: Model, prepared: Sequence[Prepared]) -> Model:
    """The thresholds with the fewest wrong cells of the validation part; a missed one costs as much as a false one."""
    seen = [model.interference(model.probabilities(one.held.astype(np.float32))) for one in prepared]

    def wrong(on: float, off: float) -> int:
        total = 0
        for probability, one in zip(seen, prepared, strict=True):
            answers = Answers(replace(model, on=on, off=off), probability.shape[1]).add(probability)
            total += int((answers != (one.truth >= FIRST_INTERFERER)).sum())
        return total

    on, off = min(((on, off) for on in ON for off in OFF if off <= on), key=lambda pair: wrong(*pair))
    return replace(model, on=on, off=off)
