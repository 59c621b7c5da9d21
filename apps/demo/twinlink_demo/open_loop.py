"""Why the control loop stayed open for an interferer: the first of its steps that did not come, or came too late."""

from typing import Any

from twinlink.prbs import format_prbs

from .control_loop import Episode
from .evidence import Evidence

SLACK_NS = 500_000_000  # from the analysis of a record to the installed block


def reason(evidence: Evidence, episode: Episode) -> str | None:
    """In words; None if the loop closed."""
    if episode.closed:
        return None
    if episode.proposed_ns is None:
        return _not_proposed(evidence, episode)
    if episode.installed_ns is None:
        return _not_installed(evidence, episode)
    if episode.applied_record is None:
        return "not on air: the gNB played none of its records with the block"
    return "the twin saw neither free PRBs nor the interferer's end"


def _not_proposed(evidence: Evidence, episode: Episode) -> str:
    wanted = set(episode.prbs)
    seen = [
        event
        for event in evidence.named("replay", "interference")
        if episode.first_record <= event["first_record"] < episode.end_record
    ]
    found = set().union(*(event["prbs"] for event in seen)) & wanted
    if not found:
        return "the twin did not detect it"
    whole = [event for event in seen if wanted <= set(event["prbs"])]
    if not whole:
        return f"the twin detected it on PRBs {format_prbs(found)} only"
    if late := _after(whole[:1], "time_ns", episode):
        return f"the twin detected it {late} after it was gone"
    asked = [event for event in evidence.named("replay", "proposed") if wanted <= set(event["prbs"])]
    if late := _after(asked, "time_ns", episode):
        return f"the twin asked for the block {late} after it was gone"
    over_ns = _over_ns(episode)
    states = [event["state"] for event in evidence.named("replay", "sync") if event["time_ns"] <= over_ns]
    if states and states[-1] != "in-sync":
        return f"the twin detected it, and took no decision as it was {states[-1]}"
    return "the twin detected it, and asked for no block"


def _not_installed(evidence: Evidence, episode: Episode) -> str:
    wanted, over_ns = set(episode.prbs), _over_ns(episode)
    ids = {
        event["id"]
        for event in evidence.named("replay", "proposed")
        if wanted <= set(event["prbs"]) and episode.on_ns <= event["time_ns"] <= over_ns
    }
    for event in evidence.named("replay", "block-result"):
        if event["id"] in ids and event["status"] == "rejected":
            return f"the exporter rejected the block ({event.get('reason') or 'without a reason'})"
    installed = [event for event in evidence.named("exporter", "block-installed") if wanted <= set(event["prbs"])]
    if late := _after(installed, "installed_ns", episode):
        return f"the block was installed {late} after it was gone"
    return "the block was not installed"


def _over_ns(episode: Episode) -> int:
    return episode.on_ns + episode.duration_ns


def _after(events: list[dict[str, Any]], key: str, episode: Episode) -> str | None:
    """How long after the interferer's end the first of these events came; None if none did.

    What comes later than the machine was late, and `SLACK_NS`, is of its next appearance.
    """
    times = [event[key] - _over_ns(episode) for event in events]
    after = [time_ns for time_ns in times if 0 < time_ns <= episode.late_ns + SLACK_NS]
    return f"{min(after) / 1e6:,.0f} ms" if after else None
