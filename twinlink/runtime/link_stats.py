"""The counters of a link, gathered from its parts."""

from collections.abc import Mapping
from typing import Any

from .driver import SessionDriver
from .receiver import EventStream
from .sender import Sender


def link_stats(driver: SessionDriver, senders: Mapping[str, Sender], events: EventStream) -> dict[str, Any]:
    """What `twinlink.stats.LinkStats` has, except how the link was opened; may be called by any thread."""
    session = driver.session
    return {
        "peers": session.peer_manager.up_names(),
        "sent": {flow: sender.stats() for flow, sender in list(senders.items())},
        "received": {flow: receive_flow.stats() for flow, receive_flow in list(session.messages.flows.items())},
        "malformed": {reason: state[0] for reason, state in list(session.malformed.items())},
        "limits_exceeded": dict(session.limit_counters.counts),
        "identity": driver.identity_stats(),
        "acks_sent": session.messages.acks.sent,
        "handler_errors": driver.callbacks.errors,
        "internal_errors": driver.internal_errors,
        "events_dropped": events.dropped,
    }
