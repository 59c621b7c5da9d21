"""Features of uplink OFDM symbols: power per subcarrier and per PRB, roughness, peak share, per-subcarrier tone LLR.

All functions map arrays to arrays; a batch of records costs little more than one record.
"""

import math
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

SUBCARRIERS_PER_PRB = 12  # 3GPP TS 38.211 clause 4.4.4.1; not imported, so that detection needs numpy only
FULL_SCALE = 32768.0**2  # 0 dBFS: a complex sample of magnitude 32768
QUANTISATION = 1 / 6  # LSB^2: noise of rounding I and Q to integers; nothing is measured below it
MIN_TONE_LLR = -3.0  # nats
COMB_RATIO = 4.0  # the two combs of Gaussian samples differ by as much in one PRB of fifty


def to_dbfs(power: NDArray[np.float32]) -> NDArray[np.float32]:
    """Power in LSB^2, any shape, as dBFS of the same shape; values below the rounding noise are raised to it."""
    return np.asarray(10 * np.log10(np.maximum(power, QUANTISATION) / FULL_SCALE), np.float32)


@dataclass(frozen=True, slots=True)
class PrbFeatures:
    """Input of the detector, each of shape ``(records, n_prbs)``, float32, where not stated otherwise.

    Attributes:
        power: mean power of a PRB's subcarriers in LSB^2.
        roughness: relative difference of the powers p of neighbouring subcarriers,
            ``sqrt(sum (p[i] - p[i+1])^2 / sum (p[i] + p[i+1])^2)``: 0 for constant amplitude, 0.05-0.45 for QPSK to
            256QAM through a channel that is smooth from one subcarrier to the next, 0.56 in the mean for Gaussian
            samples (noise), 1 for a tone.  It depends neither on the level nor on the channel's slope.
        peak: share of the power in the strongest two neighbouring subcarriers: 1/6 for constant amplitude, 0.4 in the
            mean for Gaussian samples, near 1 for a tone, on a subcarrier or between two.
        tone_llr: log-likelihood ratio in nats of a tone on each subcarrier against Gaussian samples, shape
            ``(records, n_prbs, 12)``.
        cells: power of each subcarrier in LSB^2, shape ``(records, n_prbs, 12)``.
        samples: int16, shape ``(records, n_prbs * 12, 2)``; None if the samples are not known.
    """

    power: NDArray[np.float32]
    roughness: NDArray[np.float32]
    peak: NDArray[np.float32]
    tone_llr: NDArray[np.float32]
    cells: NDArray[np.float32]
    samples: NDArray[np.int16] | None = None

    def part(self, records: slice) -> "PrbFeatures":
        """The features of a slice of the records."""
        parts = [part[records] for part in (self.power, self.roughness, self.peak, self.tone_llr, self.cells)]
        samples = None if self.samples is None else self.samples[records]
        return PrbFeatures(parts[0], parts[1], parts[2], parts[3], parts[4], samples)


def subcarrier_power(samples: NDArray[np.int16]) -> NDArray[np.float32]:
    """``|x|^2`` in LSB^2, shape ``(records, subcarriers)``, of int16 samples ``(records, subcarriers, 2)``."""
    values = samples.astype(np.float32)
    np.square(values, out=values)
    return values[..., 0] + values[..., 1]


def prb_features(power: NDArray[np.float32], samples: NDArray[np.int16] | None = None) -> PrbFeatures:
    """Features of each PRB.

    Args:
        power: of the subcarriers in LSB^2, shape ``(records, n_prbs * 12)``.
        samples: int16, shape ``(records, n_prbs * 12, 2)``; without them the kurtosis tests do not run.
    """
    cells = power.reshape(len(power), -1, SUBCARRIERS_PER_PRB).copy()
    _cap_centre(cells)
    rough = _roughness(cells, 1)
    even, odd = cells[..., 0::2].sum(axis=-1), cells[..., 1::2].sum(axis=-1)
    # A DM-RS symbol (type 1, TS 38.211 clause 6.4.1.1.3) fills every other subcarrier.  Each subcarrier is then
    # compared with the next one of its own comb; otherwise the empty comb would look like a tone.
    comb = (even > COMB_RATIO * odd) | (odd > COMB_RATIO * even)
    if comb.any():
        rough[comb] = _roughness(cells[comb], 2)
    total = even + odd
    pair = (cells[..., 1:] + cells[..., :-1]).max(axis=-1)
    return PrbFeatures(
        total / SUBCARRIERS_PER_PRB, rough, pair / np.maximum(total, 1e-9), _tone_llr(cells), cells, samples
    )


def _cap_centre(cells: NDArray[np.float32]) -> None:
    """Limit the power of the centre subcarrier to the strongest near it: LO leakage would look like a tone."""
    prb, place = divmod(cells.shape[1] * SUBCARRIERS_PER_PRB // 2, SUBCARRIERS_PER_PRB)
    near = [neighbours[place] for distance in (1, 2) for neighbours in _neighbours(distance)]
    np.minimum(cells[:, prb, place], cells[:, prb, near].max(axis=-1), out=cells[:, prb, place])


def _tone_llr(cells: NDArray[np.float32]) -> NDArray[np.float32]:
    """Log-likelihood ratio of a tone on a subcarrier against none, from its share of the power of five.

    For Gaussian samples, the roughest of UEs, the share has the beta distribution (1, 4).  With a tone it is modelled
    as (3, 4) or (10, 4), whichever is likelier, with equal priors.  The LLR is limited from below, because a UE may
    transmit on top in a single record.
    """
    # The nearest neighbours or the second nearest, whichever are stronger: a DM-RS symbol fills every other subcarrier.
    others = 2 * np.maximum(
        *(cells[..., before] + cells[..., after] for before, after in (_neighbours(1), _neighbours(2)))
    )
    share = np.log((cells + QUANTISATION) / (cells + others + 5 * QUANTISATION))
    weak, strong = math.log(15) + 2 * share, math.log(715) + 9 * share  # B(1, 4) / B(3, 4), B(1, 4) / B(10, 4)
    return np.asarray(np.maximum(np.maximum(weak, strong) - math.log(2), MIN_TONE_LLR), np.float32)


@cache
def _neighbours(distance: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Indices of the subcarriers before and after each within its PRB; at the PRB's edges the inner one twice."""
    place = np.arange(SUBCARRIERS_PER_PRB)
    before, after = place - distance, place + distance
    return np.where(before < 0, after, before), np.where(after >= SUBCARRIERS_PER_PRB, before, after)


def _roughness(cells: NDArray[np.float32], distance: int) -> NDArray[np.float32]:
    low, high = cells[..., :-distance], cells[..., distance:]
    differences = np.square(high - low).sum(axis=-1)
    return np.asarray(np.sqrt(differences / np.maximum(np.square(high + low).sum(axis=-1), 1e-9)), np.float32)
