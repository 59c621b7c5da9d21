"""Experiments that a sweep can measure.  Each part is a sweep of its own, with its options and its path.

The folder of a part is that of a sweep (docs/results-format.md); `twinlink report` makes its table again.

Keys of a part: ``name``, ``subjects``, ``payloads``, ``directions``, ``options``, ``delay_ms``.
Counts: ``count`` messages of each cell, in ``rounds``; ``warm_up`` before each; ``payloads`` replaces those of
the parts, ``parts`` selects some.
"""

import dataclasses
import math
import time
from typing import Any

from twinlink_results import results, table
from twinlink_results.rows import Rows
from twinlink_results.run import Run as Recording

from ..cells import Plan
from ..setting import Setting
from ..sweep import Sweep
from .measuring import Run
from .outcome import DONE, Row, spread

PARTS = "parts"
TIMEOUT_S = 5.0


def measure(run: Run) -> list[Row]:
    """Sweep each part."""
    rows: list[Row] = []
    parts = [part for part in run.experiment.parts if part["name"] in run.counts.get("parts", (part["name"],))]
    for number, part in enumerate(parts):
        if run.stopped():
            break
        rows += _measure_part(run, part, number, len(parts))
    return rows


def _measure_part(run: Run, part: Any, number: int, parts: int) -> list[Row]:
    plan = Plan(
        subjects=tuple(part["subjects"]),
        payloads=tuple(run.counts.get("payloads") or part["payloads"]),
        directions=tuple(part.get("directions", ("rw-dt",))),
        count=run.counts["count"],
        rounds=run.counts["rounds"],
        warm_up=run.counts.get("warm_up", Plan.warm_up),
        timeout_s=TIMEOUT_S,
        options={name: dict(options) for name, options in part.get("options", {}).items()},
    )
    folder = run.folder / PARTS / part["name"]
    with run.place(part.get("delay_ms", 0)) as setting:
        recording = Recording(folder, _content(plan, setting, part))
        name = f"{run.experiment.label(part['name'])}, " if parts > 1 else ""

        def step(what: str, share: float, left_s: float | None) -> None:
            run.step(f"{name}{what}", (number + share) / parts, left_s if parts == 1 else None)

        Sweep(plan, setting, recording, step, run.stopped, run.say).execute()
    found, records = results.tabulate(folder)
    return [_row(cell, part["name"], records[cell["id"]]) for cell in found["cells"]]


def _content(plan: Plan, setting: Setting, part: Any) -> dict[str, Any]:
    return {
        "started_ns": time.time_ns(),
        "ended_ns": None,
        "complete": False,
        "configuration": {"given": {}, "used": {**dataclasses.asdict(plan), **setting.describe()}},
        "setting": setting.name,
        "rate_limit": None,
        "delay_ms": part.get("delay_ms") or None,
        "source": "twinlink",
        "system": {"real_world": None, "digital_twin": None},
        "ntp": {side: {"error": "not asked"} for side in ("real_world", "digital_twin")},
        "idle_rtt_ns": {},
        "mgen": None,
    }


def _row(cell: dict[str, Any], part: str, messages: Rows) -> Row:
    case = {"part": part, **{name: cell[name] for name in ("direction", "octets", "subject")}}
    figures = cell["statistics"]
    records = f"{PARTS}/{part}"
    if figures is None:
        return Row(case, status=cell["status"], reason=cell["reason"], records=records)
    values = messages.sent["rtt_ns"][messages.sent["acknowledged"]] / 1e6
    rtt, owd, wire = figures["rtt_ns"], figures["one_way_delay_ns"], figures["wire_octets_per_message"]
    row = Row(case, figures["n_acknowledged"], {}, None, cell["status"], cell["reason"], figures["lost"], records)
    if rtt:
        row.figures, row.ci95 = spread(values)
        row.values = values.tolist()
    row.figures["latency"] = owd["mean"] / 1e6 if owd and owd["usable"] else None
    if owd and owd["usable"] and owd["ci95"]:
        low, high = owd["ci95"]
        row.intervals["latency"] = low / 1e6, high / 1e6
        least, most = table.throughput_interval(figures)
        if least is not None:
            row.intervals["throughput"] = least, math.inf if most is None else most
    row.figures["throughput"] = figures["paper_throughput_mb_s"]
    if wire and None not in wire.values():
        row.figures["octets"] = sum(wire.values())
        row.figures["ratio"] = cell["octets"] / sum(wire.values())
    row.figures["round_trips"] = cell["round_trips"]
    if row.status == DONE and row.missing:
        row.reason = f"{row.missing} messages were lost"
    return row
