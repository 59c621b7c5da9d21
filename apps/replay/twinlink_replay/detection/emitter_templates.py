"""Interferers that were found once, told again by where they are and how strong, however short they come or stay.

An *emitter* is a run of adjacent PRBs that were interfered at the same times, or a box that came back, with a level
for each PRB.  Each record is compared with that pattern, and a hidden Markov model of two states, on and off, sums up
over the records.
"""

import math
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from .likelihoods import STEP, Array, PrbLikelihoods
from .segments import WEAKEST, Segment, recurring_segments
from .transition_rates import blinks
from .ue_statistics import of_stays

Mask = NDArray[np.bool_]

TOGETHER = 0.6  # of the records in which either of two adjacent PRBs is interfered, for them to be one emitter's
FEWEST = 20  # records that have to show an emitter's level
NEAR = 0.8  # log power within which a record may show the level; what is farther off has a UE on top
LEAST_SCATTER, MOST_SCATTER = 0.12, 0.3  # of the level itself, in log power; with more there is none
KEPT = 16  # emitters; the oldest are forgotten first
SAME = 0.7  # of the PRBs of two emitters are common if they are one, and ...
SAME_LEVEL = 1.0  # ... their mean log powers differ by less
PART = 1.45  # log power of a PRB that has a part of the signal
ROUGH, TONE = -0.5, -1.0  # nats that roughness, and the peak, say against a UE if an emitter is known by its look

ANY = 0.12  # density of a UE's log power
WEAK_UE = -0.7  # nats against one just above the level, with a weak UE on top
PRB_SCATTER = 0.3  # of the log power of a PRB with noise
BAND = 0.9  # log power about the level that may still be the level
GONE = 8.0  # nats against one that has less
STEPS_SHOW = 0.85  # chance that a step of power shows where an emitter ends and nobody covers it
MOST_PRBS = 0.7  # of an emitter's; fewer have to end with a step where it does
COVERED_COST = 0.05  # nats a record for one that nobody can see
CLEAR = 0.3  # log power above the level that speaks for a UE on top
MOST_LOOK = 6.0  # nats that the texture of a record may say
MOST_CONTRAST = 3.0  # nats that the texture of a UE on top may say
BESIDE = 6  # PRBs on either side that show what the UE on top looks like
ALIKE = 0.7  # log power from one PRB to the next of the same UE
VARIANCE = 0.12**2  # of a PRB's roughness
UNEVEN = 0.05  # how much a UE's roughness differs over its PRBs, by its channel
SURELY_OFF = -8.0  # log-odds
NOISE = -3.0  # nats of texture over records in a row that are surely no UE's
COMES, GOES = 1 / 100, 1 / 50  # chances per record


@dataclass(frozen=True, slots=True)
class _Seen:
    """Records, each of shape ``(records, n_prbs)``; see `PrbLikelihoods`."""

    log_power: Array
    ue_llr: Array
    ue_llr_own: Array
    roughness_raw: Array
    not_tone_llr: Array


@dataclass(frozen=True, slots=True, eq=False)
class EmitterTemplate:
    """What is known of an emitter.

    Attributes:
        first, end: its PRBs are ``first`` to ``end - 1``.
        level: log power against the floor of each.
        scatter: standard deviation of that level over the records.
        rough, tone: whether the roughness, or the peak or envelope, tell it from a UE.
    """

    first: int
    end: int
    level: Array
    scatter: float
    rough: bool
    tone: bool

    def same(self, other: "EmitterTemplate") -> bool:
        """Whether both are one."""
        common = min(self.end, other.end) - max(self.first, other.first)
        near = abs(float(self.level.mean() - other.level.mean())) < SAME_LEVEL
        return near and common >= SAME * (max(self.end, other.end) - min(self.first, other.first))


class EmitterTemplates:
    """Remembers emitters."""

    def __init__(self) -> None:
        self._known: list[EmitterTemplate] = []
        self._boxes: list[EmitterTemplate] = []

    def look(self, recent: list[tuple[PrbLikelihoods, int]], rough: bool) -> Mask:
        """Take in what is known of the records that wait, in order; returns the PRBs of boxes that are no UE's.

        Args:
            recent: the records' evidence.
            rough: whether UEs are, so that roughness tells nothing.
        """
        names = ("log_power", "ue_llr", "ue_llr_own", "roughness_raw", "not_tone_llr")
        seen = _Seen(*(np.array([getattr(likelihoods, name)[k] for likelihoods, k in recent]) for name in names))
        if rough:
            # What their roughness told apart before UEs' was known may have been UEs.
            self._known = [each for each in self._known if each.tone or not each.rough]
            seen = replace(seen, ue_llr=np.zeros_like(seen.ue_llr), ue_llr_own=np.zeros_like(seen.ue_llr_own))
        self.seen = seen
        self._boxes = [_of_box(box, seen) for box in recurring_segments(seen.log_power, seen.ue_llr_own, rough)]
        boxed = np.zeros(seen.log_power.shape[1], bool)
        for each in self._boxes:
            boxed[each.first : each.end] = True
        self._boxed = boxed
        return boxed

    def complete(self, interfered: Mask, sure: Mask) -> Mask:
        """Add to ``interfered``, shape ``(records, n_prbs)``, where emitters are on that were seen now or before.

        Where an emitter is noise and surely off, what others found on top of its level is taken back, unless that is
        noise itself: another emitter may be on some of its PRBs.

        Args:
            interfered: what is known otherwise of the records that `look` took in.
            sure: what of it is not taken back.
        """
        seen = self.seen
        found = [each for each in _find(interfered, seen) if not self._boxed[each.first : each.end].any()]
        for new in found + self._boxes:
            same = [old for old in self._known if old.same(new)]
            if all(new.scatter <= old.scatter for old in same):  # or UEs have spoilt it
                others = [old for old in self._known if old not in same]
                self._known = [*others[1 - KEPT :], new]
        if not self._known:
            return interfered
        says = np.stack([_says(each, seen) for each in self._known], axis=1)
        odds = smooth(says)
        if learned := _rates(odds):
            odds = smooth(says, *learned)
        answer = interfered.copy()
        for k, each in enumerate(self._known):
            where = slice(each.first, each.end)
            there = seen.log_power[:, where] > each.level - BAND
            if each.rough and not each.tone:
                gone = there & (odds[:, k, None] < SURELY_OFF) & interfered[:, where] & ~sure[:, where]
                answer[:, where] &= ~gone | of_stays(gone, [seen.ue_llr[:, where]], lambda says: says < NOISE)
        for k, each in enumerate(self._known):
            where = slice(each.first, each.end)
            there = seen.log_power[:, where] > each.level - BAND
            answer[:, where] |= (odds[:, k, None] > 0) & there
        return answer


def _find(interfered: Mask, seen: _Seen) -> list[EmitterTemplate]:
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
        scatter = math.sqrt(max(scatter**2 - PRB_SCATTER**2, LEAST_SCATTER**2))
        if shown.sum(axis=0).min() < FEWEST or scatter > MOST_SCATTER:
            continue
        rough = bool(np.median(seen.ue_llr[:, where][shown]) < ROUGH)
        tone = bool(np.median(seen.not_tone_llr[:, where][shown]) < TONE)
        if end - first == 1 and not rough and not tone:
            continue  # nothing but its level would tell it from a UE
        emitters.append(EmitterTemplate(int(first), int(end), level.astype(np.float32), scatter, rough, tone))
    return emitters


def _of_box(box: Segment, seen: _Seen) -> EmitterTemplate:
    power = seen.log_power[box.records]
    level = np.median(power, axis=0).astype(np.float32)
    # Where its power falls off slowly no step ends the box.
    strong = box.first + np.flatnonzero(level[box.first : box.end] > WEAKEST)
    first, end = (int(strong[0]), int(strong[-1]) + 1) if len(strong) else (box.first, box.end)
    # A signal may end within a PRB, which has less of it.
    if box.look < 0:
        part = (np.quantile(power, 0.15, axis=0) > PART) & (seen.ue_llr_own[box.records].mean(axis=0) < 0)
        first -= bool(first > 0 and part[first - 1])
        end += bool(end < len(part) and part[end])
    where = slice(first, end)
    level = level[where]
    rough = bool(seen.ue_llr_own[box.records, where].mean() < 0)
    tone = bool(np.median(seen.not_tone_llr[box.records, where]) < TONE)
    scatter = max(float(np.std((power[:, where] - level).mean(axis=1))), LEAST_SCATTER)
    return EmitterTemplate(first, end, level, scatter, rough, tone)


def _says(emitter: EmitterTemplate, seen: _Seen) -> Array:
    """Log-likelihood ratio of on against off for each record."""
    where = slice(emitter.first, emitter.end)
    power = seen.log_power[:, where]
    off_level = power - emitter.level
    at, below = np.abs(off_level) < BAND, off_level < -BAND
    shown = at.sum(axis=1)
    mean = (off_level * at).sum(axis=1) / np.maximum(shown, 1)
    variance = PRB_SCATTER**2 / np.maximum(shown, 1) + emitter.scatter**2
    says = -(mean**2) / (2 * variance) - np.log(ANY * np.sqrt(math.tau * variance))
    says = np.where(mean > 0, np.maximum(says, WEAK_UE), says) * (shown > 0)
    anchored = shown > MOST_PRBS * at.shape[1]
    for beside, edge in ((emitter.first - 1, emitter.first), (emitter.end, emitter.end - 1)):
        if not 0 <= beside < seen.log_power.shape[1]:
            continue
        step = np.abs(seen.log_power[:, beside] - seen.log_power[:, edge]) > STEP
        here = at[:, edge - emitter.first]
        usual = (step[~here].sum() + 1) / ((~here).sum() + 10)  # others have steps there too
        usual = min(max(usual, 0.03), STEPS_SHOW)
        anchored |= here & step & (shown > 1)
        says = says + (here & step) * math.log(STEPS_SHOW / usual)
        says = says + (here & ~step & (mean < CLEAR)) * math.log((1 - STEPS_SHOW) / (1 - usual))
    # The power of a UE on top passes the level somewhere; where it ends there is a step.
    passes = (at[:, 1:] != at[:, :-1]) & (np.abs(np.diff(power, axis=1)) < STEP)
    says = np.where(passes.any(axis=1) | ~anchored, np.minimum(says, 0), says)
    on_top = off_level > CLEAR if emitter.rough else np.zeros_like(at)
    contrast, known = _contrast(emitter, seen, on_top)
    says = says + contrast - COVERED_COST * (off_level > BAND).all(axis=1)
    if emitter.rough or emitter.tone:
        look = (seen.not_tone_llr if emitter.tone else seen.ue_llr_own)[:, where] * (at & ~(on_top & known[:, None]))
        says = says - np.clip(look.sum(axis=1), -MOST_LOOK, MOST_LOOK)
    gone = below.sum(axis=1) > 0.25 * below.shape[1]
    return np.asarray(np.where(gone, -GONE, says), np.float32)


def _contrast(emitter: EmitterTemplate, seen: _Seen, above: Mask) -> tuple[Array, Mask]:
    """What the roughness of a UE on top says, compared with that of the same UE beside the emitter.

    The variance of a signal's power relative to its squared mean, ``2 r^2 / (1 - r^2)`` of its roughness, is that of
    its modulation, and grows with what is added to it: one minus it shrinks by the squared share of the UE.
    """
    first, end = emitter.first, emitter.end
    power, rough = seen.log_power, seen.roughness_raw
    beside, weight = np.zeros(len(power)), np.zeros(len(power))
    for start, step in ((first, -1), (end - 1, 1)):
        same = above[:, start - first]
        for k in range(1, BESIDE + 1):
            other = start + step * k
            if not 0 <= other < power.shape[1]:
                break
            same = same & (np.abs(power[:, other] - power[:, other - step]) < ALIKE)
            beside += same * rough[:, other]
            weight += same
    count = above.sum(axis=1)
    known = (weight > 0) & (count > 0)
    rough_beside = beside / np.maximum(weight, 1)
    rough_inside = (rough[:, first:end] * above).sum(axis=1) / np.maximum(count, 1)
    level = np.exp((power[:, first:end] * above).sum(axis=1) / np.maximum(count, 1))
    share = np.clip(1 - np.exp(emitter.level.mean()) / level, 0, 1)
    smooth = np.clip(1 - 2 * rough_beside**2 / (1 - np.minimum(rough_beside, 0.55) ** 2), 0, 1) * share**2
    expected = np.sqrt((1 - smooth) / (3 - smooth))
    rise = np.maximum(expected - rough_beside, 0)
    variance = VARIANCE * (1 / np.maximum(count, 1) + 1 / np.maximum(weight, 1)) + UNEVEN**2
    says = (rough_inside - rough_beside - rise / 2) * rise / variance
    return np.asarray(np.where(known, np.clip(says, -MOST_CONTRAST, MOST_CONTRAST), 0), np.float32), known


def smooth(says: Array, comes: Array | float = COMES, goes: Array | float = GOES) -> Array:
    """Log-odds of on against off, given all records, from those of each; shape ``(records, emitters)``."""
    emitters = says.shape[1]
    comes, goes = (np.broadcast_to(np.asarray(each, np.float32), emitters) for each in (comes, goes))
    prior = np.log(comes / goes)
    both_ways = np.concatenate((says, says[::-1]), axis=1)  # and after, in one go
    before = _before(both_ways, *(np.tile(each, 2) for each in (prior, comes, goes)))
    return np.asarray(before[:, :emitters] + says + before[::-1, emitters:] - prior, np.float32)


def _rates(odds: Array) -> tuple[Array, Array] | None:
    """Chances per record that each emitter comes, and that it goes, from when it was on; None if none blinks."""
    on = odds > 0
    comings, goings = (on[1:] & ~on[:-1]).sum(axis=0), (on[:-1] & ~on[1:]).sum(axis=0)
    there = on.sum(axis=0)
    blinking = blinks(comings, goings, there)
    if not blinking.any():
        return None
    comes, goes = (1 + comings) / (1 / COMES + len(on) - there), (1 + goings) / (1 / GOES + there)
    return np.where(blinking, comes, COMES), np.where(blinking, goes, GOES)


def _before(says: Array, odds: Array, comes: Array, goes: Array) -> Array:
    """Log-odds of on in each record, given those before it."""
    before = np.empty_like(says)
    for k in range(len(says)):
        before[k] = odds
        on = np.exp(np.minimum(np.maximum(odds + says[k], -30), 30))  # to 1 for off
        odds = np.log((on * (1 - goes) + comes) / (on * goes + (1 - comes)))
    return before
