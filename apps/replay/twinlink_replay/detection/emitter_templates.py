"""Matched templates with a two-state HMM: detects known emitters again by their PRBs and levels, however briefly.

A template is a run of adjacent PRBs that were interfered at the same times, or a recurring segment, with a level for
each PRB.  Each record is compared with the template, and a hidden Markov model (on, off) accumulates the log-likelihood
ratios over the records.
"""

import math
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from .likelihoods import STEP, Array, PrbLikelihoods
from .segments import WEAKEST, Segment, recurring_segments
from .transition_rates import is_intermittent
from .ue_statistics import select_dwells

Mask = NDArray[np.bool_]

TOGETHER = 0.6  # of the records with either of two adjacent PRBs interfered have both, for one emitter
FEWEST = 20  # records that show an emitter's level, at least
NEAR = 0.8  # log power around the level; a record outside has a UE on top
MIN_SCATTER, MAX_SCATTER = 0.12, 0.3  # of the level, in log power; with more there is no level
KEPT = 16  # templates; the oldest are dropped first
SAME = 0.7  # of the PRBs of two templates are common if they are one emitter's, and ...
SAME_LEVEL = 1.0  # ... their mean log powers differ by less
PART = 1.45  # log power of a PRB that contains the edge of the signal
ROUGH, TONE = -0.5, -1.0  # nats below which roughness, and the peak, tell an emitter from a UE

UE_DENSITY = 0.12  # probability density of a UE's log power
WEAK_UE = -0.7  # least LLR just above the level: a weak UE may be on top
PRB_SCATTER = 0.3  # of the log power of a PRB with noise
BAND = 0.9  # log power around the level that is still taken for the level
GONE = 8.0  # nats against an emitter with less power
STEPS_SHOW = 0.85  # probability of a step of power at the edge of an uncovered emitter
MOST_PRBS = 0.7  # share of an emitter's PRBs on the level; with fewer, an edge must show a step
COVERED_COST = 0.05  # nats a record against an emitter that a UE covers
CLEAR = 0.3  # log power above the level that indicates a UE on top
MAX_SHAPE_LLR = 6.0  # nats; limit for the roughness or peak of a record
MAX_CONTRAST = 3.0  # nats; limit for the roughness of a UE on top
BESIDE = 6  # PRBs on either side that show the roughness of the UE on top
ALIKE = 0.7  # largest step of log power between PRBs of one UE
VARIANCE = 0.12**2  # of a PRB's roughness
UNEVEN = 0.05  # standard deviation of a UE's roughness over its PRBs, caused by its channel
SURELY_OFF = -8.0  # log-odds
NOISE = -3.0  # LLR of a UE over a dwell, below which the dwell is surely no UE's
START, END = 1 / 100, 1 / 50  # transition probabilities per record


@dataclass(frozen=True, slots=True)
class _Observed:
    """The buffered records, each array of shape ``(records, n_prbs)``; see `PrbLikelihoods`."""

    log_power: Array
    ue_llr: Array
    ue_llr_own: Array
    roughness_raw: Array
    not_tone_llr: Array


@dataclass(frozen=True, slots=True, eq=False)
class EmitterTemplate:
    """Template of an emitter.

    Attributes:
        first, end: its PRBs are ``first`` to ``end - 1``.
        level: log power of each relative to the noise floor, in nats, shape ``(end - first,)``.
        scatter: standard deviation of that level over the records, in nats.
        rough, tone: whether the roughness, or the peak or envelope, tells it from a UE.
    """

    first: int
    end: int
    level: Array
    scatter: float
    rough: bool
    tone: bool

    def same(self, other: "EmitterTemplate") -> bool:
        """Whether both are templates of one emitter."""
        common = min(self.end, other.end) - max(self.first, other.first)
        near = abs(float(self.level.mean() - other.level.mean())) < SAME_LEVEL
        return near and common >= SAME * (max(self.end, other.end) - min(self.first, other.first))


class EmitterTemplates:
    """Keeps the templates of known emitters."""

    def __init__(self) -> None:
        self._known: list[EmitterTemplate] = []
        self._recurring: list[EmitterTemplate] = []

    def observe(self, recent: list[tuple[PrbLikelihoods, int]], rough: bool) -> Mask:
        """Take in the buffered records, in order.

        Args:
            recent: likelihoods of each record, and its index within them.
            rough: whether UEs are as rough as noise, so that roughness identifies no emitter.

        Returns:
            PRBs of recurring segments that are not a UE's, bool, shape ``(n_prbs,)``.
        """
        names = ("log_power", "ue_llr", "ue_llr_own", "roughness_raw", "not_tone_llr")
        seen = _Observed(*(np.array([getattr(likelihoods, name)[k] for likelihoods, k in recent]) for name in names))
        if rough:
            # Templates known by roughness alone may have been UEs.
            self._known = [each for each in self._known if each.tone or not each.rough]
            seen = replace(seen, ue_llr=np.zeros_like(seen.ue_llr), ue_llr_own=np.zeros_like(seen.ue_llr_own))
        self.observed = seen
        segments = recurring_segments(seen.log_power, seen.ue_llr_own, rough)
        self._recurring = [_from_segment(each, seen) for each in segments]
        recurring = np.zeros(seen.log_power.shape[1], bool)
        for each in self._recurring:
            recurring[each.first : each.end] = True
        self._recurring_prbs = recurring
        return recurring

    def complete(self, interfered: Mask, sure: Mask) -> Mask:
        """Add the cells in which known emitters are on.

        Where a noise-like emitter is surely off, cells above its level that other methods found are removed, unless
        they are noise themselves: another emitter may be on some of the same PRBs.

        Args:
            interfered: cells that other methods found, bool, shape ``(records, n_prbs)``, of the records that `observe`
                took in.
            sure: cells of it that are never removed, same shape.

        Returns:
            bool, same shape.
        """
        seen = self.observed
        found = [each for each in _find(interfered, seen) if not self._recurring_prbs[each.first : each.end].any()]
        for new in found + self._recurring:
            same = [old for old in self._known if old.same(new)]
            if all(new.scatter <= old.scatter for old in same):  # a larger scatter comes from UEs on top
                others = [old for old in self._known if old not in same]
                self._known = [*others[1 - KEPT :], new]
        if not self._known:
            return interfered
        llr = np.stack([_llr(each, seen) for each in self._known], axis=1)
        odds = smoothed_log_odds(llr)
        if learned := _rates(odds):
            odds = smoothed_log_odds(llr, *learned)
        answer = interfered.copy()
        for k, each in enumerate(self._known):
            where = slice(each.first, each.end)
            there = seen.log_power[:, where] > each.level - BAND
            if each.rough and not each.tone:
                gone = there & (odds[:, k, None] < SURELY_OFF) & interfered[:, where] & ~sure[:, where]
                answer[:, where] &= ~gone | select_dwells(gone, [seen.ue_llr[:, where]], lambda llr: llr < NOISE)
        for k, each in enumerate(self._known):
            where = slice(each.first, each.end)
            there = seen.log_power[:, where] > each.level - BAND
            answer[:, where] |= (odds[:, k, None] > 0) & there
        return answer


def _find(interfered: Mask, seen: _Observed) -> list[EmitterTemplate]:
    """Templates of runs of PRBs that were interfered at the same times."""
    count = interfered.sum(axis=0)
    both = (interfered[:, 1:] & interfered[:, :-1]).sum(axis=0)
    apart = both <= TOGETHER * (count[1:] + count[:-1] - both)
    bounds = [0, *(np.flatnonzero(apart) + 1), len(count)]
    emitters = []
    for first, end in pairwise(bounds):
        where = slice(first, end)
        if count[where].min() < FEWEST:
            continue
        # A low quantile first, not the median: UEs may be on top for more than half of the time.
        power = np.where(interfered[:, where], seen.log_power[:, where], np.nan)
        level = np.nanquantile(power, 0.25, axis=0)
        level = np.nanmedian(np.where(np.abs(power - level) < 2 * NEAR, power, np.nan), axis=0)
        shown = np.abs(power - level) < NEAR
        scatter = float((power - level)[shown].std()) if shown.any() else np.inf
        scatter = math.sqrt(max(scatter**2 - PRB_SCATTER**2, MIN_SCATTER**2))
        if shown.sum(axis=0).min() < FEWEST or scatter > MAX_SCATTER:
            continue
        rough = bool(np.median(seen.ue_llr[:, where][shown]) < ROUGH)
        tone = bool(np.median(seen.not_tone_llr[:, where][shown]) < TONE)
        if end - first == 1 and not rough and not tone:
            continue  # only its level would tell it from a UE
        emitters.append(EmitterTemplate(int(first), int(end), level.astype(np.float32), scatter, rough, tone))
    return emitters


def _from_segment(segment: Segment, seen: _Observed) -> EmitterTemplate:
    power = seen.log_power[segment.records]
    level = np.median(power, axis=0).astype(np.float32)
    # Where the power falls off slowly, no step ends the segment.
    strong = segment.first + np.flatnonzero(level[segment.first : segment.end] > WEAKEST)
    first, end = (int(strong[0]), int(strong[-1]) + 1) if len(strong) else (segment.first, segment.end)
    # A signal may end within a PRB, which then has less power.
    if segment.ue_llr < 0:
        part = (np.quantile(power, 0.15, axis=0) > PART) & (seen.ue_llr_own[segment.records].mean(axis=0) < 0)
        first -= bool(first > 0 and part[first - 1])
        end += bool(end < len(part) and part[end])
    where = slice(first, end)
    level = level[where]
    rough = bool(seen.ue_llr_own[segment.records, where].mean() < 0)
    tone = bool(np.median(seen.not_tone_llr[segment.records, where]) < TONE)
    scatter = max(float(np.std((power[:, where] - level).mean(axis=1))), MIN_SCATTER)
    return EmitterTemplate(first, end, level, scatter, rough, tone)


def _llr(emitter: EmitterTemplate, seen: _Observed) -> Array:
    """Log-likelihood ratio in nats of on against off for each record, shape ``(records,)``."""
    where = slice(emitter.first, emitter.end)
    power = seen.log_power[:, where]
    off_level = power - emitter.level
    at, below = np.abs(off_level) < BAND, off_level < -BAND
    shown = at.sum(axis=1)
    mean = (off_level * at).sum(axis=1) / np.maximum(shown, 1)
    variance = PRB_SCATTER**2 / np.maximum(shown, 1) + emitter.scatter**2
    llr = -(mean**2) / (2 * variance) - np.log(UE_DENSITY * np.sqrt(math.tau * variance))
    llr = np.where(mean > 0, np.maximum(llr, WEAK_UE), llr) * (shown > 0)
    anchored = shown > MOST_PRBS * at.shape[1]
    for beside, edge in ((emitter.first - 1, emitter.first), (emitter.end, emitter.end - 1)):
        if not 0 <= beside < seen.log_power.shape[1]:
            continue
        step = np.abs(seen.log_power[:, beside] - seen.log_power[:, edge]) > STEP
        here = at[:, edge - emitter.first]
        usual = (step[~here].sum() + 1) / ((~here).sum() + 10)  # other signals have steps there, too
        usual = min(max(usual, 0.03), STEPS_SHOW)
        anchored |= here & step & (shown > 1)
        llr = llr + (here & step) * math.log(STEPS_SHOW / usual)
        llr = llr + (here & ~step & (mean < CLEAR)) * math.log((1 - STEPS_SHOW) / (1 - usual))
    # The power of a UE on top crosses the level smoothly; an emitter's edge is a step.
    passes = (at[:, 1:] != at[:, :-1]) & (np.abs(np.diff(power, axis=1)) < STEP)
    llr = np.where(passes.any(axis=1) | ~anchored, np.minimum(llr, 0), llr)
    on_top = off_level > CLEAR if emitter.rough else np.zeros_like(at)
    contrast, known = _contrast(emitter, seen, on_top)
    llr = llr + contrast - COVERED_COST * (off_level > BAND).all(axis=1)
    if emitter.rough or emitter.tone:
        ue_llr = (seen.not_tone_llr if emitter.tone else seen.ue_llr_own)[:, where] * (at & ~(on_top & known[:, None]))
        llr = llr - np.clip(ue_llr.sum(axis=1), -MAX_SHAPE_LLR, MAX_SHAPE_LLR)
    gone = below.sum(axis=1) > 0.25 * below.shape[1]
    return np.asarray(np.where(gone, -GONE, llr), np.float32)


def _contrast(emitter: EmitterTemplate, seen: _Observed, above: Mask) -> tuple[Array, Mask]:
    """LLR of the emitter from the roughness of a UE on top, compared with the same UE beside the emitter.

    The variance of a UE's power relative to its squared mean, ``2 r^2 / (1 - r^2)`` with roughness ``r``, is that of
    its modulation.  One minus this variance is multiplied by the squared share of the UE in the power.

    Args:
        above: where a UE is on top of the emitter, bool, shape ``(records, end - first)``.

    Returns:
        The LLR in nats, and in which records it is known; both of shape ``(records,)``.
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
    llr = (rough_inside - rough_beside - rise / 2) * rise / variance
    return np.asarray(np.where(known, np.clip(llr, -MAX_CONTRAST, MAX_CONTRAST), 0), np.float32), known


def smoothed_log_odds(llr: Array, start: Array | float = START, end: Array | float = END) -> Array:
    """Log-odds of on against off given all records: forward and backward pass of the two-state HMM.

    Args:
        llr: of on against off for each record, in nats, shape ``(records, emitters)``.
        start, end: transition probabilities per record, scalars or of shape ``(emitters,)``.

    Returns:
        In nats, shape ``(records, emitters)``.
    """
    emitters = llr.shape[1]
    start, end = (np.broadcast_to(np.asarray(each, np.float32), emitters) for each in (start, end))
    prior = np.log(start / end)
    both_ways = np.concatenate((llr, llr[::-1]), axis=1)  # forward and backward in one pass
    before = _before(both_ways, *(np.tile(each, 2) for each in (prior, start, end)))
    return np.asarray(before[:, :emitters] + llr + before[::-1, emitters:] - prior, np.float32)


def _rates(odds: Array) -> tuple[Array, Array] | None:
    """Estimated probabilities per record of a start and of an end for each emitter; None if none is intermittent."""
    on = odds > 0
    starts, ends = (on[1:] & ~on[:-1]).sum(axis=0), (on[:-1] & ~on[1:]).sum(axis=0)
    on_count = on.sum(axis=0)
    intermittent = is_intermittent(starts, ends, on_count)
    if not intermittent.any():
        return None
    start, end = (1 + starts) / (1 / START + len(on) - on_count), (1 + ends) / (1 / END + on_count)
    return np.where(intermittent, start, START), np.where(intermittent, end, END)


def _before(llr: Array, odds: Array, start: Array, end: Array) -> Array:
    """Log-odds of on in each record, given the records before it."""
    before = np.empty_like(llr)
    for k in range(len(llr)):
        before[k] = odds
        on = np.exp(np.minimum(np.maximum(odds + llr[k], -30), 30))  # relative to off
        odds = np.log((on * (1 - end) + start) / (on * end + (1 - start)))
    return before
