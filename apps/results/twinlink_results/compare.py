"""Two runs of one setting: which differences are real.

The unit is the round: each has new processes, and messages within a round are correlated.  For each cell the medians of
the rounds of A are compared with those of B: the ratio of their geometric means, with Welch's test of their logarithms,
which holds for few rounds and for unequal variances (a bootstrap over five rounds gives intervals that are a quarter
too narrow).  p is adjusted after Holm (1979) for the number of cells, so that at most one comparison in twenty calls a
difference real in error.

Two runs also differ in the load and the temperature of the machine.  So twinlink is compared a second time relative to
its bare library, round by round in each run, which removes such changes.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twinlink.appkit import formatting
from twinlink.appkit.records import Table
from twinlink.errors import ConfigurationError

from . import labels, load, metrics, results, statistics

FORMAT, VERSION = "twinlink-comparison", 1
ALPHA = 0.05
METHOD = "Welch's t-test of the logarithms of the rounds' figures, Holm-adjusted within each list"
QUANTITIES = {"rtt_p50": np.median, "rtt_mean": np.mean}
_LIKELY_TO_MATTER = ("hostname", "cpu_model", "cpus", "kernel", "python", "clocksource")

Records = tuple[Table, Table]  # of a cell: sent, received
Rounds = dict[int, float]  # of each round, the logarithm of its figure


def compare(folder_a: Path, folder_b: Path) -> dict[str, Any]:
    """Compare B with A; the fields are described in docs/results-format.md.

    Raises ConfigurationError where a folder is no run or the settings differ, DamagedRun, OSError.
    """
    runs = [results.load(folder) for folder in (folder_a, folder_b)]
    if runs[0]["setting"] != runs[1]["setting"]:
        raise ConfigurationError(
            f"{folder_a} was measured in the setting {runs[0]['setting']}, {folder_b} in {runs[1]['setting']}: their "
            "figures say nothing about each other; compare runs of one setting"
        )
    records = [
        {cell["id"]: (cell, *results.read(folder, cell, run["source"])) for cell in run["cells"]}
        for folder, run in zip((folder_a, folder_b), runs, strict=True)
    ]
    common = [name for name in records[0] if name in records[1]]
    rounds = [
        {quantity: {name: _rounds(side[name][1], figure) for name in common} for quantity, figure in QUANTITIES.items()}
        for side in records
    ]
    cells = [records[0][name][0] for name in common]
    found: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        "setting": runs[0]["setting"],
        "a": _about(folder_a, runs[0]),
        "b": _about(folder_b, runs[1]),
        "method": METHOD,
        "differences": list(_differences(*runs)),
        "only_in_a": [name for name in records[0] if name not in records[1]],
        "only_in_b": [name for name in records[1] if name not in records[0]],
        "subjects": [],
        "relative": [],
        "cells": [],
        "loss": _loss([(cell, *(side[cell["id"]][1:] for side in records)) for cell in cells]),
        "loss_free_rates": list(_rates([(records[0][name][0], records[1][name][0]) for name in common])),
    }
    for quantity in QUANTITIES:
        one, other = rounds[0][quantity], rounds[1][quantity]
        found["subjects"] += _holm(_subjects(quantity, cells, one, other))
        found["relative"] += _holm(_relative(quantity, cells, one, other))
        found["cells"] += _holm(
            _test(_place(cell) | {"quantity": quantity}, one[cell["id"]], other[cell["id"]])
            for cell in cells
            if one[cell["id"]] and other[cell["id"]]
        )
    return found


def _about(folder: Path, run: dict[str, Any]) -> dict[str, Any]:
    return {
        "folder": folder.name or str(folder),
        "started_ns": run["started_ns"],
        "complete": run["complete"],
        "busy": bool(load.warning(run.get("load") or ())),
    }


def _place(cell: dict[str, Any]) -> dict[str, Any]:
    return {key: cell[key] for key in ("id", "subject", "flow", "octets", "direction", "mode") if key in cell}


def _rounds(sent: Any, figure: Any) -> Rounds:
    return {
        number: float(np.log(figure(values))) for number, values in results.by_round(sent).items() if values.min() > 0
    }


def _differences(one: dict[str, Any], other: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Differences between the two runs' settings, hosts and versions, as far as they are recorded."""
    sides = [dict(_conditions(run)) for run in (one, other)]
    known = [(run["configuration"].get("used") or {}).get("subject_options", {}) for run in (one, other)]
    alone = tuple(f"configuration.subject_options.{subject}." for subject in known[0].keys() ^ known[1].keys())
    for key in dict.fromkeys([*sides[0], *sides[1]]):
        values = [side.get(key) for side in sides]
        if values[0] != values[1] and not key.startswith(alone):  # cells in one run only are reported elsewhere
            yield {"what": key, "a": values[0], "b": values[1]}


def _conditions(run: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    yield "rate_limit", run.get("rate_limit")
    yield "delay_ms", run.get("delay_ms")
    yield "source", run["source"]
    for side, facts in run["system"].items():
        for key in _LIKELY_TO_MATTER:
            yield f"{side}.{key}", (facts or {}).get(key)
        for name, version in ((facts or {}).get("versions") or {}).items():
            yield f"{side}.{name}", version
    for key, value in (run["configuration"].get("used") or {}).items():
        if key not in ("seed", "out"):
            yield from _flat(f"configuration.{key}", value)


def _flat(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, each in value.items():
            yield from _flat(f"{name}.{key}", each)
    else:
        yield name, value


def _test(about: dict[str, Any], one: Rounds, other: Rounds) -> dict[str, Any]:
    """B / A with its interval and p, which are None if a run has fewer rounds than `statistics.MIN_ROUNDS`."""
    a, b = (np.array(list(side.values()), np.float64) for side in (one, other))
    row = {
        **about,
        "a": float(np.exp(a.mean())),
        "b": float(np.exp(b.mean())),
        "ratio": float(np.exp(b.mean() - a.mean())),
        "ci95": None,
        "p": None,
        "rounds_a": len(a),
        "rounds_b": len(b),
    }
    if min(len(a), len(b)) >= statistics.MIN_ROUNDS:
        row |= _welch(a, b)
    return row


def _welch(a: NDArray[np.float64], b: NDArray[np.float64]) -> dict[str, Any]:
    from scipy import stats

    parts = [values.var(ddof=1) / len(values) for values in (a, b)]
    error = float(np.sqrt(sum(parts)))
    difference = float(b.mean() - a.mean())
    if error == 0.0:  # rounds without any scatter are synthetic
        return {"ci95": [float(np.exp(difference))] * 2, "p": 1.0 if difference == 0 else 0.0}
    freedom = sum(parts) ** 2 / sum(part**2 / (len(values) - 1) for part, values in zip(parts, (a, b), strict=True))
    half = float(stats.t.ppf(1 - ALPHA / 2, freedom)) * error
    return {
        "ci95": [float(np.exp(difference - half)), float(np.exp(difference + half))],
        "p": float(2 * stats.t.sf(abs(difference) / error, freedom)),
    }


def _subjects(quantity: str, cells: list[dict[str, Any]], *sides: dict[str, Rounds]) -> Iterator[dict[str, Any]]:
    """Each subject over all its cells of a mode: a round's figure is their geometric mean."""
    for subject, mode, names in _groups(cells):
        one, other = (_mean([side[name] for name in names if all(each[name] for each in sides)]) for side in sides)
        if one and other:
            yield _test({"subject": subject, "mode": mode, "quantity": quantity}, one, other)


def _relative(quantity: str, cells: list[dict[str, Any]], *sides: dict[str, Rounds]) -> Iterator[dict[str, Any]]:
    """Each subject relative to its bare library in the same rounds; a and b are those ratios."""
    places = {(cell["subject"], cell["octets"], cell["direction"], cell["mode"]): cell["id"] for cell in cells}
    for subject, mode, names in _groups(cells):
        base = labels.BASELINES.get(subject)
        pairs = [
            (cell["id"], places[key])
            for cell in cells
            if cell["id"] in names and (key := (base, cell["octets"], cell["direction"], mode)) in places
        ]
        pairs = [pair for pair in pairs if all(side[name] for side in sides for name in pair)]
        one, other = (
            _mean([{n: side[name][n] - side[raw][n] for n in side[name] if n in side[raw]} for name, raw in pairs])
            for side in sides
        )
        if one and other:
            yield _test({"subject": subject, "to": base, "mode": mode, "quantity": quantity}, one, other)


def _groups(cells: list[dict[str, Any]]) -> Iterator[tuple[str, str, list[str]]]:
    kinds = dict.fromkeys((cell["subject"], cell["mode"]) for cell in cells)
    for subject, mode in sorted(kinds, key=lambda kind: (labels.ordered(s for s, _ in kinds).index(kind[0]), kind[1])):
        yield subject, mode, [cell["id"] for cell in cells if (cell["subject"], cell["mode"]) == (subject, mode)]


def _mean(every: list[Rounds]) -> Rounds:
    """The mean over these, of each round that all of them have."""
    numbers = [number for number in every[0] if all(number in each for each in every)] if every else []
    return {number: float(np.mean([each[number] for each in every])) for number in numbers}


def _loss(cells: list[tuple[dict[str, Any], Records, Records]]) -> list[dict[str, Any]]:
    """Fisher's exact test of the lost messages, for cells that have any."""
    from scipy import stats

    rows = []
    for cell, a, b in cells:
        counts = [(len(sent) - len(metrics.arrivals(sent, received)), len(sent)) for sent, received in (a, b)]
        if cell["mode"] != "saturation" and all(n for _, n in counts) and any(lost for lost, _ in counts):
            p = stats.fisher_exact([[lost, n - lost] for lost, n in counts])[1]
            rows.append(_place(cell) | {"lost_a": counts[0][0], "sent_a": counts[0][1], "lost_b": counts[1][0],
                                        "sent_b": counts[1][1], "p": float(p)})  # fmt: skip
    return _holm(rows)


def _rates(cells: list[tuple[dict[str, Any], dict[str, Any]]]) -> Iterator[dict[str, Any]]:
    """Results of the searches: one figure per run, so without a verdict."""
    for a, b in cells:
        one, other = ((cell.get("search") or {}).get("highest_loss_free_hz") for cell in (a, b))
        if one and other:
            yield _place(a) | {"a_hz": one, "b_hz": other, "ratio": other / one}


def _holm(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows with p adjusted for their number, and whether the difference is real (None: cannot be told)."""
    rows = list(rows)
    tested = sorted((row for row in rows if row["p"] is not None), key=lambda row: row["p"])
    least = 0.0
    for place, row in enumerate(tested):
        least = max(least, min(1.0, row["p"] * (len(tested) - place)))
        row["p_holm"], row["real"] = least, least < ALPHA
    for row in rows:
        row.setdefault("p_holm", None)
        row.setdefault("real", None)
    return rows


def text(found: dict[str, Any]) -> str:
    """The comparison for people, as Markdown."""
    a, b = (f"{found[side]['folder']} ({formatting.date(found[side]['started_ns'])})" for side in "ab")
    where = labels.SETTINGS.get(found["setting"], found["setting"])
    lines = [
        f"# {found['b']['folder']} against {found['a']['folder']}",
        "",
        f"A is {a}, B is {b}; both: {where}. A ratio is B / A, of RTTs: above 1, B is slower.",
        *_warnings(found),
    ]
    sections = (
        ("Subjects, over all their cells", "subjects"),
        ("Against the bare library in the same rounds", "relative"),
        ("Cells", "cells"),
    )
    for title, key in sections:
        rows = [row for row in found[key] if row["quantity"] == "rtt_p50"]
        if rows:
            lines += ["", f"## {title}", "", *_rows(rows, key)]
    lines += _machine(found)
    lines += _means(found)
    if found["loss"]:
        lines += ["", "## Loss", "", "| cell | lost in A | lost in B | p | real |", "|---|---:|---:|---:|---|"]
        lines += [
            f"| {_name(row)} | {row['lost_a']} of {row['sent_a']} | {row['lost_b']} of {row['sent_b']} "
            f"| {formatting.p(row['p_holm'])} | {_real(row)} |"
            for row in found["loss"]
        ]
    if found["loss_free_rates"]:
        lines += ["", "## Highest rate without loss (one figure each: no verdict)", ""]
        lines += [
            f"- {_name(row)}: {row['a_hz']:,.0f} -> {row['b_hz']:,.0f} messages/s" for row in found["loss_free_rates"]
        ]
    lines += [
        "",
        f"{found['method']}; real: p < {ALPHA}. A real difference is one between these two runs, perhaps caused by "
        "the load of the machine: the lines relative to the bare library exclude that.",
    ]
    return "\n".join(lines)


def _warnings(found: dict[str, Any]) -> list[str]:
    lines = []
    for side in "ab":
        if not found[side]["complete"]:
            lines.append(f"- {side.upper()} was broken off: it may lack rounds and cells.")
        if found[side]["busy"]:
            lines.append(f"- {side.upper()} was measured on a busy machine, which may be the difference.")
    alone = [(len(found[f"only_in_{side}"]), side.upper()) for side in "ab" if found[f"only_in_{side}"]]
    lines += [f"- {number} cells are in {side} only and are not compared." for number, side in alone]
    lines += [f"- not the same: {row['what']}: A {row['a']}, B {row['b']}" for row in found["differences"]]
    return ["", *lines] if lines else []


def _rows(rows: list[dict[str, Any]], kind: str) -> list[str]:
    real = [row for row in rows if row["real"]]
    other = [row for row in rows if not row["real"]]
    lines = []
    if kind != "cells" or real:
        unit = "" if kind == "relative" else " (ms)"
        lines = [f"| | A{unit} | B{unit} | ratio | CI95 | p | real |", "|---|---:|---:|---:|---|---:|---|"]
        for row in real if kind == "cells" else rows:
            values = [f"{row[side]:.3f}" if kind == "relative" else formatting.ms(row[side]) for side in "ab"]
            interval = f"{row['ci95'][0]:.3f} to {row['ci95'][1]:.3f}" if row["ci95"] else "-"
            lines.append(
                f"| {_name(row)} | {values[0]} | {values[1]} | {row['ratio']:.3f} | {interval} "
                f"| {formatting.p(row['p_holm'])} | {_real(row)} |"
            )
        lines.append("")
    if kind == "cells":
        untold = [row for row in other if row["real"] is None]
        other = [row for row in other if row["real"] is not None]
        if other:
            ratios = sorted(row["ratio"] for row in other)
            lines.append(f"{len(other)} of {len(rows)} cells are inconclusive (ratios {ratios[0]:.3f} to "
                         f"{ratios[-1]:.3f}).")  # fmt: skip
        if untold:
            lines.append(
                f"{len(untold)} cells have fewer than {statistics.MIN_ROUNDS} rounds in one of the runs: no test is "
                "possible."
            )
    return lines


def _machine(found: dict[str, Any]) -> list[str]:
    """Note that baselines differ, which twinlink cannot have caused."""
    rows = [row for row in found["subjects"] if row["real"] and row["quantity"] == "rtt_p50"]
    each = formatting.listed(f"{_name(row)} ({row['ratio']:.3f})" for row in rows if labels.subject(row["subject"]).raw)
    if not each:
        return []
    return ["", f"**Without twinlink it differs too: {each}.** Host, load or libraries were not the same in both runs; "
            "what twinlink itself did stands under “Against the bare library”."]  # fmt: skip


def _means(found: dict[str, Any]) -> list[str]:
    """Note where means differ and medians do not: outliers."""
    rows = [row for row in found["cells"] if row["quantity"] == "rtt_mean" and row["real"]]
    medians = {row["id"] for row in found["cells"] if row["quantity"] == "rtt_p50" and row["real"]}
    rows = [row for row in rows if row["id"] not in medians]
    each = formatting.listed(f"{_name(row)} ({row['ratio']:.3f})" for row in rows)
    return ["", f"The mean differs, though not the median: {each}."] if rows else []


def _name(row: dict[str, Any]) -> str:
    parts = [labels.subject(row["subject"]).short]
    if row.get("to"):
        parts.append(f"/ {labels.subject(row['to']).short}")
    if "octets" in row:
        parts.append(f"{labels.place(row.get('flow', ''), row['octets'])} {labels.DIRECTIONS[row['direction']]}")
    if row["mode"] != "closed":
        parts.append(labels.MODES[row["mode"]])
    return " ".join(parts)


def _real(row: dict[str, Any]) -> str:
    return "cannot be told" if row["real"] is None else "yes" if row["real"] else "no"
