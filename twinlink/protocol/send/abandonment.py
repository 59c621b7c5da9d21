"""Messages that are given up: evicted, dropped, conflated, rejected, too long, never acknowledged.  No I/O."""

from collections.abc import Callable, Collection, Sequence

from ..frames import AbandonReason
from .loss import NOT_ACKED, NOT_TAKEN, REASONS, LossLedger, UnconfirmedEvictions
from .queue import SendQueue
from .receivers import ReceiverSet
from .retransmit_buffer import RetransmitBuffer

TOO_LONG = "it is longer than the peer's max_payload"
MAX_RETRANSMISSIONS = 12
NOT_ARRIVING = f"it was retransmitted {MAX_RETRANSMISSIONS} times and did not arrive, and the peer answered each time"
MAX_WATCHED = 16  # messages whose retransmissions are counted: the first of each range that a peer requests
# Between two that count; requests within a round trip are answers to the same loss.
RETRANSMISSION_NS = 1_000_000_000


class Abandonment:
    """Of one flow.

    Attributes:
        conflated: states that newer ones have replaced before they were sent.
    """

    def __init__(
        self,
        queue: SendQueue,
        receivers: ReceiverSet,
        unacked: RetransmitBuffer,
        losses: LossLedger,
        unconfirmed: UnconfirmedEvictions,
        acked_by: Callable[[int, int], None],
    ) -> None:
        """``acked_by(epoch, sequence)``: a peer owes no ack any more for a message that others owe one for."""
        self.conflated = 0
        self._queue = queue
        self._receivers = receivers
        self._unacked = unacked
        self._losses = losses
        self._unconfirmed = unconfirmed
        self._acked_by = acked_by
        self._requests: dict[tuple[int, int], tuple[int, int]] = {}  # (sequence, peer) -> requests, monotonic ns

    def abandon(self, sequence: int, reason: AbandonReason) -> None:
        """It will not be sent any more, though peers may owe an ack for it: count it, and have them told."""
        entry = self._unacked.entries.get(sequence)
        unacked_by = entry[1] if entry else frozenset[int]()
        lost = entry is not None and self.release(sequence)
        if reason is AbandonReason.EVICTED and sequence < self._queue.next_to_send:
            self._unconfirmed.add(unacked_by, sequence, lost)
            return  # it is announced as abandoned when a peer misses it
        if reason is AbandonReason.CONFLATED:
            self.conflated += not lost
        elif lost:
            self._losses.name(sequence, sequence + 1, REASONS[reason], unacked_by)
        else:
            self._losses.add(sequence, sequence + 1, REASONS[reason], unacked_by)
        self._queue.abandon(reason, sequence, sequence + 1)

    def release(self, sequence: int) -> bool:
        """Keep it no longer, nor send it again: no ack for it counts any more; returns whether it is lost already."""
        self._unacked.remove(sequence)
        self._queue.forget((sequence,))
        return self._unacked.forget_lost((sequence,)) > 0

    def reject(self, epoch: int, sequence: int, reason: str = NOT_TAKEN) -> None:
        """Peer ``epoch`` will not get it, so it is lost; it is kept as long as others may request it."""
        if len(self._unacked.entries[sequence][1]) > 1:
            self.lose_for_some((epoch,), sequence, reason)
            self._acked_by(epoch, sequence)
        elif self.release(sequence):
            self._losses.name(sequence, sequence + 1, reason, (epoch,))
        else:
            self._losses.add(sequence, sequence + 1, reason, lost_by=(epoch,))

    def lose_for_some(self, epochs: Collection[int], sequence: int, reason: str) -> None:
        """These peers will not get it, and others owe an ack for it."""
        if sequence in self._unacked.lost:
            self._losses.name(sequence, sequence + 1, reason, epochs)
        else:
            self._unacked.lost.add(sequence)
            self._losses.add(sequence, sequence + 1, reason, lost_by=epochs)

    def give_up_longer(self, size: int, reason: str) -> None:
        """No payload of more than ``size`` octets gets through: what is longer is lost, and the peers are told."""
        for sequence, entry in list(self._unacked.entries.items()):
            if self._unacked.size(entry) > size:
                self._give_up(sequence, reason)

    def _give_up(self, sequence: int, reason: str) -> None:
        self.lose_unacked(sequence, self._unacked.entries[sequence][1], reason)
        self._queue.abandon(AbandonReason.EVICTED, sequence, sequence + 1)

    def on_request(self, epoch: int, missing: Sequence[tuple[int, int]], now_mono_ns: int) -> None:
        """Peer ``epoch`` requests these: what has been retransmitted in vain for too often is given up.

        Something between the two may refuse it each time, such as a broker or a proxy with a limit of its own.
        """
        entries, retransmitted = self._unacked.entries, self._queue.retransmitted
        if not retransmitted:
            self._requests.clear()
            return
        for sequence in [first for first, _ in missing[:MAX_WATCHED] if first in retransmitted]:
            requests, counted_mono_ns = self._requests.get((sequence, epoch), (0, 0))
            if sequence not in entries or now_mono_ns - counted_mono_ns < RETRANSMISSION_NS:
                continue
            if requests < MAX_RETRANSMISSIONS:
                self._requests[sequence, epoch] = (requests + 1, now_mono_ns)
            else:
                self._give_up(sequence, NOT_ARRIVING)
        self._requests = {key: request for key, request in self._requests.items() if key[0] in entries}

    def lose_skipped(self) -> None:
        """Lose, from the oldest on, what every peer that owes an ack went past, and none of them will request."""
        entries, consumed, repairing = self._unacked.entries, self._receivers.consumed, self._receivers.repairing
        while (sequence := self._unacked.oldest()) is not None:
            unacked_by = entries[sequence][1]
            if any(epoch in repairing or consumed.get(epoch, 0) <= sequence for epoch in unacked_by):
                return
            self.lose_unacked(sequence, unacked_by, "the peer went past it without acknowledging it")

    def lose_unacked(self, sequence: int, unacked_by: frozenset[int], reason: str = NOT_ACKED) -> None:
        """No ack has come, and the peers that owe one will not get it."""
        if self.release(sequence):
            self._losses.name(sequence, sequence + 1, reason, unacked_by)
        else:
            self._losses.add(sequence, sequence + 1, reason, unacked_by)
