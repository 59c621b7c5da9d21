"""What an experiment has found: the content of results.json, and its sentences and tables as Markdown."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from twinlink_results import labels, load

from twinlink.appkit import formatting

from . import analysis, verdicts
from .description import Experiment, named
from .outcome import DONE, Row

FORMAT, VERSION = "twinlink-experiment", 1

Section = tuple[str, list[Any]]  # heading, and paragraphs (str), lists (tuple) and tables (list of rows)


def content(experiment: Experiment, rows: Sequence[Row], about: Mapping[str, Any]) -> dict[str, Any]:
    """The content of results.json.

    Args:
        experiment: what was measured.
        rows: the cases.
        about: ``started_ns``, ``ended_ns``, ``complete``, ``quick``, ``setting``, ``hub``, ``counts``, ``system``,
            ``load`` (samples of `load.sample`), ``notes``, ``figures`` (those of its kind: file -> what it shows).
    """
    from .figure import drawings  # matplotlib takes a second to import

    published = experiment.published
    return {
        "format": FORMAT,
        "version": VERSION,
        "experiment": experiment.name,
        "title": experiment.title,
        "source": experiment.source,
        **about,
        "figures": {**drawings(experiment, rows), **about["figures"]},
        "published_counts": experiment.counts.published,
        "rows": [{**row.as_json(), "published": published.of(row.case)} for row in rows],
        "orderings": verdicts.judge(experiment, rows),
        "analysis": analysis.analyse(experiment, rows),
        "remarks": list(published.remarks),
        "not_the_same": list(experiment.not_the_same),
    }


def text(experiment: Experiment, rows: Sequence[Row], found: Mapping[str, Any]) -> str:
    """The report for a terminal, as Markdown."""
    return markdown(_sections(experiment, rows, found))


def _sections(experiment: Experiment, rows: Sequence[Row], found: Mapping[str, Any]) -> Iterator[Section]:
    published = experiment.published
    busy = load.warning(found["load"])
    first = [experiment.source, experiment.what, f"{measured(found)} {busy or ''}".rstrip()]
    yield f"{experiment.name}: {experiment.title}", first
    told: list[Any] = [[*table_rows(experiment, rows)], whence(experiment)]
    if failures := wrong(experiment, rows):
        told += ["What went wrong, or was left out:", failures]
    yield "Measured here, published in brackets" if published.rows else "Measured here", told
    if published.remarks:
        yield "About the published figures", [published.remarks]
    if found["orderings"]:
        yield "Findings of the paper", [tuple(f"{each['verdict']}: {finding(each)}" for each in found["orderings"])]
    drawn = (f"{path}: {what}" for path, what in found["figures"].items())
    yield "Beyond the table", [(*beyond(found), *drawn)]
    yield "What was not the same", [not_the_same(experiment, found)]


def whence(experiment: Experiment) -> str:
    """Where the published figures are from."""
    published = experiment.published
    return f"Published: {published.where}; {published.setting}."


def wrong(experiment: Experiment, rows: Sequence[Row]) -> tuple[str, ...]:
    """The cases that were left out, or in which something failed."""
    return tuple(f"{experiment.case(row.case)}: {row.status}, {row.reason}" for row in rows if row.reason)


def beyond(found: Mapping[str, Any]) -> tuple[str, ...]:
    """The analysis of all rows, and notes."""
    return (*(each["text"] for each in found["analysis"]), *found["notes"])


def not_the_same(experiment: Experiment, found: Mapping[str, Any]) -> tuple[str, ...]:
    """What differs from the paper, the number of values first."""
    # A list selects cases, which the table shows.
    counts = ", ".join(
        _count(experiment, name, value) for name, value in found["counts"].items() if not isinstance(value, list)
    )
    scaled = f"Number of values: published {found['published_counts']}; here {counts}"
    scaled += " (--quick: too few for conclusions)." if found["quick"] else "."
    told = "The hub was Node-RED here as well, with a flow of ours; what is written by OPC UA it passes on at once."
    hub = (told,) if found.get("hub") == "node-red" else ()
    return (scaled, *hub, *experiment.not_the_same)


def measured(found: Mapping[str, Any]) -> str:
    """When and where it was measured."""
    system = found["system"]
    state = "" if found["complete"] else " Broken off: what was measured until then is shown."
    where = labels.EXPERIMENT_SETTINGS[found["setting"]]
    return (
        f"{formatting.date(found['started_ns'])}, {where}, {system['cpus']} processors "
        f"({system['cpu_model']}), Linux {system['kernel']}, Python {system['python']}.{state}"
    )


def finding(each: Mapping[str, Any]) -> str:
    """A finding of the paper, with our figures."""
    reason = f" {each['reason']}" if each["reason"] else ""
    return f"{each['says']} ({each['figures']}).{reason}"


def table_rows(experiment: Experiment, rows: Sequence[Row]) -> Iterator[list[str]]:
    """Head and rows of the table; published figures in brackets."""
    shown, published = experiment.table, experiment.published
    yield [*map(_head, shown.case), "n", *shown.figures.values()]
    for row in rows:
        theirs = published.of(row.case)
        cells = [figure_text(row, name) + (f" ({theirs[name]:g})" if name in theirs else "") for name in shown.figures]
        mark = "" if row.status == DONE else f" ({row.status})"
        yield [*case_cells(experiment, row), f"{row.n:,}{mark}", *cells]


def case_cells(experiment: Experiment, row: Row) -> list[str]:
    """What distinguishes a row, in the columns of the table."""
    return [experiment.label(row.case.get(name, "-")) for name in experiment.table.case]


def figure_text(row: Row, name: str) -> str:
    """A figure with its CI95."""
    value, interval = row.figures.get(name), row.interval(name)
    if value is None:
        return "-"
    return formatting.around(value, *interval) if interval else formatting.grouped(value)


def _head(key: str) -> str:
    name, unit = named(key)
    return f"{name} ({unit})" if unit else name


def _count(experiment: Experiment, key: str, value: Any) -> str:
    name, unit = named(key)
    if isinstance(value, Mapping):  # by system
        return ", ".join(f"{name} of {experiment.label(system)} {number}" for system, number in value.items())
    return f"{name} {value} {unit}".rstrip()


def markdown(sections: Iterable[Section]) -> str:
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
