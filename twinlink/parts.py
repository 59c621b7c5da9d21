"""Frames that are too long to be sent whole: cut into parts, and put together again.  No I/O.

A long frame keeps everything behind it waiting: hellos, acks, what is urgent.  In parts, only a little of it is under
way at any time, and the receiver says how much it has.

A part is a frame itself: its sequence says how many octets of the whole came before, its time is the whole's.  The
whole begins with its own header, so that the first part says how long it is.
"""

from .wire import HEADER, HEADER_OCTETS, PART_WORD, Kind, Malformed, check

MOST_OCTETS = 64 * 1024 * 1024  # of frames that have begun; strangers may never end theirs
BEGUN_OCTETS = 1024  # what Python needs for one, beside what has come of it


class Cut:
    """A frame that leaves in parts.

    Attributes:
        sequence: of its message.
        at: octets of the frame that were handed over.
        octets: of the whole.
        looks: how often somebody looked and no more of it was there than the time before.
    """

    def __init__(self, sequence: int, frame: bytes) -> None:
        """What a transport added behind the frame is left out."""
        _, length, self._epoch, _, self._sent_ns = HEADER.unpack_from(frame)
        self.sequence = sequence
        self.octets = HEADER_OCTETS + length
        self._frame = memoryview(frame)
        self.rewind()

    def rewind(self) -> None:
        """Begin anew."""
        self.at = 0
        self.looks = 0
        self._there: dict[int, int] = {}  # peer epoch -> octets

    def next(self, octets: int) -> bytes:
        """The next part, of at most so many octets of the whole."""
        at = self.at
        self.at = min(at + octets, self.octets)
        header = HEADER.pack(PART_WORD, self.at - at, self._epoch, at, self._sent_ns)
        part = b"".join((header, self._frame[at : self.at]))
        if self.at == self.octets:
            self._frame = memoryview(b"")  # it is kept elsewhere, as long as somebody may ask for it
        return part

    def progress(self, epoch: int, sent_ns: int, octets: int) -> bool:
        """Peer ``epoch`` has so much of the frame of that time; whether this is news."""
        if sent_ns != self._sent_ns or not self._there.get(epoch, 0) < octets <= self.at:
            return False
        self._there[epoch] = octets
        self.looks = 0
        return True

    def under_way(self, epochs: frozenset[int]) -> int:
        """Octets that were handed over and are not there yet with all of these peers."""
        return self.at - min((self._there.get(epoch, 0) for epoch in epochs), default=0)


class Parts:
    """Feed it parts as they arrive: those of one frame in order, those of several topics and sessions mixed."""

    def __init__(self, max_frame: int) -> None:
        """``max_frame``: octets; a longer one is malformed."""
        self._max_frame = max_frame
        self._begun: dict[tuple[bytes, int], tuple[int, bytearray]] = {}  # topic and epoch -> sent_ns, what is there
        self._octets = 0

    def take(self, topic: bytes, part: bytes | memoryview) -> memoryview | int:
        """The frame that this part completes; if more must come, how many octets of it are there.

        None are when a part continues nothing: it is for a peer who was here before, or those before it were lost.
        Raises Malformed when no part is like this.
        """
        _, _, epoch, at, sent_ns = HEADER.unpack_from(part)
        key = (topic, epoch)
        began_ns, there = self._pop(key) if key in self._begun else (sent_ns, bytearray())
        if at == 0:
            began_ns, there = sent_ns, bytearray()
        if at != len(there) or sent_ns != began_ns:
            return 0
        there += part[HEADER_OCTETS:]
        if len(there) < HEADER_OCTETS:
            raise Malformed("part")
        octets = HEADER_OCTETS + HEADER.unpack_from(there)[1]
        if len(there) > octets or octets > self._max_frame:
            raise Malformed("part")
        if len(there) == octets:
            whole = memoryview(there).toreadonly()
            if check(whole) is Kind.PART:
                raise Malformed("part")
            return whole
        self._begun[key] = sent_ns, there
        self._octets += len(there) + BEGUN_OCTETS
        while self._octets > MOST_OCTETS:
            self._pop(next(iter(self._begun)))
        return len(there)

    def forget(self, epoch: int) -> None:
        """Nothing more will come of this session."""
        for key in [key for key in self._begun if key[1] == epoch]:
            self._pop(key)

    def _pop(self, key: tuple[bytes, int]) -> tuple[int, bytearray]:
        began_ns, there = self._begun.pop(key)
        self._octets -= len(there) + BEGUN_OCTETS
        return began_ns, there
