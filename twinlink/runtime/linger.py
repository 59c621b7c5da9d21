"""How long a link that is being closed waits for outstanding acks: as long as they keep coming, up to a limit."""

import time
from collections.abc import Callable

from ..process.guarded_thread import GuardedThread
from ..process.signals import DeferSignals
from ..process.wakeup import Wakeup
from .driver import SessionDriver

LINGER_S = 0.3  # the wait goes on while acks come within this time
MAX_LINGER_S = 5.0  # but no longer than this
STUCK_S = 0.5  # without a check for acks: `close` was called by a signal handler, in a thread that holds a flow's lock
ENDS_S = 0.6  # for the rest of closing; what takes longer goes on in the background
SIGNAL_CHECK_S = 0.05  # between two checks for a signal that has been deferred


class Linger:
    """One thread of the link waits for acks, and the caller of `close` for that thread."""

    def __init__(self) -> None:
        self._is_cut_short = False
        self._has_ended = Wakeup()
        self._last_look_s = 0.0  # monotonic

    def wait_for_acks(self, driver: SessionDriver, wait: Callable[[Callable[[], object], float], None]) -> None:
        """Return when all has been acknowledged, nothing moves, the time is over, or the caller was interrupted."""

        def is_over() -> bool:
            return self._is_cut_short or driver.is_settled()

        end_s, before = time.monotonic() + MAX_LINGER_S, None
        try:
            while not is_over() and (left_s := end_s - time.monotonic()) > 0:
                self._last_look_s = time.monotonic()
                if (progress := driver.feedback_progress()) == before:
                    break
                before = progress
                wait(is_over, min(LINGER_S, left_s))
        finally:
            self._has_ended.wake()

    def join(self, closing: GuardedThread) -> None:
        """Wait for the thread that closes.  What a signal handler raises, or a deferred signal, ends its linger."""
        self._last_look_s = time.monotonic()
        try:
            while not self._has_ended.wait(SIGNAL_CHECK_S) and closing.is_alive() and not DeferSignals.is_due():
                if time.monotonic() - self._last_look_s > STUCK_S:
                    break
        finally:
            self._is_cut_short = True
            closing.join(ENDS_S)
