"""How many octets may be in flight: a limit the size of the path's bandwidth-delay product, from its delivery rate.

The flows of a link share it.  No I/O; the one lock is there because flows of several threads do.
"""

import threading
from collections.abc import Callable

PARTS = 4  # as many of a long frame may be on their way: enough to go on while the first is answered for
PART_OCTETS = 16 * 1024  # of a part at least: each costs two frames

GIGABIT = 0.125  # octets a nanosecond: faster ones need no more than this under way
LEAST_OCTETS = 192 * 1024  # under way whatever the path: 1.6 ms of a gigabit, and a few parts or bundles
QUEUE_NS = 100_000_000  # so long may a hello wait behind what is under way
MOST_ON_THE_WAY_OCTETS = 4 * 1024 * 1024  # what TCP keeps by default
LONGEST_NS = 300_000_000  # round trip; what seems longer is the time that a long message takes by itself
FIRST = LEAST_OCTETS / QUEUE_NS  # what a path is taken for of which nothing is known
APART_NS = 100_000_000  # of two looks, at least
CUT_NS = 1_000_000_000  # a path that takes nothing for so long is cut


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


class Pace:
    """Feed it what got through; ask it how much may be under way.

    As long as something waits, the path takes what it can: how fast that is shows from one look to the next.  When it
    takes all and nothing waits, it may be faster than that: twice as much may be under way as it took since the last
    look, since a few small messages say nothing of how it takes many.
    """

    def __init__(self) -> None:
        self._rate = FIRST  # octets a nanosecond
        self._through = 0
        self._full = False  # something has been waiting for the path since the last look that counted
        self._then_ns = 0

    def look(self, now_mono_ns: int, through: int, waits: bool, under_way: bool) -> None:
        """To be called a few times a second.

        ``through``: octets that got through so far; ``waits``: more is to follow; ``under_way``: some is on its way.
        """
        elapsed_ns = now_mono_ns - self._then_ns
        if elapsed_ns < APART_NS:
            return
        got = through - self._through
        if got:
            rate, known = got / elapsed_ns, self._rate
            if not self._full:
                rate = max(rate, known, 0 if waits else min(2 * known, 2 * got / QUEUE_NS))
            self._rate = min(rate, GIGABIT)
        elif (waits or under_way) and elapsed_ns < CUT_NS:
            self._full = True
            return  # a long message comes through all at once, after several looks
        self._then_ns, self._through = now_mono_ns, through
        self._full = waits and got > 0  # the first that comes after a cut says nothing

    def excuse(self, now_mono_ns: int, through: int) -> None:
        """In place of a look when it is not the path that takes its time: the peer does not get to read.

        The path takes what got through, or more.
        """
        elapsed_ns = now_mono_ns - self._then_ns
        if elapsed_ns < APART_NS:
            return
        self._rate = min(max(self._rate, FIRST, (through - self._through) / elapsed_ns), GIGABIT)
        self._then_ns, self._through, self._full = now_mono_ns, through, False

    def is_slow(self, most: int) -> bool:
        """Whether so many octets may take the path longer than a hello should wait."""
        return self._rate * QUEUE_NS < most

    def octets(self, most: int, path_ns: int) -> int:
        """What may be under way on a path of this round trip: what it holds, and at most ``most`` that wait for it."""
        return max(LEAST_OCTETS, min(most, int(self._rate * QUEUE_NS)) + self.path_octets(path_ns))

    def path_octets(self, path_ns: int) -> int:
        """What a path of this round trip holds while it is kept full."""
        return min(int(self._rate * min(path_ns, LONGEST_NS)), MOST_ON_THE_WAY_OCTETS)
