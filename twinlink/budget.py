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
        clogged: the transport may still be full of what is for a peer that fell silent, and make everybody wait for it:
            nothing goes directly, and no more than the transport takes at once is on its way to the others.
        under_way: octets of all flows, framing included.
        roomy: called when there is room again and there was none.

    ``under_way`` is changed by each flow's `Transit`, in single statements without a call: between such no other thread
    runs (CPython's interpreter lock), and no Ctrl-C comes.
    """

    def __init__(self, limit: int) -> None:
        self.limit = self.direct = self.share = self.direct_share = self.whole = limit
        self.part = limit // PARTS
        self.clogged = False
        self._clogged_until_ns = 0
        self.under_way = 0
        self.roomy: Callable[[], None] = _nothing
        self._lock = threading.Lock()  # the flows' own do not keep them apart from each other

    def divide(self, limit: int, direct: int, whole: int, sharing: int, now_mono_ns: int) -> None:
        """Set the limits anew, for so many flows ``sharing`` them; a frame of ``whole`` octets goes in one piece.

        That is so even where a flow's share is less.
        """
        with self._lock:
            self.clogged = now_mono_ns < self._clogged_until_ns
            if self.clogged:
                limit, whole = min(limit, direct), min(whole, direct)
            self.limit, self.direct = limit, 0 if self.clogged else min(limit, direct)
            self.share, self.direct_share = limit // sharing, self.direct // sharing
            self.whole = max(self.share, whole)
            self.part = max(self.share // PARTS, PART_OCTETS)

    def clog(self, direct: int, until_mono_ns: int) -> None:
        """Somebody fell silent: `clogged` until then.  ``direct``: octets that the transport takes at once."""
        with self._lock:
            self.clogged, self._clogged_until_ns = True, until_mono_ns
            self.direct = self.direct_share = 0
            self.limit, self.whole = min(self.limit, direct), min(self.whole, direct)
            self.part = min(self.part, direct // PARTS)

    @property
    def room(self) -> int:
        """Octets that may be handed over now, by whatever flow; a longer message may go if there is any room."""
        return self.limit - self.under_way

    def given_back(self, octets: int, left: int) -> None:
        """So many octets arrived, or were given up, and ``left`` were under way then."""
        if left < self.limit <= left + octets:
            self.roomy()
