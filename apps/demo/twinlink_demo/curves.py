"""Figures of times: age of information, one-way delay, round-trip time."""

from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.ticker import LogLocator, NullFormatter
from twinlink_results import labels
from twinlink_results.plot_style import write

from . import freshness
from .evidence import Playout, Rebuilt

WIDTH = 7.2
ZOOM_S = 0.12
BINS = 400  # of the envelope

Both = dict[str, tuple[Playout, Rebuilt]]


def age(path: Path, found: Both) -> None:
    """Per transport: the envelope over the run, and a few records in detail."""
    figure, grid = plt.subplots(
        len(found), 2, squeeze=False, figsize=(WIDTH, 0.7 + 2.4 * len(found)), width_ratios=(2, 1)
    )
    for row, (name, (playout, rebuilt)) in zip(grid, found.items(), strict=True):
        colour = labels.subject(name).colour
        times, before, after = freshness.age(playout, rebuilt)
        seconds = (times - playout.played_ns[0]) / 1e9
        bins = np.minimum((seconds / max(seconds[-1], 1e-9) * BINS).astype(int), BINS - 1)
        order = np.unique(bins)
        top = np.array([before[bins == each].max() for each in order]) / 1e6
        bottom = np.array([after[bins == each].min() for each in order]) / 1e6
        centre = (order + 0.5) / BINS * seconds[-1]
        row[0].fill_between(centre, bottom, top, color=colour, alpha=0.35, lw=0)
        row[0].plot(centre, top, color=colour, lw=0.8)
        row[0].set(ylabel="age (ms)", xlim=(0, seconds[-1]), ylim=(0, 1.08 * top.max()))
        row[0].set_title(f"{name}: age of information")

        middle = seconds[len(seconds) // 2]
        near = (seconds >= middle - ZOOM_S) & (seconds <= middle + 2 * ZOOM_S)
        at = np.repeat((seconds[near] - middle) * 1000, 2)
        row[1].plot(at, np.column_stack((before[near], after[near])).ravel() / 1e6, color=colour, lw=1.2)
        row[1].set(xlim=(0, 1000 * ZOOM_S), ylim=(0, None))
        row[1].set_title(f"close up, from {middle:.1f} s")
        for axis in row:
            axis.grid(alpha=0.25)
    grid[-1][0].set_xlabel("time (s)")
    grid[-1][1].set_xlabel("time (ms)")
    write(figure, path)


def delay(path: Path, found: Both, summary: dict[str, Any]) -> None:
    """Per transport: one-way delay of each message, percentiles of the round-trip time, the clock's bound."""
    figure, grid = plt.subplots(
        len(found), 1, sharex=True, sharey=True, squeeze=False, figsize=(WIDTH, 0.7 + 2.6 * len(found))
    )
    for axis, (name, (playout, rebuilt)) in zip(grid[:, 0], found.items(), strict=True):
        facts, colour = summary["transports"][name], labels.subject(name).colour
        seconds = (rebuilt.sent_ns - playout.played_ns[0]) / 1e9
        values = np.maximum(freshness.one_way_ns(rebuilt), 1) / 1e6
        axis.semilogy(seconds, values, ".", ms=2.2, color=colour, alpha=0.5, label=_label(facts))
        rtt = facts["rtt_ns"]
        if rtt:
            for key, style in (("p50", "-"), ("p99", "--")):
                value = rtt[key] / 1e6
                axis.axhline(value, color="#222222", lw=1, ls=style, label=f"RTT {key} {value:.2f} ms")
        axis.set(ylabel="time (ms)", xlim=(0, max(seconds[-1], 1e-9)))
        axis.set_title(f"{name}: each message")
        axis.set_title(_clock(facts), loc="right", fontsize=8.5, fontweight="normal")
        axis.grid(alpha=0.25, which="both", lw=0.4)
        axis.legend(loc="upper right", ncols=3, markerscale=3, frameon=True, framealpha=0.9, edgecolor="none")
        axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axis.yaxis.set_minor_formatter(NullFormatter())
    delays = [np.maximum(freshness.one_way_ns(rebuilt), 1) / 1e6 for _, rebuilt in found.values()]
    rtts = [facts["rtt_ns"]["p99"] / 1e6 for facts in summary["transports"].values() if facts["rtt_ns"]]
    low, high = min(float(each.min()) for each in delays), max(float(each.max()) for each in delays)
    high = max([high, *rtts])
    grid[0, 0].set_ylim(0.7 * low, high * max(3, (high / low) ** 0.2))  # room for the legend above the curves
    grid[-1, 0].set_xlabel("time (s)")
    write(figure, path)


def _label(facts: dict[str, Any]) -> str:
    one_way = facts["one_way_ns"]
    return f"one-way delay, p50 {one_way['p50'] / 1e6:.2f} ms, p99 {one_way['p99'] / 1e6:.2f} ms"


def _clock(facts: dict[str, Any]) -> str:
    """The link's estimate of the clock offset; its true value is 0."""
    clock = facts["clock_offset_ns"]
    if not clock:
        return ""
    return f"clock offset from acks: {clock['offset'] / 1e6:+.3f} ms, known to ±{clock['bound'] / 1e6:.3f} ms"
