"""The message of a flow that leaves in fragments, one at a time.  No I/O, no clock."""

from ..fragmentation import Fragmenter
from ..frames import HEADER_OCTETS, MAX_HELLO, MessageFrame
from .in_flight import FRAMING_OCTETS, InFlight
from .receivers import ReceiverSet
from .retransmit_buffer import RetransmitBuffer

STALL_TICKS = 4  # when no more of a frame has got through in so many ticks, what is not there is transmitted again


class FragmentTransmission:
    """True while some of a message has not left, and a peer that the flow waits for owes an ack for it."""

    def __init__(self, unacked: RetransmitBuffer, in_flight: InFlight, receivers: ReceiverSet) -> None:
        self._unacked = unacked
        self._in_flight = in_flight
        self._receivers = receivers
        self._fragmenter: Fragmenter | None = None  # of the message, or of the last one

    def are_needed(self, octets: int) -> bool:
        """Whether a message of so many octets, framing included, leaves in fragments."""
        # In fragments, what is too long for a peer does not end its connection.
        most = min(self._in_flight.budget.unfragmented, self._receivers.least_payload + FRAMING_OCTETS)
        return octets > most and self._receivers.all_take_fragments

    def start(self, sequence: int, frame: MessageFrame, retransmit: bool = False) -> None:
        """Begin with a message."""
        self._fragmenter = Fragmenter(sequence, frame, retransmit)
        self._in_flight.add(sequence, FRAMING_OCTETS)

    def __bool__(self) -> bool:
        fragmenter = self._fragmenter
        return (
            fragmenter is not None and fragmenter.offset < fragmenter.octets and fragmenter.sequence in self._in_flight
        )

    @property
    def _leaving(self) -> Fragmenter | None:
        return self._fragmenter if self else None

    @property
    def sequence(self) -> int | None:
        """The number of the message; None: there is none."""
        return None if (fragmenter := self._leaving) is None else fragmenter.sequence

    @property
    def stalled(self) -> bool:
        """Whether nothing more of the message has got through for some ticks."""
        return (fragmenter := self._leaving) is not None and fragmenter.stalled

    def may_go(self, requested: bool) -> bool:
        """Whether there is room for the next fragment; where a peer has ``requested`` something, one goes without
        room.
        """
        fragmenter = self._leaving
        if fragmenter is None:
            return False
        if (requested or fragmenter.retransmitted) and not self._in_flight.has_fragments(fragmenter.sequence):
            return True
        return self._in_flight.has_room_for_fragment(fragmenter.sequence)

    def next(self) -> bytes:
        """The next fragment, which is in flight from now on."""
        fragmenter, budget = self._leaving, self._in_flight.budget
        assert fragmenter is not None
        fragment = fragmenter.next_fragment(min(budget.fragment, MAX_HELLO, budget.frame_limit - HEADER_OCTETS))
        self._count(fragmenter)
        return fragment

    def _count(self, fragmenter: Fragmenter) -> None:
        self._in_flight.set(fragmenter.sequence, fragmenter.in_flight(self._unacked_by(fragmenter)) + FRAMING_OCTETS)

    def _unacked_by(self, fragmenter: Fragmenter) -> frozenset[int]:
        return self._unacked.owed_by(fragmenter.sequence) & self._receivers.pacing

    def on_progress(self, epoch: int, sent_ns: int, octets: int) -> None:
        """Peer ``epoch`` has so many octets of the frame that was sent, as a whole, at ``sent_ns``."""
        fragmenter = self._fragmenter
        if fragmenter is None or fragmenter.sequence not in self._in_flight:
            return
        if epoch in self._unacked_by(fragmenter) and fragmenter.on_progress(epoch, sent_ns, octets):
            self._count(fragmenter)

    def arrived(self, sequence: int, epoch: int) -> int:
        """Octets of a message that a peer says are there; 0 where the message does not leave in fragments."""
        fragmenter = self._fragmenter
        return fragmenter.received_by(epoch) if fragmenter is not None and fragmenter.sequence == sequence else 0

    @property
    def received_octets(self) -> int:
        """Octets of the message, or of the last one, that the peers say are there, summed up."""
        return 0 if (fragmenter := self._fragmenter) is None else fragmenter.received_octets

    def recount(self) -> None:
        """The flow waits for other peers than before."""
        if (fragmenter := self._leaving) is not None:
            self._count(fragmenter)

    def on_peer_resumed(self, epoch: int) -> None:
        """Peer ``epoch`` is back, and may have lost the fragments that left before: they are transmitted again."""
        if (fragmenter := self._leaving) is not None:
            fragmenter.forget(epoch)
            self._rewind(fragmenter)

    def _rewind(self, fragmenter: Fragmenter) -> None:
        fragmenter.rewind(self._unacked_by(fragmenter))
        self._count(fragmenter)

    def on_tick(self) -> bool:
        """To be called a few times a second: fragments that do not get through are transmitted again.

        Returns whether more and more gets through.
        """
        if (fragmenter := self._leaving) is not None:
            fragmenter.ticks_without_progress += 1
            if fragmenter.ticks_without_progress > STALL_TICKS:
                self._rewind(fragmenter)
                fragmenter.stalled = True
            return not fragmenter.stalled
        if self._fragmenter is not None and self._fragmenter.sequence not in self._in_flight:
            self._fragmenter = None  # and its frame
        return False

    def close(self) -> None:
        """Nothing will be transmitted any more."""
        self._fragmenter = None
