"""What the flows of a link may have on their way together.  No I/O."""

import threading
from collections.abc import Callable

PARTS = 4  # as many of a long frame may be on their way: enough to go on while the first is answered for
PART_OCTETS = 16 * 1024  # of a part at least: each costs two frames


def _nothing() -> None: ...


class Budget:
    """Shared by the flows of one priority: what is under way of all of them is ahead of every hello.

    So each takes part in two limits: a share of its own, which keeps room for the others, and what is left of all.  The
    share is that of flows that were in use lately; who begins, alone or with many, finds what is left.

    Attributes:
        limit: octets of all flows, framing included.
        direct: of them, as many as the transport takes at once: beyond, it may make whoever hands over wait.
        share, direct_share: of each flow that has something on its way already.
        whole, part: what is longer than ``whole`` goes in parts of so many octets.
        under_way: octets of all flows, framing included.
        roomy: called when there is room again and there was none.
    """

    def __init__(self, limit: int) -> None:
        self.limit = self.direct = self.share = self.direct_share = self.whole = limit
        self.part = limit // PARTS
        self.under_way = 0
        self.roomy: Callable[[], None] = _nothing
        self._lock = threading.Lock()  # the flows' own do not keep them apart from each other

    def divide(self, limit: int, direct: int, whole: int, sharing: int) -> None:
        """Set the limits anew, for so many flows ``sharing`` them; a frame of ``whole`` octets goes in one piece.

        That is so even where a flow's share is less.
        """
        self.limit, self.direct = limit, min(limit, direct)
        self.share, self.direct_share = limit // sharing, self.direct // sharing
        self.whole = max(self.share, whole)
        self.part = max(self.share // PARTS, PART_OCTETS)

    @property
    def room(self) -> int:
        """Octets that may be handed over now, by whatever flow; a longer message may go if there is any room."""
        return self.limit - self.under_way

    def spend(self, octets: int) -> None:
        """So many octets more are on their way."""
        with self._lock:
            self.under_way += octets

    def give_back(self, octets: int) -> None:
        """So many octets arrived, or were given up; calls `roomy` where there was no room before."""
        with self._lock:
            self.under_way = left = self.under_way - octets
        if left < self.limit <= left + octets:
            self.roomy()
