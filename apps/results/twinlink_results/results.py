"""Results of a run: everything that is derived from run.json and the raw records, and written beside them.

``rebuild`` computes results.json and makes table, figures and page from it.  It reads nothing but run.json and
``records/`` and adds no time or host of its own, so that a repetition gives the same files.  docs/results-format.md
describes the fields, and `schema` validates results.json.
"""

import json
import textwrap
from importlib import resources
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np

from twinlink.appkit import records
from twinlink.errors import ConfigurationError, TwinlinkError
from twinlink.process import files
from twinlink.process.text import decode, printable, to_json

from . import labels
from .rows import Records, Rows
from .run import FORMAT as RUN_FORMAT
from .run import RECORDS, RUN
from .run import VERSION as RUN_VERSION

FORMAT, VERSION = "twinlink-results", 1
RESULTS, TABLE_MD, TABLE_CSV, REPORT = "results.json", "table.md", "table.csv", "report.html"
FIGURES = "figures"

# Metrics of the trial at the highest rate
_AT_HIGHEST_RATE = ("n_sent", "loss_ratio", "goodput_bit_s", "goodput_mb_s", "one_way_delay_ns", "open_loop_delay_ns")
# Fields of a round that count the rows of a record; runs of earlier versions have no "arrivals".
_RUN_OCTETS = 128 * 1024 * 1024  # of a run.json at most; each cell takes some thousand
_COUNTED = {"sent": "sent", "received": "arrivals"}
_DERIVED = frozenset({"run_version", "comparisons", "statistics", "mgen"})  # fields of results.json only


class DamagedRun(TwinlinkError):
    """A file of a run cannot be read, or contradicts another; the message names file and line."""


def schema() -> dict[str, Any]:
    """The JSON schema (2020-12) of results.json."""
    text = resources.files(__package__).joinpath("results.schema.json").read_text(encoding="utf-8")
    return dict(json.loads(text))


def load(folder: Path) -> dict[str, Any]:
    """The content of run.json.

    Raises:
        ConfigurationError: this is not the folder of a run, or of one that this version cannot read.
        DamagedRun: run.json cannot be read, or lacks something.
    """
    path = folder / RUN
    if not path.is_file():
        what = "there is no such folder" if not folder.exists() else f"it holds no {RUN}"
        raise ConfigurationError(
            f"{folder} is not the folder of a sweep or a demo: {what}; `twinlink sweep --out DIR` makes one, or `demo`"
        )
    try:
        run = json.loads(decode(files.read(path, _RUN_OCTETS)))
        json.dumps(run, allow_nan=False)  # infinite numbers are no JSON, although Python reads them
    except (OSError, ValueError, RecursionError) as error:
        why = "its values are nested too deeply" if isinstance(error, RecursionError) else error
        raise DamagedRun(f"{path} cannot be read: {getattr(error, 'strerror', None) or why}") from error
    if not isinstance(run, dict) or run.get("format") != RUN_FORMAT:
        raise ConfigurationError(
            f"{path} is not that of a sweep or a demo; `twinlink sweep --out DIR` makes one, or `demo`"
        )
    if run.get("version") != RUN_VERSION:
        raise ConfigurationError(
            f"{path} has version {run.get('version')}, this twinlink reads {RUN_VERSION}: take the one that made it"
        )
    if wrong := jsonschema.exceptions.best_match(jsonschema.Draft202012Validator(_run_schema()).iter_errors(run)):
        field = wrong.json_path.removeprefix("$").removeprefix(".")
        raise DamagedRun(f"{path}: {field + ': ' if field else ''}{textwrap.shorten(wrong.message, 200)}")
    if len({cell["id"] for cell in run["cells"]}) < len(run["cells"]):
        raise DamagedRun(f"{path}: two cells have one id")
    return run


def _run_schema() -> dict[str, Any]:
    """The schema of run.json: that of results.json without the derived fields."""
    found = schema()
    for part in (found, found["$defs"]["cell"]):
        part["required"] = [name for name in part["required"] if name not in _DERIVED]
    found["properties"]["format"] = {"const": RUN_FORMAT}
    return found


def read(folder: Path, cell: dict[str, Any], source: str) -> tuple[records.Table, records.Table]:
    """The raw records of a cell, empty where it has none; ``source`` is the run's.  Raises DamagedRun."""
    tables = []
    for name, dtype in records.TABLES.items():
        path = records.file(folder / RECORDS, cell["id"], name)
        if not path.exists():
            expected = sum(each.get(_COUNTED[name], 0) for each in cell["rounds"])
            if cell["status"] == "done" and expected:
                raise DamagedRun(f"{path} is missing: {RUN} says that {expected} messages were {name}")
            tables.append(np.zeros(0, dtype))
            continue
        try:
            table = records.read(path)
        except (ValueError, OSError) as error:
            raise DamagedRun(str(error)) from error
        if table.dtype != dtype:
            raise DamagedRun(f"{path}, line 1: these are not the columns of a {name} record")
        tables.append(table)
    sent, received = tables
    if cell["status"] == "done":
        paths = [records.file(folder / RECORDS, cell["id"], name) for name in records.TABLES]
        for path, name, table in zip(paths, records.TABLES, tables, strict=True):
            _compare(path, cell, table, name)
        # MGEN numbers its messages itself; an application's messages have the link's numbers.
        _number(paths, cell, sent, received, source != "mgen" and "flow" not in cell)
    return sent, received


def _compare(path: Path, cell: dict[str, Any], table: records.Table, name: str) -> None:
    """Check the record ``sent`` or ``received`` against the counts in run.json."""
    wrong = table["octets"] > cell["octets"] if "flow" in cell else table["octets"] != cell["octets"]
    strange = np.flatnonzero(wrong)
    if len(strange):
        raise DamagedRun(
            f"{path}, line {strange[0] + 2}: {table['octets'][strange[0]]} octets in a cell of {cell['octets']}"
        )
    for each in cell["rounds"]:
        rows = int(np.count_nonzero(table["round"] == each["round"]))
        if rows != each.get(_COUNTED[name], rows):
            raise DamagedRun(
                f"{path} holds {rows} messages of round {each['round']}, where {RUN} says {each[_COUNTED[name]]} were"
                f" {name}"
            )
    strays = set(table["round"].tolist()) - {each["round"] for each in cell["rounds"]}
    if strays:
        raise DamagedRun(f"{path} holds messages of round {min(strays)}, of which {RUN} knows nothing")


def _number(paths: list[Path], cell: dict[str, Any], sent: records.Table, received: records.Table, ours: bool) -> None:
    """Check that messages of a round have distinct numbers, from 0 if ``ours``, and that no other one has arrived."""
    for each in cell["rounds"]:
        went, came = (np.flatnonzero(table["round"] == each["round"]) for table in (sent, received))
        numbers, arrived = sent["sequence"][went], received["sequence"][came]
        wrong = np.ones(len(went), bool)
        wrong[np.unique(numbers, return_index=True)[1]] = False
        wrong |= (numbers < 0) | (ours & (numbers >= len(went)))
        for path, table, rows, what in (
            (paths[0], sent, went[wrong], "is not that of one message of its round"),
            (paths[1], received, came[~np.isin(arrived, numbers)], "is of no message that was sent in its round"),
        ):
            if len(rows):
                raise DamagedRun(f"{path}, line {rows[0] + 2}: the sequence {table['sequence'][rows[0]]} {what}")


def compute(folder: Path, run: dict[str, Any]) -> tuple[dict[str, Any], Records]:
    """The content of results.json, and the rows behind it.

    Args:
        folder: of the run.
        run: the content of its run.json.

    Raises DamagedRun.
    """
    from . import metrics

    tables = {cell["id"]: read(folder, cell, run["source"]) for cell in run["cells"]}
    clocks = metrics.run_clocks([(cell, tables[cell["id"]][0]) for cell in run["cells"]])
    results = {**run, "format": FORMAT, "version": VERSION, "run_version": run["version"], "cells": []}
    rows = {}
    for cell in run["cells"]:
        sent, received = tables[cell["id"]]
        clock = clocks.get(cell["direction"])
        figures = metrics.cell(sent, received, cell["rounds"], run["setting"], clock=clock) if len(sent) else None
        if figures is not None and (number := _carrying(cell)) is not None:
            sent_then, received_then = (rows_of[rows_of["round"] == number] for rows_of in (sent, received))
            of_trial = metrics.cell(sent_then, received_then, [], run["setting"], clock=clock)
            figures["at_highest_rate"] = {"round": number, **{name: of_trial[name] for name in _AT_HIGHEST_RATE}}
        results["cells"].append({**cell, "statistics": figures, "mgen": _mgen(folder, run, cell, sent, received)})
        arrived = metrics.arrivals(sent, received)
        rows[cell["id"]] = Rows(sent, arrived, metrics.one_way_delays(arrived, clock, run["setting"]))
    results["comparisons"] = _comparisons(results["cells"], rows)
    return results, rows


def _carrying(cell: dict[str, Any]) -> int | None:
    """The round of a search that found the reported rate: its records are those of that trial."""
    search = cell.get("search") or {}
    found: dict[int, float] = {}
    for step in search.get("steps", []):
        if step["lossless"]:
            found[step["round"]] = max(step["rate_hz"], found.get(step["round"], 0.0))
    return next((number for number, rate in found.items() if rate == search["highest_loss_free_hz"]), None)


def _mgen(
    folder: Path, run: dict[str, Any], cell: dict[str, Any], sent: records.Table, received: records.Table
) -> dict[str, Any] | None:
    if cell["id"] not in (run.get("mgen") or {}):
        return None
    from . import mgen_delay

    try:
        return mgen_delay.figures(folder, cell, run["started_ns"], sent, received)
    except (OSError, ValueError) as error:
        raise DamagedRun(f"MGEN's side of {cell['id']}: {error}") from error


def _comparisons(cells: list[dict[str, Any]], found: Records) -> dict[str, Any]:
    """Comparisons of RTTs between the subjects of a cell: ANOVA and paired ratios."""
    from . import statistics

    anova, paired = [], []
    places: dict[tuple[int, str, str, float | None], dict[str, dict[int, Any]]] = {}
    for cell in cells:
        rounds = by_round(found[cell["id"]].sent)
        # In saturation each subject has another rate; an application's flows were not measured in turns.
        if rounds and cell["mode"] != "saturation" and "flow" not in cell:
            place = (cell["octets"], cell["direction"], cell["mode"], cell.get("rate_hz"))
            places.setdefault(place, {})[cell["subject"]] = rounds
    for (octets, direction, mode, rate_hz), subjects in places.items():
        about = {"octets": octets, "direction": direction, "mode": mode, "rate_hz": rate_hz, "quantity": "rtt_ns"}
        names = list(subjects)
        differ = statistics.compare({name: list(subjects[name].values()) for name in names})
        if differ:
            anova.append({**about, "subjects": names, **differ})
        for one, other in pairs(names):
            common = [each for each in subjects[one] if each in subjects[other]]
            a, b = ([subjects[name][each] for each in common] for name in (one, other))
            ratio = statistics.paired(a, b)
            if ratio:
                paired.append({**about, "subject": one, "to": other, **ratio})
    return {"anova": anova, "paired": paired}


def pairs(names: list[str]) -> list[tuple[str, str]]:
    """The compared subjects: twinlink with the bare library and TCP, and its transports with each other."""
    found = [(name, labels.BASELINES[name]) for name in names if labels.BASELINES.get(name) in names]
    found += [("raw-zenoh-default", name) for name in ("raw-zenoh", "zenoh") if {name, "raw-zenoh-default"} <= {*names}]
    found += [(name, "raw-tcp") for name in names if not name.startswith("raw-") and "raw-tcp" in names]
    brokered = [name for name in names if "mqtt" in name]
    found += [(name, other) for name in brokered for other in ("zeromq", "zenoh") if other in names]
    if {"zenoh", "zeromq"} <= {*names}:
        found.append(("zenoh", "zeromq"))
    return found


def by_round(sent: records.Table) -> dict[int, Any]:
    """The RTTs (ns) of the messages that were acknowledged, of each round that has any."""
    acknowledged = sent[sent["acknowledged"]]
    return {
        int(number): acknowledged["rtt_ns"][acknowledged["round"] == number].astype(float)
        for number in np.unique(acknowledged["round"])
    }


def rebuild(folder: Path, out: Path | None = None) -> dict[str, Any]:
    """Compute everything and write it; returns the content of results.json.

    Args:
        folder: of the run.
        out: where results.json, table, figures and page go; the run's folder when None.

    Raises ConfigurationError, DamagedRun, OSError.
    """
    results, rows = compute(folder, load(folder))
    derive(out or folder, results, rows)
    return results


def derive(out: Path, results: dict[str, Any], rows: Records) -> None:
    """Write the results of `compute` and everything made from them; the table first.  Raises OSError."""
    _write_tables(out, results)
    from . import figures, page  # matplotlib takes a second to import, which readers of results do not need

    drawn = figures.draw(out / FIGURES, results, rows)
    write(out / REPORT, page.html(results, drawn))


def tabulate(folder: Path, out: Path | None = None) -> tuple[dict[str, Any], Records]:
    """As `rebuild`, but results.json and the table only; returns the content of results.json and its rows."""
    results, rows = compute(folder, load(folder))
    _write_tables(out or folder, results)
    return results, rows


def _write_tables(out: Path, results: dict[str, Any]) -> None:
    from . import table, table_csv

    out.mkdir(parents=True, exist_ok=True)
    write(out / RESULTS, to_json(results, indent=1, allow_nan=False) + "\n")
    write(out / TABLE_MD, table.markdown(results))
    write(out / TABLE_CSV, table_csv.csv_text(results))


def write(path: Path, text: str) -> None:
    """Write a file atomically.  Raises OSError."""
    with files.whole(path) as part:
        part.write_text(printable(text), encoding="utf-8")
