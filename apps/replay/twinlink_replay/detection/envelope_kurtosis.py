"""Kurtosis test of the envelope: tells chirps, FM and pulses from CP-OFDM UEs that are as smooth over frequency.

The inverse DFT of a UE's subcarriers, which are many independent symbols, is nearly Gaussian for every channel: the
kurtosis of its magnitude is 2.  A constant envelope has a kurtosis of 1, a pulse that lasts a third of the symbol 3.
"""

import math
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from .features import COMB_RATIO, SUBCARRIERS_PER_PRB
from .likelihoods import MAX_LLR, ROUGHNESS_VARIANCE, WEAKEST_INTERFERER, PrbLikelihoods, borders

FEWEST = 2  # PRBs
SMOOTH = 0.5  # roughness of a segment plus two standard deviations; a rougher segment is told by its roughness
MIN_DEFICIT = 0.5  # kurtosis below that of Gaussian samples; with less, most of the power is another signal's
PRIOR = 3.0  # nats against such an envelope
TAIL = 0.9  # nats for each standard deviation of kurtosis above that of Gaussian samples
PULSE = 1.5  # energy relative to the mean while a pulse lasts, at least

Cells = NDArray[np.complex64]


def apply_envelope_test(samples: NDArray[np.int16], likelihoods: PrbLikelihoods) -> PrbLikelihoods:
    """Test the envelopes of smooth segments; the result lowers `PrbLikelihoods.not_tone_llr`.

    Args:
        samples: int16, shape ``(records, n_prbs * 12, 2)``.
        likelihoods: of the same records.
    """
    cells = samples.astype(np.float32).view(np.complex64).reshape(-1, SUBCARRIERS_PER_PRB)
    shape = likelihoods.log_power.shape
    first = np.flatnonzero(borders(likelihoods.log_power)[:, :-1])
    width = np.append(first[1:], len(cells)) - first
    power, rough = (
        np.add.reduceat(each.ravel(), first) / width for each in (likelihoods.log_power, likelihoods.roughness_raw)
    )
    smooth = rough + 2 * np.sqrt(ROUGHNESS_VARIANCE / width) < SMOOTH
    fit = (width >= FEWEST) & (power > WEAKEST_INTERFERER) & smooth
    not_tone_llr, ue_llr = likelihoods.not_tone_llr.ravel().copy(), np.maximum(likelihoods.ue_llr, 0).ravel()
    for start, prbs in zip(first[fit].tolist(), width[fit].tolist(), strict=True):
        nats, part = _test(cells[start : start + prbs])
        if nats > 0:
            where = start + part
            # These signals are as smooth as UEs, so their smoothness is no evidence of a UE.
            not_tone_llr[where] = np.minimum(not_tone_llr[where], -min(nats, 2 * MAX_LLR) - ue_llr[where])
    return replace(likelihoods, not_tone_llr=not_tone_llr.reshape(shape))


def _test(segment: Cells) -> tuple[float, NDArray[np.intp]]:
    """LLR against a UE, and the PRBs of a segment that it holds for: a UE of the same level may be adjacent."""
    time, deficit = _time(segment)
    constant, pulse = _constant(segment, deficit), _pulse(segment, deficit)
    if constant > 0:
        return _best_part(segment, constant)
    if pulse > 0:
        return pulse, _prbs_of_pulse(segment, time)
    return 0.0, np.arange(0)


def _time(segment: Cells) -> tuple[Cells, float]:
    """The inverse DFT with two values a subcarrier, and its kurtosis deficit against Gaussian samples."""
    count = segment.size
    time = np.fft.ifft(segment.ravel(), 2 * count).astype(np.complex64)
    energy = time.real**2 + time.imag**2
    total = float(energy.sum())
    return time, 2 * count / (count + 1) - 2 * count * float(energy @ energy) / (total * total)


def _constant(segment: Cells, deficit: float) -> float:
    """LLR of a constant envelope; Gaussian samples have the deficit with probability ``exp(-deficit^2 count / 2)``."""
    return 0.0 if deficit < MIN_DEFICIT or _comb(segment) else deficit**2 * segment.size / 2 - PRIOR


def _pulse(segment: Cells, deficit: float) -> float:
    """LLR of a pulse; Gaussian samples reach its kurtosis by one very large value or by several large ones."""
    one = math.sqrt(max(-deficit, 0) * segment.size) - math.log(segment.size)
    nats = min(one, TAIL * -deficit * math.sqrt(segment.size) / 2) - PRIOR
    return 0.0 if nats < 0 or _comb(segment) else nats


def _comb(segment: Cells) -> bool:
    """Whether every other subcarrier is empty: reference signals have a constant envelope, too."""
    power = segment.real**2 + segment.imag**2
    even, odd = float(power[:, 0::2].sum()), float(power[:, 1::2].sum())
    return max(even, odd) > COMB_RATIO * min(even, odd)


def _best_part(segment: Cells, most: float) -> tuple[float, NDArray[np.intp]]:
    """The part of the segment with the highest LLR of a constant envelope."""
    first, end = 0, len(segment)
    step = end // 2
    while step:
        parts = [(a, b) for a, b in ((first + step, end), (first, end - step)) if b - a >= FEWEST]
        nats, part = max(
            ((_constant(segment[a:b], _time(segment[a:b])[1]), (a, b)) for a, b in parts), default=(0.0, (0, 0))
        )
        if nats > most:
            (first, end), most = part, nats
        else:
            step //= 2
    return most, np.arange(first, end)


def _prbs_of_pulse(segment: Cells, time: Cells) -> NDArray[np.intp]:
    """PRBs that have most of their energy while the pulse lasts."""
    energy = time.real**2 + time.imag**2
    lasts = energy > PULSE * energy.mean()
    inside = np.fft.fft(time * lasts)[: segment.size].reshape(segment.shape)
    share = np.sum(np.abs(inside) ** 2, axis=1) / np.sum(np.abs(segment) ** 2, axis=1)
    return np.flatnonzero(share > (1 + lasts.mean()) / 2)
