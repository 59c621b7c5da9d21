"""What UEs are like here: whether some are as rough as noise (transform-precoded ones that `dft_s_ofdm` does not know).

They are where rough transmissions move, or where one has never left and another one comes: then the first is a UE.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .likelihoods import PrbLikelihoods

CLEAR = 1.0  # nats of `PrbLikelihoods.ue_llr` over a stay that has ended that make it rough or smooth, and ...
SURE = 10.0  # ... over one that goes on
JUMP = 1.4  # log power from one record to the next: somebody else
PLACES = 4  # where rough transmissions were: they are hardly all interferers, which come back to their PRBs
NEW = 0.5  # at most so much of a place was in one before; wide grants soon have been everywhere
SHARE = 0.15  # of UEs' stays; beyond it roughness tells no interferer.  Noise on most of the carrier makes some
SHARE_PRECODED = 0.05  # where some UEs are precoded: what is rough there is one that was not known as such
MOST = 0.5  # of the stays on the PRBs that were used: hardly any UE is smooth
# nats of `PrbLikelihoods.not_tone_llr`, twice running: Gaussian samples have so much against them once in 10^6 PRBs
TONE = -7.5
AWAY = 8  # records in a row without anybody: who was there has gone
NEARLY_ALL = 0.75  # of these where rough ones stay put: an interferer may be on top of a smooth UE
KEPT = 0.5  # of that share: until it falls below, roughness stays unheeded


class UeStatistics:
    """Counts rough and smooth transmissions, and the places where rough ones were.

    Attributes:
        rough: whether UEs here are as rough as noise.
    """

    def __init__(self, n_prbs: int, precoded: bool = False) -> None:
        """``precoded``: whether some UEs are known to be."""
        self.rough = False
        self._most = SHARE_PRECODED if precoded else SHARE
        self._texture = np.zeros(n_prbs, np.float32)
        self._counted = np.zeros(n_prbs, bool)  # whether the stay that goes on is
        self._rough, self._smooth = np.zeros(n_prbs), np.zeros(n_prbs)
        self._before = np.zeros(n_prbs, np.float32)
        self._covered = np.zeros(n_prbs, bool)  # by rough transmissions, so far
        self._places: list[tuple[int, int]] = []  # first and end
        self._away = np.zeros(n_prbs, np.int32)  # records in a row without anybody
        self._always = np.ones(n_prbs, bool)  # never left since the first record
        self._peaks = np.zeros(n_prbs, bool)  # where the last record had one that may be a tone
        self._tone = self._static = False  # whether a tone was seen, and rough UEs that stay put

    def add(self, likelihoods: PrbLikelihoods, k: int, free: NDArray[np.bool_]) -> None:
        """Take in record ``k`` of ``likelihoods``, and which PRBs are free."""
        log_power = likelihoods.log_power[k]
        structure = likelihoods.ue_llr[k] * (likelihoods.not_tone_llr[k] > 0)  # a tone says nothing about UEs
        ended = free | (np.abs(log_power - self._before) > JUMP)
        self._before = log_power
        self._away = np.where(free, self._away + 1, 0)
        self._always &= self._away < AWAY
        peaks = likelihoods.not_tone_llr[k] < TONE
        self._tone |= bool((peaks & self._peaks).any())
        self._peaks = peaks
        count = ~self._counted & (np.abs(self._texture) > np.where(ended, CLEAR, SURE))
        self._counted = (self._counted | count) & ~ended
        rough = count & (self._texture < 0)
        if rough.any():
            for first, end in runs(self._texture < -CLEAR):
                if rough[first:end].any():
                    new = all(min(end, b) - max(first, a) < NEW * (end - first) for a, b in self._places)
                    if new and len(self._places) < PLACES:
                        self._places.append((int(first), int(end)))
                    self._covered[first:end] = True
        self._rough += rough
        self._smooth += count & (self._texture > 0)
        self._texture = np.where(free, np.float32(0), np.where(ended, structure, self._texture + structure))

    def judge(self) -> bool:
        """Renew `rough`; returns whether it has changed."""
        share = self._most * KEPT if self.rough else self._most
        everywhere = np.ones(len(self._rough), bool)
        some = self._share(everywhere) > share
        share_used = self._share(self._rough + self._smooth > 0)
        if self._static:  # until smooth ones are many
            self._static = bool(self._rough.sum() > self._smooth.sum())
        else:
            self._static = share_used > NEARLY_ALL and self._stays_put()
        before, self.rough = self.rough, some or self._static or (share_used > MOST and len(self._places) == PLACES)
        return self.rough != before

    def stays_put(self) -> NDArray[np.bool_]:
        """PRBs that somebody has had since the first record; none where UEs are rough, or move."""
        smooth = self._smooth > 0
        tells = not self.rough and (smooth & self._always).sum() > MOST * smooth.sum()
        return self._always if tells else np.zeros_like(smooth)

    def _stays_put(self) -> bool:
        """Whether a rough transmission has never left since the first record, and another one or a tone is there."""
        elsewhere = self._covered.copy()
        count = 0
        for first, end in runs(self._always):
            count += bool(self._covered[first:end].any())
            elsewhere[first:end] = False
        return count > 0 and count + bool(elsewhere.any()) + self._tone > 1

    def _share(self, where: NDArray[np.bool_]) -> float:
        """The share of rough stays among those on some PRBs; 0 where these are few."""
        # An interferer is rough on some PRBs, rough UEs are so everywhere: only the less rough half of them counts.
        rough, both = self._rough[where], (self._rough + self._smooth)[where]
        half = np.argsort(rough / (both + 1))[: (len(both) + 1) // 2]
        return float(rough[half].sum() / both[half].sum()) if both[half].sum() >= max(len(half), 1) else 0.0


def runs(mask: NDArray[np.bool_]) -> NDArray[np.intp]:
    """First and end of each run of adjacent true values, shape ``(runs, 2)``."""
    return np.flatnonzero(np.diff(mask, prepend=False, append=False)).reshape(-1, 2)


def of_stays(
    there: NDArray[np.bool_], values: Sequence[NDArray[Any]], verdict: Callable[..., NDArray[np.bool_]]
) -> NDArray[np.bool_]:
    """Those of ``there`` in whose stay, records in a row on one PRB, the sums of the values get the verdict.

    All are of shape ``(records, n_prbs)``; ``verdict`` is given the sums of each of ``values``, an item a stay.
    """
    gap = (0, 0), (0, 1)  # between one PRB's records and the next one's
    flat = np.pad(there.T, gap).ravel()
    first, end = runs(flat).T
    sums = (np.cumsum(np.pad(each.T, gap).ravel(), dtype=np.float64) for each in values)
    before = (np.concatenate(([0.0], each)) for each in sums)
    answer = np.zeros_like(flat)
    answer[flat] = np.repeat(verdict(*(each[end] - each[first] for each in before)), end - first)
    return answer.reshape(there.shape[1], -1)[:, :-1].T
