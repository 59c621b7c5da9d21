"""Dwell-time outlier test: an interferer keeps one level for longer than UEs do, whatever its waveform.

For each of several levels, the *dwell* of a PRB began when its power was last below the level; its length is the number
of records that were not far above the level either.  A UE's dwell ends with its grant, or when its fading channel
leaves the level.  The distribution of UEs' dwell times is learned from dwells that have ended.  A dwell that is an
outlier of this distribution is an interferer's.  Where no UE ever leaves or fades, no dwell ends, and none is an
outlier.

Power above the level does not end a dwell: a UE may transmit on top.  Adjacent PRBs are tested together, because a
fading channel seldom keeps several of them at one level.
"""

import math
from collections import deque
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .likelihoods import Array, PrbLikelihoods, borders

LEVELS = np.arange(0.7, 9.5, 0.46, np.float32)[:, None]  # log power re noise floor: 3 to 41 dB in steps of 2 dB
BAND = 1.4  # log power above the level that is still taken for the level
WIDTHS = (1, 4)  # adjacent PRBs tested together; powers of 2
SEEN = 1 / 3  # of a dwell's records are on its level, at least: a fading UE returns to a low level now and then
STEADY = 6  # records on the level in a row: a fading UE crosses the level, but does not keep it
SHORTEST = 2  # records; a shorter dwell may be a spike of the noise
KEPT = 400  # ended dwells from which UEs' dwell times are estimated
FEWEST = 8  # ended dwells, at least
NEAR = 0.8  # of the longest dwell: nearly as long
BODY = 0.5  # share of the dwells below the tail of the distribution
CHANCE = 1e-4  # false alarm probability of the test
FREE = 0.3  # log power of a free PRB, at most, below that of the weakest UE
MOVING = 0.5  # of the used PRBs have been free again, at least
SHORTEST_TAIL = 0.25  # of the body: the same UE may return at once
EDGE = 1 / 3  # of the records on the level show a step of power at the edge of an interferer's PRBs, and ...
WITHIN = 0.9  # ... of the PRBs between two such edges have not been free for as long
LASTING = 0.25  # of the records of an outlier have such edges


@dataclass(frozen=True, slots=True)
class _Dwells:
    """The longest dwell of each record, width and PRB; arrays of shape ``(records, widths, n_prbs)``.

    Attributes:
        length: in records.
        first: its first record.
        on_level: whether the power was on the level, without a UE on top.
        smooth: whether its roughness is that of a UE.
        left, right: whether it mostly has a step of power at that side of the PRB.
    """

    length: Array
    first: NDArray[np.int32]
    on_level: NDArray[np.bool_]
    smooth: NDArray[np.bool_]
    left: NDArray[np.bool_]
    right: NDArray[np.bool_]

    def arrays(self) -> tuple[NDArray[Any], ...]:
        return self.length, self.first, self.on_level, self.smooth, self.left, self.right


class DwellTimes:
    """Tracks the dwells of each PRB.

    Args:
        n_prbs: PRBs in a record.
        settle: whether to buffer records for `smooth`.

    Attributes:
        longest: threshold of the test in records, for each of `WIDTHS`, shape ``(widths,)``.
    """

    def __init__(self, n_prbs: int, settle: bool = True) -> None:
        self._widths = [width for width in WIDTHS if width <= n_prbs]
        shape = len(LEVELS), n_prbs
        self._first = np.zeros(shape, np.int32)
        # Of the dwell on each level: the number of its records on the level, and over these records the LLR of a UE and
        # the number with a step of power before, and after, the PRB.
        self._dwell = np.zeros((4, *shape), np.float32)
        self._before = np.zeros(n_prbs, np.float32)
        self._last = np.zeros((1, len(self._widths), n_prbs), np.float32)
        self._last_own = np.zeros((1, n_prbs), bool)  # whether that dwell looked like a UE's
        self._record = 0
        self._ended = [_Ended() for _ in self._widths]
        self._counted = np.ones(n_prbs, bool)  # PRBs with dwells that count as UEs'
        self._used, self._left = np.zeros(n_prbs, bool), np.zeros(n_prbs, bool)
        self.longest = np.full(len(self._widths), np.inf)
        self._settle = settle
        self._buffer: deque[tuple[NDArray[Any], ...]] = deque()  # `_Dwells.arrays` of each record

    def add(self, likelihoods: PrbLikelihoods, known: NDArray[np.bool_], rough: bool) -> NDArray[np.bool_]:
        """Take in records; returns the filtered answer, bool, shape ``(records, n_prbs)``.

        Args:
            likelihoods: of the records.
            known: interferers found by other methods, bool, shape ``(records, n_prbs)``; their dwells are not UEs'.
            rough: whether UEs are as rough as noise.  Otherwise rough dwells are left to `occupancy_hmm`, which places
                the edges better.
        """
        log_power = likelihoods.log_power
        dwells = np.empty((len(log_power), *self._dwell.shape), np.float32)
        firsts = np.empty((len(log_power), *self._first.shape), np.int32)
        on_level = (log_power[:, None] < LEVELS + BAND) & (log_power[:, None] > LEVELS)
        border = borders(log_power)
        values = np.stack([np.ones_like(log_power), likelihoods.ue_llr, border[:, :-1], border[:, 1:]], axis=1)
        more = on_level[:, None] * values[:, :, None]
        for k, power in enumerate(log_power):
            above = np.maximum(power, self._before) > LEVELS  # one record below may be a dip of the noise
            self._before = power
            self._dwell = dwells[k] = (self._dwell + more[k]) * above
            began = on_level[k] & (self._dwell[0] == 1)
            self._first = firsts[k] = np.where(began, self._record + k, self._first)
        seen = self._longest_dwells(dwells, firsts, on_level)
        self._record += len(log_power)
        if self._settle:
            self._buffer.extend(zip(*seen.arrays(), strict=True))
        long: NDArray[np.bool_] = self._outliers(seen, rough).any(axis=1)
        self._count_ended(seen.length, seen.smooth.any(axis=1) | rough, log_power < FREE, known | long)
        return long

    def exclude(self, interfered: NDArray[np.bool_]) -> None:
        """Do not count dwells on these PRBs, bool, shape ``(n_prbs,)``, and next to them: an interferer ends them."""
        reach = max(self._widths) - 1
        near = np.convolve(interfered, np.ones(2 * reach + 1))[reach : reach + len(interfered)]
        self._counted = near == 0
        self._update_threshold()

    def smooth(self, count: int, rough: bool) -> NDArray[np.bool_]:
        """Where an interferer is, from the start of its dwell to the last record on its level.

        For the first ``count`` buffered records, bool, shape ``(count, n_prbs)``.
        """
        seen = _Dwells(*(np.array(each) for each in zip(*self._buffer, strict=True)))
        long = self._outliers(seen, rough)
        steady = in_a_row(seen.on_level, STEADY)
        starts = np.where(long & steady, seen.first, self._record).min(axis=1)
        starts = np.minimum.accumulate(starts[::-1], axis=0)[::-1]
        return np.asarray(starts <= np.arange(self._record - len(starts), self._record)[:, None])[:count]

    def drop_records(self, count: int) -> None:
        """Drop the first ``count`` buffered records: their smoothed answers are final."""
        for _ in range(count):
            self._buffer.popleft()

    def _longest_dwells(self, dwells: Array, firsts: NDArray[np.int32], on_level: NDArray[np.bool_]) -> _Dwells:
        """Select the level with the longest dwell for each record, width and PRB."""
        count, _, n_prbs = firsts.shape
        ages = np.arange(self._record, self._record + count)[:, None, None] - firsts
        lengths = dwells[:, 0] * (dwells[:, 0] > SEEN * ages)
        spread = np.stack([longest_run(shortest_of_run(lengths, width), width) for width in self._widths], axis=1)
        length = spread.max(axis=2)
        # Of levels with dwells of nearly the same length, the highest contains the least of earlier transmissions.
        best = len(LEVELS) - 1 - (spread[:, :, ::-1] >= NEAR * length[:, :, None]).argmax(axis=2)
        record, prb = np.arange(count)[:, None, None], np.arange(n_prbs)
        on, ue_llr, left, right = np.moveaxis(dwells[record, :, best, prb], -1, 0)
        first, at_level = firsts[record, best, prb], on_level[record, best, prb]
        return _Dwells(length, first, at_level, ue_llr > 0, left > EDGE * on, right > EDGE * on)

    def _count_ended(
        self, lengths: Array, own: NDArray[np.bool_], free: NDArray[np.bool_], interfered: NDArray[np.bool_]
    ) -> None:
        """Count the dwells that ended; those of ``own``, which look like a UE's, show whether UEs move."""
        lengths = np.concatenate([self._last, lengths * ~interfered[:, None]])
        own = np.concatenate([self._last_own, own])
        self._last, self._last_own = lengths[-1:], own[-1:]
        whole = lengths.max(axis=1)
        ended = (whole[1:] < whole[:-1] / 2) & ~interfered
        self._used |= ((whole >= STEADY) & own).any(axis=0)
        self._left |= (ended & free & own[:-1]).any(axis=0)
        if not ended.any():
            return
        for k in np.flatnonzero(ended.any(axis=1)):
            for width, dwells in enumerate(lengths[k]):
                # Dwells of one length that end together are one UE's.
                prbs = np.flatnonzero(ended[k])
                several, places = np.unique(dwells[prbs], return_index=True)
                some = several >= SHORTEST
                self._ended[width].add(several[some], prbs[places[some]])
        self._update_threshold()

    def _update_threshold(self) -> None:
        if self._left[self._used].sum() < MOVING * self._used.sum():
            self.longest[:] = np.inf  # static transmissions are UEs, too
            return
        found = [longest(ended.on(self._counted)) for ended in self._ended]
        # A dwell of several PRBs is also a dwell of each of them.
        self.longest = np.array([max([each] + [m for m in found[k:] if m < math.inf]) for k, each in enumerate(found)])

    def _outliers(self, seen: _Dwells, rough: bool) -> NDArray[np.bool_]:
        """Dwells above the threshold that have an interferer's edges, shape ``(records, widths, n_prbs)``."""
        longest = self.longest[:, None]
        own = rough | seen.smooth
        long: NDArray[np.bool_] = (seen.length > longest) & own
        if not long.any():
            return long
        # A PRB that was not free for as long is within the edges, too, although a UE was on top most of the time.
        count = len(seen.first)
        ages = np.arange(self._record - count + 1, self._record + 1)[:, None, None] - seen.first
        old = (ages > longest) & (seen.length > 0) & own
        has = old.any(axis=1)
        left, right = (old & seen.left).any(axis=1), (old & seen.right).any(axis=1)
        found = long.any(axis=1)
        sure = found & bounded(has, left, right)
        sure &= sure.sum(axis=0) > LASTING * found.sum(axis=0)
        return np.asarray(long & mostly_sure(sure, found)[:, None])


class _Ended:
    """Lengths and PRBs of the last `KEPT` dwells that ended."""

    def __init__(self) -> None:
        self._lengths, self._prbs = np.zeros(KEPT, np.float32), np.zeros(KEPT, np.intp)
        self._count = 0

    def add(self, lengths: Array, prbs: NDArray[np.intp]) -> None:
        """Add dwells in the order of their end; lengths in records, both of shape ``(dwells,)``."""
        places = np.arange(self._count, self._count + len(lengths)) % KEPT
        self._lengths[places], self._prbs[places] = lengths, prbs
        self._count += len(lengths)

    def on(self, prbs: NDArray[np.bool_]) -> Array:
        """The lengths of the dwells on ``prbs``, bool, shape ``(n_prbs,)``."""
        known = slice(min(self._count, KEPT))
        lengths: Array = self._lengths[known][prbs[self._prbs[known]]]
        return lengths


def mostly_sure(sure: NDArray[np.bool_], found: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Runs of adjacent PRBs in ``found`` of which more than half is in ``sure``; all bool, ``(records, n_prbs)``.

    Where a static UE covers a part of an interferer's PRBs, that part has no edge of the interferer's.
    """
    begins = found & ~np.pad(found, ((0, 0), (1, 0)))[:, :-1]
    run = np.cumsum(begins).reshape(found.shape)[found]
    share = np.bincount(run, weights=sure[found]) / np.maximum(np.bincount(run), 1)
    answer = np.zeros_like(found)
    answer[found] = (share > 0.5)[run]
    return answer


def bounded(old: NDArray[np.bool_], left: NDArray[np.bool_], right: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Where at least `WITHIN` of the PRBs between the nearest edges on both sides, or the carrier's, have old dwells.

    An interferer keeps its PRBs.  A scheduler that packs UEs from one end of the carrier also keeps some PRBs in use
    all the time, but these have no fixed edge to the other PRBs.

    Args:
        old: PRBs that have not been free for as long as an outlier lasts, bool, shape ``(records, n_prbs)``.
        left, right: where such a dwell has a step of power before, or after, the PRB, same shape.

    Returns:
        bool, same shape.
    """
    n_prbs = old.shape[-1]
    place = np.arange(n_prbs)
    first = np.maximum.accumulate(np.where(left, place, 0), axis=1)
    end = np.minimum.accumulate(np.where(right, place + 1, n_prbs)[:, ::-1], axis=1)[:, ::-1]
    count = np.cumsum(np.pad(old, ((0, 0), (1, 0))), axis=1)
    within: NDArray[np.intp] = np.take_along_axis(count, end, 1) - np.take_along_axis(count, first, 1)
    return np.asarray(within >= WITHIN * (end - first))


def longest(ended: Array) -> float:
    """Dwell time in records that UEs exceed with probability `CHANCE`; infinite with fewer than `FEWEST` dwells.

    The tail is modelled as exponential.  Its mean is estimated from ``n`` dwells and therefore uncertain, so that the
    tail probability of the next dwell is ``(1 + t / (n * mean)) ** -n``.

    Args:
        ended: lengths of dwells in records, shape ``(dwells,)``.
    """
    if len(ended) < FEWEST:
        return math.inf
    long = np.sort(ended)[int(BODY * len(ended)) :]
    # The mean of the square root is robust to a few long dwells of interferers; 4 / pi holds for an exponential tail.
    excess = max(float(np.sqrt(long - long[0] + 0.5).mean()) ** 2 * 4 / math.pi, SHORTEST_TAIL * long[0])
    n = len(long)
    return float(long[0] + n * excess * (CHANCE ** (-1 / n) - 1))


def in_a_row(values: NDArray[np.bool_], count: int) -> NDArray[np.bool_]:
    """Where ``values``, shape ``(records, ...)``, are true in each of the last ``count`` records; same shape."""
    answer = values.copy()
    for past in range(1, count):
        answer[past:] &= values[:-past]
    return answer


def shortest_of_run(lengths: Array, width: int) -> Array:
    """The shortest dwell of each ``width`` adjacent PRBs, in records; ``lengths`` of shape ``(..., n_prbs)``.

    The result is of shape ``(..., n_prbs - width + 1)``.
    """
    while width > 1:
        width //= 2
        lengths = np.minimum(lengths[..., :-width], lengths[..., width:])
    return lengths


def longest_run(common: Array, width: int) -> Array:
    """For each PRB the longest dwell of the runs of ``width`` PRBs that contain it.

    Args:
        common: of `shortest_of_run`, shape ``(..., n_prbs - width + 1)``.

    Returns:
        In records, shape ``(..., n_prbs)``.
    """
    if width == 1:
        return common
    before, after = width - 1, common.shape[-1] + width - 1
    runs = np.zeros((*common.shape[:-1], after + before), common.dtype)
    runs[..., before:after] = common
    while width > 1:
        width //= 2
        runs = np.maximum(runs[..., :-width], runs[..., width:])
    return runs
