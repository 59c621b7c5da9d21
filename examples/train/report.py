"""The report of a training: figures that the seed reproduces, and beside them the times, which the machine makes."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from .evaluate import Counts, RunScore
from .labelled import CLASSES

RESAMPLES = 4000  # of the bootstrap
LEVEL = 95  # per cent of the intervals
KINDS = "", " settled", " blocks"
ANSWERS = "answers, record by record"
_SUBJECTS = {
    "": ANSWERS,
    " settled": "the same, from 5 s on",
    " blocks": "PRBs blocked by the controller",
}


def f1(counts: Sequence[Counts]) -> float:
    """Of precision and recall over the cells of all runs; 1 where there is nothing to find and nothing was found."""
    missed, false = sum(one.missed for one in counts), sum(one.false for one in counts)
    hits = sum(one.interfered for one in counts) - missed
    return 2 * hits / (2 * hits + missed + false) if hits + missed + false else 1.0


def figures(scores: Sequence[RunScore], seed: int, set_description: dict[str, Any]) -> dict[str, Any]:
    """All figures; the same recordings and seed give the same."""
    confusion = np.sum([one.confusion for one in scores], axis=0)
    return {
        "seed": seed,
        "set": set_description,
        "compared": {_SUBJECTS[kind]: _compared(scores, kind, seed) for kind in KINDS},
        "confusion": {name: dict(zip(CLASSES, row.tolist(), strict=True))
                      for name, row in zip(CLASSES, confusion, strict=True)},
        "calibration": _calibration(scores),
        "runs": [
            {"seed": one.seed} | {name: asdict(one.counts[name]) for name in ("model", "rule")} for one in scores
        ],
    }  # fmt: skip


def _compared(scores: Sequence[RunScore], kind: str, seed: int) -> dict[str, Any]:
    model, rule = ([one.counts[f"{who}{kind}"] for one in scores] for who in ("model", "rule"))
    rng = np.random.default_rng(seed)
    margins = []
    for _ in range(RESAMPLES):
        drawn = rng.integers(len(scores), size=len(scores))  # whole runs: cells of one are alike
        margins.append(f1([model[k] for k in drawn]) - f1([rule[k] for k in drawn]))
    low, high = np.percentile(margins, [(100 - LEVEL) / 2, (100 + LEVEL) / 2])
    return {
        "model": _described(model),
        "rule": _described(rule),
        "margin": round(f1(model) - f1(rule), 4),
        "interval": [round(float(low), 4), round(float(high), 4)],
        "beats": bool(low > 0),
    }


def _described(counts: Sequence[Counts]) -> dict[str, float]:
    missed, false = sum(one.missed for one in counts), sum(one.false for one in counts)
    there = sum(one.interfered for one in counts)
    return {
        "f1": round(f1(counts), 4),
        "precision": round((there - missed) / max(there - missed + false, 1), 4),
        "recall": round((there - missed) / max(there, 1), 4),
        "wrong_per_1000": round(1000 * (missed + false) / max(sum(one.cells for one in counts), 1), 3),
    }


def _calibration(scores: Sequence[RunScore]) -> dict[str, Any]:
    cells, summed, there = np.sum([one.bins for one in scores], axis=0)
    total = cells.sum()
    filled = np.maximum(cells, 1)
    rows = [
        {"cells": int(count), "said": round(float(said), 4), "is": round(float(seen), 4)}
        for count, said, seen in zip(cells, summed / filled, there / filled, strict=True)
    ]
    error = float(np.abs(summed - there).sum() / total)
    brier = sum(one.brier for one in scores) / total
    share = there.sum() / total
    skill = 1 - brier / (share * (1 - share)) if 0 < share < 1 else 0.0
    return {"bins": rows, "expected_error": round(error, 5), "brier": round(float(brier), 5),
            "brier_skill": round(float(skill), 4)}  # fmt: skip


def times(scores: Sequence[RunScore]) -> dict[str, Any]:
    """Of the machine on which it ran: ms of a record, and the ratio of the medians."""
    all_of = {name: np.concatenate([one.times_ns[name] for one in scores]) / 1e6 for name in ("model", "rule")}
    described = {
        name: {"median_ms": round(float(np.median(values)), 3), "p99_ms": round(float(np.percentile(values, 99)), 3)}
        for name, values in all_of.items()
    }
    return {**described, "ratio": round(float(np.median(all_of["model"]) / np.median(all_of["rule"])), 3)}


def digest(found: dict[str, Any]) -> str:
    """SHA-256 of the figures: equal where a training was repeated."""
    return hashlib.sha256(json.dumps(found, sort_keys=True).encode()).hexdigest()


def verdict(found: dict[str, Any]) -> str:
    """Whether the model beats the rule, as a sentence."""
    first = found["compared"][ANSWERS]
    low, high = first["interval"]
    text = f"F1 {first['model']['f1']:.3f} against {first['rule']['f1']:.3f}, by {first['margin']:+.3f}"
    text += f" ({LEVEL} % interval {low:+.3f} to {high:+.3f}, bootstrap over {len(found['runs'])} unseen runs)"
    if missing := found["set"].get("missing_records"):
        text += f"; {missing} records are missing, so that another run of this seed gives other figures"
    return f"the model {'beats' if first['beats'] else 'does not beat'} the rule: {text}"


def markdown(found: dict[str, Any], took: dict[str, Any]) -> str:
    """The report as a page."""
    lines = ["# A model for PRBs, beside the rule", "", f"{_sentence(verdict(found))}", "", *_about(found["set"])]
    lines += ["| on unseen runs | F1 | precision | recall | wrong of 1000 cells | margin of F1 | interval |"]
    lines += ["|---|---|---|---|---|---|---|"]
    for subject, one in found["compared"].items():
        for who in ("model", "rule"):
            row = one[who]
            margin = f"{one['margin']:+.4f} | {one['interval'][0]:+.4f} to {one['interval'][1]:+.4f}"
            tail = margin if who == "model" else " | "
            lines.append(f"| {who}: {subject} | {row['f1']} | {row['precision']} | {row['recall']} "
                         f"| {row['wrong_per_1000']} | {tail} |")  # fmt: skip
    lines += ["", "Confusion of the model (cells; rows: truth):", "", "| | " + " | ".join(CLASSES) + " | recall |"]
    lines += ["|---" * (len(CLASSES) + 2) + "|"]
    for name, row in found["confusion"].items():
        recall = row[name] / max(sum(row.values()), 1)
        lines.append(f"| {name} | " + " | ".join(f"{row[other]:,}" for other in CLASSES) + f" | {recall:.3f} |")
    calibration = found["calibration"]
    lines += ["", f"Calibration of the probability of an interferer: expected error {calibration['expected_error']}, "
              f"Brier score {calibration['brier']}, skill {calibration['brier_skill']}.", ""]  # fmt: skip
    lines += ["| said | is | cells |", "|---|---|---|"]
    lines += [f"| {row['said']} | {row['is']} | {row['cells']:,} |" for row in calibration["bins"]]
    lines += ["", f"Time of a record on this machine: model {took['model']['median_ms']} ms (p99 "
              f"{took['model']['p99_ms']} ms), rule {took['rule']['median_ms']} ms (p99 {took['rule']['p99_ms']} ms): "
              f"ratio of the medians {took['ratio']}."]  # fmt: skip
    lines += ["", f"Seed {found['seed']}; SHA-256 of the figures {digest(found)}.", ""]
    return "\n".join(lines)


def _about(described: dict[str, Any]) -> list[str]:
    """What the figures are of."""
    runs, missing = described["runs"], described["missing_records"]
    return [
        f"Both answer the same records of {runs['test']} runs; {runs['train']} others, of other seeds, trained the "
        f"model ({missing} records of all are missing). The rule is the detector's filtered answer. An interval is a "
        f"bootstrap over whole test runs, {RESAMPLES:,} resamples. All runs are of one world, the emulator's: "
        "docs/train.md has the figures of others.",
        "",
    ]


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:] + "."
