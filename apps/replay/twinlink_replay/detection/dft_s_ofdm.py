"""Transform-precoded UEs (DFT-s-OFDM), told from noise by an inverse DFT over the PRBs of a box.

Such a UE's subcarriers are as rough as noise, since each is a sum over all its symbols.  The inverse DFT over its grant
gives these symbols back, which have few amplitudes; multipath, or a part of the grant, mixes some of them.  Of noise it
makes noise.  What tells them apart is the kurtosis of the result: 2 for noise, 1 for QPSK, 1.4 for 64QAM.

Other single carriers show the same.  But their symbols do not come as many to an OFDM symbol as the grant has
subcarriers, exactly: only a precoded UE's fourth power of magnitude has a spectral line there.  So kurtosis counts once
such a line was seen.
"""

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from twinlink.spectrum import SUBCARRIERS_PER_PRB

from .likelihoods import MAX_LLR, NOISE_ROUGHNESS, ROUGHNESS_VARIANCE, STEP, Array, PrbLikelihoods

FADE = 2.2  # log power from one PRB to the next; a lesser step may be within a grant that fades
WEAKEST = 1.1  # log power of a box against the floor
ROUGH = 0.47  # roughness of a box; what is smoother is told by that
GAPS = 3.0  # standard deviations rougher than noise: a symbol with empty subcarriers, as of SRS
MIDDLE = 0.26  # kurtosis below that of noise, at most one standard deviation: as likely a UE's
CHANGED = 1.4  # log power from one record to the next: somebody else
FREE = 0.3  # log power
PLAIN = -1.0  # nats that a UE is precoded, before its first record
MEMORY = 10.0  # nats that are remembered of what a UE is
SURE = 20.0  # nats of lines that there are precoded UEs on a PRB; by chance once in 5 * 10^8 boxes
STRENGTH = 0.2  # of such a line against the spectrum beside it, times symbols and the fourth power of the excess
BESIDE = 4  # places of the spectrum on either side
SEVERAL = 60  # subcarriers; with fewer what is beside a line is not like it
OTHER = math.exp(-2)  # chance that what is not a UE is another single carrier


@dataclass(frozen=True, slots=True)
class Kurtosis:
    """Of some records, each of shape ``(records, n_prbs)``.

    Attributes:
        llr: for a precoded UE against noise, in nats, on each PRB of a box; 0 where it was not looked at.
        prbs: how many PRBs that box has; 0 there.
    """

    llr: Array
    prbs: Array


class DftSOfdmTest:
    """Finds out whether there are precoded UEs, and on which PRBs.

    Args:
        n_prbs: PRBs in a record.

    Attributes:
        here: whether there are any.
    """

    def __init__(self, n_prbs: int) -> None:
        self.here = False
        self._seen = np.zeros(n_prbs, np.float32)  # nats of lines
        self._odds = np.full(n_prbs, PLAIN, np.float32)  # nats that a UE is precoded
        self._before = np.zeros(n_prbs, np.float32)

    def add(self, samples: NDArray[np.int16], likelihoods: PrbLikelihoods) -> Kurtosis:
        """Take in records: int16 samples, shape ``(records, subcarriers, 2)``, and what is known of them otherwise."""
        kurtosis, lines = _look(samples, likelihoods)
        for line in [] if self.here else lines:
            self._seen = np.maximum(self._seen + line, 0)
        self.here |= bool(self._seen.max() > SURE)
        return kurtosis

    def tell(self, likelihoods: PrbLikelihoods, kurtosis: Kurtosis) -> PrbLikelihoods:
        """``likelihoods`` with what texture says for a UE of either kind; records in order."""
        log_power = likelihoods.log_power
        before = np.concatenate((self._before[None], log_power[:-1]))
        self._before = log_power[-1]
        new = (np.abs(log_power - before) > CHANGED) | (log_power < FREE)
        more = kurtosis.llr - likelihoods.ue_llr
        odds = np.empty_like(more)
        for k, each in enumerate(more):
            odds[k] = np.where(new[k], np.float32(PLAIN), self._odds) + each
            self._odds = np.minimum(np.maximum(odds[k], -MEMORY), MEMORY)
        share = 1 / (1 + np.exp(-odds))
        own = likelihoods.ue_llr_own + share * (kurtosis.llr / np.maximum(kurtosis.prbs, 1) - likelihoods.ue_llr_own)
        return replace(likelihoods, ue_llr=likelihoods.ue_llr + share * more, ue_llr_own=own)


def _look(samples: NDArray[np.int16], likelihoods: PrbLikelihoods) -> tuple[Kurtosis, Array]:
    """Of all boxes with a PRB, the one that says most for a precoded UE; and what its line says, in nats."""
    shape = likelihoods.log_power.shape
    says, prbs, line = (np.zeros(shape, np.float32) for _ in range(3))
    all_says, all_prbs, all_line = says.ravel(), prbs.ravel(), line.ravel()
    cells = samples.astype(np.float32).view(np.complex64).reshape(-1, SUBCARRIERS_PER_PRB)
    tone = likelihoods.not_tone_llr < 0
    cells[tone.ravel()] = 0
    for first, width, tones in _boxes(likelihoods, tone):
        end, count = first + width, SUBCARRIERS_PER_PRB * (width - tones)
        excess = _kurtosis(cells[first:end].ravel()) - 2 * count / (count + 1)
        root = count**0.5 / 2  # one over the standard deviation for noise
        expected = min(MIDDLE * root, 1.0)
        nats = min(max(-2 * expected * (excess * root + expected), -MAX_LLR), MAX_LLR)
        nats_line = 0.0
        if nats > 0 and count >= SEVERAL:
            nats_line = _line(cells[first:end].ravel(), excess)
            nats = min(max(nats_line - math.log(math.exp(-nats) + OTHER), -MAX_LLR), MAX_LLR)
        better = (all_prbs[first:end] == 0) | (all_says[first:end] < nats)
        all_says[first:end][better] = nats
        all_prbs[first:end][better] = width
        all_line[first:end][better] = nats_line
    says[tone] = prbs[tone] = 0
    return Kurtosis(says, prbs), line


def _boxes(likelihoods: PrbLikelihoods, tone: NDArray[np.bool_]) -> list[tuple[int, int, int]]:
    """Of those that may be a precoded UE's: first PRB, counted through all records, width, and on how many a tone is.

    Then of several of them side by side, which may be one whose channel fades.
    """
    log_power, rough = likelihoods.log_power, likelihoods.roughness_raw
    if tone.any():  # it may be on a UE's PRB, which is as strong as the one before
        log_power = log_power.copy()
        np.copyto(log_power[:, 1:], likelihoods.log_power[:, :-1], where=tone[:, 1:])
        rough = np.where(tone, np.float32(NOISE_ROUGHNESS), rough)
    step = np.full(log_power.shape, 9, np.float32)
    np.abs(log_power[:, 1:] - log_power[:, :-1], out=step[:, 1:])
    step = step.ravel()
    first = np.flatnonzero(step > STEP)
    sums = [np.add.reduceat(each.ravel(), first) for each in (log_power, rough, tone.astype(np.intp))]
    width = np.append(first[1:], step.size) - first
    fit = _fit(width, *sums)
    if not fit.any():
        return []
    deep = np.flatnonzero(step[first] > FADE)
    sums_deep = [np.add.reduceat(each, deep) for each in sums]
    wide = np.add.reduceat(width, deep)
    fit_deep = _fit(wide, *sums_deep) & (wide > width[deep])
    of_all = ((first, width, sums[2], fit), (first[deep], wide, sums_deep[2], fit_deep))
    return [box for *each, chosen in of_all for box in zip(*(values[chosen].tolist() for values in each), strict=True)]


def _fit(width: NDArray[np.intp], power: Array, rough: Array, tones: NDArray[np.intp]) -> NDArray[np.bool_]:
    """Which boxes may be a precoded UE's, given sums over their PRBs."""
    most = NOISE_ROUGHNESS * width + GAPS * np.sqrt(ROUGHNESS_VARIANCE * width)
    alike = (rough > ROUGH * width) & (rough < most)
    return np.asarray(alike & (power > WEAKEST * width) & (tones < width))


def _kurtosis(cells: NDArray[np.complex64]) -> float:
    """Of the symbols that some subcarriers are the DFT of.

    A UE's delay shifts its symbols by any part of one; half way between two of them they are mixed the most.  So both
    at none and at half of one are looked at, which have the same power.
    """
    count = len(cells)
    time = np.fft.ifft(cells, 2 * count)
    energy = time.real**2 + time.imag**2
    total = float(energy.sum()) / 2
    whole, half = energy[::2], energy[1::2]
    return count * min(float(whole @ whole), float(half @ half)) / (total * total)


def _line(cells: NDArray[np.complex64], excess: float) -> float:
    """Nats for as many symbols as subcarriers, against another single carrier, by the spectral line that they have.

    Without it the spectrum's power at that place, relative to the mean of ``n`` places beside it, exceeds ``x`` with a
    chance of ``(1 + x / n) ** -n``: ``n log(1 + x / n)`` is exponentially distributed.  So it is taken to be with the
    line, with a greater mean, told by the ``excess`` of the kurtosis.
    """
    count, beside = len(cells), 2 * BESIDE
    time = np.fft.ifft(cells, 4 * count)
    energy = time.real**2 + time.imag**2
    spectrum = np.abs(np.fft.rfft(energy * energy)[count - BESIDE : count + BESIDE + 1]) ** 2
    line, total = float(spectrum[BESIDE]), float(spectrum.sum())
    strength = beside * math.log1p(line / max(total - line, 1e-9))
    mean = 1 + beside * math.log1p(STRENGTH * count * excess**4 / beside)
    return strength * (1 - 1 / mean) - math.log(mean)
