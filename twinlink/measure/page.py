"""report.html: one self-contained file, for wide and narrow screens."""

import base64
from html import escape
from typing import Any

from . import formatting, load, reference_results, report_details, summary, table
from .plot_style import Drawn

CSS = """
:root { color-scheme: light; --ink: #1b1e23; --soft: #667; --line: #dde1e6; --good: #2b8a3e; --bad: #c92a2a;
        --doubt: #a65300; }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 68rem; padding: 1rem; color: var(--ink); background: #fff;
       font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; overflow-wrap: break-word; }
h1 { font-size: 1.6rem; line-height: 1.25; margin: .5rem 0; }
h2 { margin: 2.2rem 0 .6rem; border-bottom: 1px solid var(--line); }
h3 { margin: 1.2rem 0 .3rem; font-size: 1.05rem; }
.verdict { display: inline-block; padding: .1rem .8rem; border-radius: 1rem; color: #fff; font-weight: 600; }
.passed { background: var(--good); } .failed { background: var(--bad); }
.doubtful { background: var(--doubt); }
.beside { display: grid; gap: 0 2rem; grid-template-columns: repeat(auto-fit, minmax(min(100%, 27rem), 1fr)); }
.scroll { overflow-x: auto; } table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .4rem; border-bottom: 1px solid var(--line); text-align: right; vertical-align: top;
         font-size: .9rem; }
th { vertical-align: bottom; font-weight: 600; } small { white-space: nowrap; }
th:first-child, td:first-child { text-align: left; padding-left: 0; } td:first-child { white-space: nowrap; }
tr.direction td { font-weight: 600; text-align: left; padding-top: .7rem; }
.facts td { text-align: left; white-space: normal; overflow-wrap: anywhere; }
.facts td:first-child { color: var(--soft); padding-right: 1rem; white-space: nowrap; }
td small { color: var(--soft); } td small.below { display: block; }
dl { display: grid; grid-template-columns: 10rem 1fr; gap: .35rem 1rem; margin: 1rem 0; }
dt { font-weight: 600; } dd { margin: 0; }
figure { margin: .2rem 0 1.4rem; }
img { display: block; width: 100%; height: auto; border: 1px solid var(--line); border-radius: .4rem; }
@media (max-width: 40rem) {
  img { min-width: 30rem; }
  dl { display: block; } dt { margin-top: .6rem; }
  th, td { padding: .3rem .25rem; font-size: .82rem; } td small { display: block; }
  .facts td:first-child { white-space: normal; width: 35%; }
}
figcaption, .soft { color: var(--soft); font-size: .9rem; }
details { border-bottom: 1px solid var(--line); padding: .35rem 0; } summary { cursor: pointer; }
summary b { font-weight: 600; }
"""


def html(results: dict[str, Any], drawn: list[Drawn]) -> str:
    """The page."""
    where = formatting.setting(results)
    body = [
        f"<h1>twinlink sweep: {escape(where)}</h1>",
        _verdict(results),
        *_told(results),
        f"<h2>Latency, RTT and throughput</h2>\n<p>{escape(where[0].upper() + where[1:])}. {_how_to_read(results)}</p>",
        *(_block(block) for block in table.blocks(results)),
        f"<h2>Figures</h2>\n<div class='beside'>{''.join(map(_figure, drawn))}</div>" if drawn else "",
        report_details.context(),
        report_details.mgen(results),
        report_details.comparisons(results),
        report_details.clocks(results),
        report_details.cells(results),
        report_details.method(results),
        report_details.about(results),
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>twinlink sweep: {escape(where)}</title><style>{CSS}</style></head>\n"
        f"<body>\n{chr(10).join(filter(None, body))}\n</body></html>\n"
    )


def _verdict(results: dict[str, Any]) -> str:
    missing = summary.unfinished(results)
    if not results["complete"]:
        word = "broken off"
    else:
        word = f"{len(missing)} of {len(results['cells'])} cells missing" if missing else "complete"
    good = results["complete"] and not missing
    busy = load.warning(results.get("load") or ())
    if busy:
        word += ", on a busy machine"
    kind = "failed" if not good else "doubtful" if busy else "passed"
    return (
        f'<p><span class="verdict {kind}">{escape(word)}</span> '
        f'<span class="soft">{formatting.date(results["started_ns"])}</span></p>'
    )


def _told(results: dict[str, Any]) -> list[str]:
    """The sentences of the summary; a table replaces the one about round trips."""
    glance = _round_trips(results)
    told = [each for each in summary.statements(results) if not (glance and each[0] == summary.ROUND_TRIP)]
    items = "".join(f"<dt>{escape(title)}</dt><dd>{escape(text)}</dd>" for title, text in told)
    return [glance, f"<dl>{items}</dl>"]


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
            _td(table.mark(cell) + formatting.ms(each["mean"]) if each else "-")
            for cell, each in zip(cells, found, strict=True)
        )
        shown = formatting.subject(name)
        rows.append(f'<tr><td><span style="color:{shown.colour}">■</span> {escape(shown.short)}</td>{means}</tr>')
    head = "".join(f"<th>{escape(formatting.place(flow, octets))}</th>" for _, octets, flow in places)
    return (
        f"<h3>Mean round-trip time in ms, {formatting.WAYS[direction]}</h3>\n"
        f'<div class="scroll"><table><tr><th></th>{head}</tr>\n{chr(10).join(rows)}</table></div>'
        f"{_notes(block.notes(block.subjects))}"
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
    ours = "".join(shown for name, shown in tables.items() if not formatting.subject(name).raw)
    raw = "".join(shown for name, shown in tables.items() if formatting.subject(name).raw)
    title = f"<h3>{escape(block.title[0].upper() + block.title[1:])}</h3>\n"
    if raw:
        folded = "<details open><summary>Baselines: the same frames in the same run, without twinlink</summary>"
        raw = f'{folded}<div class="beside">{raw}</div></details>'
    return f'{title}<div class="beside">{ours}</div>{raw}' if ours else title + raw


def _subject_table(block: table.Block, name: str) -> str:
    """The table of one subject, narrow enough for a phone; two side by side are the paper's table."""
    shown = formatting.subject(name)
    rates = block.mode != "closed"
    head = ["payload", "latency ms", "RTT ms", "throughput MB/s"]
    if rates:
        head = ["payload", "msg/s", "goodput MB/s", "loss", "delay p50 ms"]
    rows, direction = [], ""
    for row in block.rows:
        each, octets, flow = row
        if each != direction:
            rows.append(f'<tr class="direction"><td colspan="{len(head)}">{formatting.DIRECTIONS[each]}</td></tr>')
            direction = each
        rows.append(f"<tr><td>{escape(formatting.place(flow, octets))}</td>{_cell(block, name, row)}</tr>")
    return (
        f'<div><h3><span style="color:{shown.colour}">■</span> {escape(shown.name)}</h3><div class="scroll"><table><tr>'
        + "".join(f"<th>{escape(title)}</th>" for title in head)
        + f"</tr>\n{chr(10).join(rows)}</table></div>{_notes(block.notes([name]))}</div>"
    )


def _notes(texts: list[str]) -> str:
    return "".join(f"<p class='soft'>{escape(text)}</p>" for text in texts)


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
        rate = _td(table.mark(cell) + value, spread)
        return rate + "".join(map(_td, fields)) + _td(middle, f"p95 {high}" if high else "")
    clock = table.bound(figures)
    columns = [
        (table.mark(cell) + table.latency(figures), f"clock {clock}" if clock != "-" else ""),
        (table.rtt(figures), ""),
        (table.throughput(figures), ""),
    ]
    theirs = [row.latency_ms, row.rtt_ms, row.throughput_mb_s] if row else []
    papers = [f"paper {value:.2f}" for value in theirs] + [""] * (len(columns) - len(theirs))
    return "".join(_td(text, more, paper) for (text, more), paper in zip(columns, papers, strict=True))


def _td(text: str, *below: str) -> str:
    value, interval = text.split(" ", 1) if " ±" in text or " -" in text else (text, "")
    small = f" <small>{escape(interval)}</small>" if interval else ""
    lines = "".join(f"<small class=below>{escape(line)}</small>" for line in below if line)
    return f"<td>{escape(value)}{small}{lines}</td>"


def _figure(drawn: Drawn) -> str:
    data = base64.b64encode(drawn.path.read_bytes()).decode("ascii")
    return (
        f'<div><h3>{escape(drawn.title)}</h3>\n<figure><div class="scroll"><img loading="lazy" '
        f'alt="{escape(drawn.title)}" src="data:image/png;base64,{data}"></div>'
        f"<figcaption>{escape(drawn.caption)}</figcaption></figure></div>\n"
    )
