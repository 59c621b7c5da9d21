"""The report of a sweep: report.html."""

from html import escape
from typing import Any

from twinlink.appkit import formatting

from . import document, labels, reference_results, report_details, summary, table
from .plot_style import Drawn


def html(results: dict[str, Any], drawn: list[Drawn]) -> str:
    """The page."""
    where = labels.setting(results)
    figures = "".join(document.figure(each.path, each.title, each.caption) for each in drawn)
    body = [
        f"<h1>twinlink sweep: {escape(where)}</h1>",
        _verdict(results),
        *_told(results),
        f"<h2>Latency, RTT and throughput</h2>\n<p>{escape(where[0].upper() + where[1:])}. {_how_to_read(results)}</p>",
        *(_block(block) for block in table.blocks(results)),
        f"<h2>Figures</h2>\n<div class='beside'>{figures}</div>" if drawn else "",
        report_details.context(),
        report_details.mgen(results),
        report_details.comparisons(results),
        report_details.clocks(results),
        report_details.cells(results),
        report_details.method(results),
        report_details.about(results),
    ]
    return document.page(f"twinlink sweep: {where}", body)


def _verdict(results: dict[str, Any]) -> str:
    missing = summary.unfinished(results)
    if not results["complete"]:
        word = "broken off"
    else:
        word = f"{len(missing)} of {len(results['cells'])} cells missing" if missing else "complete"
    good = results["complete"] and not missing
    doubts = document.doubts(results["configuration"]["given"].get("quick"), results.get("load") or ())
    kind = document.BAD if not good else document.DOUBTFUL if doubts else document.GOOD
    return document.badge(", ".join([word, *doubts]), kind, formatting.date(results["started_ns"]))


def _told(results: dict[str, Any]) -> list[str]:
    """The sentences of the summary; a table replaces the one about round trips."""
    glance = _round_trips(results)
    told = [each for each in summary.statements(results) if not (glance and each[0] == summary.ROUND_TRIP)]
    return [glance, document.sentences(told)]


def _round_trips(results: dict[str, Any]) -> str:
    """Mean RTTs of the first direction: a row for each subject, a column for each payload."""
    block = next((each for each in table.blocks(results) if each.mode == "closed"), None)
    if block is None:
        return ""
    direction = block.rows[0][0]
    places = [row for row in block.rows if row[0] == direction]
    rows = []
    for name in block.subjects:
        cells = [block.cells.get((name, *place)) for place in places]
        found = [cell["statistics"]["rtt_ns"] if cell and cell["statistics"] else None for cell in cells]
        means = "".join(
            document.cell(table.mark(cell) + formatting.ms(each["mean"]) if each else "-")
            for cell, each in zip(cells, found, strict=True)
        )
        shown = labels.subject(name)
        rows.append(f"<tr><td>{document.key(shown.colour)} {escape(shown.short)}</td>{means}</tr>")
    head = ["", *(labels.place(flow, octets) for _, octets, flow in places)]
    return (
        f"<h3>Mean round-trip time in ms, {labels.WAYS[direction]}</h3>\n{document.rows_table(head, rows)}"
        f"{document.notes(block.notes(block.subjects))}"
    )


def _how_to_read(results: dict[str, Any]) -> str:
    searched = any(cell["mode"] == "saturation" for cell in results["cells"])
    return (
        "RW is the Real World, DT the Digital Twin. Latency is the mean one-way delay, "
        "RTT the mean round-trip time, throughput the paper's: payload / mean "
        "latency, not a rate that was sustained. ± is how far the CI95 reaches, - and + where that is not alike; "
        "<i>clock</i> is how far the clocks may be wrong on top of it; <i>paper</i> is what Table I has, from "
        "another setting. On a schedule, delay counts from when a "
        f"message should have been sent.{f' {table.SEARCHED}' if searched else ''}"
    )


def _block(block: table.Block) -> str:
    tables = {name: _subject_table(block, name) for name in block.subjects}
    ours = "".join(shown for name, shown in tables.items() if not labels.subject(name).raw)
    raw = "".join(shown for name, shown in tables.items() if labels.subject(name).raw)
    title = f"<h3>{escape(block.title[0].upper() + block.title[1:])}</h3>\n"
    if raw:
        folded = "<details open><summary>Baselines: the same frames in the same run, without twinlink</summary>"
        raw = f'{folded}<div class="beside">{raw}</div></details>'
    return f'{title}<div class="beside">{ours}</div>{raw}' if ours else title + raw


def _subject_table(block: table.Block, name: str) -> str:
    """The table of one subject, narrow enough for a phone; two side by side are the paper's table."""
    shown = labels.subject(name)
    rates = block.mode != "closed"
    head = ["payload", "latency ms", "RTT ms", "throughput MB/s"]
    if rates:
        head = ["payload", "msg/s", "goodput MB/s", "loss", "delay p50 ms"]
    rows, direction = [], ""
    for row in block.rows:
        each, octets, flow = row
        if each != direction:
            rows.append(f'<tr class="direction"><td colspan="{len(head)}">{labels.DIRECTIONS[each]}</td></tr>')
            direction = each
        rows.append(f"<tr><td>{escape(labels.place(flow, octets))}</td>{_cell(block, name, row)}</tr>")
    return (
        f"<div><h3>{document.key(shown.colour)} {escape(shown.name)}</h3>{document.rows_table(head, rows)}"
        f"{document.notes(block.notes([name]))}</div>"
    )


def _cell(block: table.Block, name: str, place: tuple[str, int, str]) -> str:
    cell = block.cells.get((name, *place))
    figures = cell and cell["statistics"]
    row = reference_results.row(name, *place[:2]) if block.mode == "closed" else None
    if not cell or not figures or not figures["n_received"]:
        return f'<td colspan="{3 if block.mode == "closed" else 4}">{escape(table.missing(cell))}</td>'
    if block.mode != "closed":
        *fields, delay = table.scheduled(cell)
        middle, _, high = delay.partition(" / ")
        value, _, spread = table.rate(cell).partition(" ")
        rate = document.cell(table.mark(cell) + value, spread)
        return rate + "".join(map(document.cell, fields)) + document.cell(middle, f"p95 {high}" if high else "")
    clock = table.bound(figures)
    columns = [
        (table.mark(cell) + table.latency(figures), f"clock {clock}" if clock != "-" else ""),
        (table.rtt(figures), ""),
        (table.throughput(figures), ""),
    ]
    theirs = [row.latency_ms, row.rtt_ms, row.throughput_mb_s] if row else []
    papers = [f"paper {value:.2f}" for value in theirs] + [""] * (len(columns) - len(theirs))
    return "".join(document.cell(text, more, paper) for (text, more), paper in zip(columns, papers, strict=True))
