"""report.html: one self-contained file, for wide and narrow screens."""

import base64
from datetime import UTC, datetime
from html import escape
from typing import Any

from twinlink.measure import formatting, table
from twinlink.prbs import format_prbs

from . import requirements, verdict
from .figures import Drawn
from .flows import FLOWS
from .verdict import ROWS, ms, yes

CSS = """
:root { color-scheme: light; --ink: #1b1e23; --soft: #667; --line: #dde1e6; --good: #2b8a3e; --bad: #c92a2a;
        --doubt: #a65300; }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 68rem; padding: 1rem; color: var(--ink); background: #fff;
       font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
h1 { font-size: 1.6rem; margin: .5rem 0; } h2 { margin: 2.2rem 0 .6rem; border-bottom: 1px solid var(--line); }
h3 { margin: 1.4rem 0 .3rem; font-size: 1.05rem; }
.verdict { display: inline-block; padding: .2rem .8rem; border-radius: 1rem; color: #fff; font-weight: 600; }
.passed { background: var(--good); } .failed { background: var(--bad); } .doubtful { background: var(--doubt); }
.scroll { overflow-x: auto; } table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .4rem; border-bottom: 1px solid var(--line); text-align: right; vertical-align: top;
         font-size: .9rem; white-space: nowrap; }
th { vertical-align: bottom; font-weight: 600; } th, td:last-child { white-space: normal; }
th:first-child, td:first-child { text-align: left; }
figure { margin: .6rem 0 1.4rem; }
img { display: block; width: 100%; height: auto; border: 1px solid var(--line); border-radius: .4rem; }
@media (max-width: 40rem) { th, td { padding: .3rem .25rem; font-size: .85rem; } img { min-width: 36rem; } }
figcaption, .soft { color: var(--soft); font-size: .9rem; }
pre { overflow-x: auto; background: #f6f7f9; padding: .6rem; }
"""

KINDS = {verdict.PASSED: "passed", verdict.NOT_JUDGED: "doubtful"}

WORDS = """<p class="soft">Precision: share of detections that are true; recall: share of the interferer that was
detected. Loop closed: the block was installed and applied, and the twin saw its effect; in how many of the
appearances of the interferer that required a block, and in how many others. Round-trip time: from sending a record to
its acknowledgement. Age of information: age of the newest record that the twin has analysed; it peaks just before the
next one. Stale, out of sync: how often that age exceeded 0.5 s and 2 s, or too many records were missing. Due to
analysed: from when the schedule has a record played until the twin has analysed it.</p>"""


def html(summary: dict[str, Any], results: dict[str, Any], drawn: list[Drawn]) -> str:
    """The page."""
    when = datetime.fromtimestamp(summary["started_ns"] / 1e9, UTC).strftime("%Y-%m-%d %H:%M UTC")
    kind = KINDS.get(summary["verdict"], "failed")
    body = [
        "<h1>twinlink demo</h1>",
        f'<p><span class="verdict {kind}">{escape(summary["verdict"])}</span> <span class="soft">{when}</span></p>',
        _told(summary),
        "<p>What was run: a RAN emulator plays a recorded uplink on its E3 interface; the exporter sends each symbol "
        "over the link to a GNU Radio flowgraph, which rebuilds the spectrum, finds the interferer and has its PRBs "
        "blocked at the gNB. Every part is a process of its own.</p>",
        _table(summary),
        WORDS if summary["transports"] else "",
    ]
    for name, facts in summary["transports"].items():
        body.append(f"<h2>{escape(name)}</h2>")
        body += [_figure(each) for each in drawn if each.transport == name]
        body.append(_part_failure(facts))
        body.append(_episodes(facts["episodes"]))
    if any(each.transport is None for each in drawn):
        body.append("<h2>Freshness and delay</h2>")
        body += [_figure(each) for each in drawn if each.transport is None]
    body.append(_flows(results))
    body.append(_about(summary))
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>twinlink demo: {escape(summary['verdict'])}</title><style>{CSS}</style></head>\n"
        f"<body>\n{chr(10).join(filter(None, body))}\n</body></html>\n"
    )


def _told(summary: dict[str, Any]) -> str:
    """The result, then the failures, what was not judged, and remarks, each under its title."""
    shown = "" if summary["failed"] else verdict.answer(summary)
    parts = [f"<p><b>{escape(shown[0].upper() + shown[1:])}</b></p>"] if shown else []
    for title, told in reversed(verdict.findings(summary)):
        items = "".join(f"<li>{escape(text)}</li>" for text in told)
        parts.append(f"<h3>{escape(title)}</h3>\n<ul>{items}</ul>")
    return "\n".join(parts)


def _table(summary: dict[str, Any]) -> str:
    transports = summary["transports"]
    if not transports:
        return ""
    head = "".join(f"<th>{escape(name)}</th>" for name in transports)
    rows = [
        f"<tr><td>{escape(title)}</td>" + "".join(f"<td>{escape(cell(transports[name]))}</td>" for name in transports)
        + "</tr>" for title, cell in ROWS
    ]  # fmt: skip
    return f'<div class="scroll"><table><tr><th></th>{head}</tr>\n{chr(10).join(rows)}</table></div>'


def _figure(drawn: Drawn) -> str:
    data = base64.b64encode(drawn.path.read_bytes()).decode("ascii")
    return (
        f'<h3>{escape(drawn.title)}</h3>\n<figure><div class="scroll">'
        f'<img alt="{escape(drawn.title)}" src="data:image/png;base64,{data}"></div>'
        f"<figcaption>{escape(drawn.caption)}</figcaption></figure>"
    )


def _part_failure(facts: dict[str, Any]) -> str:
    failure = facts["parts"]["failure"]
    if not failure:
        return ""
    said = escape("\n".join(failure["last_lines"]))
    return f"<p>The {escape(failure['part'])} {escape(failure['reason'])}. It said last:</p><pre>{said}</pre>"


def _episodes(episodes: list[dict[str, Any]]) -> str:
    if not episodes:
        return ""
    titles = ("PRBs", "from record", "lasts", "over the floor", "twin asks", "block installed", "applied from record",
              "freed cells with energy", "closed")  # fmt: skip
    head = "".join(f"<th>{title}</th>" for title in titles)
    rows = []
    for each in episodes:
        cells = (
            format_prbs(each["prbs"]),
            f"{each['first_record']}",
            f"{each['duration_ns'] / 1e9:.2f} s",
            "-" if each["inr_db"] is None else f"{each['inr_db']:.1f} dB",
            "-" if each["proposed_ns"] is None else f"+{ms(each['proposed_ns'] - each['on_ns'])}",
            "-" if each["installed_ns"] is None else f"+{ms(each['installed_ns'] - each['on_ns'])}",
            "-" if each["applied_record"] is None else f"{each['applied_record']}",
            f"{each['freed_busy']} of {each['freed_cells']}",
            _closed(each),
        )
        rows.append("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>")
    return (
        f'<h3>Every interferer</h3>\n<div class="scroll"><table><tr>{head}</tr>\n{chr(10).join(rows)}</table></div>\n'
        '<p class="soft">Times count from the record with which the interferer came on, to a block that covers all its '
        "PRBs. Freed cells: PRBs of records after its end from which the block kept a UE away.</p>"
    )


def _closed(episode: dict[str, Any]) -> str:
    if episode["closed"]:
        return "yes" if episode["effect_seen"] else "yes; the run ended too soon to see the effect"
    why = episode["open_because"]
    if episode["required"]:
        return f"{yes(False)}: {why}"
    waived = requirements.WAIVED[episode["waived"]]
    return f"not judged: {waived}; {why}" if requirements.is_unjudged(episode) else f"no, not required: {waived}; {why}"


def _flows(results: dict[str, Any]) -> str:
    titles = ("flow", "", "transport", "messages", "lost", "latency (ms)", "clock", "RTT (ms)", "throughput (MB/s)")
    head = "".join(f"<th>{title}</th>" for title in titles)
    rows = []
    for cell in sorted(results["cells"], key=lambda cell: list(FLOWS).index(cell["flow"])):
        found = cell["statistics"]
        where = (
            formatting.place(cell["flow"], cell["octets"]),
            formatting.DIRECTIONS[cell["direction"]],
            cell["subject"],
        )
        figures: tuple[str, ...] = (table.missing(cell), "-", "-", "-", "-", "-")
        if found:
            figures = (f"{found['n_sent']:,}", f"{found['lost']:,}", table.latency(found), table.bound(found),
                       table.rtt(found), table.throughput(found))  # fmt: skip
        rows.append("<tr>" + "".join(f"<td>{escape(text)}</td>" for text in (*where, *figures)) + "</tr>")
    return (
        "<h2>Every flow of the link</h2>\n"
        f'<div class="scroll"><table><tr>{head}</tr>\n{chr(10).join(rows)}</table></div>\n'
        '<p class="soft">Means, ± how far the CI95 reaches, - and + where that is not alike. '
        "Clock: both ends read one; its bound is the error of the link's estimate. "
        "Throughput: payload / latency, not a rate that was sustained. A control-result that is sent after the twin "
        "has left counts as lost. The records of both ends are in <code>records/</code>, all statistics in "
        "<code>results.json</code>.</p>"
    )


def _about(summary: dict[str, Any]) -> str:
    rows = {**summary["configuration"], **summary["versions"], **summary["system"]}
    cells = "".join(f"<tr><td>{escape(key)}</td><td>{escape(_value(value))}</td></tr>" for key, value in rows.items())
    return (
        f'<h2>Configuration and versions</h2>\n<div class="scroll"><table>{cells}</table></div>\n'
        '<p class="soft">The raw records lie beside this page; <code>twinlink report</code> with the name of this '
        "folder makes everything else from them again.</p>"
    )


def _value(value: Any) -> str:
    if value is None:
        return "-"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
