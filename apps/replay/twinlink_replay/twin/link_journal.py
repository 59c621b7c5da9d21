"""Events of the twin's link as entries of its log."""

from twinlink.appkit import linking
from twinlink.appkit.journal import Journal
from twinlink.events import Event, Gap, PeerDown, PeerUp, Refused, Restarted, SyncChanged


def log_event(journal: Journal, event: Event) -> None:
    """Log an event; those that need no action are counted elsewhere."""
    if isinstance(event, PeerUp):
        journal.event("peer-up", f"{event.node} is connected", time_ns=event.time_ns, node=event.node)
    elif isinstance(event, PeerDown):
        text = f"{event.node} is gone ({event.reason}): waiting for it to reconnect"
        journal.event("peer-down", text, time_ns=event.time_ns, node=event.node, reason=event.reason)
    elif isinstance(event, Restarted):
        journal.event("restarted", f"{event.node} has restarted", time_ns=event.time_ns, node=event.node)
    elif isinstance(event, Gap):
        text = f"messages {event.first} to {event.end - 1} on flow {event.flow} did not arrive"
        fields = {"flow": event.flow, "first": event.first, "end": event.end}
        journal.event("gap", text, time_ns=event.time_ns, **fields)
    elif isinstance(event, SyncChanged):
        _log_sync(journal, event)
    elif isinstance(event, Refused):
        of_peer = {"identity": event.identity, "address": event.address, "reason": event.reason}
        journal.complaint("refused", linking.refusal(event), **of_peer)


def _log_sync(journal: Journal, event: SyncChanged) -> None:
    text = f"flow {event.flow} is {event.state}"
    if event.age_ns is not None:
        text += f": the newest record is {event.age_ns / 1e6:.0f} ms old"
    if event.completeness is not None:
        text += f", {event.completeness:.1%} of the last ten seconds' records have arrived"
    journal.event(
        "sync",
        text,
        time_ns=event.time_ns,
        flow=event.flow,
        state=event.state,
        age_ns=event.age_ns,
        completeness=event.completeness,
    )
