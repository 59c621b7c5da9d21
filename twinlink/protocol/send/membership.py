"""Peers of a flow that come, fall silent, return, and end: what they owe an ack for.  No I/O, no clock."""

from ..frames import MAX_PAYLOAD
from .abandonment import lose_evicted, lose_for_some, lose_unacked, release
from .record import SendRecord

MAX_SUSPENDED = 64  # silent peers for which messages are kept


def join(
    flow: SendRecord, epoch: int, repairs: bool = False, max_payload: int = MAX_PAYLOAD, runs: bool = False
) -> None:
    """A peer joined: it need not acknowledge what left before.  Or it returned: what it has not acknowledged is kept.

    ``repairs``: it requests what it misses, and reads bundles and fragments.  ``max_payload``: what it takes.
    ``runs``: it reads runs, too.
    """
    queue, receivers = flow.queue, flow.receivers
    first_owed = queue.next_sequence
    if epoch not in receivers.all:  # what waits for others reaches it as well, and goes as it takes it
        first_owed = flow.unacked.add_receiver(
            epoch, range(queue.next_to_send, queue.next_sequence), receivers.up, max_payload
        )
    was_away = epoch in receivers.of and epoch not in receivers.all
    receivers.on_up(epoch, first_owed, queue.next_to_send, repairs, repairs and flow.repair, max_payload, runs)
    flow.flow_control.release(receivers.consumed_by_pacing)
    if was_away:
        queue.probe()
    if epoch in receivers.resuming:
        queue.fragments.on_peer_resumed(epoch)
        queue.probe()
    queue.has_pending = queue.has_pending or queue.next_to_send < queue.next_sequence
    flow.rtt.add_peer(epoch, receivers.all)


def leave(flow: SendRecord, epoch: int, reason: str, may_return: bool = False, successor: int | None = None) -> None:
    """A peer went: for good, or perhaps to return; then what it owes is kept for it.

    What a ``successor`` of the same node has acknowledged in its stead is not lost.
    """
    receivers = flow.receivers
    is_suspended = receivers.on_down(epoch, may_return)
    if not is_suspended:
        _lose(flow, epoch, reason, successor)
        return
    if len(receivers.suspended) > MAX_SUSPENDED:
        end(flow, receivers.suspended[0], "too many silent peers to keep messages for")
    flow.pace_keeper.release()


def end(flow: SendRecord, epoch: int, reason: str, successor: int | None = None) -> None:
    """A peer will not return: what it owed is lost; what others owe, too, is kept for them."""
    flow.receivers.on_down(epoch, may_return=False)
    _lose(flow, epoch, reason, successor)


def _lose(flow: SendRecord, epoch: int, reason: str, successor: int | None) -> None:
    end_of_flow = flow.queue.next_sequence
    taken_over = end_of_flow if successor is None else flow.receivers.first_owed(successor, end_of_flow)
    flow.unacked.split_runs(flow.unacked.runs_of(epoch))
    for sequence, entry in list(flow.unacked.singles.items()):
        if epoch not in entry[1]:
            continue
        if len(entry[1]) > 1:
            if sequence < taken_over:
                lose_for_some(flow, (epoch,), sequence, reason)
            flow.acked_by(epoch, sequence)
        elif sequence < taken_over:
            lose_unacked(flow, sequence, entry[1], reason)
        elif not release(flow, sequence):
            flow.acknowledged += 1
    lose_evicted(flow, epoch, flow.unconfirmed.on_peer_ended(epoch))
    if flow.receivers.up:
        flow.flow_control.release(flow.receivers.consumed_by_pacing)
    elif not flow.receivers.all:
        if not flow.receivers.of:  # else its application may still have it before it
            flow.flow_control.clear()
        flow.queue.clear()
