"""Models for tests, made by hand: no training."""

import numpy as np

from examples.train.features import N_FEATURES, NAMES
from examples.train.labelled import CLASSES
from examples.train.model import Model


def by_power(threshold: float = 2.0, answer: str = "noise") -> Model:
    """Reports a class where a PRB's log power is above a threshold, else `free`."""
    weights = np.zeros((N_FEATURES, len(CLASSES)), np.float32)
    bias = np.full(len(CLASSES), -100, np.float32)
    weights[NAMES.index("power"), CLASSES.index(answer)] = 20
    bias[CLASSES.index(answer)], bias[0] = -20 * threshold, 0
    zeros, ones = np.zeros(N_FEATURES, np.float32), np.ones(N_FEATURES, np.float32)
    return Model(CLASSES, 3, NAMES, zeros, ones, ((weights, bias),), 0.6, 0.4, "by hand")


def drawn(seed: int, widths: tuple[int, ...] = (16, 8)) -> Model:
    """Weights from a seed."""
    rng = np.random.default_rng(seed)
    layers, inputs = [], N_FEATURES
    for width in (*widths, len(CLASSES)):
        weights = rng.standard_normal((inputs, width)).astype(np.float32)
        layers.append((weights, rng.standard_normal(width).astype(np.float32)))
        inputs = width
    mean, scale = rng.standard_normal((2, N_FEATURES)).astype(np.float32)
    return Model(CLASSES, 3, NAMES, mean, scale, tuple(layers), 0.7, 0.2)
