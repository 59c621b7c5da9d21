"""Events of the journal: of the E3 session, PRB blocks, rejected decisions, and the link."""

from dataclasses import asdict

from twinlink_e3 import RAN_FUNCTION

import twinlink
from twinlink.appkit.journal import Journal
from twinlink.prbs import format_prbs

from .block import Outcome
from .decision_guard import Rejection
from .session import Refused, SetUp, Subscribed


def session_event(journal: Journal, event: SetUp | Subscribed | Refused, dapp_id: int | None) -> None:
    """The E3 agent answered a setup or a subscription."""
    if isinstance(event, SetUp):
        text = f"E3 setup with {event.ran}: this is dApp {event.dapp_id}"
        journal.event("e3-setup", text, dapp_id=event.dapp_id, ran=event.ran)
    elif isinstance(event, Subscribed):
        text = f"subscribed to RAN function {RAN_FUNCTION}"
        journal.event("subscribed", text, dapp_id=dapp_id, subscription_id=event.subscription_id)
    else:
        journal.complaint("e3-refused", f"{event.reason}; asking again", reason=event.reason)


def outcome(journal: Journal, outcome: Outcome) -> None:
    """A PRB block was installed, cleared or rejected by the RAN."""
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


def rejection(journal: Journal, message: twinlink.Message, rejected: Rejection) -> None:
    """A decision did not pass the guard."""
    journal.event(
        "block-rejected",
        f"a PRB block of {message.node} was refused: {rejected.reason}",
        id=rejected.id,
        reason=rejected.reason,
        received_ns=message.received_ns,
    )


def link_event(journal: Journal, event: twinlink.Event) -> None:
    """An event of the link that the exporter does not act on."""
    kind, fields = type(event).__name__.lower(), asdict(event)
    text = ", ".join(f"{name} {value}" for name, value in fields.items() if name not in ("time_ns", "epoch"))
    journal.complaint(f"link-{kind}", f"link: {kind}: {text}", **fields)
