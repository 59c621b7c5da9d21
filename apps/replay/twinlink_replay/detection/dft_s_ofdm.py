"""Cyclostationary test for transform-precoded UEs (DFT-s-OFDM): kurtosis, and the fourth-power spectral line.

The subcarriers of such a UE are as rough as noise, because each is a sum over all its symbols.  The inverse DFT over
its grant restores these symbols, which have few amplitudes; multipath, or a part of the grant, mixes some of them.
Noise stays noise.  The kurtosis of the result separates the two: 2 for noise, 1 for QPSK, 1.4 for 64QAM.

Other single carriers have a low kurtosis too.  But only a precoded UE has exactly as many symbols in an OFDM symbol as
its grant has subcarriers, so that the fourth power of its magnitude has a spectral line at that rate.  The kurtosis
counts once such lines have been detected.
"""

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from .features import SUBCARRIERS_PER_PRB
from .likelihoods import MAX_LLR, NOISE_ROUGHNESS, ROUGHNESS_VARIANCE, STEP, Array, PrbLikelihoods

FADE = 2.2  # step of log power between PRBs; a smaller step may be within a grant that fades
WEAKEST = 1.1  # log power of a segment relative to the noise floor
ROUGH = 0.47  # roughness of a segment; a smoother one is a CP-OFDM UE
GAPS = 3.0  # standard deviations rougher than noise: a symbol with empty subcarriers, such as SRS
MIDDLE = 0.26  # kurtosis deficit against noise at which a UE and noise are equally likely, at most one deviation
CHANGED = 1.4  # step of log power between records, above which another transmission has started
FREE = 0.3  # log power
PLAIN = -1.0  # prior log-odds that a UE is precoded
MEMORY = 10.0  # largest magnitude of these log-odds
SURE = 20.0  # nats of spectral lines that detect precoded UEs on a PRB; noise reaches it once in 5 * 10^8 segments
STRENGTH = 0.2  # of a line relative to the adjacent spectrum, times symbols and the fourth power of the excess
BESIDE = 4  # bins of the spectrum on either side of a line
SEVERAL = 60  # subcarriers; with fewer, the adjacent spectrum does not predict the line's
OTHER = math.exp(-2)  # probability that a segment of no UE is another single carrier


@dataclass(frozen=True, slots=True)
class Kurtosis:
    """Result of the test for some records, float32, shape ``(records, n_prbs)``.

    Attributes:
        llr: of a precoded UE against noise in nats, for the segment of each PRB; 0 where no segment was tested.
        prbs: number of PRBs of that segment; 0 where none was tested.
    """

    llr: Array
    prbs: Array


class DftSOfdmTest:
    """Detects whether there are precoded UEs, and on which PRBs.

    Args:
        n_prbs: PRBs in a record.

    Attributes:
        detected: whether there are any.
    """

    def __init__(self, n_prbs: int) -> None:
        self.detected = False
        self._lines = np.zeros(n_prbs, np.float32)  # accumulated LLR of spectral lines
        self._odds = np.full(n_prbs, PLAIN, np.float32)  # log-odds that a UE is precoded
        self._before = np.zeros(n_prbs, np.float32)

    def add(self, samples: NDArray[np.int16], likelihoods: PrbLikelihoods) -> Kurtosis:
        """Take in records: int16 samples, shape ``(records, n_prbs * 12, 2)``, and their likelihoods."""
        kurtosis, lines = _test(samples, likelihoods)
        for line in [] if self.detected else lines:
            self._lines = np.maximum(self._lines + line, 0)
        self.detected |= bool(self._lines.max() > SURE)
        return kurtosis

    def apply(self, likelihoods: PrbLikelihoods, kurtosis: Kurtosis) -> PrbLikelihoods:
        """``likelihoods`` with the UE's LLR of either kind of UE, weighted by its probability; records in order."""
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


def _test(samples: NDArray[np.int16], likelihoods: PrbLikelihoods) -> tuple[Kurtosis, Array]:
    """For each PRB the result of the segment with the highest LLR, and the LLR of its spectral line."""
    shape = likelihoods.log_power.shape
    llr, prbs, line = (np.zeros(shape, np.float32) for _ in range(3))
    all_llr, all_prbs, all_line = llr.ravel(), prbs.ravel(), line.ravel()
    cells = samples.astype(np.float32).view(np.complex64).reshape(-1, SUBCARRIERS_PER_PRB)
    tone = likelihoods.not_tone_llr < 0
    cells[tone.ravel()] = 0
    for first, width, tones in _segments(likelihoods, tone):
        end, count = first + width, SUBCARRIERS_PER_PRB * (width - tones)
        excess = _kurtosis(cells[first:end].ravel()) - 2 * count / (count + 1)
        root = count**0.5 / 2  # inverse of the standard deviation for noise
        expected = min(MIDDLE * root, 1.0)
        nats = min(max(-2 * expected * (excess * root + expected), -MAX_LLR), MAX_LLR)
        nats_line = 0.0
        if nats > 0 and count >= SEVERAL:
            nats_line = _line(cells[first:end].ravel(), excess)
            nats = min(max(nats_line - math.log(math.exp(-nats) + OTHER), -MAX_LLR), MAX_LLR)
        better = (all_prbs[first:end] == 0) | (all_llr[first:end] < nats)
        all_llr[first:end][better] = nats
        all_prbs[first:end][better] = width
        all_line[first:end][better] = nats_line
    llr[tone] = prbs[tone] = 0
    return Kurtosis(llr, prbs), line


def _segments(likelihoods: PrbLikelihoods, tone: NDArray[np.bool_]) -> list[tuple[int, int, int]]:
    """Segments that may be a precoded UE's: first PRB, counted through all records, width, and PRBs with a tone.

    Runs of adjacent segments follow, because a fading channel may split a UE's grant into several.
    """
    log_power, rough = likelihoods.log_power, likelihoods.roughness_raw
    if tone.any():  # the tone may be on a UE's PRB, which is then taken to be as strong as the PRB before
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
    return [one for *each, chosen in of_all for one in zip(*(values[chosen].tolist() for values in each), strict=True)]


def _fit(width: NDArray[np.intp], power: Array, rough: Array, tones: NDArray[np.intp]) -> NDArray[np.bool_]:
    """Which segments may be a precoded UE's, given sums over their PRBs."""
    most = NOISE_ROUGHNESS * width + GAPS * np.sqrt(ROUGHNESS_VARIANCE * width)
    alike = (rough > ROUGH * width) & (rough < most)
    return np.asarray(alike & (power > WEAKEST * width) & (tones < width))


def _kurtosis(cells: NDArray[np.complex64]) -> float:
    """Kurtosis of the magnitude of the inverse DFT of ``cells``, shape ``(subcarriers,)``.

    A UE's delay shifts its symbols by any fraction of a symbol; half-way between two symbols they are mixed the most.
    So the kurtosis is computed without a shift and with half a symbol, and the lower one counts.
    """
    count = len(cells)
    time = np.fft.ifft(cells, 2 * count)
    energy = time.real**2 + time.imag**2
    total = float(energy.sum()) / 2
    whole, half = energy[::2], energy[1::2]
    return count * min(float(whole @ whole), float(half @ half)) / (total * total)


def _line(cells: NDArray[np.complex64], excess: float) -> float:
    """LLR of as many symbols as subcarriers against another single carrier, from the spectral line.

    Without a line, the power in its bin relative to the mean of ``n`` adjacent bins exceeds ``x`` with probability
    ``(1 + x / n) ** -n``, so that ``n log(1 + x / n)`` is exponentially distributed.  With a line, the distribution is
    modelled as exponential with a greater mean, which follows from the ``excess`` of the kurtosis.
    """
    count, beside = len(cells), 2 * BESIDE
    time = np.fft.ifft(cells, 4 * count)
    energy = time.real**2 + time.imag**2
    spectrum = np.abs(np.fft.rfft(energy * energy)[count - BESIDE : count + BESIDE + 1]) ** 2
    line, total = float(spectrum[BESIDE]), float(spectrum.sum())
    strength = beside * math.log1p(line / max(total - line, 1e-9))
    mean = 1 + beside * math.log1p(STRENGTH * count * excess**4 / beside)
    return strength * (1 - 1 / mean) - math.log(mean)
