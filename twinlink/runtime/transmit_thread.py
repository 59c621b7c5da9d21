"""The thread that transmits what the flows have queued; it may have to wait for the transport."""

from ..process.guarded_thread import GuardedThread
from ..process.wakeup import Wakeup
from ..transports import Transport
from .driver import SessionDriver

BULK_S = 0.0005  # what is left of messages that came in bulk is transmitted when none has come for so long


class TransmitThread:
    """Runs from `start` until `stop`."""

    def __init__(self, node: str, transport: Transport, driver: SessionDriver) -> None:
        self._driver = driver
        self._budgets = driver.session.peer_manager.budgets
        self._turn = 0  # of the flows of normal priority, which goes first
        self._stopping = False
        self._wakeup = Wakeup()
        name, errors = f"twinlink-{node}-transmit", transport.internal_errors
        # A transport that failed must not end it: the peers still count on us.
        self._thread = GuardedThread(self._run, name, errors, again=lambda: not self._stopping)
        for budget in self._budgets.values():
            budget.on_room = self.wake

    def start(self) -> None:
        """Begin to transmit."""
        self._thread.start()

    def wake(self) -> None:
        """Something is queued, or room for it: transmit what may go.  From any thread; never waits."""
        self._wakeup.wake()

    def stop(self, patience_s: float) -> None:
        """Hand over nothing more; returns when the thread has ended, or after ``patience_s``.

        It ends late while the transport makes it wait.
        """
        self._stopping = True
        self._wakeup.wake()
        if self._thread.is_alive():
            self._thread.join(patience_s)

    def _transmit(self) -> bool:
        """Hand over the queue of each flow, as far as it may go; whether some flow asks to come again soon.

        Flows of high priority go first; if there are any, the others break off when woken, so that those come first
        again.  The others go in turns: next time it begins with the one behind that which took the last of the room.
        """
        senders = list(self._driver.senders.values())
        urgent = [sender for sender in senders if sender.priority == "high"]
        soon = False
        for sender in urgent:
            soon |= sender.transmitter.transmit(lambda: self._stopping)
        others = [sender for sender in senders if sender.priority == "normal"]
        budget, first = self._budgets["normal"], self._turn
        for turn in range(first, first + len(others)):
            had_room = budget.room > 0
            soon |= others[turn % len(others)].transmitter.transmit(
                lambda: self._wakeup.is_set if urgent else self._stopping
            )
            if had_room and budget.room <= 0:
                self._turn = (turn + 1) % len(others)
        return soon

    def _run(self) -> None:
        soon = True  # something may be left from before an exception
        while True:
            self._wakeup.wait(BULK_S if soon else None)
            if self._stopping:
                return
            soon = self._transmit()
