"""Delays out of acks, for people: what ``stats()`` shows of each peer."""

from typing import Any

from .message import Ack
from .offset import clock_offset


def delays(acks: list[Ack]) -> dict[str, Any]:
    """Percentiles of round-trip time and one-way delay, and the clock offset, in ns; None where there are no acks."""
    estimate = clock_offset(acks)
    if estimate is None:
        return {"rtt_ns": None, "one_way_ns": None, "clock_offset_ns": None}
    offset_ns, bound_ns = estimate
    return {
        "rtt_ns": _percentiles([ack.rtt_ns for ack in acks]),
        "one_way_ns": {
            **_percentiles([ack.peer_received_ns - ack.sent_ns - offset_ns for ack in acks]),
            "bound": bound_ns,
        },
        "clock_offset_ns": {"offset": offset_ns, "bound": bound_ns},
    }


def _percentiles(values: list[int]) -> dict[str, int]:
    """Nearest-rank percentiles of at least one value."""
    values.sort()
    last = len(values) - 1
    return {
        "n": len(values),
        "min": values[0],
        "p50": values[round(0.50 * last)],
        "p95": values[round(0.95 * last)],
        "p99": values[round(0.99 * last)],
        "max": values[last],
    }
