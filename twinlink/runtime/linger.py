"""How long a link that is being closed waits for outstanding acks: as long as they keep coming, up to a limit."""

import threading
import time
from collections.abc import Callable, Sequence

from ..process.signals import DeferSignals
from .flow_endpoint import FlowEndpoint

LINGER_S = 0.3  # the wait goes on while acks come within this time
MAX_LINGER_S = 5.0  # but no longer than this
ENDS_S = 0.6  # for the rest of closing; what takes longer goes on in the background
SIGNAL_CHECK_S = 0.05  # between two looks for a signal that has been deferred


class Linger:
    """Of one link; one thread waits for acks, and the caller of `close` for that thread."""

    def __init__(self) -> None:
        self._is_over = threading.Event()

    def wait_for_acks(
        self, senders: Sequence[FlowEndpoint], wait: Callable[[Callable[[], object], float], None]
    ) -> None:
        """Return when all has been acknowledged, nothing moves, the time is over, or the caller was interrupted."""

        def is_over() -> bool:
            return self._is_over.is_set() or all(sender.is_settled for sender in senders)

        end, before = time.monotonic() + MAX_LINGER_S, None
        try:
            while not is_over() and (left := end - time.monotonic()) > 0:
                if (progress := [sender.ack_progress for sender in senders]) == before:
                    break
                before = progress
                wait(is_over, min(LINGER_S, left))
        finally:
            self._is_over.set()

    def join(self, closing: threading.Thread) -> None:
        """Wait for the thread that closes.  What a signal handler raises, or a deferred signal, ends its linger."""
        try:
            while not self._is_over.wait(SIGNAL_CHECK_S) and closing.is_alive() and not DeferSignals.is_due():
                pass
        finally:
            self._is_over.set()
            closing.join(ENDS_S)
