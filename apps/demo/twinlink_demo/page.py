"""The report of a demo: report.html."""

from typing import Any

from twinlink_results import document, labels, table

from twinlink.appkit import formatting
from twinlink.prbs import format_prbs

from . import requirements, verdict
from .figures import Drawn
from .flows import FLOWS
from .verdict import ROWS, ms, yes

KINDS = {verdict.PASSED: document.GOOD, verdict.NOT_JUDGED: document.DOUBTFUL}


def html(summary: dict[str, Any], results: dict[str, Any], drawn: list[Drawn]) -> str:
    """The page."""
    answer = "" if summary["failed"] else verdict.answer(summary)
    return document.page(
        "demo.html",
        f"twinlink demo: {summary['verdict']}",
        verdict=document.Badge(
            summary["verdict"], KINDS.get(summary["verdict"], document.BAD), formatting.date(summary["started_ns"])
        ),
        answer=answer[:1].upper() + answer[1:],
        findings=[(title, [*told]) for title, told in reversed(verdict.findings(summary))],
        table=_table(summary),
        transports=[
            {
                "name": name,
                "figures": [_picture(each) for each in drawn if each.transport == name],
                "failure": facts["parts"]["failure"],
                "episodes": _episodes(facts["episodes"]),
            }
            for name, facts in summary["transports"].items()
        ],
        figures=[_picture(each) for each in drawn if each.transport is None],
        flows=_flows(results),
        about=_about(summary),
    )


def _table(summary: dict[str, Any]) -> document.Table | None:
    transports = summary["transports"]
    if not transports:
        return None
    rows = [(title, *(cell(transports[name]) for name in transports)) for title, cell in ROWS]
    return document.table(["", *transports], rows)


def _picture(drawn: Drawn) -> document.Picture:
    return document.picture(drawn.path, drawn.title, drawn.caption, wide=True, spectrum=drawn.spectrum)


def _episodes(episodes: list[dict[str, Any]]) -> document.Table:
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
        first, last = document.word(format_prbs(each["prbs"])), document.Cell(_closed(each), "prose")
        rows.append([first, *map(document.cell, cells), last])
    return document.Table(titles, rows)


def _closed(episode: dict[str, Any]) -> str:
    if episode["closed"]:
        return "yes" if episode["effect_seen"] else "yes; the run ended too soon to see the effect"
    why = episode["open_because"]
    if episode["required"]:
        return f"{yes(False)}: {why}"
    waived = requirements.WAIVED[episode["waived"]]
    return f"not judged: {waived}; {why}" if requirements.is_unjudged(episode) else f"no, not required: {waived}; {why}"


def _flows(results: dict[str, Any]) -> document.Table:
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
        rows.append([*map(document.word, where), *map(document.cell, figures)])
    return document.Table(titles, rows, words=3)


def _about(summary: dict[str, Any]) -> list[tuple[str, str]]:
    rows = {**summary["configuration"], **summary["versions"], **summary["system"]}
    return [(name, _value(value)) for name, value in rows.items()]


def _value(value: Any) -> str:
    if value is None:
        return "-"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
