"""Fragmentation: a frame that is too long to be sent whole leaves in fragments, to be reassembled.  No I/O.

A long frame keeps everything behind it waiting: hellos, acks, what is urgent.  In fragments, only a little of it is
in flight at any time, and the receiver says how much it has.

A fragment is a frame itself: its sequence says how many octets of the whole came before, its time is the whole's.  The
whole begins with its own header, so that the first fragment says how long it is.
"""

from dataclasses import dataclass

from .frames import (
    FRAGMENT_WORD,
    HEADER,
    HEADER_OCTETS,
    MAX_PAYLOAD,
    RETRANSMIT_OCTETS,
    Kind,
    MalformedFrame,
    MessageFrame,
    SplitFrame,
    check,
)

PARTIAL_FRAME_OCTETS = 1024  # what Python needs for one, beside what has come of it


class Fragmenter:
    """A frame that leaves in fragments.

    Attributes:
        sequence: of its message.
        offset: octets of the frame that were transmitted; the next fragment begins there.
        octets: of the whole frame.
        retransmitted: whether it is marked as a retransmission.
        ticks_without_progress: how often the backlog looked, and no peer had said that it had more.
        stalled: that was so for too long, and still is.
    """

    def __init__(self, sequence: int, frame: MessageFrame, retransmitted: bool) -> None:
        """What a transport added behind the frame is left out."""
        header = frame[:HEADER_OCTETS]
        _, length, self._epoch, _, self._sent_ns = HEADER.unpack(header)
        self.sequence = sequence
        self.retransmitted = retransmitted
        self.octets = HEADER_OCTETS + length
        self.offset = self.ticks_without_progress = 0
        self.stalled = False
        self._header = RETRANSMIT_OCTETS + header[len(RETRANSMIT_OCTETS) :] if retransmitted else header
        self._payload = (
            memoryview(frame.payload) if type(frame) is SplitFrame else memoryview(frame)[HEADER_OCTETS : self.octets]
        )
        self._received: dict[int, int] = {}  # peer epoch -> octets

    def rewind(self, epochs: frozenset[int]) -> None:
        """Go back to the first octet that not all of these peers have: fragments are transmitted again from there."""
        self.offset = self._received_by_all(epochs)
        self.ticks_without_progress = 0

    def next_fragment(self, octets: int) -> bytes:
        """The next fragment, of at most so many octets of the whole."""
        offset = self.offset
        self.offset = min(offset + octets, self.octets)
        header = HEADER.pack(FRAGMENT_WORD, self.offset - offset, self._epoch, offset, self._sent_ns)
        payload = self._payload[max(0, offset - HEADER_OCTETS) : max(0, self.offset - HEADER_OCTETS)]
        fragment = b"".join((header, self._header[offset : self.offset], payload))
        if self.offset == self.octets:
            self._payload = memoryview(b"")  # the retransmission buffer keeps it as long as a peer may request it
        return fragment

    def on_progress(self, epoch: int, sent_ns: int, octets: int) -> bool:
        """A peer says how many octets it has of the frame that was sent at ``sent_ns``; whether that is this frame."""
        if sent_ns != self._sent_ns or octets >= self.octets:
            return False
        if octets > self._received.get(epoch, 0):
            self.ticks_without_progress, self.stalled = 0, False
        self._received[epoch] = octets
        return True

    def received_by(self, epoch: int) -> int:
        """Octets of the frame that a peer has, as far as it has said."""
        return self._received.get(epoch, 0)

    @property
    def received_octets(self) -> int:
        """Octets of the frame that the peers have, summed up."""
        return sum(self._received.values())

    def forget(self, epoch: int) -> None:
        """The peer is back after an interruption: it may have nothing of the frame."""
        self._received.pop(epoch, None)

    def in_flight(self, epochs: frozenset[int]) -> int:
        """Octets that were transmitted and that not all of these peers have yet.

        Moves ``offset`` on where all of them have more than that, from before it went back: so much need not leave
        again.
        """
        received = self._received_by_all(epochs)
        self.offset = max(self.offset, received)
        return self.offset - received

    def _received_by_all(self, epochs: frozenset[int]) -> int:
        """Octets that all of these peers have."""
        return min(map(self.received_by, epochs), default=0)


class FrameTooLong(Exception):
    """A frame that begins to arrive is longer than this side takes; ``args[0]`` is the number of its message."""


class FragmentReassembler:
    """Feed it fragments as they arrive: those of one frame in order, those of several topics and sessions mixed."""

    def __init__(self, max_frame: int, max_partial_octets: int = 2**27) -> None:
        """``max_frame``: octets of the longest that is taken.

        ``max_partial_octets``: of frames that have begun; a node that is no peer may never end its own.
        """
        self._max_frame = max_frame
        self._max_partial_octets = max(max_partial_octets, max_frame + PARTIAL_FRAME_OCTETS)
        self._partial: dict[tuple[bytes, int], PartialFrame] = {}  # by topic and epoch
        self._octets = 0  # of all, as long as they are going to be

    def receive(
        self, topic: bytes, fragment: bytes | memoryview, known: bool, max_payload: int = MAX_PAYLOAD
    ) -> memoryview | int:
        """The frame that this fragment completes; if more must come, how many octets of it are there.

        ``known``: it is from a peer.  ``max_payload``: what its flow takes.  What came once more is passed over, and so
        is a fragment before which others are missing.  Raises MalformedFrame where that is no fragment, or of no frame,
        and FrameTooLong.
        """
        _, _, epoch, offset, sent_ns = HEADER.unpack_from(fragment)
        key = (topic, epoch)
        partial = self._partial.get(key)
        octets = memoryview(fragment)[HEADER_OCTETS:]
        if offset == 0 and (
            partial is None or partial.sent_ns != sent_ns or not partial.received.startswith(octets[:4])
        ):
            self._discard(key)
            partial = self._start(key, sent_ns, octets, known, max_payload)
        elif partial is not None and partial.sent_ns == sent_ns and offset <= len(partial.received):
            partial.received += octets[len(partial.received) - offset :]
        if partial is None or partial.sent_ns != sent_ns:
            return 0
        if len(partial.received) > partial.octets:
            self._discard(key)
            raise MalformedFrame("fragment")
        if len(partial.received) < partial.octets:
            return len(partial.received)
        self._discard(key)
        whole = memoryview(partial.received).toreadonly()
        if check(whole) is Kind.FRAGMENT or HEADER.unpack_from(whole)[2] != epoch:
            raise MalformedFrame("fragment")
        return whole

    def _start(
        self, key: tuple[bytes, int], sent_ns: int, first: memoryview, known: bool, max_payload: int
    ) -> "PartialFrame | None":
        """Begin a frame with its first fragment; None: there is no room for one more.

        Raises MalformedFrame, FrameTooLong.
        """
        if len(first) < HEADER_OCTETS:
            raise MalformedFrame("fragment")
        _, length, _, sequence, _ = HEADER.unpack_from(first)
        octets = HEADER_OCTETS + length
        if octets > self._max_frame or length > max_payload:
            raise FrameTooLong(sequence)
        self._partial[key] = PartialFrame(known, sent_ns, octets, bytearray(first))
        self._octets += octets + PARTIAL_FRAME_OCTETS
        while self._octets > self._max_partial_octets:  # unknown nodes make room first; what is well advanced goes on
            self._discard(next((one for one, of in self._partial.items() if not of.known), key))
        return self._partial.get(key)

    def forget(self, epoch: int) -> None:
        """Nothing more will come of this session."""
        for key in [key for key in self._partial if key[1] == epoch]:
            self._discard(key)

    def _discard(self, key: tuple[bytes, int]) -> None:
        partial = self._partial.pop(key, None)
        if partial is not None:
            self._octets -= partial.octets + PARTIAL_FRAME_OCTETS


@dataclass(slots=True)
class PartialFrame:
    """A frame of which the first fragment is there; ``octets``: how long it is going to be."""

    known: bool
    sent_ns: int
    octets: int
    received: bytearray
