"""An absolute schedule of records on the monotonic clock, so that delays do not accumulate."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Pace:
    """The pace of the playout.

    Attributes:
        factor: times the recorded pace; None: as fast as the slowest dApp reads.
    """

    factor: float | None = 1.0

    @classmethod
    def parse(cls, text: str) -> "Pace":
        """Read ``recorded``, ``max`` or a factor above 0; raises ValueError."""
        if text in ("recorded", "max"):
            return cls(1.0 if text == "recorded" else None)
        try:
            factor = float(text)
        except ValueError:
            factor = 0.0
        if not 0 < factor < float("inf"):
            raise ValueError(f"a pace is 'recorded', 'max' or a factor above 0 such as 0.5, not {text!r}")
        return cls(factor)

    def __str__(self) -> str:
        return {1.0: "recorded", None: "max"}.get(self.factor, f"{self.factor}")


RECORDED = Pace()


@dataclass(frozen=True, slots=True)
class Schedule:
    """Due times of records.

    Attributes:
        start_ns: when record 0 is due, on the monotonic clock.
        period_ns: time between records as recorded.
        pace: how fast to play.
    """

    start_ns: int
    period_ns: int
    pace: Pace

    def due_ns(self, record: int) -> int:
        """When a record is due, on the monotonic clock."""
        if self.pace.factor is None:
            return self.start_ns
        return self.start_ns + round(record * self.period_ns / self.pace.factor)
