"""Whether a program's main loop still turns."""

import time

STOPPED_NS = 5_000_000_000  # the loops wake several times a second; a busy machine may hold one up for a while

_monotonic_ns = time.monotonic_ns


class Pulse:
    """The loop calls `turn`; any thread may ask for `problem`."""

    def __init__(self) -> None:
        self._turned_ns = _monotonic_ns()

    def turn(self) -> None:
        """The loop has come round."""
        self._turned_ns = _monotonic_ns()

    def problem(self) -> str | None:
        """What is wrong, or None while the loop has turned within the last 5 s."""
        still_ns = _monotonic_ns() - self._turned_ns
        return f"the main loop has not turned for {still_ns / 1e9:.1f} s" if still_ns > STOPPED_NS else None
