"""What is too weak to report: an interferer's skirts on the PRBs beside it, and interferers below 5 dB."""

import math

import numpy as np
from numpy.typing import NDArray

from .likelihoods import Array
from .ue_statistics import of_stays

Mask = NDArray[np.bool_]

LEAST = math.log(1 + 10**0.5)  # log power of noise and an interferer of 5 dB, against the floor
SHOWN = 1.9  # log power up to which a record may show such a one without a UE on top; a PRB scatters by 0.3
SCATTER = 0.3
OFTEN = 0.5  # of a stay's records do so; with fewer they may be the lesser part of a stronger one


def below_min_inr(interfered: Mask, log_power: Array) -> Mask:
    """Those of ``interfered`` that are surely weak in their whole stay on a PRB; shape ``(records, n_prbs)``."""
    shows = log_power < SHOWN

    def weak(records: Array, shown: Array, power: Array) -> Mask:
        count = np.maximum(shown, 1)
        level = np.log(np.maximum(power, 1e-9) / count)
        return np.asarray((shown >= OFTEN * records) & (level + SCATTER / np.sqrt(count) < LEAST))

    return of_stays(interfered, (interfered, shows, np.where(shows, np.exp(log_power), 0)), weak)
