"""What is stored of one sending flow, and what follows from it.  No I/O, no clock."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from ...message import Ack
from ..frames import HEADER_OCTETS, AbandonReason
from ..rangeset import RangeSet
from ..rtt import RttSamples
from .congestion import InFlightBudget
from .flow_control import MAX_UNREPORTED_ACKS, FlowControlWindow
from .in_flight import InFlight
from .loss import ANY_PEER, NO_PEER, LossLedger, UnconfirmedEvictions
from .options import FlowOptions
from .pace import PaceKeeper
from .queue import SendQueue
from .receivers import ReceiverSet
from .retransmit_buffer import RetransmitBuffer


class Missing(NamedTuple):
    """What a flush names.

    Attributes:
        all: the messages, of which are
        outstanding: those that may still be acknowledged, by the peers with the epochs
        unacked_by: that owe an ack.
        lost_for: why the others are lost.
    """

    all: RangeSet
    outstanding: RangeSet
    unacked_by: frozenset[int]
    lost_for: list[str]


class SendRecord:
    """One sending flow.  The modules of this folder are its parts, or functions on it.

    A message is *kept* until every peer that owes an ack has sent it: the peers that were up when the message was sent,
    or came before it left, and the suspended ones.  All that is kept is at most ``retention`` octets.  A message is
    *lost* when no ack can come any more, though it may be kept for other peers.  An eviction of a message that has been
    transmitted is *unconfirmed* until the peers say whether they have it.

    Attributes:
        flow, options: as it was opened.
        repair: whether what a peer misses is retransmitted.
        pace_keeper: the peers that the flow waits for.
        ack_handler: what is to get each ack, for `Context.deliveries`; or None.
        sent_octets, acknowledged, repaired, conflated: counters.  Conflated: states that newer ones have replaced
            before they were sent.
        requests: by sequence and peer, how often a message was requested in vain, and when that was last counted.
    """

    def __init__(
        self, flow: str, window: int, retention: int, budget: InFlightBudget, options: FlowOptions, framing_octets: int
    ) -> None:
        """``framing_octets``: of a frame, beside its payload."""
        self.flow = flow
        self.options = options
        self.repair = options.reliability == "repair"
        self.ack_handler: Any = None
        self.sent_octets = self.acknowledged = self.repaired = self.conflated = 0
        self.requests: dict[tuple[int, int], tuple[int, int]] = {}
        self.losses = LossLedger()
        self.rtt = RttSamples()
        self.unacked = RetransmitBuffer(retention, framing_octets)
        single = options.overflow == "latest"  # of states one at a time: the next is newer
        self.receivers = ReceiverSet()
        self.in_flight = InFlight(budget, single, self.receivers.resuming)
        self.flow_control = FlowControlWindow(window)
        self.queue = SendQueue(self.unacked, self.in_flight, self.flow_control, self.receivers)
        self.pace_keeper = PaceKeeper(
            options.pace, self.queue, self.receivers, self.unacked, self.in_flight, self.flow_control
        )
        self.unconfirmed = UnconfirmedEvictions()
        self.added_octets = framing_octets - HEADER_OCTETS  # by the transport, to a frame

    # What an acknowledgement, or the end of a peer, does to a message

    def acked_by(self, epoch: int, sequence: int) -> None:
        """Peer ``epoch`` owes no ack for it any more; others do, so it stays kept."""
        sent_mono_ns, unacked_by, frame = self.unacked.singles[sequence]
        unacked_by -= {epoch}
        self.unacked.singles[sequence] = (sent_mono_ns, unacked_by, frame)
        if epoch in self.queue.unanswered_octets:
            self.queue.on_answers(epoch)
        receivers = self.receivers
        awaited_by = unacked_by & receivers.pacing
        if not awaited_by or (receivers.have_any_refused and receivers.have_refused(sequence, awaited_by)):
            self.in_flight.remove((sequence,))

    def acked_by_all(self, sequences: Sequence[int]) -> None:
        """These are kept no longer, and counted as acknowledged: every peer has them.  None is retransmitted."""
        if self.unacked.lost:
            self.acknowledged -= self.unacked.forget_lost(sequences)
        self.repaired += self.queue.forget(sequences)

    def recover_after_interrupt(self) -> None:
        """An interruption (Ctrl-C, which comes where a call ends) came between two steps of a method."""
        self.unacked.recover_after_interrupt(self.queue.next_sequence)
        self.in_flight.recover_after_interrupt({one for one in self.unacked.entries if one < self.queue.next_to_send})
        self.queue.recover_after_interrupt()
        known = self.acknowledged + self.stats()["outstanding"] + self.losses.count + self.conflated
        # of what has just come, and counted as lost before
        self.acknowledged -= max(0, known - self.queue.next_sequence)
        # the last was sent without any peer, and is not counted
        if known < self.queue.next_sequence and not self.receivers.all:
            self.losses.add(known, self.queue.next_sequence, NO_PEER, ANY_PEER)

    # What is asked of it

    @property
    def next_sequence(self) -> int:
        """The number of the next message."""
        return self.queue.next_sequence

    @property
    def has_pending(self) -> bool:
        """Whether messages or announcements wait to be transmitted."""
        return self.queue.has_pending

    @property
    def has_unreported_acks(self) -> bool:
        """Whether the application has not been called yet with all acks that have come."""
        return self.flow_control.unreported_acks > 0

    @property
    def is_clear(self) -> bool:
        """Whether no message is missing, nor lost without a flush having named it."""
        unacked = self.unacked
        return not (unacked.singles or unacked.runs or self.losses.unflushed or self.unconfirmed.open)

    @property
    def fullness(self) -> tuple[int, int, bool]:
        """Octets not acknowledged; octets not consumed; whether the application takes long for its acks."""
        window = self.flow_control
        return self.unacked.octets, window.octets, window.unreported_acks >= MAX_UNREPORTED_ACKS

    @property
    def is_unread(self) -> bool:
        """Whether half of what peers may have unread is."""
        return self.flow_control.is_half_full

    @property
    def next_to_send(self) -> int:
        """The first number that has not been transmitted."""
        return self.queue.next_to_send

    @property
    def unacked_by(self) -> frozenset[int]:
        """Epochs of the peers that owe an ack."""
        return self.unacked.unacked_by()

    @property
    def is_settled(self) -> bool:
        """Whether nothing is outstanding that a peer that is up could still acknowledge."""
        return not self.unacked.is_unacked_by(self.receivers.up)

    @property
    def feedback_progress(self) -> tuple[int, int, int]:
        """Grows while feedback comes: messages acknowledged by all, consumed by each, octets of one in fragments."""
        consumed = sum(peer.consumed for _, peer in self.receivers.those_up())
        return self.acknowledged, consumed, self.queue.fragments.received_octets

    def is_resolved_below(self, end: int) -> bool:
        """Whether the fate of every sequence below ``end`` is known."""
        unacked = self.unacked
        if not unacked.singles and not unacked.runs and not self.unconfirmed.open:
            return True
        if self.queue.next_sequence == end:  # nothing has been sent since
            return False
        oldest = unacked.oldest()
        unconfirmed = self.unconfirmed.all().first_range() if self.unconfirmed.open else None
        return (oldest is None or oldest >= end) and (unconfirmed is None or unconfirmed[0] >= end)

    def outstanding(self) -> RangeSet:
        """The sequences whose fate is not known yet."""
        unacked = sorted(self.unacked.singles.keys() - self.unacked.lost)
        runs = [(run.first, run.end) for run in self.unacked.runs]
        return RangeSet([*self.unconfirmed.all(), *((sequence, sequence + 1) for sequence in unacked), *runs])

    def take_missing(self, below: int) -> Missing:
        """What is missing below this number; what is lost of it, no other flush names."""
        return Missing(
            RangeSet(self.missing().take(0, below)),
            RangeSet(self.outstanding().take(0, below)),
            self.unacked_by,
            self.losses.take_unflushed(below),
        )

    def missing(self) -> RangeSet:
        """What is outstanding, or lost and not named by a flush yet."""
        return RangeSet([*self.outstanding(), *self.losses.unflushed])

    def final_abandoned(self) -> list[tuple[AbandonReason, list[tuple[int, int]]]]:
        """What is to be announced where the link ends, so that the peers that are up know what they will not get."""
        queue, oldest = self.queue, self.unacked.oldest()
        if not self.receivers.up:
            return []
        if not self.repair or self.receivers.consumed_by_all < queue.next_to_send:
            queue.probe()  # without ranges it is the end of what was sent: what was announced may be lost
        return queue.final_abandoned(oldest if self.repair and oldest is not None else queue.next_sequence)

    def close(self) -> None:
        """Nothing will be transmitted any more: no frame is kept, only what is outstanding."""
        self.queue.close()
        self.unacked.release_frames()

    def acks(self) -> dict[int, list[Ack]]:
        """By peer the acks that are measured, in the order in which they came."""
        return self.rtt.acks()

    def stats(self) -> dict[str, Any]:
        """Counters."""
        return {
            "sent": self.queue.next_sequence,
            "sent_octets": self.sent_octets,
            "acknowledged": self.acknowledged,
            "outstanding": len(self.unacked) - len(self.unacked.lost) + self.unconfirmed.all().count(),
            "lost": self.losses.count,
            "conflated": self.conflated,
            "repaired": self.repaired,
            "kept_octets": self.unacked.octets,
            "in_flight_octets": self.flow_control.octets,
        }
