"""Power of uplink symbols: per subcarrier and per PRB, averaged and held; and the texture of a PRB's samples.

Everything is an array in, an array out; a batch of records costs little more than one.
"""

import math
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from twinlink.spectrum import SUBCARRIERS_PER_PRB

FULL_SCALE = 32768.0**2  # 0 dBFS: a complex sample of magnitude 32768
QUANTISATION = 1 / 6  # LSB^2: noise of rounding I and Q to integers; nothing is measured below it
LEAST_LINE = -3.0  # nats
COMB_RATIO = 4.0  # Gaussian samples differ as much between their two combs once in fifty PRBs


def to_dbfs(power: NDArray[np.float32]) -> NDArray[np.float32]:
    """Power in LSB^2 as dB relative to full scale; what is below the rounding noise is shown as that."""
    return np.asarray(10 * np.log10(np.maximum(power, QUANTISATION) / FULL_SCALE), np.float32)


@dataclass(frozen=True, slots=True)
class PrbFeatures:
    """What the detector looks at, each of shape ``(records, n_prbs)``, float32.

    Attributes:
        power: mean power of a PRB's subcarriers in LSB^2.
        roughness: how much the powers p of neighbouring subcarriers differ,
            ``sqrt(sum (p[i] - p[i+1])^2 / sum (p[i] + p[i+1])^2)``: 0 for constant amplitude, 0.05-0.45 for QPSK to
            256QAM through a channel that is smooth from one subcarrier to the next, 0.56 in the mean for Gaussian
            samples (noise), 1 for a tone.  It depends neither on the level nor on the channel's slope.
        peak: share of the power that the strongest two neighbouring subcarriers have: 1/6 for constant amplitude,
            0.4 in the mean for Gaussian samples, near 1 for a tone, on a subcarrier or between two.
        line: what each subcarrier, shape ``(records, n_prbs, 12)``, says for a tone on it against Gaussian samples.
        cells: power of each subcarrier in LSB^2, of the same shape.
        samples: int16, shape ``(records, subcarriers, 2)``; None if they are not known.
    """

    power: NDArray[np.float32]
    roughness: NDArray[np.float32]
    peak: NDArray[np.float32]
    line: NDArray[np.float32]
    cells: NDArray[np.float32]
    samples: NDArray[np.int16] | None = None

    def part(self, records: slice) -> "PrbFeatures":
        """Those of some records."""
        parts = [part[records] for part in (self.power, self.roughness, self.peak, self.line, self.cells)]
        samples = None if self.samples is None else self.samples[records]
        return PrbFeatures(parts[0], parts[1], parts[2], parts[3], parts[4], samples)


def subcarrier_power(samples: NDArray[np.int16]) -> NDArray[np.float32]:
    """``|x|^2`` in LSB^2, shape ``(records, subcarriers)``, of int16 samples ``(records, subcarriers, 2)``."""
    values = samples.astype(np.float32)
    np.square(values, out=values)
    return values[..., 0] + values[..., 1]


def prb_features(power: NDArray[np.float32], samples: NDArray[np.int16] | None = None) -> PrbFeatures:
    """Features of each PRB from the subcarriers' powers, shape ``(records, n_prbs * 12)``, and their ``samples``."""
    cells = power.reshape(len(power), -1, SUBCARRIERS_PER_PRB).copy()
    _cap_centre(cells)
    rough = _roughness(cells, 1)
    even, odd = cells[..., 0::2].sum(axis=-1), cells[..., 1::2].sum(axis=-1)
    # A DM-RS symbol (type 1, TS 38.211 clause 6.4.1.1.3) fills every other subcarrier: there, each subcarrier is
    # compared with the next of its own comb, or the empty comb would look like a tone.
    comb = (even > COMB_RATIO * odd) | (odd > COMB_RATIO * even)
    if comb.any():
        rough[comb] = _roughness(cells[comb], 2)
    total = even + odd
    pair = (cells[..., 1:] + cells[..., :-1]).max(axis=-1)
    return PrbFeatures(total / SUBCARRIERS_PER_PRB, rough, pair / np.maximum(total, 1e-9), _line(cells), cells, samples)


def _cap_centre(cells: NDArray[np.float32]) -> None:
    """Let the carrier's centre have no more power than the strongest near it: oscillators leak there, as tones do."""
    prb, place = divmod(cells.shape[1] * SUBCARRIERS_PER_PRB // 2, SUBCARRIERS_PER_PRB)
    near = [beside[place] for distance in (1, 2) for beside in _beside(distance)]
    np.minimum(cells[:, prb, place], cells[:, prb, near].max(axis=-1), out=cells[:, prb, place])


def _line(cells: NDArray[np.float32]) -> NDArray[np.float32]:
    """Log-likelihood ratio of a tone on a subcarrier against none, from its share of the power of five.

    Of Gaussian samples, the roughest that UEs have, that share has the beta distribution (1, 4).  With a tone it is
    taken for (3, 4), or (10, 4), the likelier one, both equally likely beforehand; a UE comes on top at times, so that
    a single record counts little against a tone.
    """
    # The next ones or those after them, whichever have more: every other one is empty in a DM-RS symbol.
    beside = 2 * np.maximum(*(cells[..., before] + cells[..., after] for before, after in (_beside(1), _beside(2))))
    share = np.log((cells + QUANTISATION) / (cells + beside + 5 * QUANTISATION))
    weak, strong = math.log(15) + 2 * share, math.log(715) + 9 * share  # B(1, 4) / B(3, 4), B(1, 4) / B(10, 4)
    return np.asarray(np.maximum(np.maximum(weak, strong) - math.log(2), LEAST_LINE), np.float32)


@cache
def _beside(distance: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """The subcarriers before and after each within its PRB; at its edges the same one twice."""
    place = np.arange(SUBCARRIERS_PER_PRB)
    before, after = place - distance, place + distance
    return np.where(before < 0, after, before), np.where(after >= SUBCARRIERS_PER_PRB, before, after)


def _roughness(cells: NDArray[np.float32], distance: int) -> NDArray[np.float32]:
    low, high = cells[..., :-distance], cells[..., distance:]
    differences = np.square(high - low).sum(axis=-1)
    return np.asarray(np.sqrt(differences / np.maximum(np.square(high + low).sum(axis=-1), 1e-9)), np.float32)
