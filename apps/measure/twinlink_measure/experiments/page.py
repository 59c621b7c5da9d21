"""The report of an experiment: report.html."""

import re
from collections.abc import Mapping, Sequence
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
    return document.page(
        "experiment.html",
        f"twinlink experiment {experiment.name}: {experiment.title}",
        verdict=_verdict(rows, found),
        told=_told(experiment, found),
        published=experiment.published.rows,
        table=_table(experiment, rows),
        notes=[f"{_HOW_TO_READ} {report.whence(experiment)}"],
        wrong=report.wrong(experiment, rows),
        figures=[_picture(folder / name, what) for name, what in found["figures"].items()],
        findings=[(each["verdict"], report.finding(each)) for each in found["orderings"]],
        beyond=report.beyond(found),
        remarks=found["remarks"],
        not_the_same=report.not_the_same(experiment, found),
    )


def _verdict(rows: Sequence[Row], found: Mapping[str, Any]) -> document.Badge:
    missing = [row for row in rows if row.status not in (DONE, LEFT_OUT)]
    word = f"{len(missing)} of {len(rows)} cases missing" if missing else "complete"
    kind = document.BAD if missing or not rows else document.GOOD
    if not found["complete"]:
        word, kind = "broken off", document.BAD
    doubts = document.doubts(found["quick"], found["load"])
    if doubts and kind == document.GOOD:
        kind = document.DOUBTFUL
    return document.Badge(", ".join([word, *doubts]), kind, formatting.date(found["started_ns"]))


def _told(experiment: Experiment, found: Mapping[str, Any]) -> list[tuple[str, str]]:
    told = [("What", experiment.what), ("Source", experiment.source), ("Measured", report.measured(found))]
    if busy := load.warning(found["load"]):
        told.append(("Load", busy))
    return told


def _table(experiment: Experiment, rows: Sequence[Row]) -> document.Table:
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
        lines.append(cells)
    return document.Table(head, lines, words)


def _picture(path: Path, what: str) -> document.Picture:
    title, *rest = re.split("[:;] ", what, maxsplit=1)
    caption = rest[0] if rest else ""
    return document.picture(path, title, f"{caption[0].upper()}{caption[1:]}." if caption else "")
