"""Frames that are too long for a transport: cut into parts, and put together again.  No I/O.

A part is a frame itself: its sequence says how many octets of the whole came before, its time is the whole's.  The
whole begins with its own header, so that the first part says how long it is.
"""

from collections.abc import Iterator

from .wire import HEADER, HEADER_OCTETS, Kind, Malformed, check
from .wire import frame as make_frame

PART_OCTETS = 512 * 1024
MOST_OCTETS = 64 * 1024 * 1024  # of frames that have begun; strangers may never end theirs
BEGUN_OCTETS = 1024  # what Python needs for one, beside what has come of it


def cut(whole: bytes | memoryview) -> Iterator[bytes]:
    """The parts of a frame, in order."""
    _, _, epoch, _, sent_ns = HEADER.unpack_from(whole)
    for at in range(0, len(whole), PART_OCTETS):
        yield make_frame(Kind.PART, epoch, at, sent_ns, bytes(whole[at : at + PART_OCTETS]))


class Parts:
    """Feed it parts as they arrive: those of one frame in order, those of several topics and sessions mixed."""

    def __init__(self, max_frame: int) -> None:
        """``max_frame``: octets; a longer one is malformed."""
        self._max_frame = max_frame
        self._begun: dict[tuple[bytes, int], tuple[int, bytearray]] = {}  # topic and epoch -> sent_ns, what is there
        self._octets = 0

    def take(self, topic: bytes, part: bytes | memoryview) -> memoryview | None:
        """The frame that this part completes; None: more must come.

        Raises Malformed when it continues nothing, perhaps because the others were lost with a connection.
        """
        _, _, epoch, at, sent_ns = HEADER.unpack_from(part)
        key = (topic, epoch)
        began_ns, there = self._pop(key) if key in self._begun else (sent_ns, bytearray())
        if at == 0:
            began_ns, there = sent_ns, bytearray()
        if at != len(there) or sent_ns != began_ns:
            raise Malformed("part")
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
        return None

    def forget(self, epoch: int) -> None:
        """Nothing more will come of this session."""
        for key in [key for key in self._begun if key[1] == epoch]:
            self._pop(key)

    def _pop(self, key: tuple[bytes, int]) -> tuple[int, bytearray]:
        began_ns, there = self._begun.pop(key)
        self._octets -= len(there) + BEGUN_OCTETS
        return began_ns, there
