"""A sweep's table in the shape of the paper's Table I: direction and payload down, transports across.

Each transport has latency (mean one-way delay), RTT and throughput in the paper's sense (payload / latency), each with
its CI95, and the paper's values.  Each mode has a table of its own; a run has one setting.
"""

import math
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from twinlink.appkit import formatting

from . import labels, reference_results
from .mgen_delay import PARTS as MGEN_PARTS
from .text_columns import WIDTH, aligned

RTT_ONLY = "RTT only"
MARK = "†"  # before the figures of an unfinished cell
SEARCHED = (
    "The highest rate is the median of what each round found (of two in the middle the lower); goodput, loss and delay "
    "beside it are of the trial that carried it."
)


@dataclass(frozen=True, slots=True)
class Block:
    """A table: the cells of one mode (and rate).

    Attributes:
        mode, rate_hz: of its cells; no rate in a closed loop.
        subjects: in the order of its columns.
        rows: (direction, payload octets, flow), in order; the flow is empty unless an application sent.
        cells: by subject, direction, octets and flow; some may not be there.
        count: planned messages of each cell; None if not known beforehand.
        options: of each subject, as used.
    """

    mode: str
    rate_hz: float | None
    subjects: list[str]
    rows: list[tuple[str, int, str]]
    cells: dict[tuple[str, str, int, str], dict[str, Any]]
    count: int | None
    options: dict[str, dict[str, Any]]

    @property
    def title(self) -> str:
        """The title, such as "closed loop"."""
        text = labels.MODES.get(self.mode, self.mode)
        return f"{text}, {self.rate_hz:g} messages/s" if self.rate_hz and self.mode == "open" else text

    def notes(self, subjects: Iterable[str]) -> list[str]:
        """The notes below a table of these subjects: what is polled, and `broken_off`."""
        names = list(subjects)
        return [note for note in (self.polled(names), self.broken_off(names)) if note]

    def polled(self, subjects: Iterable[str]) -> str:
        """The intervals of polls and publishing, and what the one-way delay is then; empty without such subjects."""
        found = []
        for name in subjects:
            subject, options = labels.subject(name), self.options.get(name)
            if subject.polled and options:
                times = ", ".join(f"{option} {options[option]}" for option in sorted(options) if option.endswith("_ms"))
                found.append(f"{subject.short} ({times or 'intervals were not recorded'})")
        if not found:
            return ""
        age = "From DT to RW, the one-way delay is an age: it includes the wait for them."
        return f"Polls and publishing: {', '.join(found)}. {age}"

    def broken_off(self, subjects: Iterable[str]) -> str:
        """The note that explains `MARK` in a table of these subjects; empty if no cell is marked."""
        found: dict[str, list[str]] = {}
        for direction, octets, flow in self.rows:
            for name in subjects:
                cell = self.cells.get((name, direction, octets, flow))
                if cell and mark(cell):
                    figures = cell["statistics"]
                    planned = self.count or figures["n_sent"]
                    what = f"{cell['status']}, {figures['n_received']:,} of {planned:,} messages"
                    where = f"{labels.place(flow, octets)} {labels.DIRECTIONS[direction]}"
                    found.setdefault(what, []).append(f"{labels.subject(name).short} {where}")
        told = "; ".join(f"{what}: {', '.join(cells)}" for what, cells in found.items())
        return f"{MARK} {told}" if told else ""


def mark(cell: dict[str, Any] | None) -> str:
    """`MARK` for an unfinished cell with arrivals, else nothing."""
    figures = cell and cell["statistics"]
    return MARK if cell and figures and figures["n_received"] and cell["status"] != "done" else ""


def blocks(results: dict[str, Any]) -> list[Block]:
    """The tables of a run, closed loop first."""
    kinds: dict[tuple[str, float | None], list[dict[str, Any]]] = {}
    for cell in results["cells"]:
        rate = cell.get("rate_hz") if cell["mode"] == "open" else None
        kinds.setdefault((cell["mode"], rate), []).append(cell)
    order, used = list(labels.MODES), results["configuration"]["used"]
    count, options = used.get("count"), used.get("subject_options", {})
    found = []
    for (mode, rate), cells in sorted(kinds.items(), key=lambda kind: (order.index(kind[0][0]), kind[0][1] or 0)):
        places = list(labels.DIRECTIONS)
        by_place = {(cell["subject"], cell["direction"], cell["octets"], cell.get("flow", "")): cell for cell in cells}
        rows = sorted({place[1:] for place in by_place}, key=lambda row: (places.index(row[0]), *row[1:]))
        names = labels.ordered(cell["subject"] for cell in cells)
        found.append(Block(mode, rate, names, rows, by_place, None if mode == "saturation" else count, options))
    return found


def latency(statistics: dict[str, Any], short: bool = False) -> str:
    """Mean one-way delay in ms with its CI95, or `RTT_ONLY` where the clocks do not allow it."""
    figures = statistics["one_way_delay_ns"]
    if not figures:
        return "-"
    return with_interval(figures, short) if figures["usable"] else RTT_ONLY


def bound(statistics: dict[str, Any]) -> str:
    """The bound of the clock offset, with its unit; the flags if there are any, as they void the bound."""
    figures = statistics["one_way_delay_ns"]
    if not figures or figures["bound_ns"] is None:
        return "-"
    return formatting.listed(figures["flags"]) or f"±{formatting.time(figures['bound_ns'])}"


def rtt(statistics: dict[str, Any], short: bool = False) -> str:
    """Mean RTT in ms with its CI95."""
    return with_interval(statistics["rtt_ns"], short) if statistics["rtt_ns"] else "-"


def throughput(statistics: dict[str, Any]) -> str:
    """Payload / mean latency in MB/s, as the paper has it, with the CI95 of the latency carried over."""
    figures, value = statistics["one_way_delay_ns"], statistics["paper_throughput_mb_s"]
    if not figures or not figures["usable"] or not value or not figures["mean"]:
        return "-"
    low, high = throughput_interval(statistics)
    if low is None:
        return formatting.decimal(value)
    return formatting.around(value, low, math.inf if high is None else high)


def throughput_interval(statistics: dict[str, Any]) -> tuple[float | None, float | None]:
    """The interval from that of the latency; an end is None if that has none, or reaches to 0."""
    figures, value = statistics["one_way_delay_ns"], statistics["paper_throughput_mb_s"]
    if not figures["ci95"]:
        return None, None
    low, high = figures["ci95"]
    return value * figures["mean"] / high, value * figures["mean"] / low if low > 0 else None


def with_interval(figures: dict[str, Any], short: bool = False) -> str:
    """A mean in ms and the distance of its CI95's ends.

    `short` gives only the farther end, unless that would reach below 0 and the interval does not.
    """
    if not figures["ci95"]:
        return formatting.ms(figures["mean"])
    low, high = figures["ci95"]
    return formatting.around(figures["mean"] / 1e6, low / 1e6, high / 1e6, short)


def missing(cell: dict[str, Any] | None) -> str:
    """Why a cell has no figures."""
    if cell is None:
        return "not measured"
    return str(cell["status"]) if cell["status"] != "done" else "nothing arrived"


def markdown(results: dict[str, Any]) -> str:
    """table.md."""
    where = labels.setting(results)
    lines = [f"# Latency, RTT and throughput: {where}", ""]
    if not results["complete"]:
        lines += ["The run was broken off; these are its results until then.", ""]
    for block in blocks(results):
        ours = [name for name in block.subjects if not labels.subject(name).raw]
        raw = [name for name in block.subjects if labels.subject(name).raw]
        for title, names in (("twinlink", ours), ("baselines without twinlink, same run and frames", raw)):
            if names and block.mode != "saturation":
                lines += [f"## {block.title[0].upper()}{block.title[1:]}: {title}", "", *_grid(block, names), ""]
                lines += _noted(block.notes(names))
        if block.mode != "closed":
            lines += [
                f"## {block.title[0].upper()}{block.title[1:]}: rate, goodput and loss",
                "",
                *_grid_of(*_rates(block)),
                "",
                *_noted(block.notes(block.subjects)),
            ]
    if rows := mgen(results):
        head, lines_of_cells = rows
        lines += ["## MGEN's delay and the link's, medians in ms", "", *_grid_of(head, *lines_of_cells, words=1), ""]
    lines += [
        f"{where[0].upper()}{where[1:]}, {formatting.date(results['started_ns'])}. "
        "Latency: mean one-way delay; RTT: mean, "
        "residence time at the receiver included; both in ms, ± how far the CI95 reaches, - and + where that is "
        "not alike (moving-block bootstrap; n, limits and percentiles stand in results.json). Clock: to within what "
        f"the two clocks agree; it adds to the interval. “{RTT_ONLY}”: that is more than 20 % of the median delay, a "
        "clock was set, or a delay is negative. "
        "Throughput: payload / mean latency in MB/s (MB = 10^6 octets), as the paper has it: not a rate that was "
        "sustained; that is the goodput. K = 1024.",
        *_on_a_schedule(results),
        *_of_applications(results),
        *_whence_published(results),
    ]
    return "\n".join(lines) + "\n"


def _noted(notes: list[str]) -> list[str]:
    return [line for note in notes for line in (note, "")]


def text(results: dict[str, Any]) -> str:
    """The tables for a terminal of `WIDTH` columns: delays by payload and subject, then rates."""
    parts: list[tuple[str, list[str], list[list[str]], int]] = []
    for block in blocks(results):
        if block.mode == "closed":
            parts += list(_across(block))
        else:
            _, *rows = _rates(block, short=True)
            head = ["", "payload", "subject", "messages/s", "MB/s", "loss", "p50 / p95"]
            parts.append((f"{block.title}: goodput in MB/s, delay in ms", head, rows, 3))
    if rows_of_mgen := mgen(results):
        parts.append(("MGEN's delay and the link's, medians in ms", *rows_of_mgen, 1))
    shown = [
        "\n".join((f"{title[0].upper()}{title[1:]}", *aligned(head, rows, words))) for title, head, rows, words in parts
    ]
    notes = dict.fromkeys(note for block in blocks(results) for note in block.notes(block.subjects))
    shown += [textwrap.fill(note, WIDTH) for note in notes]
    return "\n\n".join(shown)


def _across(block: Block) -> Iterator[tuple[str, list[str], list[list[str]], int]]:
    """Title, head, rows and number of text columns, per direction: the mean RTT, and the mean one-way delay."""
    for direction in dict.fromkeys(row[0] for row in block.rows):
        places = [row for row in block.rows if row[0] == direction]
        head = ["", *(labels.place(flow, octets) for _, octets, flow in places)]
        for what, shown in (("mean RTT", rtt), ("mean one-way delay", latency)):
            rows = []
            for name in block.subjects:
                cells = [block.cells.get((name, *place)) for place in places]
                figures = [cell and cell["statistics"] for cell in cells]
                texts = [
                    mark(cell) + shown(one, short=True) if one else missing(cell)
                    for one, cell in zip(figures, cells, strict=True)
                ]
                rows.append([labels.subject(name).short, *texts])
            title = f"{block.title}, {labels.DIRECTIONS[direction]}: {what} in ms, ± how far its CI95 reaches"
            yield title, head, rows, 1


def _on_a_schedule(results: dict[str, Any]) -> Iterator[str]:
    modes = {cell["mode"] for cell in results["cells"]}
    if modes - {"closed"}:
        text = "Beside a rate, delay counts from when a message should have been sent; latency from when it was."
        yield from ("", f"{text} {SEARCHED}" if "saturation" in modes else text)


def _of_applications(results: dict[str, Any]) -> Iterator[str]:
    if any(cell.get("flow") for cell in results["cells"]):
        yield from ("", "Loss: what an application sent after the other side had left is in it.")


def _whence_published(results: dict[str, Any]) -> Iterator[str]:
    if any(_published(block, name) for block in blocks(results) for name in block.subjects):
        text = f"Published: {reference_results.PAPER}; {reference_results.PAPER_SETTING}."
        yield from ("", f"{text} Another setting: it gives an order of magnitude, not a comparison.")


def _grid(block: Block, names: list[str]) -> Iterator[str]:
    head = ["Direction", "Payload"]
    for name in names:
        short = labels.subject(name).short
        head += [f"{short} latency (ms)", "clock", f"{short} RTT (ms)", f"{short} throughput (MB/s)"]
        if _published(block, name):
            head.append("published latency / RTT / throughput (ms, ms, MB/s)")
    lines = [head]
    for direction, octets, flow in block.rows:
        line = [labels.DIRECTIONS[direction], labels.place(flow, octets)]
        for name in names:
            cell = block.cells.get((name, direction, octets, flow))
            figures = cell and cell["statistics"]
            if figures and figures["n_received"]:
                line += [mark(cell) + latency(figures), bound(figures), rtt(figures), throughput(figures)]
            else:
                line += [missing(cell), "-", "-", "-"]
            if _published(block, name):
                row = reference_results.row(name, direction, octets)
                line.append(
                    f"{row.latency_ms:.2f} / {row.rtt_ms:.2f} / {row.throughput_mb_s:.2f}" if row else "-"
                )  # fmt: skip
        lines.append(line)
    yield from _grid_of(*lines, words=2)


def _grid_of(head: list[str], *rows: list[str], words: int = 3) -> Iterator[str]:
    """A table in Markdown; all but the first columns are figures."""
    yield _line(head)
    yield _line(["---"] * words + ["---:"] * (len(head) - words))
    yield from map(_line, rows)


def _published(block: Block, name: str) -> bool:
    return block.mode == "closed" and any(reference_results.row(name, *row[:2]) for row in block.rows)


def _rates(block: Block, short: bool = False) -> Iterator[list[str]]:
    """Head and rows of the table of rates."""
    yield ["Direction", "Payload", "Subject", "messages/s", "goodput MB/s", "loss", "delay p50 / p95 (ms)"]
    for direction, octets, flow in block.rows:
        for name in block.subjects:
            cell = block.cells.get((name, direction, octets, flow))
            if cell is not None:
                subject = labels.subject(name)
                where = [labels.DIRECTIONS[direction], labels.place(flow, octets)]
                shown = subject.short if short else subject.name
                yield [*where, shown, mark(cell) + rate(cell, short), *scheduled(cell)]


def rate(cell: dict[str, Any], short: bool = False) -> str:
    """Messages per second, as requested; or the highest without loss, unless `short` with the range of the rounds."""
    search = cell.get("search")
    if search and search["highest_loss_free_hz"]:
        return labels.highest_rate(search, not short)
    return f"{cell['rate_hz']:,.0f}" if cell.get("rate_hz") else "-"


def at_rate(cell: dict[str, Any]) -> dict[str, Any] | None:
    """Statistics at the cell's `rate`: of the trial that carried it, in a search, else of the whole cell."""
    figures: dict[str, Any] | None = cell["statistics"]
    return figures and (figures.get("at_highest_rate") or figures)


def scheduled(cell: dict[str, Any]) -> list[str]:
    """Goodput, loss and delay from the scheduled send time, of a cell with a schedule."""
    figures = at_rate(cell)
    if not figures:
        return [missing(cell), "-", "-"]
    delay = figures["open_loop_delay_ns"] or figures["one_way_delay_ns"]
    usable = delay and figures["one_way_delay_ns"]["usable"]
    return [
        formatting.decimal(figures["goodput_mb_s"]) if figures["goodput_mb_s"] is not None else "-",
        percent(figures["loss_ratio"]),
        f"{formatting.ms(delay['p50'])} / {formatting.ms(delay['p95'])}" if usable else RTT_ONLY if delay else "-",
    ]


def mgen(results: dict[str, Any]) -> tuple[list[str], list[list[str]]] | None:
    """Head and rows of MGEN's own figures; None if it was not the source."""
    rows = []
    for cell in results["cells"]:
        found = cell.get("mgen")
        if found:
            place = f"{labels.DIRECTIONS[cell['direction']]} {formatting.payload(cell['octets'])}"
            counts = [f"{found['received']:,} of {found['sent']:,}", f"{found['errors']:,}"]
            delays = [
                formatting.ms(part["p50"]) + labels.of_fewer(part, found["received"]) if (part := found[name]) else "-"
                for name in MGEN_PARTS
            ]
            rows.append([f"{mark(cell)}{labels.subject(cell['subject']).short}, {place}", *counts, *delays])
    return (["", "received", "RERR", *MGEN_PARTS.values()], rows) if rows else None


def percent(ratio: float | None) -> str:
    """A share of messages."""
    if ratio is None:
        return "-"
    return f"{100 * ratio:.3g} %"


def _line(fields: list[str]) -> str:
    return f"| {' | '.join(fields)} |"
