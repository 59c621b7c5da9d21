"""Overflow policy: what makes room for a new message when its flow keeps all that it may.  No I/O, no clock.

Peers that are down or lagging hold up no sender: what only they owe an ack for makes room under any policy.
"""

from ..frames import AbandonReason
from .abandonment import abandon
from .record import SendRecord


def fits(flow: SendRecord, size: int) -> bool:
    """Whether a payload of ``size`` octets may be sent now."""
    excess = size - flow.unacked.room
    return excess <= 0 or flow.options.overflow != "block" or flow.unacked.can_evict(excess, flow.receivers.pacing)


def conflate(flow: SendRecord) -> None:
    """Give up states that wait to be sent: a newer one comes."""
    while (waiting := flow.queue.find_unsent()) is not None:
        abandon(flow, waiting, AbandonReason.CONFLATED)


def make_room(flow: SendRecord, size: int) -> bool:
    """Give up what must make room for the new message; False where that is the new message itself."""
    overflow = flow.options.overflow
    while (oldest := flow.unacked.oldest()) is not None and size > flow.unacked.room:
        if flow.unacked.owed_by(oldest) & flow.receivers.pacing:
            if overflow == "drop-newest":
                return False
            if overflow != "block":
                waiting = flow.queue.find_unsent()
                abandon(flow, oldest if waiting is None else waiting, AbandonReason.DROPPED)
                continue
        abandon(flow, oldest, AbandonReason.EVICTED)
    return True
