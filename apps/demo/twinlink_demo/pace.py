"""The pace of the playout, and whether its first seconds show that the machine does not keep it."""

# A record that is analysed later than this after it was due is late: half of the age above which the twin takes no
# decision (twinlink.sync.Thresholds.stale_after).
LIMIT_NS = 250_000_000
RECORDED = 1.0
SLOWER = (0.5, 0.25)  # in the order in which they are tried, of the recorded pace
LEAST = 0.1  # slower, and the twin's records would be stale by the time between them
FROM_NS, TO_NS = 3_000_000_000, 4_000_000_000  # of the playout; before, the twin makes up for its start
MARGIN = 0.8  # share of the speed that the machine has shown which a slower pace may ask of it


class FirstSeconds:
    """Looks at the first seconds of a playout.

    The machine is too slow if the twin is never less than `LIMIT_NS` late in the fourth second: one pause is made up
    for, a backlog that grows is not.

    Args:
        period_ns: time between two records as they are played.

    Attributes:
        least_late_ns: the least lateness in the fourth second; None before.
        over: whether the time to look is over.
    """

    def __init__(self, period_ns: float) -> None:
        self.least_late_ns: int | None = None
        self.over = False
        self._period_ns = period_ns
        self._speed = 0.0

    def look(self, since_ns: int, analysed: int) -> None:
        """Take in how many records the twin has analysed, and how long ago the first was due."""
        if self.over or since_ns < FROM_NS:
            return
        if since_ns > TO_NS and self.least_late_ns is not None:
            self.over = True
            return
        late_ns = max(0, round(since_ns - analysed * self._period_ns))
        self.least_late_ns = late_ns if self.least_late_ns is None else min(self.least_late_ns, late_ns)
        self._speed = analysed * self._period_ns / since_ns

    @property
    def late(self) -> bool:
        """Whether the time to look is over, and the machine is too slow."""
        return self.over and (self.least_late_ns or 0) > LIMIT_NS

    def slower(self, pace: float) -> float:
        """The pace to play at instead of ``pace``: the first of the `SLOWER` that the machine can keep, or the last."""
        slower = [each for each in SLOWER if each < pace]
        return next((each for each in slower if each <= MARGIN * self._speed * pace), slower[-1])


def may_be_slower(pace: float) -> bool:
    """Whether there is a slower pace to choose."""
    return pace > SLOWER[-1]
