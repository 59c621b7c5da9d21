"""Interference in PRBs that the gNB's MAC left free: energy there is of no UE of this gNB.

It needs the power of a PRB alone, unlike the `detector`, and one record: the power of noise in a PRB, the mean of 12
exponentially distributed subcarriers, exceeds `MIN_POWER` once in 10^13.
"""

import numpy as np
from numpy.typing import NDArray

MIN_POWER = 1 + 10**0.5  # of noise and an interferer of 5 dB, relative to the noise floor, as in `min_inr`


def is_loud(power: NDArray[np.float32], floor: float) -> NDArray[np.bool_]:
    """Whether there is more than noise.

    Args:
        power: of PRBs in LSB^2, any shape.
        floor: the noise floor in LSB^2.

    Returns:
        bool, of the same shape: a UE or an interferer where the MAC left nothing free, else an interferer.
    """
    return np.asarray(power > MIN_POWER * floor)
