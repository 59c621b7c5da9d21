"""The report of an experiment: report.html."""

import re
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from twinlink_results import document, load

from twinlink.appkit import formatting

from . import report
from .description import Experiment
from .outcome import DONE, LEFT_OUT, Row

_HOW_TO_READ = "± is how far the CI95 reaches, - and + where that is not alike; n is the number of values."


def html(folder: Path, experiment: Experiment, rows: Sequence[Row], found: Mapping[str, Any]) -> str:
    """The page; its figures are in ``folder``."""
    title = f"twinlink experiment {experiment.name}: {experiment.title}"
    figures = "".join(_figure(folder / name, what) for name, what in found["figures"].items())
    findings = [(each["verdict"], report.finding(each)) for each in found["orderings"]]
    beyond = report.beyond(found)
    parts = [
        f"<h1>{escape(title)}</h1>",
        _verdict(rows, found),
        document.sentences(_told(experiment, found)),
        f"<h2>Measured here{', beside the published figures' if experiment.published.rows else ''}</h2>",
        _table(experiment, rows),
        _below(experiment, rows),
        f"<h2>Figures</h2>\n<div class='beside'>{figures}</div>",
        f"<h2>Findings of the paper</h2>\n{document.facts(findings)}" if findings else "",
        f"<h2>Beyond the table</h2>\n{document.items(beyond)}" if beyond else "",
        f"<h2>About the published figures</h2>\n{document.items(found['remarks'])}" if found["remarks"] else "",
        f"<h2>What was not the same</h2>\n{document.items(report.not_the_same(experiment, found))}",
        "<p class='soft'>Beside this page: results.json with every figure, table.md, and records/ or parts/ with every "
        "value.</p>",
    ]
    return document.page(title, parts)


def _verdict(rows: Sequence[Row], found: Mapping[str, Any]) -> str:
    missing = [row for row in rows if row.status not in (DONE, LEFT_OUT)]
    word = f"{len(missing)} of {len(rows)} cases missing" if missing else "complete"
    kind = document.BAD if missing or not rows else document.GOOD
    if not found["complete"]:
        word, kind = "broken off", document.BAD
    doubts = document.doubts(found["quick"], found["load"])
    if doubts and kind == document.GOOD:
        kind = document.DOUBTFUL
    return document.badge(", ".join([word, *doubts]), kind, formatting.date(found["started_ns"]))


def _told(experiment: Experiment, found: Mapping[str, Any]) -> list[tuple[str, str]]:
    told = [("What", experiment.what), ("Source", experiment.source), ("Measured", report.measured(found))]
    if busy := load.warning(found["load"]):
        told.append(("Load", busy))
    return told


def _table(experiment: Experiment, rows: Sequence[Row]) -> str:
    head = next(report.table_rows(experiment, []))
    words = len(experiment.table.case)
    lines = []
    for row in rows:
        theirs = experiment.published.of(row.case)
        cells = [document.word(text) for text in report.case_cells(experiment, row)]
        cells.append(document.cell(f"{row.n:,}", "" if row.status == DONE else row.status))
        for name in experiment.table.figures:
            paper = f"paper {theirs[name]:g}" if name in theirs else ""
            cells.append(document.cell(report.figure_text(row, name), paper))
        lines.append(f"<tr>{''.join(cells)}</tr>")
    return document.rows_table(head, lines, words)


def _below(experiment: Experiment, rows: Sequence[Row]) -> str:
    wrong = report.wrong(experiment, rows)
    texts = [f"{_HOW_TO_READ} {report.whence(experiment)}"]
    return document.notes(texts) + (f"<p>What went wrong, or was left out:</p>{document.items(wrong)}" if wrong else "")


def _figure(path: Path, what: str) -> str:
    title, *rest = re.split("[:;] ", what, maxsplit=1)
    caption = rest[0] if rest else ""
    return document.figure(path, title, f"{caption[0].upper()}{caption[1:]}." if caption else "")
