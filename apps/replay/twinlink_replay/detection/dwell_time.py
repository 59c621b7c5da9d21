"""Interferers told by their stay: they keep one level for longer than UEs do here, whatever they look like.

For each of some levels, a PRB's *stay* is the time since its power was last below the level; its length is the number
of records that were not far above it either.  A UE's stay ends when its grant does, or when its fading channel leaves
the level.  How long UEs' stays last is learned from those that have ended; one that goes on for longer than these
make likely does not come from a UE.  Where no UE ever leaves or fades no stay ends, and none is too long.

More power than the level does not end a stay: somebody else may transmit on top.  Adjacent PRBs are judged together,
since a fading channel seldom holds several of them at once.
"""

import math
from collections import deque
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .likelihoods import Array, PrbLikelihoods, borders

LEVELS = np.arange(0.7, 9.5, 0.46, np.float32)[:, None]  # log power against the floor: 3 to 41 dB in steps of 2 dB
BAND = 1.4  # log power above the level that still is the level
WIDTHS = (1, 4)  # adjacent PRBs judged together; powers of 2
SEEN = 1 / 3  # of a stay that its level has to be seen: a fading UE comes back to a low level now and then
STEADY = 6  # records on the level in a row: a fading UE passes it, but does not dwell on it
SHORTEST = 2  # records: anything less may be a spike of the noise
STAYS = 400  # the last so many tell how long UEs' stays last
FEWEST = 8  # stays to judge by
NEAR = 0.8  # of the longest stay: nearly as long
BODY = 0.5  # share of the stays that says nothing about the longest ones
CHANCE = 1e-4  # that a UE's stay lasts as long as one that is called interference
FREE = 0.3  # log power: nobody is there any more, not even a UE that is as weak as the lowest level
MOVING = 0.5  # of the PRBs that were used have been free again
SHORTEST_TAIL = 0.25  # of the body: the same UE may come back at once
EDGE = 1 / 3  # of the records on the level that show a step of power where an interferer ends in frequency, and ...
WITHIN = 0.9  # ... of the PRBs between two such edges have not been free for as long
LASTING = 0.25  # of the records of a stay that is too long have such edges


@dataclass(frozen=True, slots=True)
class _Seen:
    """Of each record, width and PRB, shape ``(records, widths, n_prbs)``: the longest stay and its first record.

    ``there``: whether the power was on the level, nobody on top.  ``smooth``: whether the stay looked like a UE's.
    ``left``, ``right``: whether it mostly has a step of power at that side of the PRB.
    """

    length: Array
    first: NDArray[np.int32]
    there: NDArray[np.bool_]
    smooth: NDArray[np.bool_]
    left: NDArray[np.bool_]
    right: NDArray[np.bool_]

    def arrays(self) -> tuple[NDArray[Any], ...]:
        """In the order of the fields."""
        return self.length, self.first, self.there, self.smooth, self.left, self.right


class DwellTimes:
    """Follows the power of each PRB.

    Args:
        n_prbs: PRBs in a record.

    Attributes:
        longest: of UEs' stays here, in records, for each of `WIDTHS`.
    """

    def __init__(self, n_prbs: int) -> None:
        self._widths = [width for width in WIDTHS if width <= n_prbs]
        shape = len(LEVELS), n_prbs
        self._first = np.zeros(shape, np.int32)
        # Of the stay on each level, summed over its records: how many are on the level; of these, what their texture
        # says for a UE, and how many have a step before, and after, the PRB.
        self._stay = np.zeros((4, *shape), np.float32)
        self._before = np.zeros(n_prbs, np.float32)
        self._last = np.zeros((1, len(self._widths), n_prbs), np.float32)
        self._last_own = np.zeros((1, n_prbs), bool)  # whether that looked like a UE's
        self._record = 0
        self._ended = [_Ended() for _ in self._widths]
        self._others = np.ones(n_prbs, bool)
        self._used, self._left = np.zeros(n_prbs, bool), np.zeros(n_prbs, bool)
        self.longest = np.full(len(self._widths), np.inf)
        self._waiting: deque[tuple[NDArray[Any], ...]] = deque()  # what was seen in each record

    def add(self, likelihoods: PrbLikelihoods, known: NDArray[np.bool_], rough: bool) -> NDArray[np.bool_]:
        """Take in records; returns where an interferer is, from the past alone.

        Args:
            likelihoods: of the records.
            known: where an interferer is known to be; its stays say nothing about UEs'.
            rough: whether UEs are.  Where they are not, rough stays are left to `occupancy_hmm`, which puts edges
                better.
        """
        log_power = likelihoods.log_power
        stays = np.empty((len(log_power), *self._stay.shape), np.float32)
        firsts = np.empty((len(log_power), *self._first.shape), np.int32)
        on_level = (log_power[:, None] < LEVELS + BAND) & (log_power[:, None] > LEVELS)
        border = borders(log_power)
        says = np.stack([np.ones_like(log_power), likelihoods.ue_llr, border[:, :-1], border[:, 1:]], axis=1)
        more = on_level[:, None] * says[:, :, None]
        for k, power in enumerate(log_power):
            above = np.maximum(power, self._before) > LEVELS  # below once may be a dip of the noise
            self._before = power
            self._stay = stays[k] = (self._stay + more[k]) * above
            began = on_level[k] & (self._stay[0] == 1)
            self._first = firsts[k] = np.where(began, self._record + k, self._first)
        seen = self._judge(stays, firsts, on_level)
        self._record += len(log_power)
        self._waiting.extend(zip(*seen.arrays(), strict=True))
        long: NDArray[np.bool_] = self._too_long(seen, rough).any(axis=1)
        self._census(seen.length, seen.smooth.any(axis=1) | rough, log_power < FREE, known | long)
        return long

    def exclude(self, interfered: NDArray[np.bool_]) -> None:
        """Stays on these PRBs, shape ``(n_prbs,)``, and next to them say nothing about UEs: somebody else ends them."""
        reach = max(self._widths) - 1
        near = np.convolve(interfered, np.ones(2 * reach + 1))[reach : reach + len(interfered)]
        self._others = near == 0
        self._judge_ended()

    def smooth(self, count: int, rough: bool) -> NDArray[np.bool_]:
        """Where an interferer is, from where its stay began to where it was last seen.

        For the first ``count`` records since `drop_records`.
        """
        seen = _Seen(*(np.array(each) for each in zip(*self._waiting, strict=True)))
        long = self._too_long(seen, rough)
        there = in_a_row(seen.there, STEADY)
        starts = np.where(long & there, seen.first, self._record).min(axis=1)
        starts = np.minimum.accumulate(starts[::-1], axis=0)[::-1]
        return np.asarray(starts <= np.arange(self._record - len(starts), self._record)[:, None])[:count]

    def drop_records(self, count: int) -> None:
        """The first ``count`` records are settled."""
        for _ in range(count):
            self._waiting.popleft()

    def _judge(self, stays: Array, firsts: NDArray[np.int32], on_level: NDArray[np.bool_]) -> _Seen:
        """Pick a level for each record, width and PRB, given what is known of each level."""
        count, _, n_prbs = firsts.shape
        ages = np.arange(self._record, self._record + count)[:, None, None] - firsts
        lengths = stays[:, 0] * (stays[:, 0] > SEEN * ages)
        spread = np.stack([somewhere(in_common(lengths, width), width) for width in self._widths], axis=1)
        length = spread.max(axis=2)
        # Of levels with nearly as long stays the highest has the least of who was there before.
        best = len(LEVELS) - 1 - (spread[:, :, ::-1] >= NEAR * length[:, :, None]).argmax(axis=2)
        record, prb = np.arange(count)[:, None, None], np.arange(n_prbs)
        on, structure, left, right = np.moveaxis(stays[record, :, best, prb], -1, 0)
        first, there = firsts[record, best, prb], on_level[record, best, prb]
        return _Seen(length, first, there, structure > 0, left > EDGE * on, right > EDGE * on)

    def _census(
        self, lengths: Array, own: NDArray[np.bool_], free: NDArray[np.bool_], interfered: NDArray[np.bool_]
    ) -> None:
        """Count stays that ended; `own` ones, which look like a UE's, tell whether UEs move."""
        lengths = np.concatenate([self._last, lengths * ~interfered[:, None]])
        own = np.concatenate([self._last_own, own])
        self._last, self._last_own = lengths[-1:], own[-1:]
        whole = lengths.max(axis=1)
        ended = (whole[1:] < whole[:-1] / 2) & ~interfered
        self._used |= ((whole >= STEADY) & own).any(axis=0)
        self._left |= (ended & free & own[:-1]).any(axis=0)
        if not ended.any():
            return  # nothing new
        for k in np.flatnonzero(ended.any(axis=1)):
            for width, stays in enumerate(lengths[k]):
                # PRBs whose stays end together are one UE's.
                prbs = np.flatnonzero(ended[k])
                several, places = np.unique(stays[prbs], return_index=True)
                some = several >= SHORTEST
                self._ended[width].add(several[some], prbs[places[some]])
        self._judge_ended()

    def _judge_ended(self) -> None:
        if self._left[self._used].sum() < MOVING * self._used.sum():
            self.longest[:] = np.inf  # those that stay put are UEs too
            return
        found = [longest(ended.on(self._others)) for ended in self._ended]
        # What several PRBs keep up each of them does.
        self.longest = np.array([max([each] + [m for m in found[k:] if m < math.inf]) for k, each in enumerate(found)])

    def _too_long(self, seen: _Seen, rough: bool) -> NDArray[np.bool_]:
        """Of each record, width and PRB, given those up to the last one."""
        longest = self.longest[:, None]
        own = rough | seen.smooth
        long: NDArray[np.bool_] = (seen.length > longest) & own
        if not long.any():
            return long
        # A PRB that was never free for so long is within the edges too, though somebody was on top most of the time.
        count = len(seen.first)
        ages = np.arange(self._record - count + 1, self._record + 1)[:, None, None] - seen.first
        old = (ages > longest) & (seen.length > 0) & own
        has = old.any(axis=1)
        left, right = (old & seen.left).any(axis=1), (old & seen.right).any(axis=1)
        there = long.any(axis=1)
        sure = there & bounded(has, left, right)
        sure &= sure.sum(axis=0) > LASTING * there.sum(axis=0)
        return np.asarray(long & half(sure, there)[:, None])


class _Ended:
    """The last `STAYS` stays that have ended: how long they were, and on which PRB."""

    def __init__(self) -> None:
        self._lengths, self._prbs = np.zeros(STAYS, np.float32), np.zeros(STAYS, np.intp)
        self._count = 0

    def add(self, lengths: Array, prbs: NDArray[np.intp]) -> None:
        """In the order of their end."""
        places = np.arange(self._count, self._count + len(lengths)) % STAYS
        self._lengths[places], self._prbs[places] = lengths, prbs
        self._count += len(lengths)

    def on(self, there: NDArray[np.bool_]) -> Array:
        """The lengths of those on the PRBs ``there``, shape ``(n_prbs,)``."""
        known = slice(min(self._count, STAYS))
        lengths: Array = self._lengths[known][there[self._prbs[known]]]
        return lengths


def half(sure: NDArray[np.bool_], there: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Those runs of adjacent PRBs ``there``, shape ``(records, n_prbs)``, of which more than half is ``sure``.

    Where a UE that never moves covers a part of an interferer's PRBs, that part has no edge of the interferer's.
    """
    begins = there & ~np.pad(there, ((0, 0), (1, 0)))[:, :-1]
    run = np.cumsum(begins).reshape(there.shape)[there]
    share = np.bincount(run, weights=sure[there]) / np.maximum(np.bincount(run), 1)
    answer = np.zeros_like(there)
    answer[there] = (share > 0.5)[run]
    return answer


def bounded(old: NDArray[np.bool_], left: NDArray[np.bool_], right: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Where the nearest edges on both sides, or the carrier's, have hardly anything but old stays between them.

    An interferer keeps its place.  UEs that are put one beside the other from the carrier's end on, anew every time,
    leave some PRBs always in use too, but those of them that have just not been free blend into those that have.

    Args:
        old: where somebody has been for too long, shape ``(records, n_prbs)``.
        left, right: where such a stay ends with a step of power before, or after, the PRB.
    """
    n_prbs = old.shape[-1]
    place = np.arange(n_prbs)
    first = np.maximum.accumulate(np.where(left, place, 0), axis=1)
    end = np.minimum.accumulate(np.where(right, place + 1, n_prbs)[:, ::-1], axis=1)[:, ::-1]
    count = np.cumsum(np.pad(old, ((0, 0), (1, 0))), axis=1)
    within: NDArray[np.intp] = np.take_along_axis(count, end, 1) - np.take_along_axis(count, first, 1)
    return np.asarray(within >= WITHIN * (end - first))


def longest(ended: Array) -> float:
    """What UEs' stays do not exceed, given some that have ended; infinite if these are too few.

    The longer ones are taken to go on exponentially.  Their mean, estimated from ``n`` stays, is not certain: that
    makes the tail of the next one ``(1 + t / (n * mean)) ** -n``.
    """
    if len(ended) < FEWEST:
        return math.inf
    long = np.sort(ended)[int(BODY * len(ended)) :]
    # The mean of the root hardly heeds the few long stays of interferers; 4 / pi: if exponentially distributed.
    excess = max(float(np.sqrt(long - long[0] + 0.5).mean()) ** 2 * 4 / math.pi, SHORTEST_TAIL * long[0])
    n = len(long)
    return float(long[0] + n * excess * (CHANCE ** (-1 / n) - 1))


def in_a_row(there: NDArray[np.bool_], count: int) -> NDArray[np.bool_]:
    """Where it was so in each of the last ``count`` records."""
    answer = there.copy()
    for past in range(1, count):
        answer[past:] &= there[:-past]
    return answer


def in_common(lengths: Array, width: int) -> Array:
    """The shortest of ``width`` adjacent PRBs' stays, shape ``(..., n_prbs - width + 1)``."""
    while width > 1:
        width //= 2
        lengths = np.minimum(lengths[..., :-width], lengths[..., width:])
    return lengths


def somewhere(common: Array, width: int) -> Array:
    """For each PRB the longest of the runs of ``width`` PRBs that contain it."""
    if width == 1:
        return common
    before, after = width - 1, common.shape[-1] + width - 1
    runs = np.zeros((*common.shape[:-1], after + before), common.dtype)
    runs[..., before:after] = common
    while width > 1:
        width //= 2
        runs = np.maximum(runs[..., :-width], runs[..., width:])
    return runs
