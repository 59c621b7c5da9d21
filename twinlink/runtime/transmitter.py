"""Gives the queue of a flow to the transport, in order."""

import threading
import time
from collections.abc import Callable
from typing import Any

from ..protocol.frames import Kind, abandoned_body, mark_retransmitted
from ..protocol.frames import frame as make_frame
from ..protocol.send.flow import SendFlow
from ..transports import Transport

_monotonic_ns, _time_ns = time.monotonic_ns, time.time_ns


class Transmitter:
    """Of one flow, with the locks that it shares with the flow's `Sender`.

    They are taken in this order: ``transmit_lock``, ``order_lock``, ``state_lock``.  A thread that holds ``order_lock``
    only tries for ``transmit_lock``.

    Attributes:
        transmit_lock: the queue goes out in order.
        order_lock: numbers go out in order.
        state_lock: the flow, against the threads that take in acks and transmit the queue.
    """

    def __init__(self, core: SendFlow, transport: Transport, topic: bytes, epoch: int) -> None:
        self._core = core
        self._queue = core.queue
        self._budget = core.in_flight.budget
        self._transport = transport
        self._topic = topic
        self._epoch = epoch
        self._next_at_transmit = 0  # number of the next message when the transmit thread last came
        self.new_locks()

    def new_locks(self) -> None:
        """In a forked process: a thread that held a lock stayed with the parent."""
        self.transmit_lock = threading.RLock()
        self.order_lock = threading.Lock()
        self.state_lock = threading.Lock()

    def transmit(self, stops: Callable[[], bool]) -> bool:
        """For the transmit thread: transmit the queue, as far as the limits allow, and until ``stops()``.

        Returns True where messages come in bulk just now: the thread that sends them transmits them, a bundle at a
        time.  The transmit thread is to come again soon for what is left when no more come.
        """
        queue = self._queue
        while queue.has_pending and not stops():
            unpressured = not self._budget.backpressured  # else the sending threads transmit nothing
            if unpressured and queue.next_sequence != self._next_at_transmit and queue.in_bulk(_monotonic_ns()):
                self._next_at_transmit = queue.next_sequence
                return True
            with self.transmit_lock:
                if not self._transmit_next(may_block=True):
                    break
        return False

    def transmit_bundle(self) -> None:
        """For a thread that sends, and holds ``order_lock``: transmit a bundle.

        Does nothing while the transmit thread is transmitting: that will do.
        """
        if self._core.receivers.all_take_bundles:
            try:
                if self.transmit_lock.acquire(False):
                    self._transmit_next(may_block=False)
            finally:  # Ctrl-C comes between any two calls, so there is none before release, which knows the owner
                try:  # noqa: SIM105
                    self.transmit_lock.release()
                except RuntimeError:
                    pass

    def transmit_abandoned(self) -> None:
        """The link ends: tell the peers what they will not get any more.  Never waits.  Raises TransportError."""
        with self.state_lock:
            announcements = self._core.final_abandoned()
        transport = self._transport
        transmit = transport.offer if transport.gives_up_ns else transport.send  # the one of them that never waits
        for announcement in announcements:
            transmit(self._topic, self._encode(Kind.ABANDONED, announcement))

    def _transmit_next(self, may_block: bool) -> bool:
        """Transmit what `SendQueue.next_frame` gives, once; whether it gave anything.  Needs ``transmit_lock``."""
        with self.state_lock:
            try:
                content = self._queue.next_frame(may_block)
            except BaseException:
                self._core.recover_after_interrupt()
                raise
        if content is None:
            return False
        if may_block and content[0] is Kind.ABANDONED:
            # It is to be behind all that was sent: a thread that sends past the queue gets through first.
            with self.order_lock:
                pass
        frame = self._encode(*content)
        # Under backpressure the others get it, and a peer that fell silent requests it, should it return.
        transmit = self._transport.offer if self._budget.backpressured else self._transport.send
        transmit(self._topic, frame)
        return True

    def _encode(self, kind: Kind, what: Any) -> bytes:
        """What `SendQueue.next_frame` gave, as one frame."""
        if kind is Kind.FRAGMENT:
            fragment: bytes = what
            return fragment
        if kind is Kind.ABANDONED:
            return make_frame(kind, self._epoch, self._queue.next_to_send, _time_ns(), abandoned_body(*what))
        frames: list[bytes] = [mark_retransmitted(frame) for frame in what] if kind is Kind.RETRANSMIT else what
        if len(frames) == 1:
            return frames[0]
        added = self._transport.added_octets
        body = b"".join([frame[:-added] for frame in frames] if added and kind is Kind.DATA else frames)
        return make_frame(Kind.BUNDLE, self._epoch, 0, _time_ns(), body)
