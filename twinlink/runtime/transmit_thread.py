"""The thread that hands the backlog of a link's flows to the transport, which may make it wait."""

import logging
import threading
import time

from ..engine.peers import Company
from ..process.wakeup import Bell

PAUSE_S = 0.05  # before the next try when a transport has failed
BULK_S = 0.0005  # what is left of messages that came in bulk is handed over when none has come for so long

logger = logging.getLogger("twinlink")


class Courier:
    """Runs from `start` until `stop`."""

    def __init__(self, node: str, company: Company) -> None:
        self._company = company
        self._turn = 0  # of the flows of normal priority, who goes first
        self._stopping = False
        self._work = Bell()
        self._thread = threading.Thread(target=self._run, name=f"twinlink-{node}-courier", daemon=True)
        for budget in company.budgets.values():
            budget.roomy = self.wake

    def start(self) -> None:
        """Begin to hand over."""
        self._thread.start()

    def wake(self) -> None:
        """There is a backlog, or room for it: hand over what may go.  From any thread; never waits."""
        self._work.ring()

    def stop(self, patience_s: float) -> None:
        """Hand over nothing more; returns when the thread has ended, or after ``patience_s``.

        It ends late while the transport makes it wait.
        """
        self._stopping = True
        self._work.ring()
        if self._thread.is_alive():
            self._thread.join(patience_s)

    def _hand_over(self) -> bool:
        """Hand over the backlog of each flow, as far as it may go; whether some flow asks to come again soon.

        Flows of high priority go first; if there are any, the others break off when woken, so that those come first
        again.  The others go in turns: next time it begins with the one behind that which took the last of the room.
        """
        senders = list(self._company.senders.values())
        urgent = [sender for sender in senders if sender.priority == "high"]
        soon = False
        for sender in urgent:
            soon |= sender.hand_over(lambda: self._stopping)
        others = [sender for sender in senders if sender.priority == "normal"]
        budget, first = self._company.budgets["normal"], self._turn
        for turn in range(first, first + len(others)):
            had_room = budget.room > 0
            soon |= others[turn % len(others)].hand_over(lambda: self._work.rung if urgent else self._stopping)
            if had_room and budget.room <= 0:
                self._turn = (turn + 1) % len(others)
        return soon

    def _run(self) -> None:
        soon = False
        while True:
            self._work.wait(BULK_S if soon else None)
            if self._stopping:
                return
            try:
                soon = self._hand_over()
            except Exception:  # a transport that failed: the peers still count on us
                logger.exception("the courier of a link was interrupted; it goes on")
                time.sleep(PAUSE_S)
                self._work.ring()
