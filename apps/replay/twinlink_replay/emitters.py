"""Interferers that were found once, told again by where they are and how strong, however short they come or stay.

An *emitter* is a run of adjacent PRBs that were interfered at the same times, with a level for each.  Each record is
compared with that pattern, and a hidden Markov model of two states, on and off, sums up over the records.
"""

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from .evidence import Array, Evidence

Mask = NDArray[np.bool_]

TOGETHER = 0.6  # of the records in which either of two adjacent PRBs is interfered, for them to be one emitter's
FEWEST = 20  # records that have to show an emitter's level
NEAR = 0.8  # log power within which a record may show the level; what is farther off has a UE on top
LEAST_SCATTER, MOST_SCATTER = 0.3, 0.42  # of the log power about the level; with more there is no level
KEPT = 16  # emitters; the oldest are forgotten first
SAME = 0.7  # of the PRBs of two emitters are common if they are one, and ...
SAME_LEVEL = 1.0  # ... their mean log powers differ by less

EDGE = 1.0  # log power that changes from an emitter's outermost PRB to the next one, unless somebody covers both
COVERED = 0.25  # chance that a UE is on top of an emitter
BUSY = 0.5  # chance that a UE is on a PRB
ANY = 0.12  # density of a UE's log power
FREE_SCATTER = 0.3  # of a free PRB's log power
MOST = 3.0  # nats that one PRB may say
SPEAK = 4  # PRBs of an emitter count in full; more of them tell the same
LEVEL_WEIGHT = 0.4  # a UE that has the level in one record is likely to have it in the next
LOOK_WEIGHT = 0.3  # roughness is averaged over neighbours, which would count it several times
ROUGH, TONE = -0.5, -1.0  # nats that roughness, and the peak, say against a UE if an emitter is known by its look
COMES, GOES = 1 / 100, 1 / 50  # chances per record
SQRT_TAU = math.sqrt(math.tau)


@dataclass(frozen=True, slots=True)
class _Seen:
    """Records, each of shape ``(records, n_prbs)``; see `Evidence`."""

    log_power: Array
    structure: Array
    even: Array


@dataclass(frozen=True, slots=True, eq=False)
class Emitter:
    """What is known of an emitter.

    Attributes:
        first, end: its PRBs are ``first`` to ``end - 1``.
        level: log power against the floor of each.
        scatter: standard deviation of the log power about it.
        rough, tone: whether the roughness or the peak tell it from a UE.
    """

    first: int
    end: int
    level: Array
    scatter: float
    rough: bool
    tone: bool

    def same(self, other: "Emitter") -> bool:
        """Whether both are one."""
        common = min(self.end, other.end) - max(self.first, other.first)
        near = abs(float(self.level.mean() - other.level.mean())) < SAME_LEVEL
        return near and common >= SAME * (max(self.end, other.end) - min(self.first, other.first))


class Emitters:
    """Remembers emitters."""

    def __init__(self) -> None:
        self._known: list[Emitter] = []

    def complete(self, interfered: Mask, recent: list[tuple[Evidence, int]], rough: bool) -> Mask:
        """Add to ``interfered``, shape ``(records, n_prbs)``, where emitters are on that were seen there or before.

        Args:
            interfered: what is known otherwise.
            recent: the records' evidence.
            rough: whether UEs are, so that roughness tells nothing.
        """
        log_power = np.array([evidence.log_power[k] for evidence, k in recent])
        structure = np.array([evidence.structure[k] for evidence, k in recent])
        even = np.array([evidence.even[k] for evidence, k in recent])
        seen = _Seen(log_power, np.zeros_like(structure) if rough else structure, even)
        for new in _find(interfered, seen):
            same = [old for old in self._known if old.same(new)]
            if all(new.scatter <= old.scatter for old in same):  # or UEs have spoilt it
                others = [old for old in self._known if old not in same]
                self._known = [*others[1 - KEPT :], new]
        if not self._known:
            return interfered
        on = _smooth(np.stack([_says(each, seen) for each in self._known], axis=1)) > 0
        answer = interfered.copy()
        for k, each in enumerate(self._known):
            where = slice(each.first, each.end)
            answer[:, where] |= on[:, k, None] & (log_power[:, where] > each.level - 3 * each.scatter)
        return answer


def _find(interfered: Mask, seen: _Seen) -> list[Emitter]:
    count = interfered.sum(axis=0)
    both = (interfered[:, 1:] & interfered[:, :-1]).sum(axis=0)
    apart = both <= TOGETHER * (count[1:] + count[:-1] - both)
    bounds = [0, *(np.flatnonzero(apart) + 1), len(count)]
    emitters = []
    for first, end in pairwise(bounds):
        where = slice(first, end)
        if count[where].min() < FEWEST:
            continue
        # Not the median at once: UEs may be on top for more than half of the time.
        power = np.where(interfered[:, where], seen.log_power[:, where], np.nan)
        level = np.nanquantile(power, 0.25, axis=0)
        level = np.nanmedian(np.where(np.abs(power - level) < 2 * NEAR, power, np.nan), axis=0)
        shown = np.abs(power - level) < NEAR
        scatter = float((power - level)[shown].std()) if shown.any() else np.inf
        if shown.sum(axis=0).min() < FEWEST or scatter > MOST_SCATTER:
            continue
        rough = bool(np.median(seen.structure[:, where][shown]) < ROUGH)
        tone = bool(np.median(seen.even[:, where][shown]) < TONE)
        if end - first == 1 and not rough and not tone:
            continue  # nothing but its level would tell it from a UE
        scatter = max(scatter, LEAST_SCATTER)
        emitters.append(Emitter(int(first), int(end), level.astype(np.float32), scatter, rough, tone))
    return emitters


def _says(emitter: Emitter, seen: _Seen) -> Array:
    """Log-likelihood ratio of on against off for each record."""
    where = slice(emitter.first, emitter.end)
    power = seen.log_power[:, where]
    speak = min(power.shape[1], SPEAK)
    off_level = (power - emitter.level) / emitter.scatter
    alone = np.log((1 - COVERED) / (SQRT_TAU * emitter.scatter)) - off_level**2 / 2
    on = np.logaddexp(alone, np.where(off_level > -2, np.log(COVERED * ANY), -20))
    free = np.log((1 - BUSY) / (SQRT_TAU * FREE_SCATTER)) - (power / FREE_SCATTER) ** 2 / 2
    off = np.logaddexp(free, np.log(BUSY * ANY))
    says = LEVEL_WEIGHT * speak * np.clip(on - off, -MOST, MOST).mean(axis=1)
    # A UE may have the level by chance, but hardly ends where the emitter does, and at both ends still less.
    edges = np.zeros(len(power))
    for beside, edge in ((emitter.first - 1, emitter.first), (emitter.end, emitter.end - 1)):
        inside = 0 <= beside < seen.log_power.shape[1]
        edges += np.abs(seen.log_power[:, beside] - seen.log_power[:, edge]) > EDGE if inside else 1
    says = np.where(says > 0, says * edges / 2, says)
    if emitter.rough or emitter.tone:
        look = (seen.even if emitter.tone else seen.structure)[:, where]
        says = says - LOOK_WEIGHT * speak * (look * (np.abs(off_level) < 2)).mean(axis=1)
    return np.asarray(says, np.float32)


def _smooth(says: Array) -> Array:
    """Log-odds of on against off, given all records, from those of each; shape ``(records, emitters)``."""
    prior = np.float32(np.log(COMES / GOES))
    return np.asarray(_before(says, prior) + says + _before(says[::-1], prior)[::-1] - prior, np.float32)


def _before(says: Array, odds: Array | np.float32) -> Array:
    """Log-odds of on in each record, given those before it."""
    before = np.empty_like(says)
    for k in range(len(says)):
        before[k] = odds
        on = 1 / (1 + np.exp(-np.clip(odds + says[k], -30, 30)))
        on = on * (1 - GOES) + (1 - on) * COMES
        odds = np.log(on / (1 - on))
    return before
