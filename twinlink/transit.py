"""What is on its way: handed to the transport, and not acknowledged by those who are up."""

import sys
from collections.abc import Iterable, Sequence

FRAMING_OCTETS = 96  # of a message, beside its payload: header, topic, and what a transport adds
PARTS = 4  # as many of a long frame may be on their way: enough to go on while the first is answered for
PART_OCTETS = 16 * 1024  # of a part at least: each costs two frames


class Transit:
    """Bounds what a peer that takes nothing makes the transport keep, and what is ahead of a hello.

    Attributes:
        limit: octets, framing included.
        whole, part: what is longer than ``whole`` goes in parts of so many octets.
        first: octets that may be handed over in a bundle where nothing is on its way, even if the limit is less.
        direct: of them, as many as the transport takes at once: beyond, it may make whoever hands over wait.
        unsure: the transport may still have what was on its way to somebody who fell silent, and is back.
    """

    def __init__(self, limit: int, single: bool) -> None:
        """``single``: one message at a time."""
        self.limit = self.direct = self.whole = limit
        self.part = limit // PARTS
        self.first = 0
        self.unsure = False
        self._single = single
        self._handed_over = 0  # octets so far, framing included
        self._direct_end = sys.maxsize  # of them, see `clog`
        self._octets = 0  # of payload
        self._of: dict[int, int] = {}  # sequence -> octets of payload, in the order of handing over

    @property
    def room(self) -> int:
        """So many octets may be handed over now, framing included."""
        return 0 if self._of and self._single else self._free

    @property
    def direct_room(self) -> int:
        """So many without having to wait."""
        of = self._of
        if self.unsure or (of and self._single):
            return 0
        room, unclogged = self.direct - self._octets - FRAMING_OCTETS * len(of), self._direct_end - self._handed_over
        return room if room < unclogged else unclogged

    def clog(self) -> None:
        """Somebody fell silent: until `clear`, the transport may still have all that is on its way now or follows."""
        self._direct_end = min(self._direct_end, self.through + self.direct)

    def clear(self) -> None:
        """The transport has given up on who fell silent."""
        self._direct_end = sys.maxsize

    @property
    def _free(self) -> int:
        return self.limit - self._octets - FRAMING_OCTETS * len(self._of)

    @property
    def through(self) -> int:
        """Octets that got through, or were given up, so far, framing included."""
        return self._handed_over - self._octets - FRAMING_OCTETS * len(self._of)

    def takes_part(self, sequence: int) -> bool:
        """Whether one more part of this message may be handed over; the first always."""
        return self._free >= self.part or not self._of[sequence]

    def add(self, messages: Sequence[tuple[int, int]], octets: int) -> None:
        """They were handed over: sequence and octets of each, octets of all."""
        self._of.update(messages)
        self._octets += octets
        self._handed_over += octets + FRAMING_OCTETS * len(messages)

    def set(self, sequence: int, octets: int) -> None:
        """Of this message, which is in parts, so much is on its way."""
        known = self._of[sequence]
        self._of[sequence] = octets
        self._octets += octets - known
        self._handed_over += max(0, octets - known)

    def remove(self, sequences: Iterable[int]) -> None:
        """They are not on their way, or not any more."""
        of = self._of
        for sequence in sequences:
            self._octets -= of.pop(sequence, 0)

    def __contains__(self, sequence: int) -> bool:
        return sequence in self._of

    def sequences(self) -> list[int]:
        """In the order of handing over."""
        return list(self._of)

    def __bool__(self) -> bool:
        return bool(self._of)

    @property
    def oldest(self) -> int | None:
        """What has been on its way for longest."""
        return next(iter(self._of), None)
