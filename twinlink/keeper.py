"""The thread that keeps a link's appointments: hellos on time whatever the application does, and the backlog.

It receives nothing.  A handler may block and a transport may hold up bulk data: the peers still hear from us.
"""

import logging
import threading
import time

from .company import Company
from .peers import HELLO_NS, SEARCH_NS
from .wire import Kind

# All that may be ahead of a message of high priority, however fast the link is: one message of 1 MiB.
BESIDE_URGENT_OCTETS = 1024 * 1024

logger = logging.getLogger("twinlink")


class Keeper:
    """Runs from its making until `stop`."""

    def __init__(self, node: str, company: Company) -> None:
        self._company = company
        self._stopping = False
        self._next_hello_at = time.monotonic()
        self._work = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"twinlink-{node}-keeper", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """There is a backlog, or room for it."""
        self._work.set()

    def stop(self) -> None:
        """Nothing more will be said; a transport that is being waited for is not."""
        self._stopping = True
        self._work.set()

    def join(self, timeout_s: float) -> None:
        """Return when it has ended."""
        self._thread.join(timeout_s)

    def _look_after(self) -> None:
        senders = list(self._company.senders.values())
        normal = sum(sender.priority == "normal" for sender in senders)
        share = BESIDE_URGENT_OCTETS // normal if 0 < normal < len(senders) else None
        for sender in senders:
            sender.look_after(share if sender.priority == "normal" else None)

    def _has_to_stop(self) -> bool:
        return self._stopping or time.monotonic() >= self._next_hello_at

    def _has_to_look(self) -> bool:
        return self._work.is_set() or self._has_to_stop()

    def _hand_over(self) -> None:
        """The backlog, that of flows of high priority first, and again when there may be more of it."""
        senders = list(self._company.senders.values())
        urgent = [sender for sender in senders if sender.priority == "high"]
        for sender in urgent:
            sender.hand_over(self._has_to_stop)
        for sender in senders:
            if sender.priority == "normal":
                sender.hand_over(self._has_to_look if urgent else self._has_to_stop)

    def _run(self) -> None:
        company = self._company
        while not self._stopping:
            try:
                if time.monotonic() >= self._next_hello_at:
                    self._next_hello_at = time.monotonic() + (HELLO_NS if company.up else SEARCH_NS) / 1e9
                    company.say(Kind.HELLO)
                    self._look_after()
                self._work.clear()
                self._hand_over()
            except Exception:  # a transport that failed: the peers still count on us
                logger.exception("the keeper of a link was interrupted; it goes on")
                time.sleep(SEARCH_NS / 1e9)
            self._work.wait(max(0.0, self._next_hello_at - time.monotonic()))
