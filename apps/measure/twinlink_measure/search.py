"""The highest rate without loss, as in RFC 2544 section 26.1: bisection on the offered rate.

Reliable transports do not drop; they hold the sender back.  So a trial is loss-free only if the receiver also kept up:
everything arrived, and the last message no later than the schedule's end plus `SLACK`.

This is not monotone: a host may stall, and messages share frames at high rates only.  So a trial that was only late is
repeated, and the first step down is smaller than half.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

PRECISION = 0.05  # of the rate; two runs differ by more
SLACK = 0.05  # of the trial's scheduled duration,
SLACK_S = 0.001  # plus this, for short trials
MAX_RATES = 10
TRIES = 3  # of a rate at which nothing was lost and the last message came late, if the trial took
LATE = 2.0  # times its schedule at most: more is not a stall
STEP_DOWN = 0.8  # from the first rate that was not carried to the next; then by halves
GROWTH = 1.5  # from a rate that was carried to the next


@dataclass(frozen=True)
class Trial:
    """Result of offering a rate."""

    rate_hz: float
    sent: int
    received: int
    lost: int
    span_s: float  # from the first scheduled arrival to the last actual one
    due_s: float  # the same by the schedule
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
        guess_hz: the first rate, such as that of a flood.
    """
    trials: list[Trial] = []
    low, high = 0.0, float("inf")
    rate, down = guess_hz, STEP_DOWN
    for _ in range(MAX_RATES):
        tries = _tries(offer, rate)
        trials += tries
        if tries[-1].lossless:
            low = rate
        else:
            high = rate
        if high == float("inf"):
            rate = low * GROWTH
        elif low == 0.0:
            rate, down = high * down, 0.5
        elif high - low > PRECISION * high:
            rate = (low + high) / 2
        else:
            break
    return trials, low or None


def _tries(offer: Callable[[float], Trial], rate_hz: float) -> list[Trial]:
    """Trials at a rate; the last one decides."""
    tries = [offer(rate_hz)]
    while len(tries) < TRIES and _was_only_late(tries[-1]):
        tries.append(offer(rate_hz))
    return tries


def _was_only_late(trial: Trial) -> bool:
    return not trial.lossless and trial.lost == 0 and trial.span_s <= LATE * trial.due_s
