"""When a transport connects anew, and how the time-out of an attempt escalates.  No I/O, no clock.

A transport gives up soon on a connection that is not made, because that finds a peer soonest that comes into reach.  On
a long path none would ever be made; so as long as no peer has been up, it is given a longer time-out, in turns long
enough for TCP's handshake, the transport's own and the hellos.  What worked is kept, or less where the round trip shows
that less will do.  But a path can become a longer one: a side that has been alone for RESCAN_NS takes turns again.
"""

from typing import NamedTuple

# as patient as by default, in turn; the last one for satellites, round trips up to 0.9 s
TIMEOUT_FACTORS = (1, 4, 10, 30)
STEP_NS = 400_000_000  # times the patience: six of SHORT_RTT_NS for handshakes and hellos, the rest for the machine
RETRY_NS = 300_000_000  # times the patience: how often a side without any peer has its transport connect anew
RESCAN_NS = 120_000_000_000  # for so long, and in each round again, what worked is tried: it finds a peer soonest
SHORT_RTT_NS = 30_000_000  # times the patience: the longest round trip for which it will do


class ProbeResult(NamedTuple):
    """The other side's port has answered: how long a round trip takes, and whether it had not done so before."""

    rtt_ns: int
    newly_reachable: bool


class ReconnectPolicy:
    """Decides when one link connects anew, and with which of `TIMEOUT_FACTORS`."""

    def __init__(self, now_mono_ns: int) -> None:
        self._step = 0
        self._last_good_step: int | None = None  # the turn in which a peer was last up
        self._connected_ns = now_mono_ns  # monotonic: anew, or a peer was up
        self._stepped_ns = 0

    def on_peer_up(self, rtt_ns: int) -> None:
        """A peer came up over a path whose round trip is at most this: no more patience than that needs."""
        while self._step and rtt_ns <= SHORT_RTT_NS * TIMEOUT_FACTORS[self._step - 1]:
            self._step -= 1

    def escalate_for(self, rtt_ns: int) -> bool:
        """Whether the path's round trip, which is at least this, is too long for this turn; then it is another's."""
        before = self._step
        while self._step < len(TIMEOUT_FACTORS) - 1 and rtt_ns > SHORT_RTT_NS * TIMEOUT_FACTORS[self._step]:
            self._step += 1
        return self._step != before

    def on_connect(self, now_mono_ns: int) -> int:
        """The transport is to connect now, out of turn: with how much patience."""
        self._connected_ns = now_mono_ns
        return TIMEOUT_FACTORS[self._step]

    def on_heard(self, now_mono_ns: int) -> None:
        """A session is heard for the first time: the connection serves, and what comes over it is not to be dropped."""
        self._connected_ns = now_mono_ns

    def on_tick(self, alone: bool, now_mono_ns: int) -> int | None:
        """To be called ten times a second or more; ``alone``: no peer is up, as of what was read until this time.

        Returns the patience with which to connect anew; None: leave the connection as it is.
        """
        if not alone:
            self._last_good_step = self._step
            self._connected_ns = self._stepped_ns = now_mono_ns
            return None
        keeping = self._step == self._last_good_step
        if now_mono_ns - self._connected_ns <= (RETRY_NS if keeping else STEP_NS) * TIMEOUT_FACTORS[self._step]:
            return None
        self._connected_ns = now_mono_ns
        if not keeping or now_mono_ns - self._stepped_ns > RESCAN_NS:
            self._step = (self._step + 1) % len(TIMEOUT_FACTORS)
            self._stepped_ns = now_mono_ns
        return TIMEOUT_FACTORS[self._step]
