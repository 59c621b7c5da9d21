"""From seeds to a signed model and its report: recordings, labelled set, fit, and scores on unseen runs."""

import json
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from twinlink.identity import Identity

from . import evaluate, fit, labelled, report, runs, signed_model
from .labelled import CLASSES
from .model import Model

AT_ONCE = 2  # processes
MODEL, REPORT, FIGURES, TIMES, SET = "model.tlm", "report.md", "figures.json", "times.json", "set"
FIRST_TEST = 100_000  # seeds of test runs begin so far behind those of training runs

Tell = Callable[[str], object]


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is recorded.

    Attributes:
        seed: of everything.
        train_runs, test_runs: how many.
        train_seconds, test_seconds: length of each, in recorded time.
        session_runs: how many runs the emulator plays in a row.
    """

    seed: int = 1
    train_runs: int = 64
    test_runs: int = 24
    train_seconds: float = 8.0
    test_seconds: float = 20.0
    session_runs: int = 8

    @property
    def train_seeds(self) -> list[int]:
        """Of the training runs."""
        return [self.seed * 1_000_000 + k for k in range(self.train_runs)]

    @property
    def test_seeds(self) -> list[int]:
        """Of the test runs: none is a training run, of whatever size."""
        return [self.seed * 1_000_000 + FIRST_TEST + k for k in range(self.test_runs)]

    def sessions(self, seeds: Sequence[int]) -> list[list[int]]:
        """The seeds, a list for each session."""
        return [list(seeds[k : k + self.session_runs]) for k in range(0, len(seeds), self.session_runs)]


def plan(seed: int, thin: bool = False) -> Plan:
    """The plan of a seed; a thin one shows the path alone."""
    if thin:
        return Plan(seed, train_runs=8, test_runs=4, train_seconds=6.0, test_seconds=6.0, session_runs=4)
    return Plan(seed)


def train(folder: Path, plan: Plan, identity: Identity, tell: Tell) -> dict[str, Any]:
    """Everything; writes into the folder and returns the figures.

    Raises TwinlinkError (a process of the recordings failed, scikit-learn is missing, a class is missing), OSError.
    """
    fit.check_installed()
    work, begun = folder / SET, time.monotonic()
    work.mkdir(parents=True)
    with ProcessPoolExecutor(AT_ONCE) as pool:
        sessions = plan.sessions(plan.train_seeds)
        prepared, described = list[fit.Prepared](), list[dict[str, Any]]()
        for number, made in enumerate([pool.submit(_prepare, work, seeds, plan) for seeds in sessions], 1):
            parts, rows = made.result()
            prepared += parts
            described += rows
            tell(f"training runs: {number} of {len(sessions)} sessions recorded and read ({_since(begun)})")
        about = f"examples.train, seed {plan.seed}, {plan.train_runs} runs of {plan.train_seconds:g} s"
        model = fit.fit(prepared, plan.seed, about)
        tell(f"the model is trained on {sum(len(one.cells) for one in prepared):,} cells ({_since(begun)})")
        signed_model.write(folder / MODEL, model.encode(), identity)
        sessions = plan.sessions(plan.test_seeds)
        scores = list[evaluate.RunScore]()
        for number, scored in enumerate([pool.submit(_score, work, seeds, plan, model) for seeds in sessions], 1):
            of_session, rows = scored.result()
            scores += of_session
            described += rows
            tell(f"unseen runs: {number} of {len(sessions)} sessions recorded and scored ({_since(begun)})")
    (work / "set.json").write_text(json.dumps(described, indent=1) + "\n")
    figures = report.figures(scores, plan.seed, _summary(described, model))
    took = report.times(scores) | {"seconds": round(time.monotonic() - begun, 1)}
    (folder / FIGURES).write_text(json.dumps(figures, indent=1) + "\n")
    (folder / TIMES).write_text(json.dumps(took, indent=1) + "\n")
    (folder / REPORT).write_text(report.markdown(figures, took))
    return figures


def _since(begun: float) -> str:
    return f"{time.monotonic() - begun:.0f} s"


def _prepare(work: Path, seeds: list[int], plan: Plan) -> tuple[list[fit.Prepared], list[dict[str, Any]]]:
    """In a process of its own."""
    read = labelled.read(runs.record(work, seeds, plan.train_seconds))
    return [fit.prepare(run, plan.seed) for run in read], [_row(run, "train") for run in read]


def _score(
    work: Path, seeds: list[int], plan: Plan, model: Model
) -> tuple[list[evaluate.RunScore], list[dict[str, Any]]]:
    """In a process of its own."""
    read = labelled.read(runs.record(work, seeds, plan.test_seconds))
    return [evaluate.score(run, model) for run in read], [_row(run, "test") for run in read]


def _row(run: labelled.Run, part: str) -> dict[str, Any]:
    """A run in set.json."""
    counts = np.bincount(run.classes.ravel(), minlength=len(CLASSES))
    row = {"seed": run.seed, "part": part, "records": len(run.samples), "missing": run.missing, "sha256": run.sha256}
    if part == "train":
        row |= {"train_records": run.cut, "validation_from": run.cut + labelled.GAP}
    return row | {"cells": dict(zip(CLASSES, counts.tolist(), strict=True))}


def _summary(described: Sequence[dict[str, Any]], model: Model) -> dict[str, Any]:
    """The set, and what was chosen, in figures.json."""
    parts = Counter[str]()
    for row in described:
        parts[row["part"]] += 1
    missing = sum(row["missing"] for row in described)
    chosen = {"on": model.on, "off": model.off, "octets": len(model.encode())}
    return {"runs": dict(parts), "missing_records": missing, "model": chosen}


def discard_recordings(folder: Path) -> None:
    """Remove the recordings of a training, 5 KB a record; set.json stays."""
    for path in (folder / SET).iterdir():
        if path.suffix in (".mcap", ".sigmf-data", ".sigmf-meta"):
            path.unlink()
