"""How fast a path takes what is handed to it, and so how much of it may be under way.  No I/O."""

GIGABIT = 0.125  # octets a nanosecond: faster ones need no more than this under way
LEAST_OCTETS = 192 * 1024  # under way whatever the path: 1.6 ms of a gigabit, and a few parts or bundles
QUEUE_NS = 100_000_000  # so long may a hello wait behind what is under way
MOST_ON_THE_WAY_OCTETS = 4 * 1024 * 1024  # what TCP keeps by default
LONGEST_NS = 300_000_000  # round trip; what seems longer is the time that a long message takes by itself
FIRST = LEAST_OCTETS / QUEUE_NS  # what a path is taken for of which nothing is known
APART_NS = 100_000_000  # of two looks, at least
CUT_NS = 1_000_000_000  # a path that takes nothing for so long is cut


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
