"""The figures of a run, drawn with matplotlib's Agg after the measurement.

A figure is narrow enough for a phone, with panels below each other.  Every figure states where and how it was measured,
because it will be shown without its page.
"""

from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes

from twinlink.appkit import formatting

from . import labels, plot_style, reference_results
from .plot_style import Cell, Drawn
from .rows import Records, Rows
from .table import at_rate

CDF_PAYLOADS = (10240, 102400, 1048576)  # the paper's Figs. 3 and 4
MOST_PANELS = 8  # of delays over time
NAMES = ("latency", "rtt", "cdf-rw-dt", "cdf-dt-rw", "jitter", "delay-over-time", "rate")
_MARKS = 0.15  # distance of the markers along a distribution, as a share of the axes' diagonal
_SHORTEST = 0.1  # of a value: a bar that reaches lower, or below 0, ends there, as a log axis has no 0


def draw(folder: Path, results: dict[str, Any], found: Records) -> list[Drawn]:
    """Draw the figures that the run has data for into ``folder``, replacing earlier ones.  Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in NAMES:
        for suffix in ("png", "svg"):
            (folder / f"{name}.{suffix}").unlink(missing_ok=True)
    with mpl.rc_context(plot_style.STYLE):
        drawn = [
            _delays(folder, results, "latency"),
            _delays(folder, results, "rtt"),
            *(_cdf(folder, results, found, direction) for direction in labels.DIRECTIONS),
            _jitter(folder, results),
            _over_time(folder, results, found),
            _rate(folder, results),
        ]
    return [figure for figure in drawn if figure]


def _delays(folder: Path, results: dict[str, Any], name: str) -> Drawn | None:
    """The paper's Fig. 2, and the same of RTTs: mean per payload and direction."""
    one_way = name == "latency"
    cells = _measured(results, "closed", "one_way_delay_ns" if one_way else "rtt_ns")
    left_out = sum(not cell["statistics"]["one_way_delay_ns"]["usable"] for cell in cells) if one_way else 0
    if one_way:
        cells = [cell for cell in cells if cell["statistics"]["one_way_delay_ns"]["usable"]]
    directions = _directions(cells)
    if not directions:
        return None
    figure, axes = plot_style.panels(len(directions), 3.1)
    context: dict[str, reference_results.Context] = {}
    papers = False
    for axis, direction in zip(axes, directions, strict=True):
        here = [cell for cell in cells if cell["direction"] == direction]
        for subject in labels.ordered(cell["subject"] for cell in here):
            mine = _of(here, subject)
            spreads = [cell["statistics"]["one_way_delay_ns" if one_way else "rtt_ns"] for cell in mine]
            _line(axis, subject, [cell["octets"] for cell in mine], spreads, "mean", "ci95")
        papers |= _paper(axis, here, direction, one_way)
        plot_style.payload_axis(axis, here)
        if one_way:
            context |= {each.label: each for each in _context(axis)}
        plot_style.log_ms(axis, "one-way delay (ms)" if one_way else "RTT (ms)")
        axis.set_title(f"{labels.DIRECTIONS[direction]}: mean {'one-way delay' if one_way else 'round-trip time'}")
    plot_style.legend(figure, axes)
    caption = "Bars: CI95 of the mean (moving-block bootstrap), cut off at a tenth of the mean."
    if papers:
        caption += f" Pale lines: the paper's Table I ({reference_results.PAPER_SETTING}), another setting."
    if context:
        told = "; ".join(f"{each.label}: {each.quantity}, {each.setting}" for each in context.values())
        caption += f" Grey: published MQTT ({told}), other settings and no comparison."
    if left_out:
        caption += f" {left_out} cells are left out: the clocks agree to no better than 20 % of their delay."
    if not one_way:
        caption += " The residence time at the receiver is part of the RTT."
    title = "Mean one-way delay (the paper's Fig. 2)" if one_way else "Mean round-trip time"
    return plot_style.save(figure, folder, name, results, cells, title, caption)


def _paper(axis: Axes, cells: list[Cell], direction: str, one_way: bool) -> bool:
    """Draw the paper's values beside ours; whether there are any."""
    found = False
    for subject in labels.ordered(cell["subject"] for cell in cells):
        octets = sorted(cell["octets"] for cell in _of(cells, subject))
        rows = [(each, row) for each in octets if (row := reference_results.row(subject, direction, each))]
        if rows:
            found, shown = True, labels.subject(subject)
            axis.plot(
                [each for each, _ in rows],
                [row.latency_ms if one_way else row.rtt_ms for _, row in rows],
                color=shown.colour,
                alpha=0.4,
                lw=3,
                ls="-" if subject == "zenoh" else (0, (1.2, 0.6)),  # the two overlap
                zorder=1,
                label=f"{shown.short}, the paper",
            )
    return found


def _context(axis: Axes) -> list[reference_results.Context]:
    """Draw what others published, as far as its payloads are within the axis; returns it."""
    least, most = axis.get_xlim()
    shown = []
    for each, marker in zip(reference_results.MQTT, "*_x", strict=True):
        points = [(octets, value) for octets, value in each.points if octets is not None and least <= octets <= most]
        if points:
            axis.plot(*zip(*points, strict=True), marker, color=plot_style.GREY, ls=":", lw=1, label=each.label)
        elif each.points[0][0] is None:
            axis.axhline(each.points[0][1], color=plot_style.GREY, ls="-.", lw=1, label=each.label)
        else:
            continue
        shown.append(each)
    return shown


def _cdf(folder: Path, results: dict[str, Any], found: Records, direction: str) -> Drawn | None:
    """The paper's Figs. 3 and 4: distribution of the delay, at three payloads."""
    cells = [cell for cell in _measured(results, "closed", "rtt_ns") if cell["direction"] == direction]
    payloads = [octets for octets in CDF_PAYLOADS if any(cell["octets"] == octets for cell in cells)]
    payloads = payloads or sorted({cell["octets"] for cell in cells})[-3:]
    cells = [cell for cell in cells if cell["octets"] in payloads]
    if not cells:
        return None
    one_way = all((spread := cell["statistics"]["one_way_delay_ns"]) and spread["usable"] for cell in cells)
    figure, axes = plot_style.panels(len(payloads), 2.3)
    for axis, octets in zip(axes, payloads, strict=True):
        subjects = labels.ordered(cell["subject"] for cell in cells)
        for number, subject in enumerate(subjects):
            for cell in _of(cells, subject):
                if cell["octets"] == octets:
                    rows = found[cell["id"]]
                    values = rows.one_way_ns if one_way else rows.sent["rtt_ns"][rows.sent["acknowledged"]]
                    _step(axis, subject, np.sort(np.maximum(values, 1)) / 1e6, number / len(subjects))
        axis.set(ylabel="share of messages", ylim=(0, 1.02))
        axis.set_title(f"{labels.DIRECTIONS[direction]}, {formatting.payload(octets)}")
        plot_style.log_ms_x(axis)
    what = "one-way delay" if one_way else "round-trip time"
    axes[-1].set_xlabel(f"{what} (ms)")
    plot_style.legend(figure, axes)
    number = list(labels.DIRECTIONS).index(direction) + 3
    caption = f"Share of the messages with at most that {what}."
    if not one_way:
        caption += " RTT, because the clocks do not agree well enough for one-way delays."
    title = f"Distribution of the {what}, {labels.DIRECTIONS[direction]} (the paper's Fig. {number})"
    return plot_style.save(figure, folder, f"cdf-{direction}", results, cells, title, caption)


def _step(axis: Axes, subject: str, values: Any, place: float) -> None:
    """A distribution; ``place``, from 0 to 1, is that of its markers, so that those of alike ones stand apart."""
    shown = labels.subject(subject)
    share = np.arange(1, len(values) + 1) / len(values)
    axis.step(
        values, share, where="post", color=shown.colour, lw=1.4, ls=shown.line, label=shown.short,
        marker=shown.marker, **shown.open_or_full, markevery=(place * _MARKS, _MARKS),
    )  # fmt: skip


def _jitter(folder: Path, results: dict[str, Any]) -> Drawn | None:
    """The paper's Fig. 5: p95 of the absolute change of the RTT between consecutive messages."""
    cells = _measured(results, "closed", "paper_rtt_jitter_ns")
    directions = _directions(cells)
    if not directions:
        return None
    figure, axes = plot_style.panels(len(directions), 2.7)
    for axis, direction in zip(axes, directions, strict=True):
        here = [cell for cell in cells if cell["direction"] == direction]
        for subject in labels.ordered(cell["subject"] for cell in here):
            mine = _of(here, subject)
            spreads = [cell["statistics"]["paper_rtt_jitter_ns"] for cell in mine]
            _line(axis, subject, [cell["octets"] for cell in mine], spreads, "p95", "p95_ci95")
        plot_style.payload_axis(axis, here)
        plot_style.log_ms(axis, "p95 of |ΔRTT| (ms)")
        axis.set_title(labels.DIRECTIONS[direction])
    plot_style.legend(figure, axes)
    caption = (
        "95th percentile of |RTTᵢ - RTTᵢ₋₁|, the paper's jitter, with its CI95 where enough messages are independent "
        "(n_eff). Signed IPDV and PDV of each direction (RFC 3393, RFC 5481) stand in results.json."
    )
    return plot_style.save(
        figure, folder, "jitter", results, cells, "Jitter of the RTT, p95 (the paper's Fig. 5)", caption
    )


def _over_time(folder: Path, results: dict[str, Any], found: Records) -> Drawn | None:
    """One-way delay of each message over the run, with the bound of the clocks."""
    for mode in labels.MODES:
        cells = _measured(results, mode, "one_way_delay_ns")
        if cells:
            break
    else:
        return None
    ends = sorted({cell["octets"] for cell in cells if "flow" not in cell})
    cells = [cell for cell in cells if "flow" in cell or cell["octets"] in (ends[0], ends[-1])]
    order = list(labels.DIRECTIONS)
    places = sorted({_place(cell) for cell in cells}, key=lambda place: (place[0], place[1], order.index(place[2])))
    panels = places[:MOST_PANELS]
    figure, axes = plot_style.panels(len(panels), 1.9, share_x=True)
    for axis, (flow, octets, direction) in zip(axes, panels, strict=True):
        for subject in labels.ordered(cell["subject"] for cell in cells):
            for cell in _of(cells, subject):
                if _place(cell) == (flow, octets, direction):
                    _dots(axis, results["started_ns"], cell, found[cell["id"]])
        axis.set_title(f"{labels.DIRECTIONS[direction]}, {labels.place(flow, octets)}")
        plot_style.log_ms(axis, "delay (ms)")
    axes[-1].set_xlabel("time since the start of the run (s)")
    plot_style.legend(figure, axes, markerscale=2.5)
    caption = (
        "A dot is a message. The bar beside each round reaches from its median as far as the clocks may be wrong: here "
        f"{formatting.between(cell['statistics']['one_way_delay_ns']['bound_ns'] for cell in cells)}. A bar that "
        "is shorter than a dot cannot be seen."
        + (" Subjects take turns, so that they meet the same machine." if ends else "")
        + (f" {len(places) - MOST_PANELS} more flows are not shown." if len(places) > MOST_PANELS else "")
    )
    return plot_style.save(figure, folder, "delay-over-time", results, cells, "One-way delay over time", caption)


def _place(cell: Cell) -> tuple[str, int, str]:
    return cell.get("flow", ""), cell["octets"], cell["direction"]


def _dots(axis: Axes, start_ns: int, cell: Cell, rows: Rows) -> None:
    shown, bound_ns = labels.subject(cell["subject"]), cell["statistics"]["one_way_delay_ns"]["bound_ns"]
    delays, arrived = rows.one_way_ns / 1e6, rows.arrived
    seconds = (arrived["sent_ns"] - start_ns) / 1e9
    seen = delays > 0  # a log axis has no place for the others; the page flags them
    axis.plot(seconds[seen], delays[seen], shown.marker, color=shown.colour, ms=2.5, alpha=0.6, label=shown.short,
              mfc="none" if shown.raw else shown.colour, mew=0.6, rasterized=True)  # fmt: skip
    for number in np.unique(arrived["round"]):
        mine = (arrived["round"] == number) & seen
        if mine.any() and bound_ns is not None:
            middle = float(np.median(delays[mine]))
            low = max(middle - bound_ns / 1e6, middle / 20)
            axis.vlines(seconds[mine].max(), low, middle + bound_ns / 1e6, color=shown.colour, lw=1.5, alpha=0.8)


def _rate(folder: Path, results: dict[str, Any]) -> Drawn | None:
    """Delay against rate of messages sent on a schedule, and the steps of each search."""
    every = [cell for mode in ("open", "saturation") for cell in _measured(results, mode, "open_loop_delay_ns")]
    cells = [cell for cell in every if _sustained(cell)["one_way_delay_ns"]["usable"]]
    searched = [cell for cell in results["cells"] if (cell.get("search") or {}).get("steps")]
    panels = [
        (direction, octets)
        for direction in labels.DIRECTIONS
        for octets in sorted({cell["octets"] for cell in cells if cell["direction"] == direction})
    ]
    if not cells and not searched:
        return None
    figure, axes = plot_style.panels(len(panels) + bool(searched), 2.1)
    for axis, (direction, octets) in zip(axes, panels, strict=False):
        here = [cell for cell in cells if (cell["direction"], cell["octets"]) == (direction, octets)]
        for subject in labels.ordered(cell["subject"] for cell in here):
            _delay_by_rate(axis, subject, _of(here, subject))
        plot_style.rate_axis(axis, [rate_hz(cell) for cell in here])
        axis.set_title(f"{labels.DIRECTIONS[direction]}, {formatting.payload(octets)}: delay against the rate")
        plot_style.log_ms(axis, "p50, bar to p95 (ms)")
        axis.set_xlabel("messages/s")
    if searched:
        _search(axes[-1], searched)
        axes[-1].set_xlabel("messages/s that should be sent")
    plot_style.legend(figure, axes)
    caption = (
        "The delay counts from when a message should have been sent, so that waiting for a slow sender is part of it. "
        "In saturation the rate is the highest that was kept up without loss."
    )
    if left_out := len(every) - len(cells):
        caption += f" {left_out} cells are left out: the clocks agree to no better than 20 % of their delay."
    if searched:
        caption += (
            " Lowest panel: every step of the search; what lies on the line was kept up, a cross lost messages or fell "
            "behind. It holds both directions and all payloads."
        )
    return plot_style.save(figure, folder, "rate", results, cells or searched, "Delay against the rate", caption)


def _sustained(cell: Cell) -> dict[str, Any]:
    """Statistics of the trial at the highest rate of a search, else of the whole cell."""
    return at_rate(cell) or {}


def _delay_by_rate(axis: Axes, subject: str, cells: list[Cell]) -> None:
    points = [(rate_hz(cell), _sustained(cell)["open_loop_delay_ns"]) for cell in cells]
    shown = labels.subject(subject)
    middle = np.array([max(spread["p50"], 1) for _, spread in points]) / 1e6
    high = np.array([max(spread["p95"], 1) for _, spread in points]) / 1e6
    bars = np.vstack((np.zeros(len(points)), np.maximum(high - middle, 0)))
    axis.errorbar(
        [rate for rate, _ in points], middle, bars, fmt=shown.marker,
        color=shown.colour, **shown.open_or_full, capsize=2, lw=1.2, label=shown.short,
    )  # fmt: skip


def rate_hz(cell: Cell) -> float:
    """The rate of a cell's messages: as requested, as found by a search, or as measured."""
    if "at_highest_rate" in (cell.get("statistics") or {}):
        return float(cell["search"]["highest_loss_free_hz"])
    elapsed_ns = sum(each["elapsed_ns"] for each in cell["rounds"])
    return float(cell["rate_hz"] or sum(each["sent"] for each in cell["rounds"]) * 1e9 / max(elapsed_ns, 1))


def _search(axis: Axes, cells: list[Cell]) -> None:
    """Each step of a search: offered rate and received rate."""
    known = [step["rate_hz"] for cell in cells for step in cell["search"]["steps"] if step["rate_hz"]]
    axis.plot([min(known), max(known)], [min(known), max(known)], color=plot_style.GREY, lw=1, zorder=1)
    for cell in cells:
        shown = labels.subject(cell["subject"])
        for step in sorted(cell["search"]["steps"], key=lambda step: not step["lossless"]):  # the legend has the first
            if step["rate_hz"] and step.get("span_s"):
                kept = step["lossless"]
                axis.plot(
                    step["rate_hz"], step["received"] / step["span_s"], shown.marker if kept else "x",
                    color=shown.colour, **shown.open_or_full,
                    label=shown.short,
                )  # fmt: skip
    axis.set(xscale="log", yscale="log", ylabel="messages/s received")
    for scale, limits in ((axis.xaxis, axis.get_xlim()), (axis.yaxis, axis.get_ylim())):
        plot_style.plain(scale, limits)
        scale.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axis.set_title("The search for the highest rate")


def _line(axis: Axes, subject: str, octets: list[int], spreads: list[dict[str, Any]], key: str, interval: str) -> None:
    """Means or percentiles over the payloads."""
    shown = labels.subject(subject)
    values = np.array([spread[key] for spread in spreads], float)
    known = np.array([spread[interval] or (spread[key], spread[key]) for spread in spreads], float)
    values = np.maximum(values, 1) / 1e6
    bars = np.abs(np.maximum(known.T / 1e6, values * _SHORTEST) - values)
    axis.errorbar(
        octets, values, bars, color=shown.colour, marker=shown.marker, lw=1.3, capsize=2, zorder=3,
        ls=shown.line, **shown.open_or_full, label=shown.short,
    )  # fmt: skip


def _measured(results: dict[str, Any], mode: str, quantity: str) -> list[Cell]:
    """The cells of a mode with this figure, smallest payload first."""
    cells = [
        cell for cell in results["cells"]
        if cell["mode"] == mode and cell["statistics"] and cell["statistics"][quantity]
    ]  # fmt: skip
    return sorted(cells, key=lambda cell: cell["octets"])


def _of(cells: list[Cell], subject: str) -> list[Cell]:
    return [cell for cell in cells if cell["subject"] == subject]


def _directions(cells: list[Cell]) -> list[str]:
    return [direction for direction in labels.DIRECTIONS if any(cell["direction"] == direction for cell in cells)]
