"""table.csv: the figures of `table` in tidy form, a row for each cell and metric, for R, pandas or a spreadsheet."""

import csv
import io
from typing import Any

from . import reference_results
from .table import Block, at_rate, blocks, throughput_interval

COLUMNS = (
    "setting", "mode", "rate_hz", "direction", "payload_octets", "flow", "subject", "status", "metric", "unit", "n",
    "value", "ci95_low", "ci95_high", "published",
)  # fmt: skip
UNITS = {"latency": "ms", "clock_bound": "ms", "rtt": "ms", "throughput": "MB/s", "goodput": "MB/s", "loss_ratio": "1"}

_Interval = tuple[float | None, float | None]
_Figure = tuple[int | None, float | None, _Interval]  # n, value, CI95
_NONE: _Figure = (None, None, (None, None))


def csv_text(results: dict[str, Any]) -> str:
    """The file; numbers have six significant digits, and are empty where they are unknown or not valid."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for block in blocks(results):
        for place in block.rows:
            direction, octets, flow = place
            for subject in block.subjects:
                cell = block.cells.get((subject, *place))
                if cell is None:
                    continue
                found, published = _figures(cell), _published(block, subject, direction, octets)
                where = (
                    results["setting"],
                    block.mode,
                    block.rate_hz,
                    direction,
                    octets,
                    flow,
                    subject,
                    cell["status"],
                )
                for metric, unit in UNITS.items():
                    n, value, interval = found.get(metric, _NONE)
                    numbers = map(_number, (value, *interval, published.get(metric)))
                    writer.writerow([*where, metric, unit, n, *numbers])
    return text.getvalue()


def _figures(cell: dict[str, Any]) -> dict[str, _Figure]:
    """By metric, what is known of a cell."""
    figures = cell["statistics"]
    if not figures:
        return {}
    one_way, round_trip, sustained = figures["one_way_delay_ns"], figures["rtt_ns"], at_rate(cell) or figures
    found: dict[str, _Figure] = {
        "goodput": (None, sustained["goodput_mb_s"], (None, None)),
        "loss_ratio": (sustained["n_sent"], sustained["loss_ratio"], _interval(sustained.get("loss_ratio_ci95"))),
    }
    if round_trip:
        found["rtt"] = round_trip["n"], round_trip["mean"] / 1e6, _interval(round_trip["ci95"], 1e6)
    if one_way:
        n, bound_ns = one_way["n"], one_way["bound_ns"]
        found["clock_bound"] = None, None if bound_ns is None else bound_ns / 1e6, (None, None)
        if one_way["usable"]:
            found["latency"] = n, one_way["mean"] / 1e6, _interval(one_way["ci95"], 1e6)
            if figures["paper_throughput_mb_s"]:
                found["throughput"] = n, figures["paper_throughput_mb_s"], throughput_interval(figures)
    return found


def _interval(ends: list[float] | None, unit: float = 1.0) -> _Interval:
    return (ends[0] / unit, ends[1] / unit) if ends else (None, None)


def _published(block: Block, subject: str, direction: str, octets: int) -> dict[str, float]:
    """The paper's value of each metric that it has; it measured in a closed loop."""
    row = reference_results.row(subject, direction, octets) if block.mode == "closed" else None
    return {"latency": row.latency_ms, "rtt": row.rtt_ms, "throughput": row.throughput_mb_s} if row else {}


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.6g}"
