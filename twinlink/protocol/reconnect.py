"""When a transport is to connect anew, and how long an attempt may take.  No I/O, no clock.

A transport gives up soon on a connection that is not made, because that finds a peer soonest that comes into reach.  On
a long path none would ever be made; so as long as nobody has been up, it is asked for more patience, in turns long
enough for TCP's handshake, the transport's own and the hellos.  What worked is kept, or less where the round trip shows
that less will do.  But a path can become a longer one: who has been alone for LOST_NS takes turns again.
"""

from typing import NamedTuple

TIMES = (1, 4, 10, 30)  # as patient as by default, in turn; the last one for satellites, round trips up to 0.9 s
TURN_NS = 400_000_000  # times the patience: six of SHORT_TRIP_NS for handshakes and hellos, the rest for the machine
ALONE_NS = 300_000_000  # times the patience: how often who has lost everybody has its transport look after itself
LOST_NS = 120_000_000_000  # for so long, and in each round again, what worked is tried: it finds a peer soonest
SHORT_TRIP_NS = 30_000_000  # times the patience: the longest round trip for which it will do


class Answer(NamedTuple):
    """The other side's port has answered: how long a round trip takes, and whether it had not done so before."""

    trip_ns: int
    anew: bool


class Patience:
    """Of one link: whose turn it is among `TIMES`."""

    def __init__(self, now_mono_ns: int) -> None:
        self._turn = 0
        self._worked: int | None = None  # the turn in which somebody was last up
        self._connected_ns = now_mono_ns  # monotonic: anew, or somebody was up
        self._turned_ns = 0

    def met(self, trip_ns: int) -> None:
        """A peer came up over a path whose round trip is at most this: no more patience than that needs."""
        while self._turn and trip_ns <= SHORT_TRIP_NS * TIMES[self._turn - 1]:
            self._turn -= 1

    def needs_more(self, trip_ns: int) -> bool:
        """Whether the path's round trip, which is at least this, is too long for this turn; then it is another's."""
        before = self._turn
        while self._turn < len(TIMES) - 1 and trip_ns > SHORT_TRIP_NS * TIMES[self._turn]:
            self._turn += 1
        return self._turn != before

    def begin(self, now_mono_ns: int) -> int:
        """The transport is to connect now, out of turn: with how much patience."""
        self._connected_ns = now_mono_ns
        return TIMES[self._turn]

    def look(self, alone: bool, now_mono_ns: int) -> int | None:
        """To be called ten times a second or more; ``alone``: nobody is up.

        Returns the patience with which to connect anew; None: leave the connection as it is.
        """
        if not alone:
            self._worked = self._turn
            self._connected_ns = self._turned_ns = now_mono_ns
            return None
        keeping = self._turn == self._worked
        if now_mono_ns - self._connected_ns <= (ALONE_NS if keeping else TURN_NS) * TIMES[self._turn]:
            return None
        self._connected_ns = now_mono_ns
        if not keeping or now_mono_ns - self._turned_ns > LOST_NS:
            self._turn = (self._turn + 1) % len(TIMES)
            self._turned_ns = now_mono_ns
        return TIMES[self._turn]
