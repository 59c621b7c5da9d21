"""Chirps and FM that are as smooth over frequency as CP-OFDM UEs, told from these by their constant envelope.

The inverse DFT of a UE's subcarriers, which are many independent symbols, is as good as Gaussian whatever channel they
passed: the kurtosis of its magnitude is 2.  That of a constant envelope is 1.
"""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from twinlink.spectrum import SUBCARRIERS_PER_PRB

from .evidence import MOST, ROUGHNESS_VARIANCE, STEP, WEAKEST_INTERFERER, Evidence
from .power import COMB_RATIO

FEWEST = 2  # PRBs
SMOOTH = 0.5  # roughness of a box, with two standard deviations; what is rougher is told by that
LEAST = 0.5  # kurtosis below that of Gaussian samples; with less of it, most of the power is another's
SELDOM = 3.0  # nats by which constant envelopes are more seldom than such a kurtosis is likely of them


def envelope(samples: NDArray[np.int16], evidence: Evidence) -> Evidence:
    """``evidence`` with what the envelopes of smooth boxes say in `Evidence.even`.

    ``samples``: the records', shape ``(records, subcarriers, 2)``.
    """
    cells = samples.astype(np.float32).view(np.complex64).reshape(-1, SUBCARRIERS_PER_PRB)
    step = np.full(evidence.log_power.shape, 9, np.float32)
    np.abs(np.diff(evidence.log_power, axis=1), out=step[:, 1:])
    first = np.flatnonzero(step.ravel() > STEP)
    width = np.append(first[1:], step.size) - first
    power, rough = (np.add.reduceat(each.ravel(), first) / width for each in (evidence.log_power, evidence.unlike))
    smooth = rough + 2 * np.sqrt(ROUGHNESS_VARIANCE / width) < SMOOTH
    fit = (width >= FEWEST) & (power > WEAKEST_INTERFERER) & smooth
    even, structure = evidence.even.ravel().copy(), np.maximum(evidence.structure, 0).ravel()
    for start, prbs in zip(first[fit].tolist(), width[fit].tolist(), strict=True):
        nats = _says(cells[start : start + prbs])
        if nats > 0:
            where, nats = _part(cells, start, start + prbs, nats)
            # These are smooth like UEs: that says nothing for one.
            np.minimum(even[where], -min(nats, 2 * MOST) - structure[where], out=even[where])
    return replace(evidence, even=even.reshape(step.shape))


def _part(cells: NDArray[np.complex64], first: int, end: int, most: float) -> tuple[slice, float]:
    """That of a box which says most, since a UE of the same level may be beside it."""
    step = (end - first) // 2
    while step:
        parts = [(a, b) for a, b in ((first + step, end), (first, end - step)) if b - a >= FEWEST]
        nats, part = max(((_says(cells[a:b]), (a, b)) for a, b in parts), default=(0.0, (first, end)))
        if nats > most:
            (first, end), most = part, nats
        else:
            step //= 2
    return slice(first, end), most


def _says(prbs: NDArray[np.complex64]) -> float:
    """Nats for a constant envelope against Gaussian samples; 0 if it is not constant."""
    cells = prbs.ravel()
    count = len(cells)
    time = np.fft.ifft(cells, 2 * count)
    energy = time.real**2 + time.imag**2
    total = float(energy.sum())
    lack = 2 * count / (count + 1) - 2 * count * float(energy @ energy) / (total * total)
    if lack < LEAST:
        return 0.0
    power = cells.real**2 + cells.imag**2
    even, odd = float(power[0::2].sum()), float(power[1::2].sum())
    if max(even, odd) > COMB_RATIO * min(even, odd):  # reference signals have constant envelopes, too
        return 0.0
    return lack**2 * count / 2 - SELDOM  # Gaussian samples lack as much with a chance of exp(-lack^2 count / 2) or less
