"""What a record says about each of its PRBs, before any memory: log-likelihoods of free, UE and interference.

Two things are looked at, the power above the noise floor and the roughness (`power.PrbFeatures`).  Power tells free
from not free.  Roughness tells a UE from an interferer: the symbols of CP-OFDM have few amplitudes and pass a channel
that hardly changes from one subcarrier to the next; noise, and signals not aligned to the carrier's grid, are
Gaussian after the FFT; a tone stands on one subcarrier alone.  One PRB in one record says little (QPSK at 15 dB: 2.5
standard deviations apart, 256QAM 1.2), so similar neighbours are averaged in and the detector sums over time.
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
TONE_ROUGHNESS = 0.8  # beyond it a PRB speaks for itself and is kept out of its neighbours' average

NEIGHBOURS = 2  # PRBs on either side
SIMILAR = 0.7  # neighbours whose log power differs by less (3 dB) are averaged in
NEIGHBOUR_WEIGHT = 0.7  # they may belong to somebody else
SHADOW = 1.4  # a neighbour stronger by this log ratio (6 dB) makes a PRB doubtful: a UE's fade, or its skirt
SHADOW_WEIGHT = 0.6

LEVELS = -2.3  # log density of any level over 10 nats (43 dB)
WEAKEST_UE = math.log(1.3)  # log power against the floor
WEAKEST_INTERFERER = math.log(2.5)
EDGE = 0.3 / 1.7  # width of those edges: a PRB's log power scatters by 0.29
SHAPE = 8.0  # of the gamma distribution of free PRBs' power; 12 in theory, less to bear a floor that is not flat
LOW = 2.3  # up to this log power (10 dB) ...
LOW_PENALTY = 0.2  # ... a UE alone is a little less likely, since uplink power control aims higher
MAX_LLR = 4.0  # nats that the roughness of one record may say
STEP = 1.1  # log power from one PRB to the next that is a border; a PRB's own scatter is 0.29
_BESIDE = np.array([place for place in range(2 * NEIGHBOURS + 1) if place != NEIGHBOURS])
TONE_PRIOR = 6.0  # nats that a peak has to be less likely from Gaussian samples than it is from a tone


@dataclass(frozen=True, slots=True)
class PrbLikelihoods:
    """Per record and PRB, float32, shape ``(records, n_prbs)``.

    Attributes:
        power: against the floor, linear.
        log_power: its natural logarithm.
        roughness: averaged with similar neighbours.
        weight: how many standard errors that average is worth: ``1 / variance``.
        free: log-likelihood that nobody transmits.
        ue: that a UE does, from power alone.
        present: that an interferer does, alone or below a UE, from power alone.
        ue_llr: what roughness says for a UE against noise.
        ue_llr_own: the same of the PRB's own roughness, without its neighbours'.
        roughness_raw: that roughness itself.
        not_tone_llr: what the peak says for anything against a tone, and the `envelope_kurtosis` against a chirp or a
            pulse.
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
    """How far below Gaussian the roughness of a UE lies which has that share of a PRB's power (0 to 1)."""
    return (NOISE_ROUGHNESS - UE_ROUGHNESS) * np.square(share)


def prb_likelihoods(features: PrbFeatures, floor: float) -> PrbLikelihoods:
    """Evidence of some records, given the noise floor in LSB^2."""
    power = np.maximum(features.power / np.float32(floor), np.float32(1e-3))
    log_power = np.log(power)
    unlike = np.minimum(features.roughness, np.float32(1))
    rough, weight, shadowed = _pool(unlike, log_power)
    drop = expected_drop(np.maximum(1 - 1 / power, 0))
    middle = NOISE_ROUGHNESS - drop / 2
    structure = np.clip(-weight * (rough - middle) * drop, -MAX_LLR, MAX_LLR)
    own = -(np.minimum(unlike, np.float32(TONE_ROUGHNESS)) - middle) * drop / ROUGHNESS_VARIANCE
    free = np.where(power > 1, SHAPE * (log_power - power + 1), 0) + 0.2
    plain = LEVELS + log_sigmoid((log_power - WEAKEST_UE) / EDGE) - LOW_PENALTY * ((log_power < LOW) & ~shadowed)
    present = LEVELS + log_sigmoid((log_power - WEAKEST_INTERFERER) / EDGE)
    even = np.clip(TONE_PRIOR + log_chance_of_peak(features.peak), -2 * MAX_LLR, MAX_LLR)
    arrays = (power, log_power, rough, weight, free, plain, present, structure, own, unlike, even)
    return PrbLikelihoods(*(array.astype(np.float32, copy=False) for array in arrays))


def borders(log_power: Array) -> NDArray[np.bool_]:
    """Steps of power before each PRB and after the last one, shape ``(records, n_prbs + 1)``."""
    border = np.ones((len(log_power), log_power.shape[1] + 1), bool)
    border[:, 1:-1] = np.abs(np.diff(log_power, axis=1)) > STEP
    return border


def log_chance_of_peak(peak: Array) -> Array:
    """Log of the chance that Gaussian samples have so much of a PRB's power on two neighbouring subcarriers, or more.

    Two of twelve exponentially distributed shares exceed x with ``(1 - x)**11 + 11 * x * (1 - x)**10``; 11 pairs.
    """
    rest = np.maximum(1 - peak, np.float32(0.01))
    return np.asarray(10 * np.log(rest) + np.log(11 * (rest + 11 * peak)), np.float32)


def log_sigmoid(values: Array) -> Array:
    """``log(1 / (1 + exp(-values)))`` without overflow."""
    return np.asarray(-np.logaddexp(np.float32(0), -values), np.float32)


def _pool(rough: Array, log_power: Array) -> tuple[Array, Array, NDArray[np.bool_]]:
    """Averaged roughness, its weight, and whether a far stronger neighbour puts the PRB in doubt."""
    n_prbs, reach = rough.shape[1], NEIGHBOURS
    all_rough = np.ones((len(rough), n_prbs + 2 * reach), np.float32)
    all_rough[:, reach:-reach] = rough
    all_power = np.full(all_rough.shape, -9, np.float32)
    all_power[:, reach:-reach] = log_power
    beside = _BESIDE[:, None] + np.arange(n_prbs)
    other = all_rough[:, beside]
    ratio = all_power[:, beside] - log_power[:, None]
    plain = (rough < TONE_ROUGHNESS)[:, None]
    share = np.empty((len(rough), len(beside) + 1, n_prbs), np.float32)  # each PRB's own first
    share[:, 0] = 1
    share[:, 1:] = np.float32(NEIGHBOUR_WEIGHT) * (plain & (other < TONE_ROUGHNESS) & (np.abs(ratio) < SIMILAR))
    count = share.sum(axis=1)
    share[:, 1:] *= other
    share[:, 0] = np.minimum(rough, np.float32(TONE_ROUGHNESS))
    shadowed = (ratio > SHADOW).any(axis=1)
    weight = np.where(shadowed, SHADOW_WEIGHT * count, count) / ROUGHNESS_VARIANCE
    return share.sum(axis=1) / count, weight.astype(np.float32), shadowed
