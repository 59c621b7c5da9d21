"""The summary of a demo: every figure, and the verdict."""

from collections import Counter
from typing import Any

import numpy as np

from twinlink.appkit import formatting
from twinlink.appkit.records import Table

from . import control_loop, freshness, lateness, open_loop, pace, requirements, score
from .evidence import Evidence
from .requirements import WAIVED

FORMAT, VERSION = "twinlink-demo-summary", 1
MET, NOT_MET, PART_FAILED = 0, 1, 2
PASSED, FAILED, BROKEN_OFF, NOT_JUDGED = "passed", "failed", "broken off", "not judged"
ON_ITS_WAY_NS = 1_000_000_000
REMARKED_NS = 100_000_000  # lateness from which on a remark says that the machine was busy


def summarise(facts: dict[str, Any], evidence: dict[str, Evidence], sent: dict[str, Table]) -> dict[str, Any]:
    """The summary (docs/demo.md) of a run, from run.json, each transport's files, and its messages of ``spectrum``."""
    transports = {name: _transport(found, facts["transports"][name], sent[name]) for name, found in evidence.items()}
    failed = [f"{name}: {text}" for name, found in transports.items() for text in found["failed"]]
    unjudged = [f"{name}: {text}" for name, found in transports.items() for text in found["unjudged"]]
    broken = any(facts["transports"][name]["failure"] for name in facts["transports"])
    left_out = [name for name in facts["configuration"]["transports"] if name not in transports]
    failed += [f"{name}: did not run" for name in left_out]
    if facts["interrupted"]:
        failed.append("interrupted before the end")
    code = PART_FAILED if broken else NOT_MET if failed else MET
    return {
        "format": FORMAT,
        "format_version": VERSION,
        "verdict": {MET: NOT_JUDGED if unjudged else PASSED, NOT_MET: FAILED, PART_FAILED: BROKEN_OFF}[code],
        "exit_code": code,
        "failed": failed,
        "unjudged": unjudged,
        "notes": [
            note
            for name, found in transports.items()
            for note in _notes(name, evidence[name], found, facts["transports"][name])
        ],
        **{key: facts[key] for key in ("started_ns", "ended_ns", "configuration", "versions", "system")},
        "transports": transports,
    }


def _transport(evidence: Evidence, fact: dict[str, Any], sent: Table) -> dict[str, Any]:
    playout, rebuilt = evidence.playout, evidence.rebuilt
    messages = score.counts(playout, rebuilt, evidence.exporter)
    samples = {"compared": 0, "different": 0, "records_not_played": 0, "bit_identical": None}
    detection = occupancy = prompt = one_way = age = late = None
    if playout is not None:
        late = freshness.spread(lateness.late_ns(playout, rebuilt))
    if rebuilt is not None:
        one_way = freshness.spread(freshness.one_way_ns(rebuilt))
        if playout is not None:
            samples = score.samples(playout, rebuilt)
            detection = score.detection(playout, rebuilt, rebuilt.interfered).as_dict()
            prompt = score.detection(playout, rebuilt, rebuilt.prompt).as_dict()
            occupancy = score.occupancy(playout, rebuilt).as_dict()
            age = freshness.age_summary(playout, rebuilt)
    rtt = freshness.spread(sent["rtt_ns"][sent["acknowledged"]])
    loops = control_loop.episodes(evidence)
    blocking = np.array([time for each in loops if (time := each.time_to_block_ns) is not None], np.int64)
    to_block = freshness.spread(blocking)
    episodes = [each.as_dict() | {"open_because": open_loop.reason(evidence, each)} for each in loops]
    ended = next(iter(evidence.named("replay", "summary")), {})
    found: dict[str, Any] = {
        **messages,
        "bit_identical": samples["bit_identical"],
        "detection_precision": detection and detection["precision"],
        "detection_recall": detection and detection["recall"],
        "loop_closed": requirements.loop_closed(episodes),
        "interferer_on_to_block_ns": to_block and to_block["p50"],
        "rtt_p50_ns": rtt and rtt["p50"],
        "rtt_p99_ns": rtt and rtt["p99"],
        "samples": samples,
        "detection": detection,
        "detection_prompt": prompt,
        "occupancy": occupancy,
        "decisions": _decisions(evidence, late["max"] if late else 0),
        "time_to_block_ns": to_block,
        "rtt_ns": rtt,
        "one_way_ns": one_way,
        "clock_offset_ns": _clock_offset(evidence.exporter),
        "age_ns": age,
        "pace": fact.get("pace", 1.0),
        "late_ns": late,
        "sync": _sync(evidence),
        "fidelity": ended.get("fidelity"),
        "seen_to_on_air_ns": ended.get("seen_to_on_air_ns"),
        "episodes": episodes,
        "parts": {"exit_codes": fact["exit_codes"], "failure": fact["failure"], "interrupted": fact["interrupted"]},
    }
    return {**found, "failed": requirements.unmet(found), "unjudged": requirements.unjudged(found)}


def _clock_offset(exporter: dict[str, Any]) -> dict[str, Any] | None:
    """The exporter's estimate for the twin."""
    peers = exporter.get("spectrum", {}).get("peers", {}).values()
    return next((peer["clock_offset_ns"] for peer in peers if peer["clock_offset_ns"]), None)


def _sync(evidence: Evidence) -> dict[str, Any] | None:
    """The twin's state of sync, and how often it was not in sync."""
    ended = next((event.get("sync") for event in evidence.named("replay", "summary")), None)
    states = [event["state"] for event in evidence.named("replay", "sync")]
    return ended and {**ended, "stale": states.count("stale"), "out_of_sync": states.count("out-of-sync")}


def _decisions(evidence: Evidence, late_ns: int) -> dict[str, int]:
    """The twin's decisions, renewals included, and their results; the last may be unanswered, by how late it was."""
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
        "unanswered": sum(time_ns < end_ns - ON_ITS_WAY_NS - late_ns for time_ns in open_ns),
        "rejected": sum(result["status"] == "rejected" for result in results),
    }


def _notes(name: str, evidence: Evidence, found: dict[str, Any], fact: dict[str, Any]) -> list[str]:
    """Remarks on the figures, which fail nothing."""
    told = []
    if fact.get("slowed"):
        told.append(f"{fact['slowed']}; --pace 1 forces the recorded pace")
    late_ns = part_of(found, "late_ns", "max") or 0
    if evidence.playout is not None and late_ns > REMARKED_NS:
        played_ns = int(lateness.played_late_ns(evidence.playout).max(initial=0))
        text = f"records were played up to {played_ns / 1e6:,.0f} ms and analysed up to {late_ns / 1e6:,.0f} ms after "
        told.append(f"{text}they were due: this machine was busy{_load(fact)}, which shows in every time")
    told += requirements.unneeded(found)
    return [f"{name}: {text}" for text in told]


def _load(fact: dict[str, Any]) -> str:
    """The load average at the end of a transport's run."""
    return f" (load average {fact['load_1min']:g})" if "load_1min" in fact else ""


def text(summary: dict[str, Any]) -> str:
    """The summary for a terminal, within 60 columns for two transports; the verdict last."""
    names = list(summary["transports"])
    lines = []
    if names:
        lines.append("".join([f"{'':32}", *(f"{name:>14}" for name in names)]))
        for title, cell in ROWS:
            lines.append("".join([f"{title:32}", *(f"{cell(summary['transports'][name]):>14}" for name in names)]))
    for title, told in findings(summary):
        lines += ["", f"{title}:", *(f"  {text}" for text in told)]
    lines += [""] * (len(lines) > 0)
    lines.append(f"{summary['verdict']}: {answer(summary)}" if not summary["failed"] else summary["verdict"])
    return "\n".join(lines)


def findings(summary: dict[str, Any]) -> list[tuple[str, list[str]]]:
    """Remarks, what was not judged, and failures, each with its title; those that there are."""
    found = (("Remarks", "notes"), ("Not judged, as this machine was too busy", "unjudged"), ("Failures", "failed"))
    return [(title, summary[key]) for title, key in found if summary[key]]


def answer(summary: dict[str, Any]) -> str:
    """The result of a run that has not failed, in a few sentences."""
    transports = summary["transports"]
    messages = sum(found["received"] for found in transports.values())
    sent = " that were sent" if any(found["lost"] for found in transports.values()) else ""
    arrived = (
        f"over {formatting.listed(transports)}, all {messages:,} messages{sent} arrived, once, and the twin rebuilt "
        "their samples bit for bit."
    )
    if summary["unjudged"]:
        return (
            f"this machine was too busy to judge the whole path. {arrived[0].upper()}{arrived[1:]} {_advice(summary)}"
        )
    episodes = [each for found in transports.values() for each in found["episodes"]]
    times = (f"{ms(found['interferer_on_to_block_ns'])} ({name})" for name, found in transports.items())
    return (
        f"{arrived} {_blocked(episodes)}, {formatting.listed(times)} after its first record in the median."
        f"{_unseen(episodes)}{_not_required(episodes)}"
    )


def _advice(summary: dict[str, Any]) -> str:
    """How to get a judgement."""
    slowest = min(found["pace"] for found in summary["transports"].values())
    slower = f"play slower (--pace {slowest / 2:g}), or " if slowest / 2 >= pace.LEAST else ""
    return f"To judge it, {slower}run the demo again when the machine has less to do."


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
    judged = (each for each in found["episodes"] if not requirements.is_unjudged(each))
    episodes = [each for each in judged if each["required"] == required]
    return f"{sum(each['closed'] for each in episodes)} of {len(episodes)}"


def part_of(found: dict[str, Any], *path: str) -> Any:
    """A nested value; None if a step is missing."""
    value: Any = found
    for key in path:
        value = value[key] if value is not None else None
    return value


ROWS: tuple[tuple[str, Any], ...] = (
    ("pace, of the recorded one", lambda found: f"{found['pace']:g}"),
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
    ("loop not judged (machine busy)", lambda found: number(sum(map(requirements.is_unjudged, found["episodes"])))),
    ("interferer on to block (median)", lambda found: ms(found["interferer_on_to_block_ns"])),
    ("interferer on to block (worst)", lambda found: ms(part_of(found, "time_to_block_ns", "max"))),
    ("decision seen to on air p50", lambda found: ms(part_of(found, "seen_to_on_air_ns", "p50"))),
    ("decision seen to on air p99", lambda found: ms(part_of(found, "seen_to_on_air_ns", "p99"))),
    ("round-trip time p50", lambda found: ms(found["rtt_p50_ns"])),
    ("round-trip time p99", lambda found: ms(found["rtt_p99_ns"])),
    ("one-way delay p50", lambda found: ms(part_of(found, "one_way_ns", "p50"))),
    ("one-way delay p99", lambda found: ms(part_of(found, "one_way_ns", "p99"))),
    ("age of information, mean", lambda found: ms(part_of(found, "age_ns", "mean"))),
    ("due to analysed (worst)", lambda found: ms(part_of(found, "late_ns", "max"))),
    ("age of information, peak p99", lambda found: ms(part_of(found, "age_ns", "peak", "p99"))),
    ("fidelity of the picture, mean", lambda found: number(part_of(found, "fidelity", "mean"), "{:.4f}")),
    ("fidelity of the picture, least", lambda found: number(part_of(found, "fidelity", "least"), "{:.4f}")),
    (
        "twin stale / out of sync, times",
        lambda found: f"{number(part_of(found, 'sync', 'stale'))} / {number(part_of(found, 'sync', 'out_of_sync'))}",
    ),
)
