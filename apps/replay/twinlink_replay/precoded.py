"""Transform-precoded UEs (DFT-s-OFDM), told from noise by an inverse DFT over the PRBs of a box.

Such a UE's subcarriers are as rough as noise, since each is a sum over all its symbols.  The inverse DFT over its grant
gives these symbols back, which have few amplitudes; multipath, and a part of the grant, mix few of them.  Of noise it
gives noise.  What tells them apart is the kurtosis of the result: 2 for noise, 1 for QPSK, 1.4 for 64QAM.

Other single carriers show the same.  So this counts only where it was seen on much of the carrier: UEs move.
"""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from twinlink.spectrum import SUBCARRIERS_PER_PRB

from .evidence import MOST, Array, Evidence, borders

WEAKEST = 1.1  # log power of a box against the floor
ROUGH = 0.47  # roughness of a box; what is smoother is told by that
EXPECTED = 1.5  # standard deviations that a UE's kurtosis is below that of noise
CHANGED = 1.4  # log power from one record to the next: somebody else
FREE = 0.3  # log power
PLAIN = -1.0  # nats that a UE is precoded, before its first record
MEMORY = 10.0  # nats that are remembered of what a UE is
SURE = 14.0  # nats on a PRB that precoded UEs were there
SHARE = 0.25  # of the carrier where these were; an interferer that is a single carrier is on less
KEPT = 0.5  # of that share: until it falls below, they are here


class Precoded:
    """Follows what the kurtosis says of each PRB.

    Args:
        n_prbs: PRBs in a record.

    Attributes:
        here: whether there are precoded UEs.
    """

    def __init__(self, n_prbs: int) -> None:
        self.here = False
        self._odds = np.full(n_prbs, PLAIN, np.float32)  # that a UE there is precoded
        self._seen = np.zeros(n_prbs, np.float32)  # nats that there were precoded UEs
        self._before = np.zeros(n_prbs, np.float32)

    def weigh(self, samples: NDArray[np.int16], evidence: Evidence) -> Evidence:
        """``evidence`` with what texture says for a UE of either kind against noise; int16 ``(records, bins, 2)``."""
        says, prbs = kurtosis(samples, evidence)
        log_power = evidence.log_power
        change = np.diff(log_power, axis=0, prepend=self._before[None])
        new = (np.abs(change) > CHANGED) | (log_power < FREE)
        self._before = log_power[-1]
        more = says - evidence.structure
        odds = np.empty_like(says)
        for k, each in enumerate(more):
            self._odds = np.clip(np.where(new[k], np.float32(PLAIN), self._odds) + each, -MEMORY, MEMORY)
            odds[k] = self._odds
            self._seen = np.clip(self._seen + says[k], 0, 2 * SURE)
        share = 1 / (1 + np.exp(-odds))
        structure = evidence.structure + share * more
        own = evidence.own + share * (says / prbs - evidence.own)
        return replace(evidence, structure=structure, own=own)

    def judge(self) -> bool:
        """Renew `here`; returns whether it has changed."""
        share = SHARE * KEPT if self.here else SHARE
        before, self.here = self.here, bool((self._seen > SURE).mean() > share)
        return self.here != before


def kurtosis(samples: NDArray[np.int16], evidence: Evidence) -> tuple[Array, Array]:
    """What that of a box says for a precoded UE against noise, in nats, on each of its PRBs; and how many these are."""
    log_power = evidence.log_power
    record, place = np.nonzero(borders(log_power))
    same = record[1:] == record[:-1]
    record, first, end = record[:-1][same], place[:-1][same], place[1:][same]
    width = end - first
    sums = [_sums(values, record, first, end) / width for values in (log_power, evidence.unlike, evidence.even < 0)]
    chosen = np.flatnonzero((sums[0] > WEAKEST) & (sums[1] > ROUGH) & (sums[2] == 0))
    says, prbs = np.zeros_like(log_power), np.ones_like(log_power)
    cells = samples.astype(np.float32).view(np.complex64)[..., 0]
    for k in chosen:
        r, a, b = record[k], first[k], end[k]
        count = SUBCARRIERS_PER_PRB * int(b - a)
        time = np.fft.ifft(cells[r, SUBCARRIERS_PER_PRB * a : SUBCARRIERS_PER_PRB * b])
        power = time.real**2 + time.imag**2
        total = float(power.sum())
        excess = count * float(power @ power) / (total * total) - 2 * count / (count + 1)
        deviation = excess * count**0.5 / 2
        says[r, a:b] = min(max(-EXPECTED * (deviation + EXPECTED / 2), -MOST), MOST)
        prbs[r, a:b] = b - a
    return says, prbs


def _sums(values: Array | NDArray[np.bool_], *box: NDArray[np.intp]) -> NDArray[np.float64]:
    record, first, end = box
    total = np.cumsum(np.pad(values, ((0, 0), (1, 0))), axis=1, dtype=np.float64)
    return np.asarray(total[record, end] - total[record, first])
