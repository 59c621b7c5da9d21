"""The thread that transmits what the flows have queued; it may have to wait for the transport."""

from collections.abc import Mapping

from ..process.guarded_thread import GuardedThread
from ..process.wakeup import Wakeup
from ..transports import Transport
from .driver import SessionDriver
from .sender import Sender

BULK_S = 0.0005  # what is left of messages that came in bulk is transmitted when none has come for so long


class TransmitThread:
    """Runs from `start` until `stop`."""

    def __init__(self, node: str, transport: Transport, driver: SessionDriver, senders: Mapping[str, Sender]) -> None:
        self._driver = driver
        self._senders = senders
        self._stopping = False
        self._wakeup = Wakeup()
        name, errors = f"twinlink-{node}-transmit", transport.internal_errors
        # A transport that failed must not end it: the peers still count on us.
        self._thread = GuardedThread(self._run, name, errors, again=lambda: not self._stopping)
        driver.wake_transmit = self.wake

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
        again.
        """
        with self._driver.lock:
            flows = self._driver.session.transmit_order()
        soon, has_urgent = False, any(sender.priority == "high" for sender in list(self._senders.values()))
        for flow in flows:
            if (sender := self._senders.get(flow.flow)) is None:
                soon = True  # it is being opened
                continue
            breaks_off = has_urgent and sender.priority == "normal"
            soon |= sender._transmitter.transmit(
                (lambda: self._stopping or self._wakeup.is_set) if breaks_off else lambda: self._stopping
            )
        return soon

    def _run(self) -> None:
        soon = True  # something may be left from before an exception
        while True:
            self._wakeup.wait(BULK_S if soon else None)
            if self._stopping:
                return
            soon = self._transmit()
