"""The thread that keeps a link's appointments: hellos on time, and a look at every flow, whatever the application does.

It also divides among the flows what may be on its way.  It never waits for a peer that takes nothing: it receives
nothing, and says only what a transport may drop.
"""

import logging
import threading
import time

from .company import Company
from .peers import HELLO_NS, SEARCH_NS
from .wire import Kind

logger = logging.getLogger("twinlink")


class Keeper:
    """Runs from its making until `stop`."""

    def __init__(self, node: str, company: Company) -> None:
        self._company = company
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"twinlink-{node}-keeper", daemon=True)
        self._thread.start()

    def stop(self, patience_s: float) -> None:
        """Nothing more will be said."""
        self._stopping.set()
        self._thread.join(patience_s)

    def share(self) -> None:
        """Divide what may be on its way among the flows that are in use; to be called when a flow is opened, too."""
        senders = list(self._company.senders.values())
        behind = any(peer.up and peer.behind for peer in self._company.peers.all())
        calm = not any(sender.waits for sender in senders)
        path_ns = min(filter(None, [sender.path_ns(calm) for sender in senders]), default=0)
        for priority in ("high", "normal"):
            of_it = [sender for sender in senders if sender.priority == priority]
            in_use = sum(sender.in_use for sender in of_it)
            begin = sum(sender.is_new and not sender.in_use for sender in of_it)  # perhaps all at once
            for sender in of_it:
                sharing = max(1, in_use + begin if sender.is_new else in_use)
                sender.limit_transit(sharing, path_ns, behind, self._company.urgent and priority == "normal")

    def _run(self) -> None:
        company = self._company
        while not self._stopping.is_set():
            due = time.monotonic() + (HELLO_NS if company.up else SEARCH_NS) / 1e9
            try:
                company.say(Kind.HELLO)
                self.share()
                for sender in list(company.senders.values()):
                    sender.look_after()
            except Exception:  # a transport that failed: the peers still count on us
                logger.exception("the keeper of a link was interrupted; it goes on")
            self._stopping.wait(max(0.0, due - time.monotonic()))
