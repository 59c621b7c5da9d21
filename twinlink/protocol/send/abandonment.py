"""Messages that are given up: evicted, dropped, conflated, rejected, too long, never acknowledged.  No I/O."""

from collections.abc import Collection, Sequence

from ..frames import AbandonReason
from .loss import NOT_ACKED, NOT_TAKEN, REASONS
from .record import SendRecord

TOO_LONG = "it is longer than the peer's max_payload"
MAX_RETRANSMISSIONS = 12
NOT_ARRIVING = f"it was retransmitted {MAX_RETRANSMISSIONS} times and did not arrive, and the peer answered each time"
MAX_WATCHED = 16  # messages whose retransmissions are counted: the first of each range that a peer requests
# Between two that count; requests within a round trip are answers to the same loss.
RETRANSMISSION_NS = 1_000_000_000


def abandon(flow: SendRecord, sequence: int, reason: AbandonReason) -> None:
    """It will not be sent any more, though peers may owe an ack for it: count it, and announce it."""
    entry = flow.unacked.single(sequence)
    unacked_by = entry[1] if entry else frozenset[int]()
    lost = entry is not None and release(flow, sequence)
    if reason is AbandonReason.EVICTED and sequence < flow.queue.next_to_send:
        flow.unconfirmed.add(unacked_by, sequence, lost)
        return  # it is announced as abandoned when a peer misses it
    if reason is AbandonReason.CONFLATED:
        flow.conflated += not lost
    else:
        flow.losses.add(sequence, sequence + 1, REASONS[reason], unacked_by, counted=lost)
    flow.queue.abandon(reason, sequence, sequence + 1)


def release(flow: SendRecord, sequence: int) -> bool:
    """Drops a message: it is neither kept nor retransmitted, and no ack for it counts.  True if it counts as lost."""
    flow.unacked.remove(sequence)
    flow.queue.forget((sequence,))
    return flow.unacked.forget_lost((sequence,)) > 0


def reject(flow: SendRecord, epoch: int, sequence: int, reason: str = NOT_TAKEN) -> None:
    """Peer ``epoch`` will not get it, so it is lost; it is kept as long as others may request it."""
    if len(flow.unacked.owed_by(sequence)) > 1:
        lose_for_some(flow, (epoch,), sequence, reason)
        flow.acked_by(epoch, sequence)
    else:
        flow.losses.add(sequence, sequence + 1, reason, lost_by=(epoch,), counted=release(flow, sequence))


def lose_for_some(flow: SendRecord, epochs: Collection[int], sequence: int, reason: str) -> None:
    """These peers will not get it, and others owe an ack for it."""
    counted = sequence in flow.unacked.lost
    flow.unacked.lost.add(sequence)
    flow.losses.add(sequence, sequence + 1, reason, lost_by=epochs, counted=counted)


def give_up_longer(flow: SendRecord, size: int, reason: str) -> None:
    """No payload of more than ``size`` octets gets through: what is longer is lost, which is announced to the peers."""
    for sequence, entry in list(flow.unacked.entries.items()):
        if flow.unacked.size(entry) > size:
            _give_up(flow, sequence, reason)


def _give_up(flow: SendRecord, sequence: int, reason: str) -> None:
    lose_unacked(flow, sequence, flow.unacked.owed_by(sequence), reason)
    flow.queue.abandon(AbandonReason.EVICTED, sequence, sequence + 1)


def on_request(flow: SendRecord, epoch: int, missing: Sequence[tuple[int, int]], now_mono_ns: int) -> None:
    """Peer ``epoch`` requests these: what has been retransmitted in vain for too often is given up.

    Something between the two may refuse it each time, such as a broker or a proxy with a limit of its own.
    """
    entries, retransmitted = flow.unacked.singles, flow.queue.retransmitted
    if not retransmitted:
        flow.requests.clear()
        return
    for sequence in [first for first, _ in missing[:MAX_WATCHED] if first in retransmitted]:
        requests, counted_mono_ns = flow.requests.get((sequence, epoch), (0, 0))
        if sequence not in entries or now_mono_ns - counted_mono_ns < RETRANSMISSION_NS:
            continue
        if requests < MAX_RETRANSMISSIONS:
            flow.requests[sequence, epoch] = (requests + 1, now_mono_ns)
        else:
            _give_up(flow, sequence, NOT_ARRIVING)
    flow.requests = {key: request for key, request in flow.requests.items() if key[0] in entries}


def lose_skipped(flow: SendRecord) -> None:
    """Lose, from the oldest on, what every peer that owes an ack has skipped, and none of them will request."""
    receivers = flow.receivers
    done = receivers.up - receivers.repairing
    while (sequence := flow.unacked.oldest()) is not None:
        unacked_by = flow.unacked.owed_by(sequence)
        if any(epoch not in done or receivers.of[epoch].consumed <= sequence for epoch in unacked_by):
            return
        lose_unacked(flow, sequence, unacked_by, "the peer went past it without acknowledging it")


def lose_unacked(flow: SendRecord, sequence: int, unacked_by: frozenset[int], reason: str = NOT_ACKED) -> None:
    """No ack has come, and the peers that owe one will not get it."""
    flow.unacked.single(sequence)  # a run is in flight as one
    flow.in_flight.lose(sequence)
    flow.losses.add(sequence, sequence + 1, reason, unacked_by, counted=release(flow, sequence))


def lose_evicted(flow: SendRecord, epoch: int, ranges: Sequence[tuple[int, int, bool]]) -> None:
    """Peer ``epoch`` will not get these, which had been evicted; of each range, whether it counts as lost already."""
    for first, end, counted in ranges:
        flow.losses.add(first, end, REASONS[AbandonReason.EVICTED], lost_by=(epoch,), counted=counted)
