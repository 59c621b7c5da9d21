"""Gives the queue of a flow to the transport, in order."""

import threading
import time
from collections.abc import Callable

from ..protocol.frames import Kind, MessageFrame
from ..protocol.session import SendFlow
from ..transports import Transport
from .driver import KIND_AT, SessionDriver

_monotonic_ns, _time_ns = time.monotonic_ns, time.time_ns


class Transmitter:
    """Transmits the queue of one flow; has the locks that it shares with the flow's `Sender` (docs/locks.md).

    Attributes:
        topic: of the flow's messages.
        transmit_lock: the queue leaves in order.
        order_lock: numbers leave in order, and an announcement behind all that was sent.
    """

    def __init__(self, flow: SendFlow, transport: Transport, driver: SessionDriver) -> None:
        self.topic = f"traffic/{flow.flow}".encode()
        self._flow = flow
        self._transport = transport
        self._driver = driver
        self._next_frame = driver.session.next_frame
        self.new_locks()

    def new_locks(self) -> None:
        """In a forked process: a thread that held a lock stayed with the parent."""
        self.transmit_lock = threading.RLock()
        self.order_lock = threading.Lock()

    def transmit(self, stops: Callable[[], bool]) -> bool:
        """For the transmit thread: transmit the queue, as far as the limits allow, and until ``stops()``.

        Returns True where messages come in bulk just now: the thread that sends them transmits them, a bundle at a
        time.  The transmit thread is to come again soon for what is left when no more come.
        """
        flow, driver = self._flow, self._driver
        while not stops():
            with self.transmit_lock:
                with driver.lock:
                    if flow.leaves_to_sender(_monotonic_ns()):
                        return True
                    frame = self._next_frame(flow, _time_ns(), may_block=True)
                if frame is None:
                    return False
                if frame[KIND_AT] == Kind.ABANDONED:
                    # It is to be behind all that was sent: a thread that sends past the queue gets through first.
                    with self.order_lock:
                        pass
                self._hand_over(frame)
        return False

    def transmit_bundle(self, every: bool = False) -> None:
        """For a thread that sends, and holds ``order_lock``: transmit a bundle, or ``every`` one that need not wait.

        Does nothing while the transmit thread is transmitting: that will do.
        """
        try:
            if self.transmit_lock.acquire(False):
                while True:
                    with self._driver.lock:
                        frame = self._next_frame(self._flow, _time_ns(), may_block=False)
                    if frame is None:
                        break
                    self._hand_over(frame)
                    if not every:
                        break
        finally:  # Ctrl-C comes between any two calls, so there is none before release, which knows the owner
            try:  # noqa: SIM105
                self.transmit_lock.release()
            except RuntimeError:
                pass

    def _hand_over(self, frame: MessageFrame) -> None:
        # Under backpressure the others get it, and a peer that fell silent requests it, should it return.
        transmit = self._transport.offer if self._flow.is_backpressured else self._transport.send
        transmit(self.topic, frame)

    def transmit_final(self) -> None:
        """The link ends: announce what the peers will not get any more.  Never waits.  Raises TransportError."""
        with self._driver.lock:
            frames = self._flow.final_frames(_time_ns())
        transport = self._transport
        transmit = transport.offer if transport.gives_up_ns else transport.send  # the one of them that never waits
        for frame in frames:
            transmit(self.topic, frame)

    def wait_for_send(self, patience_s: float) -> None:
        """Return when no thread is in the transport on behalf of this flow; none will enter it any more."""
        if self.order_lock.acquire(timeout=max(0.0, patience_s)):
            self.order_lock.release()
