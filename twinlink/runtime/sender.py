"""The sending end of a flow, as an application holds it."""

import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from ..errors import AckTimeout, LinkClosed, PayloadTooLarge, SendTimeout
from ..message import Ack
from ..protocol.frames import (
    DATA_WORD,
    HEADER,
    MAX_PAYLOAD,
    SPLIT_OCTETS,
    MessageFrame,
    SplitFrame,
    data_headers,
    run_header,
)
from ..protocol.session import (
    FULL,
    OFFER,
    TRANSMIT,
    TRANSMIT_BUNDLE,
    TRANSMIT_QUEUE,
    Overflow,
    Pace,
    Priority,
    Reliability,
    SendFlow,
    rtt_stats,
)
from ..stats import SenderStats
from ..transports import Transport
from .arguments import check_skip, check_timeout
from .link_state import LinkState
from .outgoing_batch import OutgoingBatch
from .payload import Payload, octets_of
from .transmitter import Transmitter
from .why_unacked import ack_timeout

if TYPE_CHECKING:
    from ..npy import Array

LONG_OCTETS = 16 * 1024  # what is longer is not copied before there is room for it
WAKE_UP_S = 0.015  # a thread whose time is over may wait so long for three others that hold the interpreter, 5 ms each
HOW_TO_SPLIT = f"for at in range(0, len(octets), {MAX_PAYLOAD}): sender.send(octets[at : at + {MAX_PAYLOAD}])"

_monotonic_ns, _time_ns, _pack = time.monotonic_ns, time.time_ns, HEADER.pack


class Sender:
    """Made by ``link.sender(flow)``.  Several threads may send; each message gets its own number.

    Attributes:
        flow: name of the flow.
    """

    def __init__(self, link: LinkState, transport: Transport, flow: SendFlow) -> None:
        self.flow = flow.flow
        self._link = link
        self._driver = link.driver
        self._session = link.driver.session
        self._lock = link.driver.lock  # of the session
        self._flow = flow
        self._transport = transport
        self._join = transport.join
        self._split_octets = SPLIT_OCTETS if transport.takes_split else MAX_PAYLOAD + 1
        self._transmitter = Transmitter(flow, transport, link.driver)

    def _new_locks(self) -> None:
        """In a forked process: a thread that held a lock stayed with the parent."""
        self._lock = self._driver.lock
        self._transmitter.new_locks()

    def __repr__(self) -> str:
        counters, _ = self._snapshot()
        what = f"{counters['sent']} sent, {counters['outstanding']} not acknowledged, {counters['lost']} lost"
        return f"<twinlink.Sender of flow {self.flow!r}: {what}; {self._link.describe()}>"

    @property
    def priority(self) -> Priority:
        """``high`` or ``normal``."""
        return self._flow.options.priority

    @property
    def reliability(self) -> Reliability:
        """``repair`` or ``detect``."""
        return self._flow.options.reliability

    @property
    def overflow(self) -> Overflow:
        """What happens when the flow is full."""
        return self._flow.options.overflow

    @property
    def pace(self) -> Pace:
        """``fastest`` or ``slowest``."""
        return self._flow.options.pace

    @property
    def max_payload(self) -> int:
        """Octets of the longest payload that this link sends, the path takes, and some peer takes that may get it."""
        return self._session.max_payload

    @property
    def on_ack(self) -> Callable[[Ack], None] | None:
        """Called with each `Ack`; may be set."""
        return cast("Callable[[Ack], None] | None", self._flow.ack_handler)

    @on_ack.setter
    def on_ack(self, on_ack: Callable[[Ack], None] | None) -> None:
        self._flow.ack_handler = on_ack

    def send(self, payload: Payload) -> int:
        """Send one message to every peer; returns its sequence number.  The payload may be changed afterwards.

        What is bytes-like is sent as its octets, an array's without dtype and shape (`send_array` has them).  A str is
        sent as UTF-8, a dict or list as JSON; the receiver reads them with `Message.text` and `Message.json`.

        The message is kept until every peer has acknowledged it; with ``reliability="repair"`` also for peers that
        have fallen silent and may return.  When the link keeps ``retention`` octets of this flow, the flow's
        ``overflow`` policy decides: ``block`` waits for room, at most the link's ``send_timeout``.  Peers that are
        down do not hold up `send`: for them the oldest messages give up their place, and are reported as lost.
        Without any peer the message is counted as lost; `flush` names it.

        Raises:
            PayloadTooLarge: longer than the ``max_payload`` of the link, or than the path takes, or any peer that is up
                or may return.  For a peer that takes less than others the message is lost (`Lost`).
            SendTimeout: no room: some peer takes nothing, or less than is sent.  The message was not sent.
            LinkClosed: the link was closed.
            TransportError: the transport failed.  The message has its number and is kept: do not send it again.
            TypeError: the payload is none of these; says which call sends it.
            ConfigurationError: it is not C-contiguous, or cannot be written as UTF-8 or JSON.
        """
        link, session, flow, transmitter = self._link, self._session, self._flow, self._transmitter
        if type(payload) is not bytes:
            payload = octets_of(payload)
        size = len(payload)
        if size > session.max_payload:
            raise self._too_large(size)
        deadline = None
        while True:
            if size <= LONG_OCTETS or link.closing or self._fits(size):
                with transmitter.order_lock:
                    if link.closing:
                        raise LinkClosed(f"the link to {link.endpoint} {link.closed_because}")
                    now, sent_ns = _monotonic_ns(), _time_ns()  # the round trip begins before the payload is copied
                    sequence = flow.next_sequence
                    header = _pack(DATA_WORD, size, session.epoch, sequence, sent_ns)
                    frame = self._join(header, payload) if size < self._split_octets else self._split(header, payload)
                    with self._lock:
                        sent = session.send(flow, frame, size, now)
                    if sent is TRANSMIT:
                        self._transport.send(transmitter.topic, frame)
                    elif sent is TRANSMIT_QUEUE:
                        link.wake_transmit()
                    elif sent is TRANSMIT_BUNDLE:
                        transmitter.transmit_bundle()
                    elif sent is OFFER:
                        self._transport.offer(transmitter.topic, frame)
                    if sent is not FULL:
                        return sequence
            deadline = deadline or self._deadline()
            self._wait_for_room(size, deadline)

    def send_many(self, payloads: "Iterable[Payload] | Array") -> Sequence[int]:
        """Send several messages, as `send` would one after the other, with one look at the session for many of them.

        Each payload is a message.  Of an array with two dimensions or more, which is C-contiguous, each row is one
        (``array[i]``, its octets).

        Returns their sequence numbers: a range, or a list where messages of another thread came between.  All that go
        together have the same `Message.sent_ns`.

        Raises what `send` raises.  TypeError, ConfigurationError and PayloadTooLarge come before anything is sent;
        `SendTimeout.sent` says how many were, and the others were not.  After LinkClosed or TransportError the counter
        ``sent`` of `stats` does.
        """
        batch, deadline = self._batch(payloads), None
        while not batch.is_sent:
            if self._send_run(batch):
                deadline = None
                continue
            deadline = deadline or self._deadline()
            try:
                self._wait_for_room(batch.next_size, deadline)
            except SendTimeout:
                raise self._full_error(batch=batch) from None
        return batch.numbers

    def _batch(self, payloads: "Iterable[Payload] | Array") -> OutgoingBatch:
        batch = OutgoingBatch(payloads)
        if batch.longest > self._session.max_payload:
            raise self._too_large(batch.longest)
        return batch

    def _send_run(self, batch: OutgoingBatch) -> bool:
        """Send what is next of a batch, as far as there is room; False: there is none."""
        link, session, flow, transmitter = self._link, self._session, self._flow, self._transmitter
        size = batch.next_size
        if (size > LONG_OCTETS or not flow.run_room(size)) and not link.closing and not self._fits(size):
            return False
        with transmitter.order_lock:
            if link.closing:
                raise LinkClosed(f"the link to {link.endpoint} {link.closed_because}")
            now, sent_ns, first = _monotonic_ns(), _time_ns(), flow.next_sequence
            if (count := batch.run_length(flow.run_room(size))) > 1:
                head = run_header(count, size, session.epoch, first, sent_ns)
                run = self._join(head, batch.run(count))
                with self._lock:
                    is_sent = session.send_run(flow, run, count, size, now)
                if is_sent:
                    batch.on_sent(range(first, first + count))
                    self._transmit_every()
                    return True
            payloads, sizes = batch.next_messages()
            make = self._join if max(sizes) < self._split_octets else self._joined_or_split
            frames = list(map(make, data_headers(sizes, session.epoch, first, sent_ns), payloads))
            with self._lock:
                count, sent = session.send_many(flow, frames, sizes, now)
            batch.on_sent(range(first, first + count))
            if sent is TRANSMIT_BUNDLE:
                self._transmit_every()
            elif sent is OFFER:
                for frame in frames[:count]:
                    self._transport.offer(transmitter.topic, frame)
        return count > 0

    def _split(self, header: bytes, payload: bytes | memoryview) -> SplitFrame:
        """A frame by reference to the payload; what may change is copied."""
        return SplitFrame(self._join(header, b""), payload if type(payload) is bytes else bytes(payload))

    def _joined_or_split(self, header: bytes, payload: bytes | memoryview) -> MessageFrame:
        return self._join(header, payload) if len(payload) < self._split_octets else self._split(header, payload)

    def _transmit_every(self) -> None:
        self._transmitter.transmit_bundle(every=True)
        if self._flow.has_pending:
            self._link.wake_transmit()

    def skip(self, count: int) -> None:
        """Leave out the next ``count`` sequence numbers: receivers get a `Gap`, as where so many messages are lost.

        For what passes on messages of another source, some of which are missing, such as a replay.  They count as
        ``lost``, `Lost` says so, and `flush` does not wait for them.

        Raises:
            LinkClosed: the link was closed.
            ConfigurationError: ``count`` is no whole number from 1 to 2**32.
        """
        check_skip(count)
        link = self._link
        with self._transmitter.order_lock:
            if link.closing:
                raise LinkClosed(f"the link to {link.endpoint} {link.closed_because}")
            with self._lock:
                self._session.skip(self._flow, count)
        link.wake_transmit()

    def send_array(self, array: "Array") -> int:
        """Send a numpy array with its dtype and shape, which `Message.array` of the receiver gives back.

        The payload is numpy's .npy format.  Raises what `send` raises, and TypeError for what is no array, or one of
        Python objects.
        """
        return self.send(self._encoded(array))

    def _encoded(self, array: "Array") -> bytes:
        from ..npy import check, encode, how_to_split  # numpy is loaded by programs that use it

        check(array)
        if array.nbytes > self.max_payload:  # before it is copied
            raise self._too_large(array.nbytes, how_to_split(array, MAX_PAYLOAD))
        octets = encode(array)
        if len(octets) > self.max_payload:  # by its header
            raise self._too_large(len(octets), how_to_split(array, MAX_PAYLOAD))
        return octets

    def _too_large(self, size: int, how_to_split: str = HOW_TO_SPLIT) -> PayloadTooLarge:
        most = self._link.max_payload
        what = f"a payload of {size} octets on flow {self.flow!r}: this link takes at most {most}"
        less = self._session.smaller_limits(min(size, most))
        if less:
            return PayloadTooLarge(f"{what}; {less}: give both sides the same max_payload, or send it in parts")
        if most < MAX_PAYLOAD:
            return PayloadTooLarge(f"{what}: open both sides with a greater max_payload, {MAX_PAYLOAD} at most")
        return PayloadTooLarge(f"{what}: send it in parts, which arrive in order: {how_to_split}")

    def _deadline(self) -> float:
        timeout = self._link.send_timeout
        return time.monotonic() + timeout - min(timeout * 0.3, WAKE_UP_S)

    def _wait_for_room(self, size: int, deadline: float) -> None:
        link = self._link
        link.wait(lambda: self._fits(size) or link.closing, deadline - time.monotonic())
        if time.monotonic() >= deadline and not self._fits(size) and not link.closing:
            raise self._full_error()

    def _full_error(self, on_ack_is_slow: bool = False, batch: OutgoingBatch | None = None) -> SendTimeout:
        with self._lock:
            kept_octets, unread_octets, is_slow = self._flow.fullness
        why = "the peer is stalled or slower than what is sent"
        if on_ack_is_slow or is_slow:
            why = "on_ack takes longer than acks take to come, or a handler of this link does not return"
        sent, what = 0, "this message was not sent"
        if batch is not None:
            sent = len(batch.numbers)
            what = f"the first {sent} of {len(batch)} messages were sent, the others not"
        return SendTimeout(
            f"flow {self.flow!r} to {self._session.up_names() or 'no peer'} has been full for"
            f" {self._link.send_timeout:g} s"
            f" ({kept_octets} octets not acknowledged, {unread_octets} not consumed): {why};"
            f" {what}.  Send less, give send_timeout= more time, or choose another overflow= for the flow",
            sent,
        )

    def _fits(self, size: int) -> bool:
        return self._driver.fits(self._flow, size)

    def flush(self, timeout: float | None = 1.0) -> None:
        """Return when every message sent so far, by any thread, has been acknowledged by every peer.

        Raises:
            AckTimeout: some are still outstanding after ``timeout`` seconds, or are lost and no flush has said so
                before; ``missing`` holds their ranges, and ``reason`` says why.
            ConfigurationError: ``timeout`` cannot be used.
            TransportError: the transport failed, perhaps with an ack of this side: the thread that waits receives.
        """
        check_timeout(timeout)
        end = self._begin_flush()
        self._link.wait(partial(self._is_flushed, end), timeout)
        self._end_flush(end, timeout)

    def _begin_flush(self) -> int:
        """Transmit what waits for a bundle to fill; returns the end of what is flushed."""
        if self._flow.has_pending:
            with self._transmitter.order_lock:
                self._transmitter.transmit_bundle()
        return self._flow.next_sequence

    def _end_flush(self, end: int, timeout: float | None) -> None:
        """Raise AckTimeout for messages below ``end`` that are not acknowledged."""
        if self._flow.is_clear:
            return
        with self._lock:
            error = self._unacked_error(end, timeout)
        if error is not None:
            raise error

    def _unacked_error(self, end: int, timeout: float | None) -> AckTimeout | None:
        flow = self._flow
        missing = flow.take_missing(end)
        return ack_timeout(self._link, flow, missing, timeout) if missing.all else None

    def _is_flushed(self, end: int) -> bool:
        flow = self._flow
        with self._lock:
            if not flow.is_resolved_below(end):
                return False
        # A handler that flushes does not wait for the calls that are to follow its own.
        return not flow.has_unreported_acks or self._link.in_callback()

    def _snapshot(self) -> tuple[dict[str, Any], dict[int, list[Ack]]]:
        """The counters, and by peer the acks that `stats` sums up, in the order in which they came."""
        with self._lock:
            return self._flow.stats(), self._flow.acks()

    def stats(self) -> SenderStats:
        """Counters and delays of this flow (docs/library.md); times in ns, of the last 2,048 acks of each peer.

        Of messages that shared a frame one in 16 counts, unless there is an ``on_ack``.
        """
        counters, acks = self._snapshot()
        made: Any = {**counters, "peers": rtt_stats(acks)}  # sorting takes ms, during which no other thread waits
        return cast(SenderStats, made)
