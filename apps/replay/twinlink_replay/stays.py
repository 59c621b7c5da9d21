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

import numpy as np
from numpy.typing import NDArray

from .evidence import Array, Evidence, borders

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
    """Of each width and PRB in a record, shape ``(widths, n_prbs)``: the longest stay and its first record.

    ``there``: whether the power was on the level, nobody on top.  ``smooth``: whether the stay looked like a UE's.
    ``left``, ``right``: whether it mostly has a step of power at that side of the PRB.
    """

    length: Array
    first: NDArray[np.int32]
    there: NDArray[np.bool_]
    smooth: NDArray[np.bool_]
    left: NDArray[np.bool_]
    right: NDArray[np.bool_]


class Stays:
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
        self._length = np.zeros(shape, np.float32)
        self._structure = np.zeros(shape, np.float32)  # summed over the stay
        self._steps = np.zeros((2, *shape), np.float32)  # records on the level with a step before, and after, the PRB
        self._before = np.zeros(n_prbs, np.float32)
        self._last = np.zeros((1, len(self._widths), n_prbs), np.float32)
        self._record = 0
        self._ended: list[deque[tuple[float, int]]] = [deque(maxlen=STAYS) for _ in self._widths]  # length, PRB
        self._others = np.ones(n_prbs, bool)
        self._used, self._left = np.zeros(n_prbs, bool), np.zeros(n_prbs, bool)
        self.longest = np.full(len(self._widths), np.inf)
        self._waiting: deque[_Seen] = deque()

    def add(self, evidence: Evidence, known: NDArray[np.bool_], rough: bool) -> NDArray[np.bool_]:
        """Take in records; returns where an interferer is, from the past alone.

        Args:
            evidence: of the records.
            known: where an interferer is known to be; its stays say nothing about UEs'.
            rough: whether UEs are.  Where they are not, rough stays are left to `texture`, which puts edges better.
        """
        log_power = evidence.log_power
        count = len(log_power)
        lengths = np.empty((count, *self._length.shape), np.float32)
        firsts = np.empty((count, *self._first.shape), np.int32)
        on_level = (log_power[:, None] < LEVELS + BAND) & (log_power[:, None] > LEVELS)
        smooth = np.empty(firsts.shape, bool)
        structure = on_level * evidence.structure[:, None]
        border = borders(log_power)
        steps = on_level[:, None] & np.stack([border[:, :-1], border[:, 1:]], axis=1)[:, :, None]
        edges = np.empty(steps.shape, bool)
        for k, power in enumerate(log_power):
            above = np.maximum(power, self._before) > LEVELS  # below once may be a dip of the noise
            self._before = power
            self._length = (self._length + on_level[k]) * above
            self._structure = (self._structure + structure[k]) * above
            smooth[k] = self._structure > 0
            self._steps = (self._steps + steps[k]) * above
            edges[k] = self._steps > EDGE * self._length
            began = on_level[k] & (self._length == 1)
            self._first = firsts[k] = np.where(began, self._record + k, self._first)
            lengths[k] = self._length * (self._length > SEEN * (self._record + k - self._first))
        self._record += count
        seen = self._judge(lengths, firsts, on_level, smooth, edges)
        self._waiting.extend(seen)
        long: NDArray[np.bool_] = self._too_long(seen, rough).any(axis=1)
        self._census(np.array([each.length for each in seen]), log_power < FREE, known | long)
        return long

    def leave_out(self, interfered: NDArray[np.bool_]) -> None:
        """Stays on these PRBs, shape ``(n_prbs,)``, and next to them say nothing about UEs: somebody else ends them."""
        reach = max(self._widths) - 1
        near = np.convolve(interfered, np.ones(2 * reach + 1))[reach : reach + len(interfered)]
        self._others = near == 0
        self._judge_ended()

    def look_back(self, rough: bool) -> NDArray[np.bool_]:
        """Where an interferer is, from where its stay began to where it was last seen.

        For all records since `let_go`.
        """
        seen = list(self._waiting)
        long = self._too_long(seen, rough)
        there = in_a_row(np.array([each.there for each in seen]), STEADY)
        first = np.array([each.first for each in seen])
        starts = np.where(long & there, first, self._record).min(axis=1)
        starts = np.minimum.accumulate(starts[::-1], axis=0)[::-1]
        return np.asarray(starts <= np.arange(self._record - len(seen), self._record)[:, None])

    def let_go(self, count: int) -> None:
        """The first ``count`` records are settled."""
        for _ in range(count):
            self._waiting.popleft()

    def _judge(
        self,
        lengths: Array,
        firsts: NDArray[np.int32],
        there: NDArray[np.bool_],
        smooth: NDArray[np.bool_],
        edges: NDArray[np.bool_],
    ) -> list[_Seen]:
        shape = len(firsts), len(self._widths), firsts.shape[-1]
        length, first = np.empty(shape, np.float32), np.empty(shape, np.int32)
        flags = np.stack([there, smooth, edges[:, 0], edges[:, 1]])
        best_flags = np.empty((4, *shape), bool)
        for k, width in enumerate(self._widths):
            spread = somewhere(in_common(lengths, width), width)
            stays = spread.max(axis=1)
            length[:, k] = stays
            # Of levels with nearly as long stays the highest has the least of who was there before.
            best = len(LEVELS) - 1 - (spread[:, ::-1] >= NEAR * stays[:, None]).argmax(axis=1)[:, None]
            first[:, k] = np.take_along_axis(firsts, best, 1)[:, 0]
            best_flags[:, :, k] = np.take_along_axis(flags, best[None], 2)[:, :, 0]
        return [_Seen(*each) for each in zip(length, first, *best_flags, strict=True)]

    def _census(self, lengths: Array, free: NDArray[np.bool_], interfered: NDArray[np.bool_]) -> None:
        lengths = np.concatenate([self._last, lengths * ~interfered[:, None]])
        self._last = lengths[-1:]
        whole = lengths.max(axis=1)
        ended = (whole[1:] < whole[:-1] / 2) & ~interfered
        self._used |= (whole >= STEADY).any(axis=0)
        self._left |= (ended & free).any(axis=0)
        if not ended.any():
            return  # nothing new
        for k in np.flatnonzero(ended.any(axis=1)):
            for width, stays in enumerate(lengths[k]):
                # PRBs whose stays end together are one UE's.
                prbs = np.flatnonzero(ended[k])
                several, places = np.unique(stays[prbs], return_index=True)
                self._ended[width].extend(
                    (n, int(prbs[p])) for n, p in zip(several, places, strict=True) if n >= SHORTEST
                )
        self._judge_ended()

    def _judge_ended(self) -> None:
        used = self._used & self._others
        if self._left[used].sum() < MOVING * used.sum():
            self.longest[:] = np.inf  # those that stay put are UEs too
            return
        found = [longest(np.array([n for n, prb in each if self._others[prb]])) for each in self._ended]
        # What several PRBs keep up each of them does.
        self.longest = np.array([max([each] + [m for m in found[k:] if m < math.inf]) for k, each in enumerate(found)])

    def _too_long(self, seen: list[_Seen], rough: bool) -> NDArray[np.bool_]:
        longest = self.longest[:, None]
        length = np.array([each.length for each in seen])
        own = rough | np.array([each.smooth for each in seen])
        long: NDArray[np.bool_] = (length > longest) & own
        if not long.any():
            return long
        # A PRB that was never free for so long is within the edges too, though somebody was on top most of the time.
        ages = np.arange(1 - len(seen), 1)[:, None, None] + self._record - np.array([each.first for each in seen])
        old = (ages > longest) & (length > 0) & own
        has = old.any(axis=1)
        left = (old & np.array([each.left for each in seen])).any(axis=1)
        right = (old & np.array([each.right for each in seen])).any(axis=1)
        there = long.any(axis=1)
        sure = there & bounded(has, left, right)
        sure &= sure.sum(axis=0) > LASTING * there.sum(axis=0)
        return np.asarray(long & half(sure, there)[:, None])


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
    """What UEs' stays do not exceed, given some that have ended; infinite if these are too few."""
    if len(ended) < FEWEST:
        return math.inf
    return tail(np.sort(ended)[int(BODY * len(ended)) :], CHANCE)


def tail(ended: Array, chance: float) -> float:
    """What another stay exceeds with that chance, given long ones in the order of their lengths.

    They are taken to go on exponentially.  Their mean, estimated from ``n`` stays, is not certain: that makes the tail
    of the next one ``(1 + t / (n * mean)) ** -n``.
    """
    # The mean of the root hardly heeds the few long stays of interferers; 4 / pi: if exponentially distributed.
    excess = max(float(np.sqrt(ended - ended[0] + 0.5).mean()) ** 2 * 4 / math.pi, SHORTEST_TAIL * ended[0])
    n = len(ended)
    return float(ended[0] + n * excess * (chance ** (-1 / n) - 1))


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
    common = np.pad(common, [(0, 0)] * (common.ndim - 1) + [(width - 1, width - 1)])
    while width > 1:
        width //= 2
        common = np.maximum(common[..., :-width], common[..., width:])
    return common
