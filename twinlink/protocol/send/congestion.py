"""How many octets may be in flight: a limit the size of the path's bandwidth-delay product, from its delivery rate.

The flows of a link share it.  No I/O, no clock.
"""

from collections.abc import Callable

FRAGMENTS = 4  # as many of a long frame may be in flight: enough to go on while the first is answered for
MIN_FRAGMENT_OCTETS = 16 * 1024  # each costs two frames

GIGABIT = 0.125  # octets a nanosecond: faster ones need no more than this in flight
MIN_IN_FLIGHT_OCTETS = 192 * 1024  # in flight whatever the path: 1.6 ms of a gigabit, and a few fragments or bundles
MAX_QUEUEING_NS = 100_000_000  # so long may a hello wait behind what is in flight
# The ack of an urgent message may wait so long.  With less, the path runs dry while a busy peer answers late: another
# thread there may run for 5 ms, CPython's switch interval.
MAX_ACK_QUEUEING_NS = 10_000_000
MAX_BDP_OCTETS = 4 * 1024 * 1024  # what TCP keeps by default
MAX_RTT_NS = 300_000_000  # round trip; what seems longer is the time that a long message takes by itself
INITIAL_RATE = MIN_IN_FLIGHT_OCTETS / MAX_QUEUEING_NS  # what a path is taken for of which nothing is known
MIN_SAMPLE_NS = 100_000_000  # between two ticks, at least
STALL_NS = 1_000_000_000  # a path that takes nothing for so long is cut


def _nothing() -> None: ...


class InFlightBudget:
    """Shared by the flows of one priority: what is in flight of all of them is ahead of every hello.

    So each takes part in two limits: a share of its own, which keeps room for the others, and what is left of all.  The
    share is that of flows that were in use lately; a flow that begins, alone or with many, finds what is left.

    Attributes:
        hellos_overtake: whether hellos may pass data on their way.
        limit: octets of all flows, framing included.
        inline: of them, as many as the transport takes at once: beyond, it may make the transmitting thread wait.
        share, inline_share: of each flow that has something in flight already.
        unfragmented, fragment: what is longer than ``unfragmented`` goes in fragments of so many octets.
        frame_limit: octets of the longest frame that the path takes.
        backpressured: the transport may still be full of what is for a peer that fell silent, and make every thread
            wait for it: nothing goes directly, and no more than the transport takes at once is in flight to the others.
        in_flight: octets of all flows, framing included.
        on_room: called when there is room again and there was none.
    """

    def __init__(self, limit: int, hellos_overtake: bool = False) -> None:
        self.hellos_overtake = hellos_overtake
        self.limit = self.inline = self.share = self.inline_share = self.unfragmented = limit
        self.fragment = limit // FRAGMENTS
        self.frame_limit = 2**31
        self.backpressured = False
        self._backpressured_until_ns = 0
        self.in_flight = 0
        self.on_room: Callable[[], None] = _nothing

    def divide(self, limit: int, inline: int, unfragmented: int, sharing: int, now_mono_ns: int) -> None:
        """Set the limits anew, for so many flows ``sharing`` them; a frame of ``unfragmented`` octets goes in one
        piece.

        That is so even where a flow's share is less.
        """
        self.backpressured = now_mono_ns < self._backpressured_until_ns
        if self.backpressured:
            limit, unfragmented = min(limit, inline), min(unfragmented, inline)
        self.limit, self.inline = limit, 0 if self.backpressured else min(limit, inline)
        self.share, self.inline_share = limit // sharing, self.inline // sharing
        self.unfragmented = max(self.share, unfragmented)
        self.fragment = max(self.share // FRAGMENTS, MIN_FRAGMENT_OCTETS)

    def apply_backpressure(self, inline: int, until_mono_ns: int) -> None:
        """A peer fell silent: `backpressured` until then.  ``inline``: octets that the transport takes at once."""
        self.backpressured, self._backpressured_until_ns = True, until_mono_ns
        self.inline = self.inline_share = 0
        self.limit, self.unfragmented = min(self.limit, inline), min(self.unfragmented, inline)
        self.fragment = min(self.fragment, inline // FRAGMENTS)

    @property
    def room(self) -> int:
        """Octets that may be transmitted now, by any flow; a longer message may go if there is any room."""
        return self.limit - self.in_flight

    def on_freed(self, octets: int, left: int) -> None:
        """So many octets arrived, or were given up, and ``left`` were in flight then."""
        if left < self.limit <= left + octets:
            self.on_room()


class DeliveryRateEstimator:
    """Feed it what got through; ask it how much may be in flight.

    While data is queued, the delivery rate from one tick to the next equals the path's capacity.  When the path takes
    all and nothing is queued, it may be faster than that: twice as much may be in flight as it took since the last
    look, since a few small messages say nothing of how it takes many.

    A link that begins to send does not wait for ticks: where nothing was in flight at the last one, what got through
    since has taken no longer than since then.  So the limit grows with what is acknowledged, as in TCP's slow start
    (RFC 9002, section 7.3.1).
    """

    def __init__(self) -> None:
        self._rate = INITIAL_RATE  # octets a nanosecond
        self._delivered = 0
        self._was_full = False  # something has been waiting for the path since the last tick that counted
        self._last_ns = 0
        self._was_idle = False  # nothing was in flight at that tick

    def on_tick(self, now_mono_ns: int, delivered: int, waiting: bool, in_flight: bool) -> None:
        """To be called a few times a second.

        ``delivered``: octets that got through so far; ``waiting``: more is to follow; ``in_flight``: some is in flight.
        """
        elapsed_ns = now_mono_ns - self._last_ns
        if elapsed_ns < MIN_SAMPLE_NS:
            return
        got = delivered - self._delivered
        if got:
            rate, known = got / elapsed_ns, self._rate
            if not self._was_full:
                rate = max(rate, known, 0 if waiting else min(2 * known, 2 * got / MAX_QUEUEING_NS))
            self._rate = min(rate, GIGABIT)
        elif (waiting or in_flight) and elapsed_ns < STALL_NS:
            self._was_full = True
            return  # a long message comes through all at once, after several ticks
        self._last_ns, self._delivered = now_mono_ns, delivered
        self._was_full = waiting and got > 0  # the first that comes after a cut says nothing
        self._was_idle = not in_flight

    def grow(self, now_mono_ns: int, delivered: int) -> bool:
        """To be called between ticks while more is to follow; whether the rate has grown.

        ``delivered``: as of `on_tick`.  At most as much may be in flight as was delivered since the last tick.
        """
        rate = (delivered - self._delivered) / max(now_mono_ns - self._last_ns, MAX_QUEUEING_NS)
        if not self._was_idle or min(rate, GIGABIT) <= self._rate:
            return False
        self._rate = min(rate, GIGABIT)
        return True

    def on_receiver_limited(self, now_mono_ns: int, delivered: int) -> None:
        """In place of a tick when it is not the path that takes its time: the peer does not get to read.

        The path takes what got through, or more.
        """
        elapsed_ns = now_mono_ns - self._last_ns
        if elapsed_ns < MIN_SAMPLE_NS:
            return
        self._rate = min(max(self._rate, INITIAL_RATE, (delivered - self._delivered) / elapsed_ns), GIGABIT)
        self._last_ns, self._delivered, self._was_full, self._was_idle = now_mono_ns, delivered, False, False

    def is_slow(self, most: int) -> bool:
        """Whether so many octets may take the path longer than a hello should wait."""
        return self._rate * MAX_QUEUEING_NS < most

    def limit_octets(self, most: int, rtt_ns: int, queueing_ns: int = MAX_QUEUEING_NS) -> int:
        """The octets that may be in flight on a path of this round trip: what it holds, and what may wait for it.

        What may wait is the lesser of ``most`` octets and what the path delivers in ``queueing_ns``.
        """
        return max(MIN_IN_FLIGHT_OCTETS, min(most, int(self._rate * queueing_ns)) + self.bdp_octets(rtt_ns))

    def bdp_octets(self, rtt_ns: int) -> int:
        """What a path of this round trip holds while it is kept full."""
        return min(int(self._rate * min(rtt_ns, MAX_RTT_NS)), MAX_BDP_OCTETS)
