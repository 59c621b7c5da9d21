"""The counters of a link, gathered from its parts."""

from collections.abc import Mapping
from typing import Any

from .driver import SessionDriver
from .receiver import EventStream
from .sender import Sender


def link_stats(driver: SessionDriver, senders: Mapping[str, Sender], events: EventStream) -> dict[str, Any]:
    """What `twinlink.stats.LinkStats` has, except how the link was opened; may be called by any thread."""
    with driver.lock:
        counted = driver.session.stats()
    return {
        "peers": driver.session.up_names(),
        "sent": {flow: sender.stats() for flow, sender in list(senders.items())},
        **counted,
        "identity": driver.identity_stats(),
        "handler_errors": driver.callbacks.errors,
        "internal_errors": driver.internal_errors,
        "events_dropped": events.dropped,
    }
