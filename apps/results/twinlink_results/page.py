"""The report of a sweep: report.html."""

from typing import Any

from twinlink.appkit import formatting

from . import document, labels, reference_results, report_details, summary, table
from .plot_style import Drawn


def html(results: dict[str, Any], drawn: list[Drawn]) -> str:
    """The page."""
    where = labels.setting(results)
    glance = _round_trips(results)
    searched = any(cell["mode"] == "saturation" for cell in results["cells"])
    return document.page(
        "sweep.html",
        f"twinlink {'recording' if 'recordings' in results['configuration']['used'] else 'sweep'}: {where}",
        where=where,
        verdict=_verdict(results),
        glance=glance,
        # The table replaces the sentence about round trips.
        told=[each for each in summary.statements(results) if not (glance and each[0] == summary.ROUND_TRIP)],
        searched=table.SEARCHED if searched else "",
        blocks=[_block(block) for block in table.blocks(results)],
        figures=[document.picture(each.path, each.title, each.caption) for each in drawn],
        **report_details.shown(results),
    )


def _verdict(results: dict[str, Any]) -> document.Badge:
    missing = summary.unfinished(results)
    if not results["complete"]:
        word = "broken off"
    else:
        word = f"{len(missing)} of {len(results['cells'])} cells missing" if missing else "complete"
    good = results["complete"] and not missing
    doubts = document.doubts(results["configuration"]["given"].get("quick"), results.get("load") or ())
    kind = document.BAD if not good else document.DOUBTFUL if doubts else document.GOOD
    return document.Badge(", ".join([word, *doubts]), kind, formatting.date(results["started_ns"]))


def _round_trips(results: dict[str, Any]) -> dict[str, Any] | None:
    """Mean RTTs of the first direction: a row for each subject, a column for each payload."""
    block = next((each for each in table.blocks(results) if each.mode == "closed"), None)
    if block is None:
        return None
    direction = block.rows[0][0]
    places = [row for row in block.rows if row[0] == direction]
    rows = []
    for name in block.subjects:
        cells = [block.cells.get((name, *place)) for place in places]
        found = [cell["statistics"]["rtt_ns"] if cell and cell["statistics"] else None for cell in cells]
        means = [
            document.cell(table.mark(cell) + formatting.ms(each["mean"]) if each else "-")
            for cell, each in zip(cells, found, strict=True)
        ]
        shown = labels.subject(name)
        rows.append([document.Cell(shown.short, colour=shown.colour), *means])
    head = ["", *(labels.place(flow, octets) for _, octets, flow in places)]
    return {
        "way": labels.WAYS[direction],
        "table": document.Table(head, rows),
        "notes": block.notes(block.subjects),
    }


def _block(block: table.Block) -> dict[str, Any]:
    """Its tables, those of twinlink and those of the bare libraries."""
    raw = {name: labels.subject(name).raw for name in block.subjects}
    return {
        "title": block.title[0].upper() + block.title[1:],
        "ours": [_subject_table(block, name) for name in block.subjects if not raw[name]],
        "raw": [_subject_table(block, name) for name in block.subjects if raw[name]],
    }


def _subject_table(block: table.Block, name: str) -> dict[str, Any]:
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
            rows.append([document.Cell(labels.DIRECTIONS[each], columns=len(head))])
            direction = each
        rows.append([document.Cell(labels.place(flow, octets)), *_cells(block, name, row)])
    return {
        "colour": shown.colour,
        "name": shown.name,
        "table": document.Table(head, rows),
        "notes": block.notes([name]),
    }


def _cells(block: table.Block, name: str, place: tuple[str, int, str]) -> list[document.Cell]:
    cell = block.cells.get((name, *place))
    figures = cell and cell["statistics"]
    row = reference_results.row(name, *place[:2]) if block.mode == "closed" else None
    if not cell or not figures or not figures["n_received"]:
        return [document.Cell(table.missing(cell), columns=3 if block.mode == "closed" else 4)]
    if block.mode != "closed":
        *fields, delay = table.scheduled(cell)
        middle, _, high = delay.partition(" / ")
        value, _, spread = table.rate(cell).partition(" ")
        rate = document.cell(table.mark(cell) + value, spread)
        return [rate, *map(document.cell, fields), document.cell(middle, f"p95 {high}" if high else "")]
    clock = table.bound(figures)
    columns = [
        (table.mark(cell) + table.latency(figures), f"clock {clock}" if clock != "-" else ""),
        (table.rtt(figures), ""),
        (table.throughput(figures), ""),
    ]
    theirs = [row.latency_ms, row.rtt_ms, row.throughput_mb_s] if row else []
    papers = [f"paper {value:.2f}" for value in theirs] + [""] * (len(columns) - len(theirs))
    return [document.cell(text, more, paper) for (text, more), paper in zip(columns, papers, strict=True)]
