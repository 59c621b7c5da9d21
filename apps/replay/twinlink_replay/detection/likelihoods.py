"""Per-PRB log-likelihoods of free, UE and interferer, for each record by itself.

Power above the noise floor tells an occupied PRB from a free one.  Roughness (`features.PrbFeatures`) tells a UE from
an interferer: CP-OFDM symbols have few amplitudes and pass a channel that hardly changes from one subcarrier to the
next.  Noise, and signals not aligned to the carrier's grid, are Gaussian after the FFT.  A tone occupies one
subcarrier.  One PRB in one record carries little information (QPSK at 15 dB: 2.5 standard deviations apart, 256QAM:
1.2), so similar neighbours are averaged and the detector accumulates over time.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .features import PrbFeatures

Array = NDArray[np.float32]

NOISE_ROUGHNESS = 0.557  # of Gaussian samples: mean; 0.131 standard deviation
UE_ROUGHNESS = 0.41  # of 64QAM at high SNR, the least distinct from noise; 0.11 standard deviation
ROUGHNESS_VARIANCE = 0.12**2
TONE_ROUGHNESS = 0.8  # rougher PRBs are not averaged with their neighbours

NEIGHBOURS = 2  # PRBs on either side
SIMILAR = 0.7  # neighbours with a log power difference below this (3 dB) are averaged
NEIGHBOUR_WEIGHT = 0.7  # a neighbour may carry another signal
SHADOW = 1.4  # beside a PRB stronger by this log ratio (6 dB), the power may be a UE's fade or skirt
SHADOW_WEIGHT = 0.6

LEVELS = -2.3  # log density of a level that is uniform over 10 nats (43 dB)
WEAKEST_UE = math.log(1.3)  # log power against the floor
WEAKEST_INTERFERER = math.log(2.5)
EDGE = 0.3 / 1.7  # width of the two thresholds above: a PRB's log power scatters by 0.29
SHAPE = 8.0  # of the gamma distribution of free PRBs' power; 12 in theory, less to tolerate a sloping floor
LOW = 2.3  # up to this log power (10 dB) ...
LOW_PENALTY = 0.2  # ... a UE alone is a little less likely, since uplink power control aims higher
MAX_LLR = 4.0  # nats; limit for the roughness of one record
STEP = 1.1  # difference in log power of adjacent PRBs that is a border; a PRB's own scatter is 0.29
_OFFSETS = np.array([place for place in range(2 * NEIGHBOURS + 1) if place != NEIGHBOURS])
TONE_PRIOR = 6.0  # nats; prior log-odds against a tone


@dataclass(frozen=True, slots=True)
class PrbLikelihoods:
    """Per record and PRB, float32, shape ``(records, n_prbs)``; likelihoods and ratios in nats.

    Attributes:
        power: relative to the noise floor, linear.
        log_power: natural logarithm of ``power``.
        roughness: averaged over similar neighbours.
        weight: inverse variance of that average.
        free: log-likelihood of a free PRB.
        ue: log-likelihood of a UE, from power alone.
        present: log-likelihood of an interferer, alone or below a UE, from power alone.
        ue_llr: log-likelihood ratio of a UE against noise, from the averaged roughness.
        ue_llr_own: the same ratio from ``roughness_raw``.
        roughness_raw: roughness of the PRB itself, at most 1.
        not_tone_llr: log-likelihood ratio of any other signal against a tone, from the peak; with
            `envelope_kurtosis`, also against a chirp or a pulse.
    """

    power: Array
    log_power: Array
    roughness: Array
    weight: Array
    free: Array
    ue: Array
    present: Array
    ue_llr: Array
    ue_llr_own: Array
    roughness_raw: Array
    not_tone_llr: Array


def expected_drop(share: Array) -> Array:
    """How far the roughness of a UE with this share (0 to 1) of a PRB's power lies below that of Gaussian samples."""
    return (NOISE_ROUGHNESS - UE_ROUGHNESS) * np.square(share)


def prb_likelihoods(features: PrbFeatures, floor: float) -> PrbLikelihoods:
    """Likelihoods of records, given the noise floor in LSB^2 per subcarrier."""
    power = np.maximum(features.power / np.float32(floor), np.float32(1e-3))
    log_power = np.log(power)
    raw = np.minimum(features.roughness, np.float32(1))
    rough, weight, shadowed = _pool(raw, log_power)
    drop = expected_drop(np.maximum(1 - 1 / power, 0))
    middle = NOISE_ROUGHNESS - drop / 2
    ue_llr = np.clip(-weight * (rough - middle) * drop, -MAX_LLR, MAX_LLR)
    ue_llr_own = -(np.minimum(raw, np.float32(TONE_ROUGHNESS)) - middle) * drop / ROUGHNESS_VARIANCE
    free = np.where(power > 1, SHAPE * (log_power - power + 1), 0) + 0.2
    ue = LEVELS + log_sigmoid((log_power - WEAKEST_UE) / EDGE) - LOW_PENALTY * ((log_power < LOW) & ~shadowed)
    present = LEVELS + log_sigmoid((log_power - WEAKEST_INTERFERER) / EDGE)
    not_tone_llr = np.clip(TONE_PRIOR + log_probability_of_peak(features.peak), -2 * MAX_LLR, MAX_LLR)
    arrays = (power, log_power, rough, weight, free, ue, present, ue_llr, ue_llr_own, raw, not_tone_llr)
    return PrbLikelihoods(*(array.astype(np.float32, copy=False) for array in arrays))


def borders(log_power: Array) -> NDArray[np.bool_]:
    """Where a step of power lies before each PRB, and after the last one.

    Args:
        log_power: relative to the noise floor, in nats, shape ``(records, n_prbs)``.

    Returns:
        bool, shape ``(records, n_prbs + 1)``; True at both ends of the carrier.
    """
    border = np.ones((len(log_power), log_power.shape[1] + 1), bool)
    border[:, 1:-1] = np.abs(np.diff(log_power, axis=1)) > STEP
    return border


def log_probability_of_peak(peak: Array) -> Array:
    """Log-probability that two neighbouring subcarriers of Gaussian samples have at least this share of the power.

    Two of twelve exponentially distributed shares exceed x with ``(1 - x)**11 + 11 * x * (1 - x)**10``; 11 pairs.
    """
    rest = np.maximum(1 - peak, np.float32(0.01))
    return np.asarray(10 * np.log(rest) + np.log(11 * (rest + 11 * peak)), np.float32)


def log_sigmoid(values: Array) -> Array:
    """``log(1 / (1 + exp(-values)))`` without overflow."""
    return np.asarray(-np.logaddexp(np.float32(0), -values), np.float32)


def _pool(rough: Array, log_power: Array) -> tuple[Array, Array, NDArray[np.bool_]]:
    """Averaged roughness, its inverse variance, and whether a neighbour is stronger by `SHADOW`."""
    n_prbs, reach = rough.shape[1], NEIGHBOURS
    all_rough = np.ones((len(rough), n_prbs + 2 * reach), np.float32)
    all_rough[:, reach:-reach] = rough
    all_power = np.full(all_rough.shape, -9, np.float32)
    all_power[:, reach:-reach] = log_power
    neighbours = _OFFSETS[:, None] + np.arange(n_prbs)
    other = all_rough[:, neighbours]
    ratio = all_power[:, neighbours] - log_power[:, None]
    plain = (rough < TONE_ROUGHNESS)[:, None]
    share = np.empty((len(rough), len(neighbours) + 1, n_prbs), np.float32)  # each PRB's own first
    share[:, 0] = 1
    share[:, 1:] = np.float32(NEIGHBOUR_WEIGHT) * (plain & (other < TONE_ROUGHNESS) & (np.abs(ratio) < SIMILAR))
    count = share.sum(axis=1)
    share[:, 1:] *= other
    share[:, 0] = np.minimum(rough, np.float32(TONE_ROUGHNESS))
    shadowed = (ratio > SHADOW).any(axis=1)
    weight = np.where(shadowed, SHADOW_WEIGHT * count, count) / ROUGHNESS_VARIANCE
    return share.sum(axis=1) / count, weight.astype(np.float32), shadowed
