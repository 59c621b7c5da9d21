"""Frames that are too long to be sent whole: cut into parts, and put together again.  No I/O.

A long frame keeps everything behind it waiting: hellos, acks, what is urgent.  In parts, only a little of it is under
way at any time, and the receiver says how much it has.

A part is a frame itself: its sequence says how many octets of the whole came before, its time is the whole's.  The
whole begins with its own header, so that the first part says how long it is.
"""

from dataclasses import dataclass

from .frames import AGAIN, HEADER, HEADER_OCTETS, PART_WORD, Kind, Malformed, check

MOST_OCTETS = 128 * 1024 * 1024  # of frames that have begun; strangers may never end theirs
BEGUN_OCTETS = 1024  # what Python needs for one, beside what has come of it


class Cut:
    """A frame that leaves in parts.

    Attributes:
        sequence: of its message.
        at: octets of the frame that were handed over; the next part begins there.
        octets: of the whole frame.
        looks: how often the backlog looked, and no peer had said that it had more.
        stuck: that was so for too long, and still is.
    """

    def __init__(self, sequence: int, frame: bytes, again: bool) -> None:
        """What a transport added behind the frame is left out; ``again``: it is marked as sent again."""
        _, length, self._epoch, _, self._sent_ns = HEADER.unpack_from(frame)
        self.sequence = sequence
        self.octets = HEADER_OCTETS + length
        self.at = self.looks = 0
        self.stuck = False
        self._frame = memoryview(frame)
        self._word = AGAIN if again else frame[: len(AGAIN)]
        self._there: dict[int, int] = {}  # peer epoch -> octets

    def go_back(self, epochs: frozenset[int]) -> None:
        """Go back to the first octet that not all of these peers have: parts leave again from there."""
        self.at = self._there_at(epochs)
        self.looks = 0

    def next(self, octets: int) -> bytes:
        """The next part, of at most so many octets of the whole."""
        at = self.at
        self.at = min(at + octets, self.octets)
        header = HEADER.pack(PART_WORD, self.at - at, self._epoch, at, self._sent_ns)
        word = self._word[at : self.at]  # the whole begins with it
        part = b"".join((header, word, self._frame[at + len(word) : self.at]))
        if self.at == self.octets:
            self._frame = memoryview(b"")  # it is kept elsewhere, as long as somebody may ask for it
        return part

    def progress(self, epoch: int, sent_ns: int, octets: int) -> bool:
        """A peer says how many octets it has of the frame that was sent at ``sent_ns``; whether that is this frame."""
        if sent_ns != self._sent_ns or octets >= self.octets:
            return False
        if octets > self._there.get(epoch, 0):
            self.looks, self.stuck = 0, False
        self._there[epoch] = octets
        return True

    def forget(self, epoch: int) -> None:
        """The peer is back after an interruption: it may have nothing of the frame."""
        self._there.pop(epoch, None)

    def under_way(self, epochs: frozenset[int]) -> int:
        """Octets that were handed over and that not all of these peers have yet.

        Moves ``at`` on where all of them have more than that, from before it went back: so much need not leave again.
        """
        there = self._there_at(epochs)
        self.at = max(self.at, there)
        return self.at - there

    def _there_at(self, epochs: frozenset[int]) -> int:
        """Octets that all of these peers have."""
        return min((self._there.get(epoch, 0) for epoch in epochs), default=0)


class Parts:
    """Feed it parts as they arrive: those of one frame in order, those of several topics and sessions mixed."""

    def __init__(self, max_frame: int) -> None:
        """``max_frame``: octets; a longer one is malformed."""
        self._max_frame = max_frame
        self._begun: dict[tuple[bytes, int], Begun] = {}  # by topic and epoch
        self._octets = 0  # of all, as long as they are going to be

    def take(self, topic: bytes, part: bytes | memoryview, known: bool) -> memoryview | int:
        """The frame that this part completes; if more must come, how many octets of it are there.

        ``known``: it is from a peer.  What came once more is passed over, and so is a part before which others are
        missing.  Raises Malformed where that is no part, or of no frame.
        """
        _, _, epoch, at, sent_ns = HEADER.unpack_from(part)
        key = (topic, epoch)
        begun = self._begun.get(key)
        octets = memoryview(part)[HEADER_OCTETS:]
        if at == 0 and (begun is None or begun.sent_ns != sent_ns or not begun.there.startswith(octets[:4])):
            self._pop(key)
            begun = self._begin(key, sent_ns, octets, known)
        elif begun is not None and begun.sent_ns == sent_ns and at <= len(begun.there):
            begun.there += octets[len(begun.there) - at :]
        if begun is None or begun.sent_ns != sent_ns:
            return 0
        if len(begun.there) > begun.octets:
            self._pop(key)
            raise Malformed("part")
        if len(begun.there) < begun.octets:
            return len(begun.there)
        self._pop(key)
        whole = memoryview(begun.there).toreadonly()
        if check(whole) is Kind.PART:
            raise Malformed("part")
        return whole

    def _begin(self, key: tuple[bytes, int], sent_ns: int, first: memoryview, known: bool) -> "Begun | None":
        """Begin a frame with its first part; None: there is no room for one more.  Raises Malformed."""
        if len(first) < HEADER_OCTETS:
            raise Malformed("part")
        octets = HEADER_OCTETS + HEADER.unpack_from(first)[1]
        if octets > self._max_frame:
            raise Malformed("part")
        self._begun[key] = Begun(known, sent_ns, octets, bytearray(first))
        self._octets += octets + BEGUN_OCTETS
        while self._octets > MOST_OCTETS:  # strangers make room first; what is well under way goes on
            self._pop(next((one for one, of in self._begun.items() if not of.known), key))
        return self._begun.get(key)

    def forget(self, epoch: int) -> None:
        """Nothing more will come of this session."""
        for key in [key for key in self._begun if key[1] == epoch]:
            self._pop(key)

    def _pop(self, key: tuple[bytes, int]) -> None:
        begun = self._begun.pop(key, None)
        if begun is not None:
            self._octets -= begun.octets + BEGUN_OCTETS


@dataclass(slots=True)
class Begun:
    """A frame of which the first part is there; ``octets``: how long it is going to be."""

    known: bool
    sent_ns: int
    octets: int
    there: bytearray
