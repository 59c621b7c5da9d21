"""Class of the UEs: smooth, or Gaussian, which is as rough as noise (precoded UEs that `dft_s_ofdm` has not detected).

UEs are Gaussian where rough transmissions move, or where one has never left and another one starts: then the first one
is a UE.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .likelihoods import PrbLikelihoods

CLEAR = 1.0  # nats of `PrbLikelihoods.ue_llr` over an ended dwell that classify it as rough or smooth, and ...
SURE = 10.0  # ... over a dwell that continues
JUMP = 1.4  # step of log power between records, above which another transmission has started
PLACES = 4  # distinct places of rough transmissions; interferers would come back to their PRBs
NEW = 0.5  # largest overlap of a distinct place with an earlier one; wide grants soon cover the carrier
SHARE = 0.15  # of rough dwells, above which roughness identifies no interferer; noise on most PRBs causes some
SHARE_PRECODED = 0.05  # the same where some UEs are precoded: rough dwells are then undetected precoded UEs
MOST = 0.5  # of the dwells on used PRBs: hardly any UE is smooth
# nats of `PrbLikelihoods.not_tone_llr`, in two records in a row; Gaussian samples reach it once in 10^6 PRBs
TONE = -7.5
AWAY = 8  # free records in a row after which the transmission has ended
NEARLY_ALL = 0.75  # of these dwells where rough transmissions are static: an interferer may be on top of a smooth UE
KEPT = 0.5  # hysteresis: roughness is used again below this part of the share


class UeStatistics:
    """Counts rough and smooth dwells, and the places of rough transmissions.

    Args:
        n_prbs: PRBs in a record.
        precoded: whether precoded UEs have been detected.

    Attributes:
        rough: whether the UEs are Gaussian, that is, as rough as noise.
    """

    def __init__(self, n_prbs: int, precoded: bool = False) -> None:
        self.rough = False
        self._most = SHARE_PRECODED if precoded else SHARE
        self._llr = np.zeros(n_prbs, np.float32)  # of a smooth UE, over the current dwell
        self._counted = np.zeros(n_prbs, bool)  # whether the current dwell is counted
        self._rough, self._smooth = np.zeros(n_prbs), np.zeros(n_prbs)
        self._before = np.zeros(n_prbs, np.float32)
        self._covered = np.zeros(n_prbs, bool)  # PRBs of all rough transmissions so far
        self._places: list[tuple[int, int]] = []  # first PRB and end of each
        self._away = np.zeros(n_prbs, np.int32)  # free records in a row
        self._never_left = np.ones(n_prbs, bool)  # since the first record
        self._peaks = np.zeros(n_prbs, bool)  # where the last record may have a tone
        self._tone = self._static = False  # whether a tone, and static rough UEs, have been detected

    def add(self, likelihoods: PrbLikelihoods, k: int, free: NDArray[np.bool_]) -> None:
        """Take in record ``k`` of ``likelihoods``, and which PRBs are free, bool, shape ``(n_prbs,)``."""
        log_power = likelihoods.log_power[k]
        ue_llr = likelihoods.ue_llr[k] * (likelihoods.not_tone_llr[k] > 0)  # a tone is no evidence about UEs
        ended = free | (np.abs(log_power - self._before) > JUMP)
        self._before = log_power
        self._away = np.where(free, self._away + 1, 0)
        self._never_left &= self._away < AWAY
        peaks = likelihoods.not_tone_llr[k] < TONE
        self._tone |= bool((peaks & self._peaks).any())
        self._peaks = peaks
        count = ~self._counted & (np.abs(self._llr) > np.where(ended, CLEAR, SURE))
        self._counted = (self._counted | count) & ~ended
        rough = count & (self._llr < 0)
        if rough.any():
            for first, end in runs(self._llr < -CLEAR):
                if rough[first:end].any():
                    new = all(min(end, b) - max(first, a) < NEW * (end - first) for a, b in self._places)
                    if new and len(self._places) < PLACES:
                        self._places.append((int(first), int(end)))
                    self._covered[first:end] = True
        self._rough += rough
        self._smooth += count & (self._llr > 0)
        self._llr = np.where(free, np.float32(0), np.where(ended, ue_llr, self._llr + ue_llr))

    def judge(self) -> bool:
        """Update `rough`; returns whether it has changed."""
        share = self._most * KEPT if self.rough else self._most
        everywhere = np.ones(len(self._rough), bool)
        some = self._share(everywhere) > share
        share_used = self._share(self._rough + self._smooth > 0)
        if self._static:  # until most dwells are smooth
            self._static = bool(self._rough.sum() > self._smooth.sum())
        else:
            self._static = share_used > NEARLY_ALL and self._static_and_another()
        before, self.rough = self.rough, some or self._static or (share_used > MOST and len(self._places) == PLACES)
        return self.rough != before

    def static_prbs(self) -> NDArray[np.bool_]:
        """PRBs in use since the first record, bool, shape ``(n_prbs,)``; none where UEs are rough, or move."""
        smooth = self._smooth > 0
        known = not self.rough and (smooth & self._never_left).sum() > MOST * smooth.sum()
        return self._never_left if known else np.zeros_like(smooth)

    def _static_and_another(self) -> bool:
        """Whether a rough transmission has never left since the first record, and another one or a tone is present."""
        elsewhere = self._covered.copy()
        count = 0
        for first, end in runs(self._never_left):
            count += bool(self._covered[first:end].any())
            elsewhere[first:end] = False
        return count > 0 and count + bool(elsewhere.any()) + self._tone > 1

    def _share(self, where: NDArray[np.bool_]) -> float:
        """Share of rough dwells among the dwells on the PRBs ``where``; 0 where these are few."""
        # An interferer is rough on some PRBs, Gaussian UEs on all: only the less rough half of the PRBs counts.
        rough, both = self._rough[where], (self._rough + self._smooth)[where]
        half = np.argsort(rough / (both + 1))[: (len(both) + 1) // 2]
        return float(rough[half].sum() / both[half].sum()) if both[half].sum() >= max(len(half), 1) else 0.0


def runs(mask: NDArray[np.bool_]) -> NDArray[np.intp]:
    """First index and end of each run of true values; ``mask`` of shape ``(n,)``, result ``(runs, 2)``."""
    return np.flatnonzero(np.diff(mask, prepend=False, append=False)).reshape(-1, 2)


def select_dwells(
    on: NDArray[np.bool_], values: Sequence[NDArray[Any]], condition: Callable[..., NDArray[np.bool_]]
) -> NDArray[np.bool_]:
    """The cells of ``on`` in dwells, true records in a row on one PRB, that meet a condition.

    Args:
        on: bool, shape ``(records, n_prbs)``.
        values: arrays of the same shape, which are summed over each dwell.
        condition: called with the sums of each of ``values``, shape ``(dwells,)``; returns bool of that shape.

    Returns:
        bool, shape ``(records, n_prbs)``.
    """
    gap = (0, 0), (0, 1)  # between the records of one PRB and the next
    flat = np.pad(on.T, gap).ravel()
    first, end = runs(flat).T
    sums = (np.cumsum(np.pad(each.T, gap).ravel(), dtype=np.float64) for each in values)
    before = (np.concatenate(([0.0], each)) for each in sums)
    answer = np.zeros_like(flat)
    answer[flat] = np.repeat(condition(*(each[end] - each[first] for each in before)), end - first)
    return answer.reshape(on.shape[1], -1)[:, :-1].T
