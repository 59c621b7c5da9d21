"""What became of a PRB block, as an event of the journal."""

from twinlink.appkit.journal import Journal
from twinlink.prbs import format_prbs

from .block import Outcome


def report(journal: Journal, outcome: Outcome) -> None:
    """Tell the journal."""
    result = outcome.result
    prbs = format_prbs(result.prbs) or "none"
    if result.status == "installed":
        journal.event(
            "block-installed",
            f"PRB block {result.id} installed ({result.reason}): PRBs {prbs}",
            id=result.id,
            prbs=result.prbs,
            proposed_ns=outcome.proposed_ns,
            received_ns=outcome.received_ns,
            installed_ns=result.time_ns,
            reason=outcome.cause,
        )
    elif result.status == "cleared":
        journal.event(
            "block-cleared",
            f"PRB block {result.id} cleared ({result.reason}); blocked now: {prbs}",
            id=result.id,
            reason=outcome.cause,
            prbs=result.prbs,
            cleared_ns=result.time_ns,
        )
    else:
        journal.event("block-rejected", f"PRB block {result.id} {result.reason}", id=result.id, reason=outcome.cause)
