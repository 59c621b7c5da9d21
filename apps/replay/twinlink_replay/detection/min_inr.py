"""Minimum interference-to-noise ratio: removes interferers below 5 dB, and skirts beside an interferer's PRBs."""

import math

import numpy as np
from numpy.typing import NDArray

from .likelihoods import Array
from .ue_statistics import select_dwells

Mask = NDArray[np.bool_]

MIN_LEVEL = math.log(1 + 10**0.5)  # log power of noise and an interferer of 5 dB, relative to the noise floor
SHOWN = 1.9  # log power up to which a record may show a weak interferer without a UE on top
SCATTER = 0.3  # of the log power of a PRB
OFTEN = 0.5  # minimum share of a dwell's records below `SHOWN`; with fewer, the interferer may be a stronger one


def below_min_inr(interfered: Mask, log_power: Array) -> Mask:
    """The cells of ``interfered`` in which the interferer is surely below 5 dB over its whole dwell on the PRB.

    Args:
        interfered: bool, shape ``(records, n_prbs)``.
        log_power: relative to the noise floor, in nats, same shape.

    Returns:
        bool, same shape.
    """
    shows = log_power < SHOWN

    def weak(records: Array, shown: Array, power: Array) -> Mask:
        count = np.maximum(shown, 1)
        level = np.log(np.maximum(power, 1e-9) / count)
        return np.asarray((shown >= OFTEN * records) & (level + SCATTER / np.sqrt(count) < MIN_LEVEL))

    return select_dwells(interfered, (interfered, shows, np.where(shows, np.exp(log_power), 0)), weak)
