"""The report of a demo: report.html."""

from html import escape
from typing import Any

from twinlink_results import document, labels, table

from twinlink.appkit import formatting
from twinlink.prbs import format_prbs

from . import requirements, verdict
from .figures import Drawn
from .flows import FLOWS
from .verdict import ROWS, ms, yes

KINDS = {verdict.PASSED: document.GOOD, verdict.NOT_JUDGED: document.DOUBTFUL}

WORDS = """<p class="soft">Precision: share of detections that are true; recall: share of the interferer that was
detected. Loop closed: the block was installed and applied, and the twin saw its effect; in how many of the
appearances of the interferer that required a block, and in how many others. Round-trip time: from sending a record to
its acknowledgement. Age of information: age of the newest record that the twin has analysed; it peaks just before the
next one. Stale, out of sync: how often that age exceeded 0.5 s and 2 s, or too many records were missing. Due to
analysed: from when the schedule has a record played until the twin has analysed it.</p>"""


def html(summary: dict[str, Any], results: dict[str, Any], drawn: list[Drawn]) -> str:
    """The page."""
    kind = KINDS.get(summary["verdict"], document.BAD)
    body = [
        "<h1>twinlink demo</h1>",
        document.badge(summary["verdict"], kind, formatting.date(summary["started_ns"])),
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
    return document.page(f"twinlink demo: {summary['verdict']}", body)


def _told(summary: dict[str, Any]) -> str:
    """The result, then the failures, what was not judged, and remarks, each under its title."""
    shown = "" if summary["failed"] else verdict.answer(summary)
    parts = [f"<p><b>{escape(shown[0].upper() + shown[1:])}</b></p>"] if shown else []
    for title, told in reversed(verdict.findings(summary)):
        parts.append(f"<h3>{escape(title)}</h3>\n{document.items(told)}")
    return "\n".join(parts)


def _table(summary: dict[str, Any]) -> str:
    transports = summary["transports"]
    if not transports:
        return ""
    rows = [(title, *(cell(transports[name]) for name in transports)) for title, cell in ROWS]
    return document.table(["", *transports], rows)


def _figure(drawn: Drawn) -> str:
    return document.figure(drawn.path, drawn.title, drawn.caption, wide=True, spectrum=drawn.spectrum)


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
    rows = []
    for each in episodes:
        cells = (
            f"{each['first_record']}",
            f"{each['duration_ns'] / 1e9:.2f} s",
            "-" if each["inr_db"] is None else f"{each['inr_db']:.1f} dB",
            "-" if each["proposed_ns"] is None else f"+{ms(each['proposed_ns'] - each['on_ns'])}",
            "-" if each["installed_ns"] is None else f"+{ms(each['installed_ns'] - each['on_ns'])}",
            "-" if each["applied_record"] is None else f"{each['applied_record']}",
            f"{each['freed_busy']} of {each['freed_cells']}",
        )
        first, last = document.word(format_prbs(each["prbs"])), document.prose(_closed(each))
        rows.append(f"<tr>{first}{''.join(map(document.cell, cells))}{last}</tr>")
    return (
        f"<h3>Every interferer</h3>\n{document.rows_table(titles, rows)}\n"
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
    rows = []
    for cell in sorted(results["cells"], key=lambda cell: list(FLOWS).index(cell["flow"])):
        found = cell["statistics"]
        where = (
            labels.place(cell["flow"], cell["octets"]),
            labels.DIRECTIONS[cell["direction"]],
            cell["subject"],
        )
        figures: tuple[str, ...] = (table.missing(cell), "-", "-", "-", "-", "-")
        if found:
            figures = (f"{found['n_sent']:,}", f"{found['lost']:,}", table.latency(found), table.bound(found),
                       table.rtt(found), table.throughput(found))  # fmt: skip
        rows.append(f"<tr>{''.join((*map(document.word, where), *map(document.cell, figures)))}</tr>")
    return (
        f"<h2>Every flow of the link</h2>\n{document.rows_table(titles, rows, words=3)}\n"
        '<p class="soft">Means, ± how far the CI95 reaches, - and + where that is not alike. '
        "Clock: both ends read one; its bound is the error of the link's estimate. "
        "Throughput: payload / latency, not a rate that was sustained. A control-result that is sent after the twin "
        "has left counts as lost. The records of both ends are in <code>records/</code>, all statistics in "
        "<code>results.json</code>.</p>"
    )


def _about(summary: dict[str, Any]) -> str:
    rows = {**summary["configuration"], **summary["versions"], **summary["system"]}
    facts = document.facts((name, _value(value)) for name, value in rows.items())
    return (
        f"<h2>Configuration and versions</h2>\n{facts}\n"
        '<p class="soft">The raw records lie beside this page; <code>twinlink report</code> with the name of this '
        "folder makes everything else from them again.</p>"
    )


def _value(value: Any) -> str:
    if value is None:
        return "-"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
