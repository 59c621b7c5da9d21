"""The figures of an experiment: its first figure over a key of the case, the distributions, and values over time."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, NullLocator
from twinlink_results import labels, plot_style

from .description import Experiment
from .outcome import Row

MEANS, BOXES, TREND = "figure.png", "distribution.png", "over-time.png"
_APART = 0.7  # of the distance between two groups: the width of all lines there
_ABREAST = 7  # places with labels beside each other
_WIDE = 10.0  # ratio of the greatest value to the least, from which on an axis is logarithmic
_SHORTEST = 0.1  # of a value: a bar that reaches lower, or below 0, ends there on a log axis
_FEW = 5  # values, below which a box says nothing
_NEEDLE = 0.9  # of the place of a box: its width
_HATCHES = ("", "///", "...", "\\\\\\", "xxx", "|||", "---", "ooo", "+++")  # tell boxes apart without colour

Lines = dict[str, list[tuple[float, Row]]]


def drawings(experiment: Experiment, rows: Sequence[Row]) -> dict[str, str]:
    """The figures that these rows have data for: file -> what it shows."""
    shown = experiment.table
    name, label = next(iter(shown.figures.items()))
    bars = "; bars: CI95" if any(row.interval(name) for row in rows) else ""
    hollow = "; hollow: published" if any(name in experiment.published.of(row.case) for row in rows) else ""
    found = {MEANS: f"{label[0].upper()}{label[1:]}{bars}{hollow}"}
    if shown.mean() and any(len(row.values) >= _FEW for row in rows):
        found[BOXES] = (
            f"Distribution of the {_valued(experiment)}: box from the first to the third quartile with the median, "
            "whiskers from p5 to p95, dots beyond; cross: mean"
        )
    if shown.trend and any(len(row.values) for row in rows):
        found[TREND] = "Values in the order of time"
    return found


def draw(folder: Path, experiment: Experiment, rows: Sequence[Row], setting: str) -> None:
    """Draw `drawings`, as PNG and as SVG beside it.  Raises OSError."""
    ways: dict[str, Callable[[Experiment, Sequence[Row]], Figure]] = {MEANS: _means, BOXES: _boxes, TREND: _trend}
    with mpl.rc_context(plot_style.STYLE):
        for name in drawings(experiment, rows):
            figure = ways[name](experiment, rows)
            plot_style.legend(figure, figure.axes)
            told = labels.EXPERIMENT_SETTINGS[setting]
            figure.suptitle(told, fontsize=8.5, color=plot_style.GREY, x=0.01, ha="left")
            plot_style.write(figure, folder / name)


def _means(experiment: Experiment, rows: Sequence[Row]) -> Figure:
    """The first figure of the table, with its CI95 and the published values."""
    shown, published = experiment.table, experiment.published
    name, label = next(iter(shown.figures.items()))
    figure, (axis,) = plot_style.panels(1, 3.2)
    lines, is_scale = _lines(experiment, rows)
    values: list[float] = []
    for number, (line, mine) in enumerate(lines.items()):
        style = plot_style.line_style(number)
        ours = [(x, value, row.interval(name)) for x, row in mine if (value := row.figures.get(name)) is not None]
        theirs = [(x, value) for x, row in mine if (value := published.of(row.case).get(name)) is not None]
        values += [value for _, value, _ in ours] + [value for _, value in theirs]
        if ours:
            at, middle, ends = zip(*ours, strict=True)
            bars = np.transpose([_bar(*each) for each in zip(middle, ends, strict=True)])
            axis.errorbar(at, middle, bars, capsize=2, label=line, **(style if is_scale else style | {"ls": "none"}))
        if theirs:  # rings that ours do not hide
            axis.plot(*zip(*theirs, strict=True), **(style | {"ls": "none", "mfc": "none", "ms": 8}))
    _value_axis(axis, values, label)
    _places_axis(experiment, axis, rows, is_scale)
    axis.set_title(experiment.title, wrap=True)
    return figure


def _bar(value: float, interval: tuple[float, float] | None) -> tuple[float, float]:
    """How far a bar reaches, down and up."""
    if interval is None:
        return 0, 0
    low, high = interval
    return min(value - low, abs((1 - _SHORTEST) * value)), high - value if np.isfinite(high) else 0


def _boxes(experiment: Experiment, rows: Sequence[Row]) -> Figure:
    """The distribution of the single values of each row."""
    figure, (axis,) = plot_style.panels(1, 3.2)
    lines, _ = _lines(experiment, rows, may_be_scale=False)
    width = _NEEDLE * _APART / max(_abreast(experiment, rows), 1)
    every: list[float] = []
    for number, (line, mine) in enumerate(lines.items()):
        colour = plot_style.line_style(number)["color"]
        boxes = [(x, row.values) for x, row in mine if len(row.values) >= _FEW]
        if boxes:
            at, values = zip(*boxes, strict=True)
            every += [value for each in values for value in each]
            dots = {"marker": ".", "ms": 2, "mec": colour, "alpha": 0.5}
            drawn = axis.boxplot(
                values, positions=at, widths=width, whis=(5, 95), manage_ticks=False, patch_artist=True, showmeans=True,
                boxprops={"fc": "white", "ec": colour, "hatch": _HATCHES[number % len(_HATCHES)]}, flierprops=dots,
                meanprops={"marker": "x", "mec": colour, "ms": 4}, medianprops={"color": "black"},
                whiskerprops={"color": colour}, capprops={"color": colour},
            )  # fmt: skip
            drawn["boxes"][0].set_label(line)
    _value_axis(axis, every, _valued(experiment))
    _places_axis(experiment, axis, rows, False)
    axis.set_title(f"Distribution: {experiment.title}", wrap=True)
    return figure


def _trend(experiment: Experiment, rows: Sequence[Row]) -> Figure:
    """A panel for each series and each line of the other figures; in it a line for each place across those."""
    shown = experiment.table
    keys = [key for key in shown.line if key != shown.x]
    panels: dict[tuple[str, str], list[tuple[str, Sequence[float]]]] = {}
    for row in rows:
        group = ", ".join(experiment.told(key, row.case.get(key, "-")) for key in keys)
        for name, values in (row.series or {_valued(experiment): row.values}).items():
            if len(values):
                panels.setdefault((name, group), []).append((experiment.label(row.case.get(shown.x, "-")), values))
    names = list(dict.fromkeys(line for lines in panels.values() for line, _ in lines))
    groups = list(dict.fromkeys(group for _, group in panels))
    ordered = sorted(panels.items(), key=lambda panel: groups.index(panel[0][1]))
    figure, axes = plot_style.panels(len(panels), 1.7, share_x=True)
    for axis, ((name, group), lines) in zip(axes, ordered, strict=True):
        for line, values in lines:
            style = plot_style.line_style(names.index(line)) | {"ms": 3, "lw": 0.9}
            axis.plot(np.arange(1, len(values) + 1), values, label=line, markevery=0.1, **style)
        axis.set(ylabel=name, ylim=(0, 1.08 * max(max(values) for _, values in lines) or 1))
        axis.set_title(group or (experiment.title if axis is axes[0] else ""), wrap=True)
    axes[-1].set_xlabel(shown.trend)
    axes[-1].xaxis.set_major_locator(MaxNLocator(integer=True))
    return figure


def _valued(experiment: Experiment) -> str:
    """What single values are, with the unit, such as "RTT (ms)"."""
    name = experiment.table.mean()
    what, unit = experiment.table.head(name) if name else ("", "")
    what = what.removesuffix("mean").strip() or "time"
    return f"{what} ({unit})" if unit else what


def _lines(experiment: Experiment, rows: Sequence[Row], may_be_scale: bool = True) -> tuple[Lines, bool]:
    """The rows of each line with their places across, and whether these are a scale.

    Numbers are a scale: each row stands at its own.  Names are not: rows of one name stand beside each other.  Without
    another key than that of the places, there is one line, without a name.
    """
    shown = experiment.table
    keys = [key for key in shown.line if key != shown.x]
    places = _places(experiment, rows)
    is_scale = may_be_scale and all(isinstance(place, int | float) for place in places)
    lines: Lines = {}
    for number, place in enumerate(places):
        here = [row for row in rows if row.case.get(shown.x) == place]
        for among, row in enumerate(here):
            aside = (among - (len(here) - 1) / 2) * _APART / len(here)
            line = ", ".join(experiment.told(key, row.case.get(key, "-")) for key in keys)
            lines.setdefault(line, []).append((place if is_scale else number + aside, row))
    return lines, is_scale


def _places(experiment: Experiment, rows: Sequence[Row]) -> list[Any]:
    return list(dict.fromkeys(row.case.get(experiment.table.x) for row in rows))


def _abreast(experiment: Experiment, rows: Sequence[Row]) -> int:
    """The greatest number of rows of one place."""
    places = [row.case.get(experiment.table.x) for row in rows]
    return max(map(places.count, places), default=0)


def _value_axis(axis: Axes, values: Sequence[float], label: str) -> None:
    axis.set_ylabel(label)
    if values and min(values) > 0 and max(values) > _WIDE * min(values):
        axis.set_yscale("log")
        plot_style.plain(axis.yaxis, axis.get_ylim())
    elif values and max(values) > 0:
        top = max(1.1 * max(values), axis.get_ylim()[1])
        axis.set_ylim(0 if min(values) > 0 else min(-0.05 * top, 1.1 * min(values)), top)  # room for a marker at 0


def _places_axis(experiment: Experiment, axis: Axes, rows: Sequence[Row], is_scale: bool) -> None:
    shown, places = experiment.table, _places(experiment, rows)
    axis.set_xlabel(shown.x_label or shown.x)
    at: Sequence[float] = range(len(places))
    if is_scale:
        at = places
        least, most = min(places), max(places)
        if least > 0 and most > _WIDE * least:
            axis.set(xscale="log", xlim=(least / 1.8, most * 1.8))
        else:
            aside = 0.08 * ((most - least) or most or 1)
            axis.set_xlim(least - aside, most + aside)
        axis.xaxis.set_minor_locator(NullLocator())
    else:
        axis.set_xlim(-0.5, max(len(places), 1) - 0.5)
        axis.grid(visible=False, axis="x")
        for number in range(1, len(places)):
            axis.axvline(number - 0.5, color=plot_style.GREY, lw=0.5, alpha=0.4)
    axis.set_xticks(at, [experiment.label(place) for place in places])
    if len(places) > _ABREAST or sum(len(experiment.label(place)) for place in places) > plot_style.LONGEST:
        axis.tick_params(axis="x", labelrotation=90)
