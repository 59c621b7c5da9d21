"""How fast a path takes what is handed to it, and so how much of it may be under way.  No I/O."""

GIGABIT = 0.125  # octets a nanosecond: faster ones need no more than this under way
FIRST = GIGABIT / 20  # what a path is taken for of which nothing is known
LEAST_OCTETS = 192 * 1024  # under way whatever the path: 1.6 ms of a gigabit, and a few parts or bundles
QUEUE_NS = 100_000_000  # so long may a hello wait behind what is under way
MOST_ON_THE_WAY_OCTETS = 4 * 1024 * 1024  # what TCP keeps by default
LONGEST_NS = 300_000_000  # round trip; what seems longer is the time that a long message takes by itself
APART_NS = 100_000_000  # of two looks, at least
CUT_NS = 1_000_000_000  # a path that takes nothing for so long is cut


class Pace:
    """Feed it what got through; ask it how much may be under way.

    As long as something waits, the path takes what it can: how fast that is shows from one look to the next.  When it
    takes all and nothing waits, it may be faster than that.
    """

    def __init__(self) -> None:
        self._rate = 0.0  # octets a nanosecond; 0: nothing is known
        self._through = 0
        self._full = False  # something has been waiting for the path since the last look that counted
        self._then_ns = 0

    @property
    def known(self) -> bool:
        """Whether anything has got through."""
        return self._rate > 0

    def look(self, now_mono_ns: int, through: int, waits: bool, under_way: bool) -> None:
        """To be called a few times a second.

        ``through``: octets that got through so far; ``waits``: more is to follow; ``under_way``: some is on its way.
        """
        elapsed_ns = now_mono_ns - self._then_ns
        if elapsed_ns < APART_NS:
            return
        got = through - self._through
        if got:
            rate, known = got / elapsed_ns, self._rate or FIRST
            if not self._full:
                rate = max(rate, known if waits else 2 * known)
            self._rate = min(rate, GIGABIT)
        elif (waits or under_way) and elapsed_ns < CUT_NS:
            self._full = True
            return  # a long message comes through all at once, after several looks
        self._then_ns, self._through = now_mono_ns, through
        self._full = waits and got > 0  # the first that comes after a cut says nothing

    def excuse(self, now_mono_ns: int, through: int) -> None:
        """In place of a look when it is not the path that takes its time: the peer does not get to read."""
        self._rate = GIGABIT
        self._then_ns, self._through, self._full = now_mono_ns, through, False

    def is_slow(self, most: int) -> bool:
        """Whether so many octets are known to take the path longer than a hello should wait."""
        return 0 < self._rate * QUEUE_NS < most

    def queue_octets(self, most: int) -> int:
        """What may wait for the path."""
        return max(LEAST_OCTETS, min(most, int((self._rate or FIRST) * QUEUE_NS)))

    def path_octets(self, path_ns: int) -> int:
        """What a path of this round trip holds while it is kept full."""
        return min(int((self._rate or FIRST) * min(path_ns, LONGEST_NS)), MOST_ON_THE_WAY_OCTETS)
