"""The figure of an experiment: its first figure over a key of the case, published values as hollow markers."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl

from .. import formatting, plot_style
from .description import Experiment
from .outcome import Row

_APART = 0.7  # of the distance between two places: the width of all lines there
_ABREAST = 7  # places with labels beside each other
_WIDE = 10.0  # ratio of the greatest value to the least, from which on the axis is logarithmic


def draw(path: Path, experiment: Experiment, rows: Sequence[Row], found: Mapping[str, Any]) -> None:
    """Draw it, as ``path`` (a PNG) and as SVG beside it.  Raises OSError."""
    shown, published = experiment.table, experiment.published
    name, label = next(iter(shown.figures.items()))
    places = list(dict.fromkeys(row.case.get(shown.x) for row in rows))
    lines = _lines(experiment, rows, places)
    with mpl.rc_context(plot_style.STYLE):
        figure, (axis,) = plot_style.panels(1, 3.2)
        values: list[float] = []
        for number, (line, mine) in enumerate(lines.items()):
            colour = plot_style.COLOURS[number % len(plot_style.COLOURS)]
            ours = [(x, value) for x, row in mine if (value := row.figures.get(name)) is not None]
            theirs = [(x, value) for x, row in mine if (value := published.of(row.case).get(name)) is not None]
            values += [value for _, value in ours + theirs]
            if ours:
                axis.plot(*zip(*ours, strict=True), "o", color=colour, label=line)
            if theirs:
                axis.plot(*zip(*theirs, strict=True), "o", mfc="none", ms=8, color=colour)  # a ring where it hides ours
        if values and min(values) > 0 and max(values) > _WIDE * min(values):
            axis.set_yscale("log")
            plot_style.plain(axis.yaxis, axis.get_ylim())
        elif values and max(values) > 0:
            axis.set_ylim(0 if min(values) > 0 else -0.05 * max(values), 1.1 * max(values))  # room for a marker at 0
        axis.set_xlim(-0.5, max(len(places), 1) - 0.5)
        axis.set_xticks(range(len(places)), [experiment.label(place) for place in places])
        if len(places) > _ABREAST:
            axis.tick_params(axis="x", labelrotation=90)
        axis.set(xlabel=shown.x_label or shown.x, ylabel=label)
        axis.set_title(experiment.title, wrap=True)
        plot_style.legend(figure, [axis])
        hollow = "; hollow: published" if any(name in published.of(row.case) for row in rows) else ""
        told = f"{formatting.EXPERIMENT_SETTINGS[found['setting']]}{hollow}"
        figure.suptitle(told, fontsize=8.5, color=plot_style.GREY, x=0.01, ha="left")
        plot_style.write(figure, path)


def _lines(experiment: Experiment, rows: Sequence[Row], places: list[Any]) -> dict[str, list[tuple[float, Row]]]:
    """The rows of each line, and where they stand across: beside the other rows of their place.

    Without another key than that of the places, there is one line, without a name.
    """
    shown = experiment.table
    keys = [key for key in shown.line if key != shown.x]
    lines: dict[str, list[tuple[float, Row]]] = {}
    for place, value in enumerate(places):
        here = [row for row in rows if row.case.get(shown.x) == value]
        for number, row in enumerate(here):
            aside = (number - (len(here) - 1) / 2) * _APART / len(here)
            line = ", ".join(experiment.told(key, row.case.get(key, "-")) for key in keys)
            lines.setdefault(line, []).append((place + aside, row))
    return lines
