"""Style, panels, axes, legend and captions that all figures share."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from textwrap import fill
from typing import Any

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

from twinlink.appkit import formatting

from . import labels

STYLE: Any = {
    "figure.dpi": 200,
    "savefig.dpi": 200,
    "figure.constrained_layout.use": True,
    "font.size": 9.5,
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.3,
    "grid.linewidth": 0.5,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "legend.handlelength": 3,
    "lines.dashdot_pattern": (3, 1.2, 1, 1.2),  # a legend shows more than its first dash
    "lines.markersize": 5,
    "svg.hashsalt": "twinlink",  # the same identifiers in each run
}
WIDTH = 4.8  # inches: on a phone (344 pixels) the text has the size of the page's small print
LONGEST = 58  # characters of the longest labels in two columns of a legend
ROWS = 4  # of a legend, for which a figure has room
ROW_HEIGHT = 0.18  # inches
_EDGE = 1e-6  # of the axis: what lies on its border is within
GREY = "#777777"
# Of lines that are no subjects: Okabe and Ito's colours and three more; without colour, `line_style` tells 27 apart.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7b4fa3", "#8c5a2b", "#333333")

MARKERS = "osv^D<>ph"
DASHES = ("-", "--", ":")

Cell = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Drawn:
    """A figure for the page.

    Attributes:
        path: the PNG; an SVG is beside it.
        title, caption: for people; the caption holds units, n and setting.
    """

    path: Path
    title: str
    caption: str


def line_style(number: int) -> dict[str, Any]:
    """Colour, marker and dashes of the line with this number."""
    again, place = divmod(number, len(COLOURS))
    return {"color": COLOURS[place], "marker": MARKERS[place], "ls": DASHES[again % len(DASHES)]}


def panels(number: int, height: float, share_x: bool = False) -> tuple[Figure, list[Axes]]:
    """A figure of ``number`` panels below each other, each ``height`` inches high."""
    figure, grid = plt.subplots(number, 1, squeeze=False, figsize=(WIDTH, 1.1 + height * number), sharex=share_x)
    return figure, list(grid[:, 0])


def legend(figure: Figure, axes: Iterable[Axes], **kwargs: Any) -> None:
    """One legend for all panels, below them; a long one makes the figure higher, and not the panels lower.

    It names what a panel shows: not a line that lies beyond its limits, which must be set before.
    """
    entries: dict[str, Any] = {}
    for axis in axes:
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
            line = handle[0] if isinstance(handle, ErrorbarContainer) else handle
            if label and _is_within(axis, line):
                entries.setdefault(label, line)
    if not entries:
        return
    order = [shown.short for shown in labels.SUBJECTS.values()]
    entries = dict(
        sorted(entries.items(), key=lambda entry: order.index(entry[0]) if entry[0] in order else len(order))
    )
    half = (len(entries) + 1) // 2
    width = sum(max(map(len, column), default=0) for column in ([*entries][:half], [*entries][half:]))
    rows, columns = (half, 2) if width <= LONGEST else (len(entries), 1)
    figure.set_figheight(figure.get_figheight() + max(0, rows - ROWS) * ROW_HEIGHT)
    figure.legend(entries.values(), entries, loc="outside lower center", ncols=columns, columnspacing=1.2, **kwargs)


def _is_within(axis: Axes, handle: Any) -> bool:
    """Whether a point of a line lies within the limits of its axis; other artists always do."""
    if not isinstance(handle, Line2D):
        return True
    points = (handle.get_transform() - axis.transAxes).transform(handle.get_xydata())
    return bool((np.isfinite(points) & (points >= -_EDGE) & (points <= 1 + _EDGE)).all(axis=1).any())


def payload_axis(axis: Axes, cells: list[Cell]) -> None:
    """Ticks at the payloads of these cells, on a log axis; 0 octets at its left."""
    octets = sorted({cell["octets"] for cell in cells})
    least = next((each for each in octets if each), 1)
    if octets[0]:
        axis.set_xscale("log")
    else:
        axis.set_xscale("symlog", linthresh=least)
    axis.set_xticks(octets, [formatting.payload(each) for each in octets])
    axis.xaxis.set_minor_locator(NullLocator())
    axis.set(xlabel="payload", xlim=(octets[0] / 1.8 or -least / 2, max(octets[-1], least) * 1.8))


def rate_axis(axis: Axes, rates: list[float]) -> None:
    """An axis of rates, logarithmic if they are far apart."""
    if max(rates) < 5 * min(rates):
        axis.set_xlim(0, 1.15 * max(rates))
        axis.xaxis.set_major_locator(MaxNLocator(5))
    else:
        axis.set_xscale("log")
        plain(axis.xaxis, axis.get_xlim())
    axis.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")


def log_ms(axis: Axes, label: str) -> None:
    """Make the y axis logarithmic, in ms; a panel without a positive time says so instead."""
    axis.set_ylabel(label)
    if _is_positive(axis, axis.dataLim.minposy):
        axis.set_yscale("log")
        plain(axis.yaxis, axis.get_ylim())


def log_ms_x(axis: Axes) -> None:
    """Make the x axis logarithmic, in ms; as `log_ms`."""
    if _is_positive(axis, axis.dataLim.minposx):
        axis.set_xscale("log")
        plain(axis.xaxis, axis.get_xlim())


def _is_positive(axis: Axes, least: float) -> bool:
    """Whether a log axis has data; ``least`` is the least positive value."""
    if not (there := bool(np.isfinite(least))):
        axis.text(0.5, 0.5, "nothing above 0", transform=axis.transAxes, ha="center", va="center", color=GREY)
    return there


def plain(axis: Any, limits: tuple[float, float]) -> None:
    """Decimal tick labels, as many as the range allows."""
    decades = np.log10(limits[1] / limits[0])
    axis.set_major_locator(LogLocator(subs=(1, 2, 5) if decades < 2.2 else (1, 3) if decades < 3.2 else (1,)))
    axis.set_major_formatter(lambda value, _: f"{value:g}")
    axis.set_minor_locator(NullLocator())


def n(cells: list[Cell]) -> str:
    """The number of messages behind each point, in words."""
    found = [cell["statistics"] for cell in cells if cell["statistics"]]
    # A recording may have the acks of one side only
    numbers = sorted({each["n_acknowledged"] or each["n_received"] for each in found})
    if not numbers:
        return "no message"
    return f"n = {numbers[0]:,}{f' to {numbers[-1]:,}' if numbers[-1] > numbers[0] else ''} a cell"


def write(figure: Figure, path: Path) -> None:
    """Write a figure as ``path``, a PNG, and as an SVG beside it, and close it.  Raises OSError, and leaves neither."""
    written = path, path.with_suffix(".svg")
    try:
        # `savefig` would draw twice for each file.  Without matplotlib's version and the date, files are reproducible.
        FigureCanvasAgg(figure).print_png(written[0], metadata={"Software": None})  # type: ignore[no-untyped-call]
        figure.set_layout_engine("none")  # everything has its place now
        metadata = {"Creator": None, "Date": None}
        FigureCanvasSVG(figure).print_svg(written[1], metadata=metadata)  # type: ignore[no-untyped-call]
    except OSError:  # such as a full disk
        for one in written:
            one.unlink(missing_ok=True)
        raise
    finally:
        plt.close(figure)


def save(
    figure: Figure, folder: Path, name: str, results: dict[str, Any], cells: list[Cell], title: str, caption: str
) -> Drawn:
    """Write the figure; title and caption begin with where and how it was measured."""
    mode = formatting.listed(dict.fromkeys(labels.MODES[cell["mode"]] for cell in cells))
    where = labels.setting(results)
    told = fill(f"{where}, {mode}; {n(cells)}", 70)
    figure.suptitle(told, fontsize=8.5, color=GREY, x=0.01, ha="left")
    path = folder / f"{name}.png"
    write(figure, path)
    return Drawn(path, title, f"{where[0].upper()}{where[1:]}, {mode}; {n(cells)}. {caption}")
