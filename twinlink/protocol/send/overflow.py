"""Overflow policy: what makes room for a new message when its flow keeps all that it may.  No I/O, no clock."""

from collections.abc import Callable
from typing import Literal

from ..frames import AbandonReason
from .queue import SendQueue
from .receivers import ReceiverSet
from .retransmit_buffer import RetransmitBuffer

Overflow = Literal["block", "drop-oldest", "drop-newest", "latest"]


class OverflowPolicy:
    """Of one flow.

    Peers that are down or lagging hold up no sender: what only they owe an ack for makes room under any policy.
    """

    def __init__(
        self,
        overflow: Overflow,
        unacked: RetransmitBuffer,
        receivers: ReceiverSet,
        queue: SendQueue,
        abandon: Callable[[int, AbandonReason], None],
    ) -> None:
        """``abandon(sequence, reason)`` gives up a message."""
        self._overflow = overflow
        self._unacked = unacked
        self._receivers = receivers
        self._queue = queue
        self._abandon = abandon

    def fits(self, size: int) -> bool:
        """Whether a payload of ``size`` octets may be sent now."""
        excess = size - self._unacked.room
        return excess <= 0 or self._overflow != "block" or self._unacked.can_evict(excess, self._receivers.pacing)

    def conflate(self) -> None:
        """Give up states that wait to be sent: a newer one comes."""
        while (waiting := self._queue.find_unsent()) is not None:
            self._abandon(waiting, AbandonReason.CONFLATED)

    def make_room(self, size: int) -> bool:
        """Give up what must make room for the new message; False where that is the new message itself."""
        while (oldest := self._unacked.oldest()) is not None and size > self._unacked.room:
            if self._unacked.entries[oldest][1] & self._receivers.pacing:
                if self._overflow == "drop-newest":
                    return False
                if self._overflow != "block":
                    waiting = self._queue.find_unsent()
                    self._abandon(oldest if waiting is None else waiting, AbandonReason.DROPPED)
                    continue
            self._abandon(oldest, AbandonReason.EVICTED)
        return True
