"""The rate of a transfer, for the summaries of `twinlink pub` and `twinlink sub`."""

from typing import Any

from ..appkit.formatting import grouped

_MB = 1e6  # as in docs/metrics.md


def figures(messages: int, octets: int, elapsed_s: float) -> dict[str, Any]:
    """Messages per second and goodput in MB/s (10^6 octets of payload), for the JSON; None without messages or time."""
    known = messages > 0 and elapsed_s > 0
    return {
        "elapsed_ns": round(elapsed_s * 1e9),
        "rate_hz": messages / elapsed_s if known else None,
        "goodput_mb_s": octets / elapsed_s / _MB if known else None,
    }


def lines(found: dict[str, Any]) -> list[str]:
    """The same as a further line of a summary; none where no rate is known."""
    if found["rate_hz"] is None:
        return []
    elapsed, rate, goodput = found["elapsed_ns"] / 1e9, grouped(found["rate_hz"]), grouped(found["goodput_mb_s"])
    return [f"in {elapsed:.3f} s: {rate} messages/s, {goodput} MB/s"]
