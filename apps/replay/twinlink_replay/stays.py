"""Interferers told by their stay: they keep one level for longer than UEs do here, whatever they look like.

A *stay* is a time in which a PRB carries one level of power.  A UE's stay ends when its grant does, or when its fading
channel leaves the level: after a few records where the UE moves.  How long UEs' stays last is learned from those that
have ended.  Whatever ends them, their lengths are near exponentially distributed, and one that lasts `UNLIKELY` times
as long as the mean does not come from a UE.  Where no UE ever leaves or fades no stay ends, and none is too long.

Adjacent PRBs are judged together, since a fading channel seldom holds several of them at once.  More power than the
level does not end a stay: somebody else may transmit on top.  Less power does.
"""

import math
from collections import deque
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .evidence import Array

WIDTHS = (2, 8)  # adjacent PRBs judged together; powers of 2
UNLIKELY = 11.5  # times the mean stay; UEs' longest in a recording were 2 to 8 times the mean, seldom 11
SCATTER, ROUGH_SCATTER = 0.1, 0.35  # of the log power of one level, and how much more per roughness (Gaussian: 0.29)
DEVIATIONS = 3.5  # of that scatter: still the same level
LEVEL_RECORDS = 10.0  # the level is averaged over as many
SHORTEST = 2  # records: anything less may be a spike of the noise
PRIOR_STAYS, PRIOR_MEAN = 0.1, 100.0  # as if so many stays a PRB had been of that mean, before any has been seen
SHORTEST_MEAN = 3.0
MEMORY = 1000.0  # records
WEAKEST = 1.2  # log power; less is rather a UE's deep fade than an interferer that is to be found (6 dB: 1.6)
SMOOTH = 0.47  # mean roughness: what is rougher is left to `texture`, unless UEs are so too
ROUGHEST = 0.6  # a tone's scatter is no larger than noise's
CLEAR = 1.0  # nats of `Evidence.structure` over a stay that make it rough or smooth
CENSUS = 16  # records between counts of rough UEs
ROUGH_SHARE = 0.05  # of UEs' stays; beyond it roughness tells no interferer


class _Level:
    """A level of power in each PRB, and how long it has been kept.

    Attributes:
        length: records on it; 0 where there is none.
        first: number of the first of them.
    """

    def __init__(self, n_prbs: int) -> None:
        self.length = np.zeros(n_prbs, np.float32)
        self.first = np.zeros(n_prbs, np.int64)
        self.level = np.zeros(n_prbs, np.float32)
        self.roughness = np.zeros(n_prbs, np.float32)

    def against(self, log_power: Array) -> tuple[Array, Array]:
        """How far the power is above the level, and what it may be off it."""
        slack = ROUGH_SCATTER * self.roughness + SCATTER
        return log_power - self.level, DEVIATIONS * slack * np.sqrt(1 + 1 / np.maximum(self.length, 1))

    def follow(self, on_level: NDArray[np.bool_], log_power: Array, roughness: Array) -> None:
        """Records on the level."""
        self.length = self.length + on_level
        rate = on_level / np.clip(self.length, 1, np.float32(LEVEL_RECORDS))
        self.level = self.level + rate * (log_power - self.level)
        self.roughness = self.roughness + rate * (roughness - self.roughness)

    def begin(self, where: NDArray[np.bool_], record: int, log_power: Array, roughness: Array) -> None:
        """A new level."""
        np.copyto(self.length, 1, where=where)
        np.copyto(self.first, record, where=where)
        np.copyto(self.level, log_power, where=where)
        np.copyto(self.roughness, roughness, where=where)

    def take(self, where: NDArray[np.bool_], other: "_Level") -> None:
        """Become the other one."""
        np.copyto(self.length, other.length, where=where)
        np.copyto(self.first, other.first, where=where)
        np.copyto(self.level, other.level, where=where)
        np.copyto(self.roughness, other.roughness, where=where)


@dataclass(frozen=True, slots=True)
class _Seen:
    """What was known of each PRB's stay in a record."""

    length: Array
    first: NDArray[np.int64]
    on_level: NDArray[np.bool_]
    eligible: NDArray[np.bool_]


class Stays:
    """Follows the level of each PRB.

    Args:
        n_prbs: PRBs in a record.

    Attributes:
        mean: length of UEs' stays here, in records on the level.
        rough: whether UEs here are as rough as noise.
    """

    def __init__(self, n_prbs: int) -> None:
        self._widths = [width for width in WIDTHS if width <= n_prbs] or [1]
        self.mean = np.full(len(self._widths), PRIOR_MEAN)
        self.rough = False
        self._lower, self._upper = _Level(n_prbs), _Level(n_prbs)
        self._texture = np.zeros(n_prbs, np.float32)
        self._rough = np.zeros(n_prbs)
        self._smooth = np.zeros(n_prbs)
        self._counts = np.full(len(self._widths), PRIOR_STAYS * n_prbs)
        self._roots = self._counts * math.sqrt(PRIOR_MEAN * math.pi / 4)
        self._record = 0
        self._waiting: deque[_Seen] = deque()

    def add(self, log_power: Array, roughness: Array, structure: Array, free: NDArray[np.bool_]) -> None:
        """Take in a record: `Evidence` of it, and which PRBs are free."""
        lower, upper = self._lower, self._upper
        roughness = np.minimum(roughness, np.float32(ROUGHEST))
        there = lower.length > 0
        above, slack = lower.against(log_power)
        ended = there & (free | (above < -slack))
        self._census(ended)
        lower.length[ended] = 0
        on_level = ~free & there & ~ended & (np.abs(above) <= slack)
        lower.follow(on_level, log_power, roughness)
        begun = ~free & (ended | ~there)
        lower.begin(begun, self._record, log_power, roughness)
        on_level |= begun
        # Who stays on top for longer than the one below did takes its place.
        over = there & ~ended & (above > slack)
        off, slack = upper.against(log_power)
        same = over & (upper.length > 0) & (np.abs(off) <= slack)
        upper.follow(same, log_power, roughness)
        upper.begin(over & ~same, self._record, log_power, roughness)
        upper.length[free | ended] = 0
        taken = same & (upper.length > lower.length)
        if taken.any():
            self._census(taken)
            lower.take(taken, upper)
            upper.length[taken] = 0
            on_level |= taken
        self._texture = np.where(begun, 0, self._texture) + structure
        eligible = (lower.level > WEAKEST) & (self.rough | (lower.roughness < SMOOTH))
        self._waiting.append(_Seen(lower.length.copy(), lower.first.copy(), on_level, eligible))
        self._record += 1

    def judge(self, count: int) -> NDArray[np.bool_]:
        """Where an interferer is, from the past alone, in the last ``count`` records; each is to be judged once."""
        lengths = np.array([self._waiting[k].length for k in range(-min(count + 1, len(self._waiting)), 0)])
        keep = (1 - 1 / MEMORY) ** count
        for k, width in enumerate(self._widths):
            common = in_common(lengths, width)
            ended = common[:-1][(common[1:] < common[:-1]) & (common[:-1] >= SHORTEST)]
            # The mean of the root hardly heeds the few long stays of interferers; 4 / pi: if exponentially distributed.
            self._counts[k] = keep * self._counts[k] + len(ended)
            self._roots[k] = keep * self._roots[k] + float(np.sqrt(ended).sum())
        self.mean = np.maximum((self._roots / self._counts) ** 2 * 4 / math.pi, SHORTEST_MEAN)
        if self._record // CENSUS > (self._record - count) // CENSUS:
            self._count_rough()
        return self._too_long(count)

    def look_back(self) -> NDArray[np.bool_]:
        """Where an interferer is, from where its stay began to where it was last seen.

        For all records since `let_go`.
        """
        found = np.zeros((len(self._waiting), len(self._texture)), bool)
        firsts = np.array([seen.first for seen in self._waiting])
        on_level = np.array([seen.on_level for seen in self._waiting])
        starts = np.where(self._too_long(len(found)) & on_level, firsts, self._record)
        first = np.full(len(self._texture), self._record)
        record = self._record
        for k in range(len(found) - 1, -1, -1):
            record -= 1
            first = np.minimum(first, starts[k])
            found[k] = first <= record
        return found

    def let_go(self, count: int) -> None:
        """The first ``count`` records are settled."""
        for _ in range(count):
            self._waiting.popleft()

    def _count_rough(self) -> None:
        # An interferer is rough on some PRBs, rough UEs are so everywhere: only the less rough half of them counts.
        half = np.argsort(self._rough / (self._rough + self._smooth + 1))[: (len(self._rough) + 1) // 2]
        rough, smooth = self._rough[half].sum(), self._smooth[half].sum()
        self.rough = bool(rough > ROUGH_SHARE * (rough + smooth) and rough + smooth > len(half))

    def _too_long(self, count: int) -> NDArray[np.bool_]:
        seen = [self._waiting[k] for k in range(-count, 0)]
        lengths = np.array([each.length * each.eligible for each in seen])
        long = [
            somewhere(in_common(lengths, width) > UNLIKELY * mean, width)
            for width, mean in zip(self._widths, self.mean, strict=True)
        ]
        return np.asarray(np.logical_or.reduce(long))

    def _census(self, ended: NDArray[np.bool_]) -> None:
        """Of what texture the stays were that end."""
        self._rough += ended & (self._texture < -CLEAR)
        self._smooth += ended & (self._texture > CLEAR)


def in_common(lengths: Array, width: int) -> Array:
    """The shortest of ``width`` adjacent PRBs' stays, shape ``(records, n_prbs - width + 1)``."""
    while width > 1:
        width //= 2
        lengths = np.minimum(lengths[:, :-width], lengths[:, width:])
    return lengths


def somewhere(marked: NDArray[np.bool_], width: int) -> NDArray[np.bool_]:
    """PRBs that any of the marked runs of ``width`` PRBs contains."""
    marked = np.pad(marked, ((0, 0), (width - 1, width - 1)))
    while width > 1:
        width //= 2
        marked = marked[:, :-width] | marked[:, width:]
    return marked
