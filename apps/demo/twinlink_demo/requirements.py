"""What a run must fulfil: what it did not, and what cannot be judged because the machine was too busy."""

import signal
from typing import Any

from twinlink.prbs import format_prbs

from . import control_loop, pace
from .child_process import how_it_ended
from .folder import PARTS

WAIVED = {
    control_loop.WEAK: f"weaker than {control_loop.STRONG_DB:g} dB over the noise",
    control_loop.SHORT: f"shorter than {control_loop.LONG_NS / 1e9:g} s as recorded",
    control_loop.STALLED: f"analysed more than {pace.LIMIT_NS / 1e6:g} ms late",
}


def unmet(found: dict[str, Any]) -> list[str]:
    """The unmet requirements of a transport's run, in words.

    Args:
        found: its part of the summary.
    """
    if found["parts"]["interrupted"] and not found["played"]:
        return ["nothing was played"]
    failed = [*_parts(found["parts"]), *_messages(found), *_samples(found)]
    decisions = found["decisions"]
    if decisions["unanswered"]:
        failed.append(f"{decisions['unanswered']} of {decisions['proposed']} decisions were not answered")
    return failed + _open_loops(found)


def unjudged(found: dict[str, Any]) -> list[str]:
    """What the machine was too busy for: to send records, and to close the loop for an interferer."""
    told = []
    if count := _held_back(found):
        text = f"{count} of {found['played']} records were not sent, as the twin had counted as gone; "
        told.append(text + _late(found["late_ns"]["max"]))
    return told + [f"{named(each)}; {_late(each['late_ns'])}" for each in found["episodes"] if is_unjudged(each)]


def _late(late_ns: int) -> str:
    return f"records were analysed up to {late_ns / 1e6:,.0f} ms late"


def _held_back(found: dict[str, Any]) -> int:
    """Records that the exporter had no twin for, on a machine so late that one which runs counts as gone."""
    late = found["late_ns"] is not None and found["late_ns"]["max"] > pace.LIMIT_NS
    return min(found["without_twin"] or 0, found["lost"] or 0) if late else 0


def unneeded(found: dict[str, Any]) -> list[str]:
    """The appearances for which the loop stayed open, and need not close."""
    return [
        f"{named(each)}; no block was required, as it was {WAIVED[each['waived']]}"
        for each in found["episodes"]
        if not each["closed"] and not each["required"] and not is_unjudged(each)
    ]


def loop_closed(episodes: list[dict[str, Any]]) -> bool | None:
    """Whether at least one loop closed, and each required one; None if the machine was too busy to tell."""
    if any(each["required"] and not each["closed"] for each in episodes):
        return False
    return None if any(map(is_unjudged, episodes)) else any(each["closed"] for each in episodes)


def named(episode: dict[str, Any]) -> str:
    """Which appearance of the interferer, when, and why the loop stayed open for it."""
    where = f"PRBs {format_prbs(episode['prbs'])} at {episode['at_ns'] / 1e9:.2f} s (record {episode['first_record']})"
    return f"the loop stayed open for the interferer on {where}: {episode['open_because']}"


def is_unjudged(episode: dict[str, Any]) -> bool:
    """Whether the loop would have had to close, and the machine was too busy to tell why it did not."""
    return episode["waived"] == control_loop.STALLED and not episode["closed"]


def _parts(parts: dict[str, Any]) -> list[str]:
    failure = parts["failure"]
    failed = [f"the {failure['part']} {failure['reason']}"] if failure else []
    expected = {("replay", 1)}  # records are missing: counted among the messages
    if failure or parts["interrupted"]:  # stopped before it could handle the signal
        expected |= {(part, -signal.SIGTERM) for part in PARTS}
    for part, code in parts["exit_codes"].items():
        if code and not (failure and failure["part"] == part) and (part, code) not in expected:
            failed.append(f"the {part} did not end cleanly: {how_it_ended(code)}")
    return failed


def _messages(found: dict[str, Any]) -> list[str]:
    ends = ("played", "sent", "received")  # records lost on E3 were played and never sent
    messages = max(found[end] or 0 for end in ends)
    failed = [
        f"it is not known how many messages were {what}: a part left no record"
        for what in ("lost", "duplicated")
        if found[what] is None
    ]
    held_back = _held_back(found)
    if lost := (found["lost"] or 0) - held_back:
        not_sent = 0 if held_back else min(found["without_twin"] or 0, lost)
        failed.append(f"{lost} of {messages} messages lost{f', {not_sent} as no twin was up' if not_sent else ''}")
    if found["duplicated"]:
        failed.append(f"{found['duplicated']} of {messages} messages duplicated")
    return failed


def _samples(found: dict[str, Any]) -> list[str]:
    samples = found["samples"]
    if samples["bit_identical"]:
        return []
    if samples["bit_identical"] is None:
        without = "the emulator left no record of its playout" if found["played"] is None else "there are none"
        return [f"the rebuilt samples could not be compared: {without}"]
    text = f"{samples['different']} of {samples['compared']} rebuilt samples differ from what the gNB heard"
    if samples["records_not_played"]:
        text += f", {samples['records_not_played']} records were never played"
    return [text]


def _open_loops(found: dict[str, Any]) -> list[str]:
    if found["played"] is None:
        return ["it is unknown whether the loop closed: the emulator left no record of its playout"]
    episodes = found["episodes"]
    if not episodes:
        return ["the loop did not close: no interferer was played; are its annotations labelled 'interferer'?"]
    if found["loop_closed"] is not False:
        return []
    required = [named(each) for each in episodes if each["required"] and not each["closed"]]
    return required or [
        "the loop did not close: no interferer was blocked, and none was strong and long enough to have to be"
    ]
