"""Watchdog of a program's main loop."""

import time

STOPPED_NS = 5_000_000_000  # the loops turn several times a second; a busy machine may delay one for a while

_monotonic_ns = time.monotonic_ns


class Pulse:
    """The main loop calls `turn`; any thread may call `problem`."""

    def __init__(self) -> None:
        self._turned_ns = _monotonic_ns()

    def turn(self) -> None:
        """Note that the loop has turned."""
        self._turned_ns = _monotonic_ns()

    def problem(self) -> str | None:
        """A message if the loop has not turned within the last 5 s, else None."""
        still_ns = _monotonic_ns() - self._turned_ns
        return f"the main loop has not turned for {still_ns / 1e9:.1f} s" if still_ns > STOPPED_NS else None
