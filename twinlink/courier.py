"""The thread that hands the backlog of a link's flows to the transport, which may make it wait."""

import logging
import threading
import time

from .company import Company

PAUSE_S = 0.05

logger = logging.getLogger("twinlink")


class Courier:
    """Runs from its making until `stop`."""

    def __init__(self, node: str, company: Company) -> None:
        self._company = company
        self._stopping = False
        self._work = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"twinlink-{node}-courier", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """There is a backlog, or room for it."""
        self._work.set()

    def stop(self, patience_s: float) -> None:
        """Nothing more will be handed over; a transport that is being waited for is not."""
        self._stopping = True
        self._work.set()
        self._thread.join(patience_s)

    def _hand_over(self) -> None:
        """Flows of high priority first, and again when there may be more of them."""
        senders = list(self._company.senders.values())
        urgent = [sender for sender in senders if sender.priority == "high"]
        for sender in urgent:
            sender.hand_over(lambda: self._stopping)
        for sender in senders:
            if sender.priority == "normal":
                sender.hand_over(self._work.is_set if urgent else lambda: self._stopping)

    def _run(self) -> None:
        while True:
            self._work.wait()
            self._work.clear()
            if self._stopping:
                return
            try:
                self._hand_over()
            except Exception:  # a transport that failed: the peers still count on us
                logger.exception("the courier of a link was interrupted; it goes on")
                time.sleep(PAUSE_S)
                self._work.set()
