"""The peer's clock against ours, from the four timestamps of acks (RFC 5905 section 8, minimum-delay filter)."""

NEVER = 2**63
WINDOW = 1024  # acks; long enough to meet a quiet moment, short enough to follow a drifting clock


class ClockOffset:
    """Keeps the exchange with the least network round trip of the last one to two windows.

    Each side's share of a round trip is unknown, so the offset is known to half of it: that is the bound.  A fit
    over time, for skew, is the task of the measuring tools; this is what a running link knows at no cost.
    """

    __slots__ = ("_best", "_best_before", "_least", "_left")

    def __init__(self) -> None:
        self._best: tuple[int, int] | None = None  # network round trip, twice the offset
        self._best_before: tuple[int, int] | None = None
        self._least = NEVER
        self._left = WINDOW

    def update(self, t1: int, t2: int, t3: int, t4: int) -> None:
        """Feed one exchange; Unix ns, T1 and T4 on our clock, T2 and T3 on the peer's."""
        round_trip = t4 - t1 - t3 + t2
        if round_trip < self._least:
            self._least = round_trip
            self._best = (round_trip, t2 - t1 + t3 - t4)
        self._left -= 1
        if not self._left:
            self._best_before, self._best, self._least, self._left = self._best, None, NEVER, WINDOW

    def estimate(self) -> tuple[int, int] | None:
        """Offset (peer minus ours) and its bound, in ns; None before the first exchange."""
        candidates = [best for best in (self._best, self._best_before) if best is not None]
        if not candidates:
            return None
        round_trip, twice_offset = min(candidates)
        return twice_offset // 2, max(round_trip, 0) // 2
