"""The figures of a sweep with MGEN's own logs, as mgen-scripts/run leaves it: delays by payload, and their parts."""

from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray
from twinlink_results import labels, plot_style
from twinlink_results.mgen import log, log_join
from twinlink_results.mgen import records as bridge

from twinlink.appkit import formatting
from twinlink.errors import TwinlinkError

DELAYS, SHARES = "delay.png", "delay-parts.png"
_WIDTH = 0.35  # of a box, where 1 is the distance between two payloads
_WHOLE, _LINK, _BEFORE, _BEHIND = plot_style.COLOURS[:4]
_BOXES = (
    ("mgen_delay_ns", "MGEN, SEND to RECV", -0.2, _WHOLE, ""),
    ("link_delay_ns", "of it on the link", 0.2, _LINK, "///"),
)
_SHARES = (
    ("before_link_ns", "before the link", _BEFORE, ""),
    ("link_delay_ns", "on the link", _LINK, "///"),
    ("behind_link_ns", "behind the link", _BEHIND, "..."),
)

Delays = dict[str, NDArray[np.float64]]  # of a cell, in ms, by `MessageTrace`'s names


def read(folder: Path) -> dict[tuple[str, int], Delays]:
    """The delays of each cell, by direction and payload; a message without a figure is left out.

    Raises:
        TwinlinkError: the folder holds no such sweep, or its records are malformed.
        OSError: a file cannot be read.
    """
    try:
        rows = [row for side in ("rw", "dt") for row in bridge.read(folder / f"{side}.csv")]
    except ValueError as error:
        raise TwinlinkError(str(error)) from error
    cells: dict[tuple[str, int], Delays] = {}
    for direction in labels.DIRECTIONS:
        listener = folder / f"{direction.partition('-')[2]}.rx.drc"
        for sender in folder.glob(f"{direction}-*.tx.drc"):
            traces = log_join.join_logs(log.read(sender), log.read(listener), rows).traces
            names = ("mgen_delay_ns", "before_link_ns", "link_delay_ns", "behind_link_ns")
            found = {
                name: np.array([value for each in traces if (value := getattr(each, name)) is not None], float) / 1e6
                for name in names
            }
            if len(found["mgen_delay_ns"]):
                cells[direction, max(each.octets for each in traces)] = found
    if not cells:
        raise TwinlinkError(f"{folder} holds no sweep of mgen-scripts/run in which a message arrived")
    return cells


def draw(folder: Path, cells: dict[tuple[str, int], Delays]) -> list[Path]:
    """Draw `DELAYS` and `SHARES` into ``folder``, each as PNG and as SVG; returns the PNGs.  Raises OSError."""
    number = sorted(len(each["mgen_delay_ns"]) for each in cells.values())
    several = f" to {number[-1]:,}" if number[-1] > number[0] else ""
    told = f"{folder.resolve().name}; n = {number[0]:,}{several} a cell"
    with mpl.rc_context(plot_style.STYLE):
        _draw_delays(folder / DELAYS, cells, told)
        _draw_shares(folder / SHARES, cells, told)
    return [folder / DELAYS, folder / SHARES]


def _draw_delays(path: Path, cells: dict[tuple[str, int], Delays], told: str) -> None:
    """Boxes of MGEN's delay, and of the link's part of it."""
    directions = [each for each in labels.DIRECTIONS if any(direction == each for direction, _ in cells)]
    figure, axes = plot_style.panels(len(directions), 2.7)
    for axis, direction in zip(axes, directions, strict=True):
        payloads = sorted(octets for each, octets in cells if each == direction)
        for name, label, aside, colour, hatch in _BOXES:
            found = [(place + aside, cells[direction, octets][name]) for place, octets in enumerate(payloads)]
            if not (shown := [(place, each) for place, each in found if len(each)]):
                continue  # without records, the link's part is not known
            at, values = zip(*shown, strict=True)
            drawn = axis.boxplot(
                values, positions=at, widths=_WIDTH, whis=(5, 95), manage_ticks=False, patch_artist=True,
                boxprops={"fc": "white", "ec": colour, "hatch": hatch}, medianprops={"color": "black"},
                flierprops={"marker": ".", "ms": 2, "mec": colour, "alpha": 0.5}, whiskerprops={"color": colour},
                capprops={"color": colour},
            )  # fmt: skip
            drawn["boxes"][0].set_label(label)
        axis.set_xticks(range(len(payloads)), list(map(formatting.payload, payloads)))
        axis.set_title(f"{labels.DIRECTIONS[direction]}: delay of each message")
        axis.set_xlabel("payload; box: quartiles, whiskers: p5 and p95")
        plot_style.log_ms(axis, "delay (ms)")
    _finish(figure, axes, path, told)


def _draw_shares(path: Path, cells: dict[tuple[str, int], Delays], told: str) -> None:
    """Medians of the parts of MGEN's delay, on each other."""
    directions = [each for each in labels.DIRECTIONS if any(direction == each for direction, _ in cells)]
    figure, axes = plot_style.panels(len(directions), 2.3)
    for axis, direction in zip(axes, directions, strict=True):
        payloads = sorted(octets for each, octets in cells if each == direction)
        below = np.zeros(len(payloads))
        for name, label, colour, hatch in _SHARES:
            found = [cells[direction, octets][name] for octets in payloads]
            medians = np.array([np.median(each) if len(each) else 0.0 for each in found])
            axis.bar(range(len(payloads)), medians, 0.6, below, fc="white", ec=colour, hatch=hatch, label=label)
            below += medians
        axis.set_xticks(range(len(payloads)), list(map(formatting.payload, payloads)))
        axis.set_title(f"{labels.DIRECTIONS[direction]}: where the time goes")
        axis.set(xlabel="payload", ylabel="medians of the parts (ms)")
    _finish(figure, axes, path, told)


def _finish(figure: Figure, axes: list[Axes], path: Path, told: str) -> None:
    plot_style.legend(figure, axes)
    figure.suptitle(told, fontsize=8.5, color=plot_style.GREY, x=0.01, ha="left")
    plot_style.write(figure, path)
