"""Figures with PRBs on one axis and time on the other."""

from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import ListedColormap
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle
from numpy.typing import NDArray
from twinlink_ran_emulator.truth import areas_of
from twinlink_replay.detection.features import to_dbfs
from twinlink_results.plot_style import write

from .evidence import Cells, Playout, Rebuilt, Times, prb_power
from .score import on_air

ROWS = 900  # of an image; more records are averaged
WIDTH = 7.2
SPECTRUM = "magma"
FREE, UE, FOUND, MISSED, FALSE = "#f4f4f2", "#8db4d8", "#e8590c", "#111111", "#9c36b5"
BLOCK, TRUTH, NOTHING = "#2b8a3e", "#000000", "#9a9a9a"
PAUSE_PERIODS = 3  # between two records, from which on the playout has paused

Image = NDArray[np.float32]


def spectrogram(path: Path, playout: Playout, rebuilt: Rebuilt, name: str) -> None:
    """Two waterfalls on one colour scale: played and rebuilt."""
    left, right = to_dbfs(prb_power(playout.samples)), _rebuilt_dbfs(playout, rebuilt)
    low, high = np.nanpercentile(left, [2, 99.8])
    figure, axes = plt.subplots(1, 2, sharey=True, figsize=(WIDTH, 6.6))
    shown = ScalarMappable()
    for axis, power, title in zip(axes, (left, right), ("Real World: heard by the gNB", "Digital Twin: rebuilt"),
                                  strict=True):  # fmt: skip
        axis.set_facecolor(NOTHING)  # lost records
        extent = (-0.5, power.shape[1] - 0.5, _seconds(playout), 0)
        shown = axis.imshow(_thin(power), aspect="auto", extent=extent, cmap=SPECTRUM, vmin=low, vmax=high)
        axis.set_title(title)
        axis.set_xlabel("PRB")
    axes[0].set_ylabel("time (s)")
    bar = figure.colorbar(shown, ax=axes, orientation="horizontal", shrink=0.7, aspect=40, pad=0.02)
    bar.set_label(f"mean power per subcarrier (dBFS); transport: {name}")
    write(figure, path)


def prbs(path: Path, playout: Playout, rebuilt: Rebuilt, name: str) -> None:
    """Occupancy as detected, interferer as played and as detected, the block, and the share of PRBs in use."""
    n_records = len(playout.ue)
    found = on_air(rebuilt.interfered, rebuilt, n_records, False)
    seen = on_air(rebuilt.occupied, rebuilt, n_records, False)
    figure, axes = plt.subplots(3, 1, sharex=True, figsize=(WIDTH, 8.4), height_ratios=(3, 3, 1.3))

    _classes(axes[0], playout, np.where(found, 2, np.where(seen, 1, 0)), [FREE, UE, FOUND])
    axes[0].set_title(f"What the twin made of each PRB ({name})")
    _legend(axes[0], [Patch(fc=FREE, ec="#bbbbbb", label="free"), Patch(fc=UE, label="UE traffic"),
                      Patch(fc=FOUND, label="interferer")])  # fmt: skip

    truth = playout.interferer
    kinds = np.select([truth & found, truth & ~found, ~truth & found], [1, 2, 3], 0)
    _classes(axes[1], playout, kinds, ["#ffffff", FOUND, MISSED, FALSE])
    _outline(axes[1], playout, truth, TRUTH, 0.9)
    _outline(axes[1], playout, playout.blocked, BLOCK, 1.3, hatch="////")
    axes[1].set_title("Interferer and block")
    _legend(
        axes[1],
        [
            Patch(fc="none", ec=TRUTH, label="interferer"),
            Patch(fc=FOUND, label="found"),
            Patch(fc=MISSED, label="missed"),
            Patch(fc=FALSE, label="false"),
            Patch(fc="none", ec=BLOCK, hatch="////", label="blocked"),
        ],
    )
    times = _times(playout)
    for mask, colour, label in ((playout.ue | truth, "#333333", "truth"), (seen, UE, "as the twin saw it")):
        axes[2].plot(times, 100 * _smooth(mask.mean(axis=1)), color=colour, lw=2.4 if colour == UE else 0.9,
                     label=label, zorder=1 if colour == UE else 2)  # fmt: skip
    axes[2].set(ylabel="PRBs in use (%)", xlabel="time (s)", ylim=(0, None), xlim=(0, _seconds(playout)))
    axes[2].set_title("Occupancy, mean of 10 records")
    axes[2].grid(alpha=0.25)
    _legend(axes[2], axes[2].get_legend_handles_labels()[0])
    write(figure, path)


def block(path: Path, playout: Playout, rebuilt: Rebuilt, episode: dict[str, Any], name: str) -> None:
    """One episode of the interferer: start and end, with the steps of the control loop."""
    power = _rebuilt_dbfs(playout, rebuilt)
    low, high = np.nanpercentile(power, [2, 99.8])
    begin_ns = int(playout.played_ns[0])
    prbs = episode["prbs"]
    over = min(episode["end_record"], len(playout.played_ns) - 1)
    lifted = _lifted(playout, prbs, over)
    steps = (
        (
            episode["first_record"],
            (-0.1, 0.3),
            (
                (episode["on_ns"], "on", "white"),
                (episode["proposed_ns"], "twin asks", "#ffd43b"),
                (episode["installed_ns"], "installed", "#69db7c"),
            ),
        ),
        (
            over,
            (-0.2, 0.8),
            (
                (int(playout.played_ns[over]), "off", "white"),
                (episode["end_seen_ns"], "twin sees the end", "#ffd43b"),
                (lifted, "last PRB given back", "#69db7c"),
            ),
        ),
    )
    edges_ns, column = _columns(playout)
    figure, axes = plt.subplots(2, 1, figsize=(WIDTH, 6.0))
    shown = ScalarMappable()
    for axis, (record, span, marks) in zip(axes, steps, strict=True):
        zero_ns = int(playout.played_ns[record])
        first, end = np.searchsorted(edges_ns, zero_ns + np.array(span) * 1.1e9)
        first = max(int(first) - 1, 0)
        edges_ms = (edges_ns[first : end + 1] - zero_ns) / 1e6
        shown = _mesh(axis, edges_ms, power, column[first:end], cmap=SPECTRUM, vmin=low, vmax=high)
        axis.set_xlim(1000 * max(span[0], (begin_ns - zero_ns) / 1e9), 1000 * span[1])
        axis.set_ylim(max(-0.5, min(prbs) - 14.5), min(power.shape[1] - 0.5, max(prbs) + 14.5))
        axis.add_patch(Rectangle((axis.get_xlim()[0], min(prbs) - 0.5), 2000, max(prbs) - min(prbs) + 1, fill=False,
                                 ec="white", lw=0.8, ls=":"))  # fmt: skip
        lines = []
        for time_ns, label, colour in marks:
            if time_ns is not None:
                at_ms = (time_ns - zero_ns) / 1e6
                axis.axvline(at_ms, color=colour, lw=1.5, ls="--")
                lines.append(Line2D([], [], color=colour, lw=1.5, ls="--", label=f"{label} ({at_ms:+.0f} ms)"))
        legend = axis.legend(handles=lines, loc="lower left", bbox_to_anchor=(0, 1), borderaxespad=0.2, ncols=3,
                             handlelength=1.6, columnspacing=1, frameon=True, facecolor="#222222", framealpha=1,
                             edgecolor="none", labelcolor="white")  # fmt: skip
        legend.set_in_layout(False)  # the title above leaves room for it
        axis.set_ylabel("PRB")
    axes[0].set_title(f"The interferer comes on ({name}, {_seconds_at(playout, episode):.2f} s into the run)", pad=24)
    axes[1].set_title("It goes, and the PRBs are given back", pad=24)
    axes[0].set_xlabel("time since it came on (ms)")
    axes[1].set_xlabel("time since it went (ms)")
    figure.colorbar(shown, ax=axes, shrink=0.7, aspect=30, label="mean power per subcarrier (dBFS)")
    write(figure, path)


def _columns(playout: Playout) -> tuple[Times, NDArray[np.intp]]:
    """Edges of the columns in Unix ns, and the record in each column; -1 for a pause of the playout.

    A record lasts until the next one, but not through a pause.
    """
    played = playout.played_ns
    period = int(np.median(np.diff(played))) if len(played) > 1 else 1
    ends = np.append(played[1:], played[-1] + period)
    pauses = np.flatnonzero(ends - played > PAUSE_PERIODS * period)
    edges = np.insert(np.append(played, ends[-1]), pauses + 1, played[pauses] + period)
    return edges, np.insert(np.arange(len(played)), pauses + 1, -1)


def _mesh(axis: Axes, edges: NDArray[Any], rows: NDArray[Any], column: NDArray[np.intp], **style: Any) -> Any:
    """Rows per record as columns between these edges."""
    values = np.where(column[:, None] < 0, np.nan, rows[column])
    axis.set_facecolor(NOTHING)
    return axis.pcolormesh(edges, np.arange(rows.shape[1] + 1) - 0.5, values.T, rasterized=True, **style)


def _lifted(playout: Playout, prbs: list[int], over: int) -> int | None:
    """When the first record without a block of these PRBs was played."""
    free = ~playout.blocked[over:, prbs].any(axis=1)
    if not playout.blocked[over, prbs].any() or not free.any():
        return None
    return int(playout.played_ns[over + int(free.argmax())])


def _seconds(playout: Playout) -> float:
    return float((_columns(playout)[0][-1] - playout.played_ns[0]) / 1e9)


def _times(playout: Playout) -> Times:
    return np.asarray((playout.played_ns - playout.played_ns[0]) / 1e9)


def _seconds_at(playout: Playout, episode: dict[str, Any]) -> float:
    return float((episode["on_ns"] - playout.played_ns[0]) / 1e9)


def _rebuilt_dbfs(playout: Playout, rebuilt: Rebuilt) -> Image:
    """Power of the rebuilt records in the order of the playout; NaN for lost ones."""
    power = np.full((len(rebuilt.record), playout.ue.shape[1]), np.nan, np.float32)
    power[: len(rebuilt.samples)] = to_dbfs(prb_power(rebuilt.samples))[: len(rebuilt.record)]
    return on_air(power, rebuilt, len(playout.ue), np.nan)


def _thin(power: Image) -> Image:
    """At most `ROWS` rows; neighbours are averaged, missing ones ignored."""
    step = -(-len(power) // ROWS)
    rest = len(power) % step
    padded = np.vstack([power, np.full((step - rest if rest else 0, power.shape[1]), np.nan, np.float32)])
    parts = padded.reshape(-1, step, power.shape[1])
    number = np.isfinite(parts).sum(axis=1)
    total = np.nansum(parts, axis=1)
    return np.asarray(np.where(number > 0, total / np.maximum(number, 1), np.nan), np.float32)


def _classes(axis: Axes, playout: Playout, kinds: NDArray[Any], colours: list[str]) -> None:
    edges_ns, column = _columns(playout)
    edges_s = (edges_ns - edges_ns[0]) / 1e9
    _mesh(axis, edges_s, kinds, column, cmap=ListedColormap(colours), vmin=-0.5, vmax=len(colours) - 0.5)
    axis.set_ylabel("PRB")


def _outline(axis: Axes, playout: Playout, mask: Cells, colour: str, width: float, hatch: str = "") -> None:
    times = np.append(_times(playout), _seconds(playout))
    for area in areas_of("", mask):
        corner = (times[area.first_record], area.first_prb - 0.5)
        size = (times[area.end_record] - times[area.first_record], area.end_prb - area.first_prb)
        axis.add_patch(Rectangle(corner, *size, fill=False, ec=colour, lw=width, hatch=hatch))


def _smooth(values: NDArray[np.float64], width: int = 10) -> NDArray[np.float64]:
    kernel = np.ones(min(width, len(values)))
    return np.asarray(np.convolve(values, kernel, "same") / np.convolve(np.ones(len(values)), kernel, "same"))


def _legend(axis: Axes, handles: list[Any]) -> None:
    """A legend above the axes on the right, so that it hides nothing."""
    axis.legend(handles=handles, loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=len(handles), borderaxespad=0.1,
                columnspacing=1.0, handlelength=1.4)  # fmt: skip
