"""The summary of a demo: every figure, the requirements, and the verdict."""

import signal
from collections import Counter
from typing import Any

import numpy as np

from twinlink.measure import formatting
from twinlink.measure.records import Table
from twinlink.prbs import format_prbs

from . import control_loop, freshness, score
from .child_process import how_it_ended
from .evidence import Evidence
from .folder import PARTS

FORMAT, VERSION = "twinlink-demo-summary", 1
MET, NOT_MET, PART_FAILED = 0, 1, 2
ON_ITS_WAY_NS = 1_000_000_000
LATE_MS = 100.0
WAIVED = {
    control_loop.WEAK: f"weaker than {control_loop.STRONG_DB:g} dB over the noise",
    control_loop.SHORT: f"shorter than {control_loop.LONG_NS / 1e9:g} s",
    control_loop.STALLED: "played with a stall",
}


def summarise(facts: dict[str, Any], evidence: dict[str, Evidence], sent: dict[str, Table]) -> dict[str, Any]:
    """The summary (docs/demo.md) of a run, from run.json, each transport's files, and its messages of ``spectrum``."""
    transports = {name: _transport(found, facts["transports"][name], sent[name]) for name, found in evidence.items()}
    failed = [f"{name}: {text}" for name, found in transports.items() for text in found["failed"]]
    broken = any(facts["transports"][name]["failure"] for name in facts["transports"])
    left_out = [name for name in facts["configuration"]["transports"] if name not in transports]
    failed += [f"{name}: did not run" for name in left_out]
    if facts["interrupted"]:
        failed.append("interrupted before the end")
    code = PART_FAILED if broken else NOT_MET if failed else MET
    return {
        "format": FORMAT,
        "format_version": VERSION,
        "verdict": {MET: "passed", NOT_MET: "failed", PART_FAILED: "broken off"}[code],
        "exit_code": code,
        "failed": failed,
        "notes": [note for name in evidence for note in _notes(name, evidence[name])],
        **{key: facts[key] for key in ("started_ns", "ended_ns", "configuration", "versions", "system")},
        "transports": transports,
    }


def _transport(evidence: Evidence, fact: dict[str, Any], sent: Table) -> dict[str, Any]:
    playout, rebuilt = evidence.playout, evidence.rebuilt
    messages = score.counts(playout, rebuilt, evidence.exporter)
    samples = {"compared": 0, "different": 0, "records_not_played": 0, "bit_identical": None}
    detection = occupancy = prompt = one_way = age = None
    if rebuilt is not None:
        one_way = freshness.spread(freshness.one_way_ns(rebuilt))
        if playout is not None:
            samples = score.samples(playout, rebuilt)
            detection = score.detection(playout, rebuilt, rebuilt.interfered).as_dict()
            prompt = score.detection(playout, rebuilt, rebuilt.prompt).as_dict()
            occupancy = score.occupancy(playout, rebuilt).as_dict()
            age = freshness.age_summary(playout, rebuilt)
    rtt = freshness.spread(sent["rtt_ns"][sent["acknowledged"]])
    episodes = control_loop.episodes(evidence)
    blocking = np.array([time for each in episodes if (time := each.time_to_block_ns) is not None], np.int64)
    to_block = freshness.spread(blocking)
    decisions = _decisions(evidence)
    found: dict[str, Any] = {
        **messages,
        "bit_identical": samples["bit_identical"],
        "detection_precision": detection and detection["precision"],
        "detection_recall": detection and detection["recall"],
        "loop_closed": any(each.closed for each in episodes) and all(each.closed for each in episodes if each.required),
        "interferer_on_to_block_ns": to_block and to_block["p50"],
        "rtt_p50_ns": rtt and rtt["p50"],
        "rtt_p99_ns": rtt and rtt["p99"],
        "samples": samples,
        "detection": detection,
        "detection_prompt": prompt,
        "occupancy": occupancy,
        "decisions": decisions,
        "time_to_block_ns": to_block,
        "rtt_ns": rtt,
        "one_way_ns": one_way,
        "clock_offset_ns": _clock_offset(evidence.exporter),
        "age_ns": age,
        "sync": _sync(evidence),
        "episodes": [each.as_dict() for each in episodes],
        "parts": {"exit_codes": fact["exit_codes"], "failure": fact["failure"], "interrupted": fact["interrupted"]},
    }
    return {**found, "failed": _unmet(found, episodes)}


def _clock_offset(exporter: dict[str, Any]) -> dict[str, Any] | None:
    """The exporter's estimate for the twin."""
    peers = exporter.get("spectrum", {}).get("peers", {}).values()
    return next((peer["clock_offset_ns"] for peer in peers if peer["clock_offset_ns"]), None)


def _sync(evidence: Evidence) -> dict[str, Any] | None:
    """The twin's state of sync, and how often it was not in sync."""
    ended = next((event.get("sync") for event in evidence.named("replay", "summary")), None)
    states = [event["state"] for event in evidence.named("replay", "sync")]
    return ended and {**ended, "stale": states.count("stale"), "out_of_sync": states.count("out-of-sync")}


def _decisions(evidence: Evidence) -> dict[str, int]:
    """The twin's decisions, renewals included, and their results; the last may be unanswered."""
    proposed = evidence.named("replay", "proposed")
    results = evidence.named("replay", "block-result")
    end_ns = max((event["time_ns"] for event in evidence.events["replay"]), default=0)
    open_ns = [
        event["time_ns"]
        for event in proposed
        if not any(result["id"] == event["id"] and result["time_ns"] >= event["time_ns"] for result in results)
    ]
    return {
        "proposed": len(proposed),
        "answered": len(proposed) - len(open_ns),
        "unanswered": sum(time_ns < end_ns - ON_ITS_WAY_NS for time_ns in open_ns),
        "rejected": sum(result["status"] == "rejected" for result in results),
    }


def _notes(name: str, evidence: Evidence) -> list[str]:
    """Notes on the figures."""
    late_ms = max((event["late_max_ms"] or 0 for event in evidence.named("emulator", "done")), default=0)
    if late_ms < LATE_MS:
        return []
    return [
        f"{name}: records were played up to {late_ms:.0f} ms late: this machine was busy, which shows in every time"
    ]


def _unmet(found: dict[str, Any], episodes: list[control_loop.Episode]) -> list[str]:
    """The unmet requirements, in words."""
    failed = []
    failure = found["parts"]["failure"]
    if found["parts"]["interrupted"] and not found["played"]:
        return ["nothing was played"]
    if failure:
        failed.append(f"the {failure['part']} {failure['reason']}")
    expected = {("replay", 1)}  # records are missing: counted below
    if failure or found["parts"]["interrupted"]:  # stopped before it could handle the signal
        expected |= {(part, -signal.SIGTERM) for part in PARTS}
    for part, code in found["parts"]["exit_codes"].items():
        if code and not (failure and failure["part"] == part) and (part, code) not in expected:
            failed.append(f"the {part} did not end cleanly: {how_it_ended(code)}")
    ends = ("played", "sent", "received")  # records lost on E3 were played and never sent
    messages = max(found[end] or 0 for end in ends)
    for what in ("lost", "duplicated"):
        if found[what] is None:
            failed.append(f"it is not known how many messages were {what}: a part left no record")
        elif found[what]:
            failed.append(f"{found[what]} of {messages} messages {what}")
    samples = found["samples"]
    if samples["bit_identical"] is None:
        without = "the emulator left no record of its playout" if found["played"] is None else "there are none"
        failed.append(f"the rebuilt samples could not be compared: {without}")
    elif not samples["bit_identical"]:
        text = f"{samples['different']} of {samples['compared']} rebuilt samples differ from what the gNB heard"
        if samples["records_not_played"]:
            text += f", {samples['records_not_played']} records were never played"
        failed.append(text)
    decisions = found["decisions"]
    if decisions["unanswered"]:
        failed.append(f"{decisions['unanswered']} of {decisions['proposed']} decisions were not answered")
    if not found["loop_closed"]:
        failed.append(_open(found, episodes))
    return failed


def _open(found: dict[str, Any], episodes: list[control_loop.Episode]) -> str:
    if found["played"] is None:
        return "it is unknown whether the loop closed: the emulator left no record of its playout"
    if not episodes:
        return "the loop did not close: no interferer was played; are its annotations labelled 'interferer'?"
    for each in episodes:
        if each.required and not each.closed:
            where = f"the loop did not close for the interferer on PRBs {format_prbs(each.prbs)}"
            where += f" from record {each.first_record}"
            if each.proposed_ns is None:
                return f"{where}: the twin asked for no block"
            if each.installed_ns is None:
                return f"{where}: the block was not installed"
            if each.applied_record is None:
                return f"{where}: the gNB did not apply the block"
            return f"{where}: the twin saw neither free PRBs nor the interferer's end"
    return "the loop did not close: no interferer was blocked, and none was strong and long enough to have to be"


def text(summary: dict[str, Any]) -> str:
    """The summary for a terminal, within 60 columns for two transports; the verdict last."""
    names = list(summary["transports"])
    lines = []
    if names:
        lines.append("".join([f"{'':32}", *(f"{name:>14}" for name in names)]))
        for title, cell in ROWS:
            lines.append("".join([f"{title:32}", *(f"{cell(summary['transports'][name]):>14}" for name in names)]))
    lines += [f"note: {text}" for text in summary["notes"]]
    lines.append(f"{summary['verdict']}: {answer(summary)}" if not summary["failed"] else summary["verdict"])
    lines += [f"  {text}" for text in summary["failed"]]
    return "\n".join(lines)


def answer(summary: dict[str, Any]) -> str:
    """The result of a passed run, in a few sentences."""
    transports = summary["transports"]
    messages = sum(found["received"] for found in transports.values())
    episodes = [each for found in transports.values() for each in found["episodes"]]
    times = (f"{ms(found['interferer_on_to_block_ns'])} ({name})" for name, found in transports.items())
    return (
        f"over {formatting.listed(transports)}, all {messages:,} messages arrived, once, and the twin rebuilt their "
        f"samples bit for bit. {_blocked(episodes)}, {formatting.listed(times)} after its first record in the median."
        f"{_unseen(episodes)}{_not_required(episodes)}"
    )


def _blocked(episodes: list[dict[str, Any]]) -> str:
    """How often the interferer was blocked where the verdict requires it."""
    required = sum(each["required"] for each in episodes)
    if not required:
        blocked = sum(each["closed"] for each in episodes)
        return (
            f"No appearance of the interferer required a block; in {blocked} of {len(episodes)} its PRBs were blocked"
        )
    appearances = "the one appearance" if required == 1 else f"all {required} appearances"
    return f"In {appearances} of the interferer that required a block its PRBs were blocked"


def _unseen(episodes: list[dict[str, Any]]) -> str:
    number = sum(each["required"] and each["effect_seen"] is None for each in episodes)
    return f" The run ended too soon to see the effect of {number} of these blocks." if number else ""


def _not_required(episodes: list[dict[str, Any]]) -> str:
    """The appearances that do not count for the verdict, and why."""
    waived = [each for each in episodes if not each["required"]]
    if not waived or len(waived) == len(episodes):
        return ""
    reasons = Counter(WAIVED[each["waived"]] for each in waived)
    why = formatting.listed(f"{number} {reason}" for reason, number in reasons.items())
    closed = sum(each["closed"] for each in waived)
    return f" {len(waived)} more did not require one ({why}); in {closed} of these the loop closed."


def number(value: float | None, form: str = "{:,}") -> str:
    """A value for a table, or a dash."""
    return "-" if value is None else form.format(value)


def ms(value: float | None) -> str:
    """Nanoseconds as milliseconds, or a dash."""
    return "-" if value is None else f"{value / 1e6:.3f} ms" if value < 10e6 else f"{value / 1e6:.1f} ms"


def yes(value: bool | None) -> str:
    """A truth value for a table."""
    return "-" if value is None else "yes" if value else "NO"


def _closed(found: dict[str, Any]) -> str:
    """Whether the loop closed, and for how many of the episodes that required it."""
    return f"{yes(found['loop_closed'])}, {_share_closed(found, required=True)}"


def _share_closed(found: dict[str, Any], required: bool) -> str:
    episodes = [each for each in found["episodes"] if each["required"] == required]
    return f"{sum(each['closed'] for each in episodes)} of {len(episodes)}"


def part_of(found: dict[str, Any], *path: str) -> Any:
    """A nested value; None if a step is missing."""
    value: Any = found
    for key in path:
        value = value[key] if value is not None else None
    return value


ROWS: tuple[tuple[str, Any], ...] = (
    ("messages sent", lambda found: number(found["sent"])),
    ("messages received", lambda found: number(found["received"])),
    ("lost / duplicated", lambda found: f"{number(found['lost'])} / {number(found['duplicated'])}"),
    ("rebuilt samples bit-identical", lambda found: yes(found["bit_identical"])),
    ("interferer found: precision", lambda found: number(found["detection_precision"], "{:.4f}")),
    ("interferer found: recall", lambda found: number(found["detection_recall"], "{:.4f}")),
    ("occupied PRBs: precision", lambda found: number(part_of(found, "occupancy", "precision"), "{:.4f}")),
    ("occupied PRBs: recall", lambda found: number(part_of(found, "occupancy", "recall"), "{:.4f}")),
    ("loop closed, where required", _closed),
    ("loop closed, where not required", lambda found: _share_closed(found, required=False)),
    ("interferer on to block (median)", lambda found: ms(found["interferer_on_to_block_ns"])),
    ("interferer on to block (worst)", lambda found: ms(part_of(found, "time_to_block_ns", "max"))),
    ("round-trip time p50", lambda found: ms(found["rtt_p50_ns"])),
    ("round-trip time p99", lambda found: ms(found["rtt_p99_ns"])),
    ("one-way delay p50", lambda found: ms(part_of(found, "one_way_ns", "p50"))),
    ("one-way delay p99", lambda found: ms(part_of(found, "one_way_ns", "p99"))),
    ("age of information, mean", lambda found: ms(part_of(found, "age_ns", "mean"))),
    ("age of information, peak p99", lambda found: ms(part_of(found, "age_ns", "peak", "p99"))),
    (
        "twin stale / out of sync, times",
        lambda found: f"{number(part_of(found, 'sync', 'stale'))} / {number(part_of(found, 'sync', 'out_of_sync'))}",
    ),
)
