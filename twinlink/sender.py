"""The sending end of a flow, as an application holds it."""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from .errors import AckTimeout, ConfigurationError, LinkClosed, PayloadTooLarge, SendTimeout
from .message import Ack
from .outgoing import Outgoing
from .ranges import RangeSet
from .transports import Transport
from .wire import DATA_WORD, HEADER

if TYPE_CHECKING:
    from .link import Link

Payload = Any  # anything with the buffer protocol: bytes, bytearray, memoryview, C-contiguous ndarray

_monotonic_ns, _time_ns, _pack = time.monotonic_ns, time.time_ns, HEADER.pack

logger = logging.getLogger("twinlink")


class Sender:
    """Made by ``link.sender(flow)``.  Several threads may send; each message gets its own number.

    Attributes:
        flow: name of the flow.
        on_ack: called with each `Ack`, or None.
    """

    def __init__(self, link: "Link", transport: Transport, core: Outgoing) -> None:
        self.flow = core.flow
        self.on_ack: Callable[[Ack], None] | None = None
        self._link = link
        self._transport = transport
        self._core = core
        self._topic = f"traffic/{core.flow}".encode()
        self.handing_over = False  # acks on their way to on_ack: flush waits for them too
        self._order = threading.Lock()  # numbers go out in order
        self._state = threading.Lock()  # the core, against the thread that takes in acks

    def send(self, payload: Payload) -> int:
        """Send one message to every peer; returns its sequence number.  The payload may be changed afterwards.

        Waits while the flow's window is full, at most the link's ``send_timeout``; over Zenoh also while a peer that
        is connected takes nothing, at most the transport's ``block_before_close_ms``.  Without a peer the message is
        counted as lost; `flush` names it.

        Raises:
            PayloadTooLarge: longer than the link's ``max_payload``.
            SendTimeout: the window stayed full: some peer takes nothing.
            LinkClosed: the link was closed.
            TypeError, ConfigurationError: not bytes-like, or not C-contiguous.
        """
        link = self._link
        if type(payload) is not bytes:
            payload = _octets(payload)
        size = len(payload)
        if size > link.max_payload:
            raise PayloadTooLarge(
                f"a payload of {size} octets on flow {self.flow!r}: this link takes at most {link.max_payload}"
            )
        core = self._core
        deadline = None
        while True:
            with self._order:
                if link.sending_ends:
                    raise LinkClosed(f"the link to {link.endpoint} {link.end}")
                if core.fits(size):
                    frame = _pack(DATA_WORD, size, link.epoch, core.next, _time_ns()) + payload
                    with self._state:
                        sequence = core.send(size, _monotonic_ns())
                    self._transport.send(self._topic, frame)
                    return sequence
            deadline = deadline or time.monotonic() + link.send_timeout
            self._wait_for_room(size, deadline)

    def _wait_for_room(self, size: int, deadline: float) -> None:
        link = self._link
        link.wait(lambda: self._core.fits(size) or link.sending_ends, deadline - time.monotonic())
        if not self._core.fits(size) and not link.sending_ends:
            raise SendTimeout(
                f"flow {self.flow!r} to {', '.join(link.peers()) or 'nobody'} has been full for {link.send_timeout:g} s"
                f" ({self._core.in_flight_octets} octets not consumed): the peer is stalled or too slow; this message "
                "was not sent"
            )

    def flush(self, timeout: float = 1.0) -> None:
        """Return when every message sent so far, by whatever thread, has been acknowledged by every peer.

        Raises:
            AckTimeout: some are still outstanding after ``timeout`` seconds, or are lost and no flush has said so
                before; ``missing`` holds their ranges.
        """
        core = self._core
        if core.awaited or self.handing_over:
            self._link.wait(self._is_settled, timeout)
        if not core.awaited and not core.unreported:
            return
        with self._state:
            missing = core.outstanding()
            owing = core.owing()
            for first, end in core.unreported:
                missing.add(first, end)
            core.unreported.clear()
        if not missing:
            return
        if self._link.closed:
            what = "not acknowledged before the link was closed"
        elif owing:
            what = f"not acknowledged within {timeout:g} s by {', '.join(self._link.peers(owing))}"
        else:
            what = "lost: no peer was up, or it went down; link.events() says which"
        raise AckTimeout(f"flow {self.flow!r}: sequence {missing} {what}", tuple(missing))

    def _is_settled(self) -> bool:
        return not self._core.awaited and (not self.handing_over or self._link.lead.held_here)

    def stats(self) -> dict[str, Any]:
        """Counters and delays of this flow: see docs; times in ns."""
        with self._state:
            return self._core.stats()

    # For the link

    def handed_over(self, _: None) -> None:
        """The application has had all its acks."""
        self.handing_over = False

    def let_send_end(self, patience_s: float) -> None:
        """Return when no thread is in the transport on behalf of this flow; none will enter it any more."""
        if self._order.acquire(timeout=max(0.0, patience_s)):
            self._order.release()

    @property
    def settled(self) -> bool:
        """Whether nothing is outstanding."""
        return not self._core.awaited

    @property
    def next_sequence(self) -> int:
        """The number the next message will get."""
        return self._core.next

    def log_unacknowledged(self) -> None:
        """At the end: what is outstanding, or lost and not yet named by a flush."""
        with self._state:
            missing = self._core.outstanding()
            for first, end in self._core.unreported:
                missing.add(first, end)
        if missing:
            logger.warning(
                "link to %s closed; on flow %s not acknowledged: %s", self._link.endpoint, self.flow, missing
            )

    def acknowledged(
        self, epoch: int, consumed: int, records: Sequence[Sequence[int]], t3_ns: int, t4_ns: int, t4_mono_ns: int
    ) -> tuple[list[Ack], RangeSet | None]:
        """Take in an ack: what to give to ``on_ack``, and what turned out to be lost."""
        core = self._core
        with self._state:
            self.handing_over = self.on_ack is not None
            return core.acknowledge(epoch, records, t3_ns, t4_ns, t4_mono_ns), core.consume(epoch, consumed)

    def peer_changed(self, epoch: int, up: bool) -> RangeSet:
        """A peer came or went; what is lost by it."""
        with self._state:
            if not up:
                return self._core.peer_down(epoch)
            self._core.peer_up(epoch)
            return RangeSet()


def _octets(payload: Payload) -> memoryview:
    try:
        view = memoryview(payload)
    except (TypeError, ValueError) as error:
        raise TypeError(f"the payload must be bytes-like, not {type(payload).__name__}: {error}") from None
    if "O" in view.format:
        raise TypeError("the payload is an array of Python objects; their octets mean nothing to a peer")
    if not view.c_contiguous:
        raise ConfigurationError("the payload is not C-contiguous; send numpy.ascontiguousarray(payload)")
    return view.cast("B") if view.nbytes else memoryview(b"")
