"""Policies tried in the model: what each of them avoids and takes, and which may leave.

A PRB-ms is one PRB for one millisecond.  In each future of the model, and for each policy:

| figure | PRB-ms in which                                                                                |
|--------|------------------------------------------------------------------------------------------------|
| harm   | a UE transmits, and an interferer does                                                         |
| taken  | a UE wants to transmit, no interferer does, and the PRB is blocked                             |
| gain   | harm of doing nothing - harm - taken                                                           |
| kept   | the PRB is not blocked                                                                         |
| used   | a UE or an interferer transmits                                                                |

A policy leaves if the whole interval of its gain is above 0.  It is refused by the first of these rules that it breaks:

| rule       | it                                                                                         |
|------------|--------------------------------------------------------------------------------------------|
| `model`    | is to be tried when there is no model: too little was heard                                |
| `range`    | names PRBs outside the carrier, or times that are none or beyond what can be foreseen      |
| `flapping` | changes its list sooner than `SPACING_MS` after the last change                            |
| `capacity` | leaves less than `MIN_KEPT` of the carrier at some time                                    |
| `worse`    | does worse than doing nothing: its gain is below 0 in the mean                             |
| `no-gain`  | does not do better than doing nothing for sure: the interval of its gain contains 0        |
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from twinlink.prbs import format_prbs

from .cell import MIN_STEPS, Cell
from .futures import MAX_STEPS, Futures, Rows, draw
from .heard import STEP_MS
from .policy import NOTHING, Policy, blocked

SPACING_MS = 30  # of a plan; the twin's own lists follow what is found, and grow faster (`controller.SPACING_NS`)
MIN_KEPT = 0.5
SEEDS = 32
OTHER_SEED = 1  # of the futures that a policy is tried in which was chosen in the first ones
LEVEL = 0.95
RESAMPLES = 999  # so that the 2.5 % and 97.5 % points are the 25th and the 975th

Rule = Literal["model", "range", "flapping", "capacity", "worse", "no-gain"]
FIGURES = "harm", "taken", "gain", "kept", "used"


@dataclass(frozen=True, slots=True)
class Estimate:
    """The mean of a figure over the futures in PRB-ms, and its interval of 95 % (bootstrap over the seeds)."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a policy does not leave; the text has the figures."""

    rule: Rule
    text: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.text}"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a policy.

    Attributes:
        policy: as given.
        figures: by their names, as above; empty if it was not tried.
        refusal: why it does not leave, or None.
    """

    policy: Policy
    figures: dict[str, Estimate]
    refusal: Refusal | None


@dataclass(frozen=True, slots=True)
class Trial:
    """What became of all policies.

    Attributes:
        horizon_ms, seeds: what they were tried with.
        nothing: doing nothing.
        outcomes: one a policy, in their order.
    """

    horizon_ms: int
    seeds: int
    nothing: Outcome
    outcomes: tuple[Outcome, ...]

    @property
    def best(self) -> Outcome:
        """The one that leaves and has the greatest gain; doing nothing if none leaves."""
        leaving = [one for one in self.outcomes if one.refusal is None]
        return max(leaving, key=lambda one: one.figures["gain"].mean, default=self.nothing)


def try_policies(
    cell: Cell | None,
    policies: Sequence[Policy],
    horizon_s: float,
    seeds: int = SEEDS,
    seed: int = 0,
    everywhere: bool = True,
) -> Trial:
    """Try policies on a cell.

    Args:
        cell: the model; None: there is none, and all are refused.
        policies: to be tried beside doing nothing; on PRBs of the model.
        horizon_s: how far to look ahead, at most `MAX_STEPS` steps; all that comes later counts neither way.
        seeds: number of futures.
        seed: as of `draw`: the same one gives the same answer.
        everywhere: False: harm and used are those of the PRBs that the policies name, which takes a fraction of the
            time.  All else is the same.

    Raises:
        ValueError: of the horizon or the seeds.
    """
    steps = round(horizon_s * 1000 / STEP_MS)
    if cell is None:
        text = f"less than {MIN_STEPS * STEP_MS} ms of the cell were heard without a gap"
        outcomes = [Outcome(one, {}, Refusal("model", text)) for one in policies]
        return Trial(steps * STEP_MS, seeds, Outcome(NOTHING, {}, None), tuple(outcomes))
    refusals = [_objection(one, cell.n_prbs) for one in policies]
    tried = [one for one, refusal in zip(policies, refusals, strict=True) if refusal is None]
    futures = draw(cell, steps, seeds, seed, None if everywhere else _prbs(tried))
    trial = _held_against(futures, [(one, blocked(one, futures)) for one in tried], cell.n_prbs)
    judged = iter(trial.outcomes)
    outcomes = [
        Outcome(one, {}, refusal) if refusal else next(judged) for one, refusal in zip(policies, refusals, strict=True)
    ]
    return replace(trial, outcomes=tuple(outcomes))


def try_with_part(cell: Cell | None, policy: Policy, horizon_s: float) -> Trial:
    """Try a policy, and the part of it that gains if it is another one; only their PRBs count, as with `try_policies`.

    The gain of a policy is the sum of those of its PRBs: the part is without those that gain nothing in the mean.  Both
    are tried in other futures than those in which the part was chosen, which would flatter it.  A policy that breaks a
    rule before it is tried is refused without a part.
    """
    if cell is None or _objection(policy, cell.n_prbs):
        return try_policies(cell, [policy], horizon_s, everywhere=False)
    prbs = _prbs([policy])
    futures = draw(cell, round(horizon_s * 1000 / STEP_MS), SEEDS, prbs=prbs)
    block = blocked(policy, futures)
    wanted = block & futures.ue
    gains = set(prbs[2 * _by_prb(wanted & futures.interferer) > _by_prb(wanted)].tolist())
    spans = [replace(span, prbs=tuple(prb for prb in span.prbs if prb in gains)) for span in policy.spans]
    part = Policy(f"part of {policy.name}", tuple(span for span in spans if span.prbs))
    if not part.spans or part.spans == policy.spans:
        return _held_against(futures, [(policy, block)], cell.n_prbs)
    return try_policies(cell, [policy, part], horizon_s, seed=OTHER_SEED, everywhere=False)


def _held_against(futures: Futures, policies: Sequence[tuple[Policy, Rows]], n_prbs: int) -> Trial:
    """The trial in these futures, of policies and what they block there."""
    blocks = [blocked(NOTHING, futures), *(block for _, block in policies)]
    figures = iter(_estimates(_figures(blocks, futures, n_prbs)))
    nothing = Outcome(NOTHING, next(figures), None)
    seeds, steps = futures.ue.shape[:2]
    return Trial(steps * STEP_MS, seeds, nothing, tuple(_judged(one, next(figures)) for one, _ in policies))


def _prbs(policies: Sequence[Policy]) -> NDArray[np.int64]:
    """All that they name."""
    return np.array(sorted({prb for one in policies for span in one.spans for prb in span.prbs}), np.int64)


def _objection(policy: Policy, n_prbs: int) -> Refusal | None:
    """Why a policy is not even tried."""
    for span in policy.spans:
        outside = [prb for prb in span.prbs if not 0 <= prb < n_prbs]
        if outside:
            text = f"{len(outside)} of its PRBs, {outside[0]} among them, are outside the carrier's 0-{n_prbs - 1}"
            return Refusal("range", text)
        if not 0 <= span.start_ms < span.end_ms <= MAX_STEPS * STEP_MS or (span.release_ms or 0) < 0:
            text = f"a block from {span.start_ms} to {span.end_ms} ms is none within {MAX_STEPS * STEP_MS} ms from now"
            return Refusal("range", text)
    changes = policy.changes_ms
    for before, after in pairwise(changes):
        if after - before < SPACING_MS:
            text = (
                f"its list changes after {before} ms and again after {after} ms; at least {SPACING_MS} ms lie between"
            )
            return Refusal("flapping", text)
    most = max((len(policy.at(time)) for time in changes), default=0)
    if n_prbs - most < MIN_KEPT * n_prbs:
        text = f"it leaves {n_prbs - most} of {n_prbs} PRBs to the UEs; at least {MIN_KEPT:.0%} must stay"
        return Refusal("capacity", text)
    return None


def _judged(policy: Policy, figures: dict[str, Estimate]) -> Outcome:
    gain, harm, taken = figures["gain"], figures["harm"], figures["taken"]
    if gain.low > 0:
        return Outcome(policy, figures, None)
    prbs = format_prbs(sorted({prb for span in policy.spans for prb in span.prbs})) or "none"
    text = f"blocking PRBs {prbs} takes {taken.mean:.0f} PRB-ms from the UEs, and leaves {harm.mean:.0f} of harm: "
    text += f"a gain of {gain.mean:.0f} PRB-ms ({gain.low:.0f} to {gain.high:.0f}) over doing nothing"
    return Outcome(policy, figures, Refusal("worse" if gain.mean < 0 else "no-gain", text))


def _figures(blocks: Sequence[Rows], futures: Futures, n_prbs: int) -> NDArray[np.float64]:
    """Of what policies block, in PRB-ms, shape ``(policies, figures, seeds)``."""
    ue, interferer = futures.ue, futures.interferer
    hit, clean = ue & interferer, ue & ~interferer
    harm_of_nothing = _sum(hit)
    used_of_nothing, all_of_it = _sum(ue | interferer), np.full(len(ue), float(ue.shape[1] * n_prbs))
    rows = []
    for block in blocks:
        avoided, taken = _sum(hit & block), _sum(clean & block)
        harm = harm_of_nothing - avoided
        rows.append([harm, taken, avoided - taken, all_of_it - _sum(block), used_of_nothing - taken])
    return np.asarray(np.array(rows) * STEP_MS, np.float64)


def _sum(rows: Rows) -> NDArray[np.float64]:
    # One by one: along an axis it takes ten times as long.
    return np.array([np.count_nonzero(row) for row in rows], np.float64)


def _by_prb(rows: Rows) -> NDArray[np.float64]:
    return _sum(np.ascontiguousarray(rows.reshape(-1, rows.shape[-1]).T))


def _estimates(values: NDArray[np.float64]) -> list[dict[str, Estimate]]:
    """Of each policy, of figures of shape ``(policies, figures, seeds)``."""
    seeds = values.shape[-1]
    means = values.mean(axis=-1)
    # A percentile interval of few values is too narrow (Hesterberg 2015).
    wider = np.sqrt(seeds / max(seeds - 1, 1))
    spread = (np.sort(values @ _draws(seeds), axis=-1) - means[..., None]) * wider
    rank = round((1 - LEVEL) / 2 * (RESAMPLES + 1))
    low, high = means + spread[..., rank - 1], means + spread[..., -rank]
    if seeds == 1:  # nothing is known of how others differ
        low, high = np.full_like(means, -np.inf), np.full_like(means, np.inf)
    return [
        {name: Estimate(float(means[k, n]), float(low[k, n]), float(high[k, n])) for n, name in enumerate(FIGURES)}
        for k in range(len(values))
    ]


@lru_cache(maxsize=4)
def _draws(seeds: int) -> NDArray[np.float64]:
    """Weights of the seeds in each resample, shape ``(seeds, RESAMPLES)``."""
    rng = np.random.Generator(np.random.PCG64(0))
    drawn = rng.multinomial(seeds, np.full(seeds, 1 / seeds), RESAMPLES)
    return np.asarray(drawn.T / seeds, np.float64)


def as_dict(outcome: Outcome) -> dict[str, Any]:
    """Plain data for a log or JSON."""
    figures: dict[str, Any] = {}
    for name, one in outcome.figures.items():
        figures[f"{name}_prb_ms"] = {"mean": one.mean, "ci95": [one.low, one.high]}
    refusal = outcome.refusal
    spans = [
        {"start_ms": one.start_ms, "end_ms": one.end_ms, "prbs": list(one.prbs), "release_ms": one.release_ms}
        for one in outcome.policy.spans
    ]
    reason = {"rule": refusal.rule, "text": refusal.text} if refusal else None
    return {"policy": outcome.policy.name, "spans": spans, "leaves": refusal is None, "refusal": reason, **figures}
