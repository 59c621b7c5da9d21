"""The thread that keeps a link's appointments: hellos on time, and a look at every flow, whatever the application does.

It also says how much may be on its way, and what a flow's share of it is.  It never waits for a peer that takes
nothing: it receives nothing, and says only what a transport may drop.
"""

import logging
import threading
import time

from ..engine.peers import Company
from ..process.wakeup import Bell
from ..protocol.frames import Kind
from ..protocol.liveness import HELLO_NS, SEARCH_NS
from ..protocol.send.congestion import LEAST_OCTETS, Pace
from ..protocol.send.queue import BUNDLE_OCTETS
from ..transports import Transport

logger = logging.getLogger("twinlink")


class Keeper:
    """Runs from `start` until `stop`."""

    def __init__(self, node: str, transport: Transport, company: Company) -> None:
        self._transport = transport
        self._company = company
        self._pace = Pace()
        self._stopping = False
        self._bell = Bell()
        self._thread = threading.Thread(target=self._run, name=f"twinlink-{node}-keeper", daemon=True)

    def start(self) -> None:
        """Begin to say hello."""
        self._thread.start()

    def stop(self, patience_s: float) -> None:
        """Nothing more will be said."""
        self._stopping = True
        self._bell.ring()
        if self._thread.is_alive():
            self._thread.join(patience_s)

    def _share(self) -> None:
        """Look how fast the path is, and divide what it takes among the flows that are in use."""
        company, transport, pace, now = self._company, self._transport, self._pace, time.monotonic_ns()
        senders = list(company.senders.values())
        waits = any(sender.waits for sender in senders)
        through = sum(sender.transit.through for sender in senders)
        if any(peer.up and peer.behind for peer in company.peers.all()):
            pace.excuse(now, through)  # what gets through says nothing of the path: the peer does not get to read
        else:
            pace.look(now, through, waits, any(sender.transit for sender in senders))
        path_ns = min(filter(None, [sender.path_ns(calm=not waits) for sender in senders]), default=0)
        direct, whole = transport.direct_octets, transport.whole_octets
        for priority, budget in company.budgets.items():
            beside_urgent = company.urgent and priority == "normal"
            sharing = sum(sender.in_use for sender in senders if sender.priority == priority)
            octets = LEAST_OCTETS + pace.path_octets(path_ns) if beside_urgent else pace.octets(direct, path_ns)
            divides = beside_urgent or sharing > 1 or pace.is_slow(whole)
            budget.divide(octets, direct, BUNDLE_OCTETS if divides else whole, max(1, sharing), now)

    def _run(self) -> None:
        company, look_ns = self._company, 0
        while not self._stopping:
            now = time.monotonic_ns()
            due = now + (HELLO_NS if company.up and not company.peers.quiet(now) else SEARCH_NS)
            try:
                company.say(Kind.HELLO)
                if now >= look_ns or not company.up:
                    look_ns = now + HELLO_NS
                    self._share()
                    for sender in list(company.senders.values()):
                        sender.look_after()
            except Exception:  # a transport that failed: the peers still count on us
                logger.exception("the keeper of a link was interrupted; it goes on")
            self._bell.wait(max(0, due - time.monotonic_ns()) / 1e9)
