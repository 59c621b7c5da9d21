"""The data file of an experiment: what is measured, the published values, and how both are printed.

An unknown key is an error, so that a misspelt one is not ignored.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from importlib import resources
from typing import Any, TypeVar

from twinlink.appkit import formatting
from twinlink.errors import ConfigurationError
from twinlink.spelling import near

from . import NAMES

Made = TypeVar("Made")
Case = dict[str, Any]  # what distinguishes a row, such as {"subject": "raw-mqtt", "octets": 100}


@dataclass(frozen=True, kw_only=True)
class Counts:
    """How often.

    Attributes:
        published: as the source says it.
        full, quick: by name, as the kind of the experiment takes them.
    """

    published: str
    full: Mapping[str, Any]
    quick: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Table:
    """How the rows are printed.

    Attributes:
        case: keys of a case, in the order of the columns.
        figures: name of a figure -> its column's head, with the unit.
        x: key of a case, across the figure, which shows the first of `figures`.
        line: keys of a case that share a colour there.
        x_label: of the figure.
        trend: what numbers the values in the order of time, for a figure of them; empty for none.
    """

    case: tuple[str, ...]
    figures: Mapping[str, str]
    x: str
    line: tuple[str, ...]
    x_label: str = ""
    trend: str = ""

    def mean(self) -> str | None:
        """The first figure that is a mean, of the values behind a row; None if the table has none."""
        return next((name for name in self.figures if name.rpartition("_")[2] == "mean"), None)

    def head(self, figure: str) -> tuple[str, str]:
        """The name and the unit in the head of a figure's column; an empty unit where it has none."""
        name, _, unit = self.figures[figure].partition(" (")
        return name, unit.removesuffix(")")


@dataclass(frozen=True, kw_only=True)
class Published:
    """Values of the source.

    Attributes:
        where: the table or figure.
        setting: in which they were measured.
        case: keys of a case that select a value's row here.
        figures: names of the figures of a row.
        rows: the values of `case`, then those of `figures`.
        remarks: contradictions in the source, and what it leaves open.
    """

    where: str
    setting: str
    case: tuple[str, ...] = ()
    figures: tuple[str, ...] = ()
    rows: tuple[tuple[Any, ...], ...] = ()
    remarks: tuple[str, ...] = ()

    def of(self, case: Mapping[str, Any]) -> dict[str, float]:
        """The published figures beside a row of ours; empty without any."""
        wanted = tuple(case.get(name) for name in self.case)
        for row in self.rows:
            if row[: len(wanted)] == wanted:
                return {
                    name: value for name, value in zip(self.figures, row[len(wanted) :], strict=True) if value != ""
                }
        return {}


@dataclass(frozen=True, kw_only=True)
class Ordering:
    """A finding of the source that has the form "a is less than b".

    Attributes:
        says: the finding, in words.
        where: the part of the case that all rows share.
        by: the key of the case that tells the rows apart.
        order: its values, from the least figure to the greatest.
        below: a limit that the figures of all rows are below, whatever their order; None: their order is the finding.
        figure: the figure.
        reason: why it may be otherwise here.
    """

    says: str
    by: str
    order: tuple[Any, ...]
    figure: str
    where: Mapping[str, Any] = field(default_factory=dict)
    below: float | None = None
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class Analysis:
    """Statistics over all rows.

    Attributes:
        within: the key of a case whose values are analysed one by one.
        compare: the key whose values are the groups of an analysis of variance; empty for none.
        correlate: pairs of figures.
    """

    within: str
    compare: str = ""
    correlate: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """A data file.

    Attributes:
        name: of the file.
        title: one line.
        source: the citation.
        kind: the module of this package that measures it.
        needs_root: whether it needs network namespaces.
        guest: whether it runs in a virtual machine (`twinlink_measure.guest`).
        modules, programs: Python modules and programs that it needs beside those of a report.
        what: what is measured, in a few sentences.
        counts, table, published, orderings, analysis: see their classes.
        labels: names for people, of values of a case.
        parts: what is measured one after the other; its keys are those of the kind.
        not_the_same: what differs from the source.
    """

    name: str
    title: str
    source: str
    what: str
    kind: str
    counts: Counts
    table: Table
    published: Published
    needs_root: bool = False
    guest: bool = False
    modules: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()
    orderings: tuple[Ordering, ...] = ()
    analysis: Analysis | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    parts: tuple[Mapping[str, Any], ...] = ()
    not_the_same: tuple[str, ...] = ()

    def label(self, value: Any) -> str:
        """A value of a case for people, below the head of its column."""
        text = f"{value:,}" if isinstance(value, int) and value >= formatting.SEPARATED else str(value)
        return self.labels.get(str(value), text)

    def told(self, key: str, value: Any) -> str:
        """A value of a case for people, where no head says what it is: "sweep 10 ms", "164 words", "Modbus"."""
        if isinstance(value, str):
            return self.label(value)
        name, unit = named(key)
        return f"{name} {value} {unit}" if unit else f"{self.label(value)} {name}"

    def case(self, case: Mapping[str, Any]) -> str:
        """A case for people."""
        return ", ".join(self.told(key, case[key]) for key in self.table.case if key in case)


def named(key: str) -> tuple[str, str]:
    """The name and the unit in a key: ``sweep_ms`` is "sweep" in "ms"."""
    name, _, last = key.rpartition("_")
    return (name.replace("_", " "), last) if last == "ms" else (key.replace("_", " "), "")


def load(name: str) -> Experiment:
    """The experiment of this name.  Raises ConfigurationError."""
    if name not in NAMES:
        told = f"no experiment is called {name!r}; `twinlink experiment list` names all"
        raise ConfigurationError(told + near(name, NAMES))
    text = resources.files(__package__).joinpath("data", f"{name}.toml").read_text(encoding="utf-8")
    return parse(name, text)


def parse(name: str, text: str) -> Experiment:
    """The experiment in a data file.  Raises ConfigurationError."""
    try:
        given = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(f"{name}.toml: {error}") from error
    for key, made in (("counts", Counts), ("table", Table), ("published", Published), ("analysis", Analysis)):
        if key in given:
            given[key] = _made(made, given[key], f"{name}.toml, [{key}]")
    given["orderings"] = tuple(
        _made(Ordering, each, f"{name}.toml, [[orderings]]") for each in given.get("orderings", [])
    )
    return _made(Experiment, {"name": name, **given}, f"{name}.toml")


def _made(made: type[Made], given: dict[str, Any], place: str) -> Made:
    known = {each.name for each in fields(made)}  # type: ignore[arg-type]
    if unknown := sorted(set(given) - known):
        raise ConfigurationError(f"{place}: unknown {', '.join(unknown)}; known: {', '.join(sorted(known))}")
    try:
        return made(**{name: _frozen(value) for name, value in given.items()})
    except TypeError as error:  # a key is missing
        raise ConfigurationError(f"{place}: {error}") from error


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value
