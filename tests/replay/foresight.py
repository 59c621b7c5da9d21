"""What the what-if foresees against what the emulator then does: ``python -m tests.replay.foresight --episodes 200``.

Each episode is a recording of its own seed, with 2 to 8 UEs.  The twin's detector hears it for some seconds, until its
controller asks for a block of an interferer that has just come.  The model, fitted to what was heard, foresees the time
after it, with the block and without.  Then the emulator plays on: with the block it takes UEs from the blocked PRBs,
the detector hears the result, and the controller lets go of the PRBs when the interferer has left.

With ``--heard truth`` the model gets the truth of the recording instead of the detector's answers, and an ideal
controller stands for the twin's: a hundred times as fast.
"""

import argparse
import json
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from twinlink_ran_emulator.interferer import draw_episodes
from twinlink_ran_emulator.make_recording import Settings, make
from twinlink_ran_emulator.prb_block import PrbBlocker
from twinlink_ran_emulator.recording import Recording
from twinlink_ran_emulator.truth import mark
from twinlink_replay.detection.detector import Detector
from twinlink_replay.detection.features import PrbFeatures, prb_features, subcarrier_power
from twinlink_replay.trial.cell import fit
from twinlink_replay.trial.futures import Futures
from twinlink_replay.trial.heard import STEP_MS, STEP_NS, Heard, Rows
from twinlink_replay.trial.policy import Policy, Span
from twinlink_replay.trial.trying import SEEDS, try_policies
from twinlink_replay.twin.controller import HOLD_NS, MS, Controller

from twinlink.control import PrbBlock

from .cells import interferer_rows, ue_rows

START_S = 2.0  # the emulator begins with an empty carrier, which is not heard
ARMS = "nothing", "block"
FIGURES = "used", "blocked", "harm", "taken", "gain"
COLUMNS = "true", "error", "p95", "bias", "total", "low", "high"  # of what is printed
RESAMPLES = 4000  # of the episodes, for the intervals


@dataclass(frozen=True, slots=True)
class Plan:
    """How long is heard and foreseen, in seconds, and by what it is heard."""

    heard_s: float
    horizon_s: float
    detects: bool

    @property
    def cut(self) -> int:
        """The record from which on the next interferer is decided on."""
        return round((START_S + self.heard_s) * 1000 / STEP_MS)

    @property
    def steps(self) -> int:
        """Records that are foreseen."""
        return round(self.horizon_s * 1000 / STEP_MS)


@dataclass(frozen=True, slots=True)
class Episode:
    """Shares of the PRB-ms of the carrier, of shape ``(arms, figures)``; nan where a policy has no such figure."""

    seed: int
    true: NDArray[np.float64]
    foreseen: NDArray[np.float64]
    leaves: bool


def features(samples: NDArray[np.int16]) -> PrbFeatures:
    """As the twin makes them."""
    return prb_features(subcarrier_power(samples), samples)


def episode(plan: Plan, seed: int) -> Episode | None:
    """One of them; None if no interferer was found in time."""
    n_ues = int(np.random.default_rng(seed).integers(2, 9))
    seconds = START_S + plan.heard_s + 4 + plan.horizon_s
    settings = Settings(seconds=seconds, n_ues=n_ues, seed=10_000 + seed)
    n_records, n_prbs = settings.grid.n_records, settings.n_prbs
    ue, interferer = truth(settings)
    heard = Heard(n_prbs)
    if plan.detects:
        made = make(settings)
        marks, period_ns = mark(made.areas, "interferer", n_records, n_prbs), round(settings.period_ms * MS)
        recording = Recording(Path(), settings.grid, made.samples, made.areas, ue, marks, period_ns)
        found = _decided(plan, recording, heard)
        if found is None:
            return None
        now, prbs, held = found
    else:
        now = _until_new(plan, interferer)
        for k in range(round(START_S * 100), now):
            _hear(heard, k, ue[k] | interferer[k], interferer[k])
        prbs = tuple(np.flatnonzero(interferer[now]).tolist())
        held = np.zeros((plan.steps, n_prbs), np.bool_)
        held[:, prbs] = interferer_near(interferer[now : now + plan.steps, prbs], HOLD_NS // STEP_NS)
        held[0] = False
    futures = Futures(ue[None, now : now + plan.steps], interferer[None, now : now + plan.steps])
    policy = Policy("block", (Span(STEP_MS, plan.steps * STEP_MS, prbs, HOLD_NS // MS),))
    trial = try_policies(fit(heard), [policy], plan.horizon_s, SEEDS)
    full = n_prbs * plan.steps * STEP_MS
    foreseen = []
    for one in (trial.nothing, trial.outcomes[0]):
        mean = {name: estimate.mean / full for name, estimate in one.figures.items()}
        foreseen.append([mean["used"], 1 - mean["kept"], mean["harm"], mean["taken"], mean["gain"]])
    true = [_true(futures, np.zeros_like(held)), _true(futures, held)]
    return Episode(seed, np.array(true), np.array(foreseen), trial.outcomes[0].refusal is None)


def truth(settings: Settings) -> tuple[Rows, Rows]:
    """UEs and interferers of the recording that `make` makes, which draws each from a stream of its own."""
    n_records = settings.grid.n_records
    of_ues, _, _, of_interferers, _ = np.random.SeedSequence(settings.seed).spawn(5)
    rng = np.random.default_rng(of_interferers)
    episodes = draw_episodes(rng, settings.seconds, settings.n_prbs, settings.inr_db)
    return ue_rows(of_ues, n_records, settings.n_ues), interferer_rows(n_records, *episodes)


def _until_new(plan: Plan, interferer: Rows) -> int:
    """50 ms after the first interferer that comes after the cut."""
    there = interferer.any(axis=1)
    return int(np.flatnonzero(there[plan.cut :] & ~there[plan.cut - 1 : -1])[0]) + plan.cut + 5


def interferer_near(rows: Rows, release: int) -> Rows:
    """Where one was within the last records."""
    wide = np.concatenate([np.ones((1, rows.shape[1]), np.bool_), rows])
    return np.stack([wide[max(0, k + 1 - release) : k + 2].any(axis=0) for k in range(len(rows))])


def _hear(heard: Heard, record: int, occupied: Rows, interfered: Rows) -> None:
    heard.add(record * STEP_NS, occupied, interfered, np.zeros_like(occupied))


def _decided(plan: Plan, recording: Recording, heard: Heard) -> tuple[int, tuple[int, ...], Rows] | None:
    """The record at which the controller asks for a block, its PRBs, and what stands blocked after it."""
    n_prbs = recording.grid.n_prbs
    detector, controller = Detector(n_prbs, settle=False), Controller(n_prbs, "s", 2000)
    for first in range(round(START_S * 100), plan.cut, 16):
        records = range(first, min(first + 16, plan.cut))
        answer = detector.add(features(recording.samples[records.start : records.stop]))
        for k, record in enumerate(records):
            _hear(heard, record, answer.occupied[k] | answer.interfered[k], answer.interfered[k])
    asked: tuple[int, ...] | None = None
    known = heard.rows[1][-40:].any(axis=0)  # an interferer that was there before the cut is not decided on
    blocker, blocks, now = PrbBlocker(recording), np.zeros(n_prbs, np.bool_), 0
    held = np.zeros((plan.steps, n_prbs), np.bool_)
    for record in range(plan.cut, recording.grid.n_records):
        samples = blocker.apply(record, blocks)
        answer = detector.add(features(samples[None]))
        interfered = answer.interfered[0]
        if asked is None:
            known &= interfered
            _hear(heard, record, answer.occupied[0] | interfered, interfered)
            interfered = interfered & ~known
        else:
            if record - now == plan.steps:
                return now, asked, held
            held[record - now] = blocks
            # The policy is that of its PRBs: other interferers are others' decisions.
            interfered = np.isin(np.arange(n_prbs), asked) & interfered
        for item in controller.observe(interfered, record * STEP_NS, record * STEP_NS, record * STEP_NS):
            if isinstance(item, PrbBlock):
                blocks = np.zeros(n_prbs, np.bool_)
                blocks[list(item.prbs)] = True
                if asked is None and len(item.prbs) > 1:
                    asked, now = item.prbs, record + 1
    return None


def _true(futures: Futures, held: Rows) -> list[float]:
    ue, interferer = futures.ue[0], futures.interferer[0]
    avoided, taken = (ue & interferer & held).mean(), (ue & ~interferer & held).mean()
    used = ((ue & ~held) | interferer).mean()
    return [used, held.mean(), (ue & interferer & ~held).mean(), taken, avoided - taken]


def summary(episodes: list[Episode]) -> dict[str, dict[str, dict[str, float]]]:
    """Errors in per cent of the carrier's PRB-ms, by arm and figure; `total` in per cent of the true sum.

    `total_low` and `total_high` are the interval of 95 % of that: a bootstrap over whole episodes.
    """
    true, foreseen = (np.array([getattr(one, name) for one in episodes]) for name in ("true", "foreseen"))
    off = 100 * (foreseen - true)
    drawn = np.random.default_rng(0).integers(len(episodes), size=(RESAMPLES, len(episodes)))
    made: dict[str, dict[str, dict[str, float]]] = {arm: {} for arm in ARMS}
    for a, arm in enumerate(ARMS):
        for f, figure in enumerate(FIGURES):
            if not true[:, a, f].any():
                continue
            one, sum_of_true = off[:, a, f], 100 * true[:, a, f].sum()
            low, high = 100 * np.percentile(one[drawn].sum(axis=1), (2.5, 97.5)) / sum_of_true
            made[arm][figure] = {
                "true": sum_of_true / len(one),
                "error": float(np.abs(one).mean()),
                "error_p95": float(np.percentile(np.abs(one), 95)),
                "bias": float(one.mean()),
                "total": float(100 * one.sum() / sum_of_true),
                "total_low": float(low),
                "total_high": float(high),
            }
    return made


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.replay.foresight", description=__doc__)
    parser.add_argument("--episodes", type=int, default=200)
    parser.add_argument("--heard-s", type=float, default=20.0)
    parser.add_argument("--horizon-s", type=float, default=5.0)
    parser.add_argument("--heard", choices=("detector", "truth"), default="detector")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(argv)
    plan = Plan(given.heard_s, given.horizon_s, given.heard == "detector")
    seeds = range(given.first_seed, given.first_seed + given.episodes)
    with ProcessPoolExecutor(given.workers) as pool:
        found = list(pool.map(partial(episode, plan), seeds))
    episodes = [one for one in found if one is not None]
    errors = summary(episodes)
    gains = [bool(one.true[1, 4] > 0) for one in episodes if one.leaves]
    counts = {
        "episodes": len(episodes), "without_a_block": len(found) - len(episodes),
        "left": len(gains), "left_with_a_true_gain": sum(gains),
    }  # fmt: skip
    if given.json:
        print(json.dumps({**counts, "errors": errors}))
        return 0
    print(", ".join(f"{name.replace('_', ' ')}: {count}" for name, count in counts.items()))
    print("per cent of the carrier's PRB-ms; total: of all episodes together, per cent of the true sum; its interval")
    print(f"{'arm':8} {'figure':8} " + " ".join(f"{name:>8}" for name in COLUMNS))
    for arm, figures in errors.items():
        for figure, one in figures.items():
            print(f"{arm:8} {figure:8} " + " ".join(f"{value:8.2f}" for value in one.values()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
