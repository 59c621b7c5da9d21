"""Events of the journal: of the E3 session, PRB blocks, rejected decisions, and the link."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import get_args

from twinlink_e3 import CONTROL_PRB_BLOCK, CONTROL_SENSING_POLICY, KPM_FUNCTION, Endpoints

import twinlink
from twinlink.appkit import linking
from twinlink.appkit.journal import Journal
from twinlink.prbs import format_prbs

from .agent_limits import Limit
from .block import Outcome
from .decision_guard import AuthenticationRule, Rejection
from .session import OtherGeneration, Refused, SetUp, Subscribed
from .twin_sync import SyncReport
from .twins import Twin

_NAMES = {CONTROL_PRB_BLOCK: ("block", "PRB block"), CONTROL_SENSING_POLICY: ("policy", "sensing policy")}


def setup_request(journal: Journal, endpoint: str, generation: str, problem: str | None) -> None:
    """An E3 agent is asked; or it is not, with the reason."""
    hint = problem or "if none answers, start the gNB or check --e3, --e3-link and --setup"
    if problem is None and not generation.startswith("JSON"):
        hint += "; an agent in JSON of libe3 up to 0.0.7 needs --e3-encoding json"
    text = f"asking for an E3 agent at {endpoint} in {generation}; {hint}"
    journal.complaint("e3-setup-request", text, endpoint=endpoint)


def not_connected(journal: Journal, endpoints: Endpoints) -> None:
    """The agent answered the setup, and its other channels cannot be reached."""
    text = f"the E3 agent set this dApp up, but {endpoints.to_dapp} and {endpoints.from_dapp} do not connect"
    journal.complaint("e3-no-subscription", f"{text}; check --to-dapp and --from-dapp")


def not_subscribed(journal: Journal, endpoints: Endpoints) -> None:
    """The agent answered the setup, and no subscription."""
    text = f"the E3 agent set this dApp up but answers no subscription on {endpoints.from_dapp}"
    journal.event("e3-no-subscription", f"{text}; check --to-dapp and --from-dapp")


def session_event(
    journal: Journal, event: SetUp | OtherGeneration | Subscribed | Refused, dapp_id: int | None, link: str
) -> None:
    """The E3 agent answered a setup or a subscription, over this link."""
    if isinstance(event, SetUp):
        text = f"E3 setup with {event.ran}, which speaks {event.generation} over {link}: this is dApp {event.dapp_id}"
        if event.offers_policy:
            text += "; it takes PRB blocks and sensing policies"
        journal.event("e3-setup", text, dapp_id=event.dapp_id, ran=event.ran, generation=event.generation, link=link)
    elif isinstance(event, OtherGeneration):
        text = f"{event.ran} cannot read {event.asked} and answers in {event.answered}: asking again in that"
        journal.event("e3-generation", text, ran=event.ran, asked=event.asked, answered=event.answered)
    elif isinstance(event, Subscribed):
        text = "the E3 agent sends its indications from now on"
        if event.refused is not None:
            effect = "KPMs are not known" if event.refused == KPM_FUNCTION else "decisions are rejected"
            text += f"; the RAN refused RAN function {event.refused}, so {effect}"
        journal.event("subscribed", text, dapp_id=dapp_id, subscription_id=event.subscription_id)
    else:
        journal.complaint("e3-refused", f"{event.reason}; asking again", reason=event.reason)


def agent_limits(journal: Journal, limits: Sequence[Limit]) -> None:
    """What the E3 agent cannot do."""
    for limit in limits:
        journal.event("e3-limit", limit.text, limit=limit.name)


def outcome(journal: Journal, outcome: Outcome) -> None:
    """A PRB block, or a sensing policy, was installed, cleared or rejected by the RAN."""
    result = outcome.result
    event, what = _NAMES[outcome.control]
    prbs = format_prbs(result.prbs)
    if result.status == "installed":
        log, done = (journal.routine, "renewed") if outcome.renews else (journal.event, result.reason)
        blocked = f": PRBs {prbs} are blocked" if outcome.control == CONTROL_PRB_BLOCK else ""
        log(
            f"{event}-installed",
            f"{what} {result.id} was {done}{blocked}",
            id=result.id,
            prbs=result.prbs,
            proposed_ns=outcome.proposed_ns,
            received_ns=outcome.received_ns,
            installed_ns=result.time_ns,
            reason=outcome.cause,
            e3=asdict(result.e3) if result.e3 else None,
        )
    elif result.status == "cleared":
        left = f"; PRBs {prbs} stay blocked" if prbs else "; no PRB is blocked any more"
        journal.event(
            f"{event}-cleared",
            f"{what} {result.id} has ended: {result.reason}{left if outcome.control == CONTROL_PRB_BLOCK else ''}",
            id=result.id,
            reason=outcome.cause,
            prbs=result.prbs,
            cleared_ns=result.time_ns,
        )
    else:
        journal.event(
            f"{event}-rejected", f"{what} {result.id} was {result.reason}", id=result.id, reason=outcome.cause
        )


def not_cleared(journal: Journal, control: int) -> None:
    """The RAN refused to clear."""
    event, what = _NAMES[control]
    text = "its blocked PRBs are unknown" if control == CONTROL_PRB_BLOCK else "whether it stands is unknown"
    journal.event(f"{event}-not-cleared", f"the RAN refused to clear its {what}: {text}; look at the gNB")


def rejection(journal: Journal, message: twinlink.Message, rejected: Rejection) -> None:
    """A decision was rejected before it reached the RAN; what strangers can cause is logged once in a few seconds."""
    log = journal.complaint if rejected.rule in ("peer", *get_args(AuthenticationRule)) else journal.event
    log(
        "block-rejected",
        f"a decision of {message.node or 'a sender that has not said hello'} was rejected: {rejected.reason}",
        id=rejected.id,
        reason=rejected.reason,
        received_ns=message.received_ns,
    )


def sync_change(journal: Journal, flow: str, twin: Twin, sync: SyncReport) -> None:
    """A twin became out of sync, or is in sync again."""
    out = f"twin {twin.node} is out of sync: {sync.reason}"
    journal.event(
        "sync",
        out if twin.out_of_sync else f"twin {twin.node} is in sync again",
        flow=flow,
        state=sync.state.value,
        age_ns=sync.age_ns,
        node=twin.node,
    )


def holder(journal: Journal, twin: Twin | None) -> None:
    """A twin holds the block from now on, or none does any more."""
    text = f"twin {twin.node} holds the block from now on" if twin else "no twin holds the block any more"
    journal.event("holder", text, node=twin.node if twin else None, epoch=twin.epoch if twin else None)


def digest_request(journal: Journal, message: twinlink.Message, reason: str) -> None:
    """A twin asks for a digest."""
    text = f"twin {message.node or 'that has not said hello'} asks for a digest: {reason}"
    journal.complaint("digest-request", text, node=message.node, reason=reason)


def link_event(journal: Journal, event: twinlink.Event) -> None:
    """An event of the link that the exporter does not act on."""
    journal.complaint(f"link-{type(event).__name__.lower()}", linking.sentence(event), **asdict(event))
