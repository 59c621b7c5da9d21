"""What an experiment leaves: results.json, table.md, figure.png and report.html, beside the raw records."""

import html
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from .. import formatting, load, results
from . import analysis, verdicts
from .description import Experiment, named
from .outcome import DONE, Row

FORMAT, VERSION = "twinlink-experiment", 1
RESULTS, TABLE, FIGURE, REPORT = "results.json", "table.md", "figure.png", "report.html"

Section = tuple[str, list[Any]]  # heading, and paragraphs (str), lists (tuple) and tables (list of rows)


def content(experiment: Experiment, rows: Sequence[Row], about: Mapping[str, Any]) -> dict[str, Any]:
    """The content of results.json.

    Args:
        experiment: what was measured.
        rows: the cases.
        about: ``started_ns``, ``ended_ns``, ``complete``, ``quick``, ``setting``, ``hub``, ``counts``, ``system``,
            ``load`` (samples of `load.sample`), ``notes``, ``figures`` (further ones: file -> what it shows).
    """
    published = experiment.published
    return {
        "format": FORMAT,
        "version": VERSION,
        "experiment": experiment.name,
        "title": experiment.title,
        "source": experiment.source,
        **about,
        "published_counts": experiment.counts.published,
        "rows": [{**row.as_json(), "published": published.of(row.case)} for row in rows],
        "orderings": verdicts.judge(experiment, rows),
        "analysis": analysis.analyse(experiment, rows),
        "remarks": list(published.remarks),
        "not_the_same": list(experiment.not_the_same),
    }


def write(folder: Path, experiment: Experiment, rows: Sequence[Row], found: Mapping[str, Any]) -> None:
    """Write everything that is made of the content of results.json.  Raises OSError."""
    from . import figure

    folder.mkdir(parents=True, exist_ok=True)
    results.write(folder / RESULTS, json.dumps(found, indent=1, allow_nan=False) + "\n")
    sections = list(_sections(experiment, rows, found))
    results.write(folder / TABLE, markdown(sections))
    figure.draw(folder / FIGURE, experiment, rows, found)
    drawn = {FIGURE: experiment.title, **found["figures"]}
    results.write(folder / REPORT, _page(experiment, sections, drawn))


def text(experiment: Experiment, rows: Sequence[Row], found: Mapping[str, Any]) -> str:
    """The report for a terminal, as Markdown."""
    return markdown(_sections(experiment, rows, found))


def _sections(experiment: Experiment, rows: Sequence[Row], found: Mapping[str, Any]) -> Iterator[Section]:
    published = experiment.published
    yield f"{experiment.name}: {experiment.title}", [experiment.source, experiment.what, measured(found)]
    told: list[Any] = [[*table_rows(experiment, rows)]]
    beside = "In brackets: published" if published.rows else "Published"
    told.append(f"{beside}, {published.where}; {published.setting}.")
    wrong = tuple(f"{experiment.case(row.case)}: {row.status}, {row.reason}" for row in rows if row.reason)
    if wrong:
        told += ["What went wrong, or was left out:", wrong]
    yield "Measured here, published in brackets" if published.rows else "Measured here", told
    if published.remarks:
        yield "About the published figures", [published.remarks]
    if found["orderings"]:
        yield "Findings of the paper", [tuple(_verdict(each) for each in found["orderings"])]
    drawn = (f"{path}: {what}" for path, what in found["figures"].items())
    if beyond := (*(each["text"] for each in found["analysis"]), *found["notes"], *drawn):
        yield "Beyond the table", [beyond]
    # A list selects cases, which the table shows.
    counts = ", ".join(
        _count(experiment, name, value) for name, value in found["counts"].items() if not isinstance(value, list)
    )
    scaled = f"Number of values: published {found['published_counts']}; here {counts}"
    scaled += " (--quick: too few for conclusions)." if found["quick"] else "."
    hub = ("The hub was Node-RED here as well, with a flow of ours.",) if found.get("hub") == "node-red" else ()
    yield "What was not the same", [(scaled, *hub, *experiment.not_the_same)]


def measured(found: Mapping[str, Any]) -> str:
    """When and where it was measured."""
    system = found["system"]
    state = "" if found["complete"] else " Broken off: what was measured until then is shown."
    busy = load.warning(found["load"])
    where = formatting.EXPERIMENT_SETTINGS[found["setting"]]
    return (
        f"Measured {formatting.date(found['started_ns'])}, {where}, {system['cpus']} processors "
        f"({system['cpu_model']}), Linux {system['kernel']}, Python {system['python']}.{state}"
        + (f" {busy}" if busy else "")
    )


def _verdict(each: Mapping[str, Any]) -> str:
    reason = f" {each['reason']}" if each["reason"] else ""
    return f"{each['says']}: {each['verdict']} ({each['figures']}).{reason}"


def table_rows(experiment: Experiment, rows: Sequence[Row]) -> Iterator[list[str]]:
    """Head and rows of the table; published figures in brackets."""
    shown, published = experiment.table, experiment.published
    yield [*map(_head, shown.case), "n", *shown.figures.values()]
    for row in rows:
        theirs = published.of(row.case)
        cells = [_figure(row.figures.get(name), theirs.get(name)) for name in shown.figures]
        mark = "" if row.status == DONE else f" ({row.status})"
        yield [*(experiment.label(row.case.get(name, "-")) for name in shown.case), f"{row.n:,}{mark}", *cells]


def _figure(ours: float | None, theirs: float | None) -> str:
    text = "-" if ours is None else formatting.grouped(ours)
    return text if theirs is None else f"{text} ({theirs:g})"


def _head(key: str) -> str:
    name, unit = named(key)
    return f"{name} ({unit})" if unit else name


def _count(experiment: Experiment, key: str, value: Any) -> str:
    name, unit = named(key)
    if isinstance(value, Mapping):  # by system
        return ", ".join(f"{name} of {experiment.label(system)} {number}" for system, number in value.items())
    return f"{name} {value} {unit}".rstrip()


def markdown(sections: Iterator[Section] | list[Section]) -> str:
    """Sections as Markdown."""
    lines: list[str] = []
    for number, (heading, items) in enumerate(sections):
        lines += [f"{'#' if number == 0 else '##'} {heading}", ""]
        for item in items:
            if isinstance(item, str):
                lines += [item, ""]
            elif isinstance(item, tuple):
                lines += [*(f"- {each}" for each in item), ""]
            else:
                head, *others = item
                lines += [_line(head), _line(["---"] * len(head)), *map(_line, others), ""]
    return "\n".join(lines)


def _line(fields: Sequence[str]) -> str:
    return f"| {' | '.join(fields)} |"


_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}"
    "table{border-collapse:collapse;display:block;overflow-x:auto}"
    "td,th{padding:.2rem .6rem;border-bottom:1px solid #ddd;text-align:left}img{max-width:100%}"
)


def _page(experiment: Experiment, sections: Sequence[Section], drawn: Mapping[str, str]) -> str:
    images = "".join(f'<img src="{path}" alt="{html.escape(what)}">' for path, what in drawn.items())
    parts = []
    for number, (heading, items) in enumerate(sections):
        level = "h1" if number == 0 else "h2"
        parts.append(f"<{level}>{html.escape(heading)}</{level}>")
        for item in items:
            if isinstance(item, str):
                parts.append(f"<p>{html.escape(item)}</p>")
            elif isinstance(item, tuple):
                parts.append("<ul>" + "".join(f"<li>{html.escape(each)}</li>" for each in item) + "</ul>")
            else:
                tags = ["th", *["td"] * (len(item) - 1)]
                lines = (
                    "<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in row) + "</tr>"
                    for tag, row in zip(tags, item, strict=True)
                )
                parts.append(f"<table>{''.join(lines)}</table>{images}")
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>{html.escape(experiment.name)}</title><style>{_STYLE}</style>{''.join(parts)}</html>\n"
    )
