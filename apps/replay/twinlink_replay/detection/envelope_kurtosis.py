"""Chirps, FM and pulses that are as smooth over frequency as CP-OFDM UEs, told from these by their envelope.

The inverse DFT of a UE's subcarriers, which are many independent symbols, is as good as Gaussian whatever channel they
passed: the kurtosis of its magnitude is 2.  That of a constant envelope is 1, that of a pulse which lasts for a third
of the symbol 3.
"""

import math
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from twinlink.spectrum import SUBCARRIERS_PER_PRB

from .features import COMB_RATIO
from .likelihoods import MAX_LLR, ROUGHNESS_VARIANCE, WEAKEST_INTERFERER, PrbLikelihoods, borders

FEWEST = 2  # PRBs
SMOOTH = 0.5  # roughness of a box, with two standard deviations; what is rougher is told by that
LEAST = 0.5  # kurtosis below that of Gaussian samples; with less of it, most of the power is another's
SELDOM = 3.0  # nats by which such envelopes are more seldom than such a kurtosis is likely of them
TAIL = 0.9  # nats for each standard deviation by which the kurtosis of Gaussian samples is greater
PULSE = 1.5  # times the mean energy: moments of a pulse

Cells = NDArray[np.complex64]


def envelope(samples: NDArray[np.int16], likelihoods: PrbLikelihoods) -> PrbLikelihoods:
    """``likelihoods`` with what the envelopes of smooth boxes say in `PrbLikelihoods.not_tone_llr`.

    ``samples``: the records', shape ``(records, subcarriers, 2)``.
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
    even, structure = likelihoods.not_tone_llr.ravel().copy(), np.maximum(likelihoods.ue_llr, 0).ravel()
    for start, prbs in zip(first[fit].tolist(), width[fit].tolist(), strict=True):
        nats, part = _look(cells[start : start + prbs])
        if nats > 0:
            where = start + part
            # These are smooth like UEs: that says nothing for one.
            even[where] = np.minimum(even[where], -min(nats, 2 * MAX_LLR) - structure[where])
    return replace(likelihoods, not_tone_llr=even.reshape(shape))


def _look(box: Cells) -> tuple[float, NDArray[np.intp]]:
    """Nats against a UE's, and on which PRBs of a box: a UE of the same level may be beside it."""
    time, lack = _time(box)
    constant, pulse = _constant(box, lack), _pulse(box, lack)
    if constant > 0:
        return _part(box, constant)
    if pulse > 0:
        return pulse, _in_pulse(box, time)
    return 0.0, np.arange(0)


def _time(box: Cells) -> tuple[Cells, float]:
    """The inverse DFT with two values a subcarrier, and what its kurtosis lacks of that of Gaussian samples."""
    count = box.size
    time = np.fft.ifft(box.ravel(), 2 * count).astype(np.complex64)
    energy = time.real**2 + time.imag**2
    total = float(energy.sum())
    return time, 2 * count / (count + 1) - 2 * count * float(energy @ energy) / (total * total)


def _constant(box: Cells, lack: float) -> float:
    """Nats for a constant envelope; Gaussian samples lack as much with a chance of ``exp(-lack^2 count / 2)``."""
    return 0.0 if lack < LEAST or _comb(box) else lack**2 * box.size / 2 - SELDOM


def _pulse(box: Cells, lack: float) -> float:
    """Nats for a pulse: Gaussian samples have its kurtosis by one that is large, or by some that are rather large."""
    one = math.sqrt(max(-lack, 0) * box.size) - math.log(box.size)
    nats = min(one, TAIL * -lack * math.sqrt(box.size) / 2) - SELDOM
    return 0.0 if nats < 0 or _comb(box) else nats


def _comb(box: Cells) -> bool:
    """Whether every other subcarrier is empty: reference signals have such envelopes, too."""
    power = box.real**2 + box.imag**2
    even, odd = float(power[:, 0::2].sum()), float(power[:, 1::2].sum())
    return max(even, odd) > COMB_RATIO * min(even, odd)


def _part(box: Cells, most: float) -> tuple[float, NDArray[np.intp]]:
    """What says most for a constant envelope."""
    first, end = 0, len(box)
    step = end // 2
    while step:
        parts = [(a, b) for a, b in ((first + step, end), (first, end - step)) if b - a >= FEWEST]
        nats, part = max(((_constant(box[a:b], _time(box[a:b])[1]), (a, b)) for a, b in parts), default=(0.0, (0, 0)))
        if nats > most:
            (first, end), most = part, nats
        else:
            step //= 2
    return most, np.arange(first, end)


def _in_pulse(box: Cells, time: Cells) -> NDArray[np.intp]:
    """PRBs that have most of their energy while the pulse lasts."""
    energy = time.real**2 + time.imag**2
    lasts = energy > PULSE * energy.mean()
    inside = np.fft.fft(time * lasts)[: box.size].reshape(box.shape)
    share = np.sum(np.abs(inside) ** 2, axis=1) / np.sum(np.abs(box) ** 2, axis=1)
    return np.flatnonzero(share > (1 + lasts.mean()) / 2)
