"""The highest rate without loss, as RFC 2544 section 26.1 finds it: bisection on the offered rate.

Reliable transports do not drop, they hold the sender back; so a trial is loss-free only when the receiver also kept
up: everything arrived, and from the first to the last it took no longer than the schedule plus `SLACK`.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

PRECISION = 0.05  # of the rate; finer than two runs agree
SLACK = 0.05  # of the time that the trial should take,
SLACK_S = 0.001  # and this much, for trials that are short
MAX_TRIALS = 10
GROWTH = 1.5  # from a rate that was carried to the next that is tried


@dataclass(frozen=True)
class Trial:
    """What came of offering a rate."""

    rate_hz: float
    sent: int
    received: int
    lost: int
    span_s: float  # from the first arrival to the last
    due_s: float  # the same of the schedule
    lossless: bool

    def as_json(self) -> dict[str, Any]:
        """Ready for JSON."""
        return asdict(self)


def judge(rate_hz: float, asked: int, sent: int, received: int, span_s: float) -> Trial:
    """Whether a trial of ``asked`` messages carried its rate."""
    due_s = (asked - 1) / rate_hz
    kept_up = span_s <= due_s * (1 + SLACK) + SLACK_S
    return Trial(rate_hz, sent, received, asked - received, span_s, due_s, received == asked == sent and kept_up)


def highest(offer: Callable[[float], Trial], guess_hz: float) -> tuple[list[Trial], float | None]:
    """All trials, and the highest rate that was carried; None when none was.

    Args:
        offer: makes a trial at a rate.
        guess_hz: where to begin, such as what a flood achieved.
    """
    trials: list[Trial] = []
    low, high = 0.0, float("inf")
    rate = guess_hz
    while len(trials) < MAX_TRIALS and (high == float("inf") or high - low > PRECISION * high):
        trial = offer(rate)
        trials.append(trial)
        if trial.lossless:
            low = rate
        else:
            high = rate
        if high == float("inf"):
            rate = low * GROWTH
        elif low == 0.0:
            rate = high / 2
        else:
            rate = (low + high) / 2
    return trials, low or None
