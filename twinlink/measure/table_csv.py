"""table.csv: the figures of `table` as columns, in ms and MB/s, for a spreadsheet."""

import csv
import io
from typing import Any

from . import formatting, reference_results
from .table import at_rate, blocks, throughput_interval


def csv_text(results: dict[str, Any]) -> str:
    """A row for each direction, payload, mode and rate, columns per subject."""
    found = blocks(results)
    names = formatting.ordered(name for block in found for name in block.subjects)
    flows = any(flow for block in found for *_, flow in block.rows)
    columns = ["setting", "mode", "rate_hz", "direction", "payload_octets", *(["flow"] if flows else [])]
    for name in names:
        columns += [f"{name}_{column}" for column in (*_COLUMNS, *(_PUBLISHED if _in_paper(name) else ()))]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    for block in found:
        for direction, octets, flow in block.rows:
            line: list[Any] = [results["setting"], block.mode, block.rate_hz, direction, octets]
            line += [flow] if flows else []
            for name in names:
                line += _fields(block.cells.get((name, direction, octets, flow)))
                if _in_paper(name):
                    row = reference_results.row(name, direction, octets) if block.mode == "closed" else None
                    line += [row.latency_ms, row.rtt_ms, row.throughput_mb_s] if row else [None] * 3
            writer.writerow(line)
    return text.getvalue()


_COLUMNS = ("status", "n", "latency_ms", "latency_ci95_low_ms", "latency_ci95_high_ms", "clock_bound_ms",
            "latency_usable", "rtt_ms", "rtt_ci95_low_ms", "rtt_ci95_high_ms", "throughput_mb_s",
            "throughput_ci95_low_mb_s", "throughput_ci95_high_mb_s", "goodput_mb_s", "loss_ratio")  # fmt: skip
_PUBLISHED = ("published_latency_ms", "published_rtt_ms", "published_throughput_mb_s")


def _in_paper(name: str) -> bool:
    return any(subject == name for subject, _, _ in reference_results.TABLE_I)


def _fields(cell: dict[str, Any] | None) -> list[Any]:
    figures = cell and cell["statistics"]
    if not cell or not figures:
        return [cell and cell["status"], *[None] * (len(_COLUMNS) - 1)]
    sustained = at_rate(cell) or figures
    one_way, round_trip = figures["one_way_delay_ns"], figures["rtt_ns"]
    usable = bool(one_way and one_way["usable"])
    rate: list[float | None] = [None, None, None]
    if usable and figures["paper_throughput_mb_s"]:
        rate = [figures["paper_throughput_mb_s"], *throughput_interval(figures)]
    return [
        cell["status"],
        round_trip["n"] if round_trip else 0,
        *(_in_ms(one_way["mean"], *(one_way["ci95"] or (None, None))) if usable else [None] * 3),
        *_in_ms(one_way["bound_ns"] if one_way else None),
        str(usable).lower(),
        *(_in_ms(round_trip["mean"], *(round_trip["ci95"] or (None, None))) if round_trip else [None] * 3),
        *(None if value is None else f"{value:.6g}" for value in rate),
        None if sustained["goodput_mb_s"] is None else f"{sustained['goodput_mb_s']:.6g}",
        sustained["loss_ratio"],
    ]


def _in_ms(*values_ns: float | None) -> list[str | None]:
    return [None if value is None else f"{value / 1e6:.6f}" for value in values_ns]
