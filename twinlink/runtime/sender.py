"""The sending end of a flow, as an application holds it."""

import time
from collections.abc import Callable
from functools import partial
from typing import Any

from ..errors import AckTimeout, LinkClosed, PayloadTooLarge, SendTimeout
from ..message import Ack
from ..protocol import rtt
from ..protocol.frames import DATA_WORD, HEADER, MAX_PAYLOAD, Records
from ..protocol.rangeset import RangeSet
from ..protocol.send.endpoint import Priority, Reliability
from ..protocol.send.flow import SendFlow
from ..protocol.send.overflow import Overflow
from ..transports import Transport
from .payload import Payload, payload_view
from .sender_host import SenderHost
from .transmitter import Transmitter

WAKE_UP_S = 0.015  # a thread whose time is over may wait so long for three others that hold the interpreter, 5 ms each
BUNDLE_CHECK_MESSAGES = 8  # in bulk, a thread that sends checks every so many whether they make up a bundle

_monotonic_ns, _time_ns, _pack = time.monotonic_ns, time.time_ns, HEADER.pack


class Sender:
    """Made by ``link.sender(flow)``.  Several threads may send; each message gets its own number.

    Attributes:
        flow: name of the flow.
        priority: ``high`` or ``normal``.
        on_ack: called with each `Ack`, or None.
        max_payload: octets of the longest payload that this link sends and every peer takes that is up or may return.
        in_flight: of this flow; for the link's heartbeat thread, which divides among the flows.
        losses: what of it is lost; for the peer manager, which reports.
    """

    def __init__(self, host: SenderHost, transport: Transport, core: SendFlow, priority: Priority) -> None:
        self.flow = core.flow
        self.priority = priority
        self.on_ack: Callable[[Ack], None] | None = None
        self.max_payload = host.max_payload
        self._host = host
        self._transport = transport
        self._join = transport.join
        self._core = core
        self._queue = core.queue
        self.in_flight = core.in_flight
        self.losses = core.losses
        self._topic = f"traffic/{core.flow}".encode()
        self._next_at_tick = 0  # number of the next message, when the heartbeat thread last looked
        self.on_ack_scheduled = 0  # on_ack is called, or is going to be, with so many acks at most, ...
        self.on_ack_called = 0  # ... and has been with so many; flush waits for it too
        self._transmitter = Transmitter(core, transport, self._topic, host.epoch)
        self.transmit, self.transmit_abandoned = self._transmitter.transmit, self._transmitter.transmit_abandoned
        self._order_lock, self._state_lock = self._transmitter.order_lock, self._transmitter.state_lock

    def send(self, payload: Payload) -> int:
        """Send one message to every peer; returns its sequence number.  The payload may be changed afterwards.

        The message is kept until every peer has acknowledged it; with ``reliability="repair"`` also for peers that
        have fallen silent and may return.  When the link keeps ``retention`` octets of this flow, the flow's
        ``overflow`` policy decides: ``block`` waits for room, at most the link's ``send_timeout``.  Peers that are
        down do not hold up `send`: for them the oldest messages give up their place, and are reported as lost.
        Without any peer the message is counted as lost; `flush` names it.

        Raises:
            PayloadTooLarge: longer than the ``max_payload`` of the link, or of a peer that is up or may return.
            SendTimeout: no room: some peer takes nothing, or less than is sent.  The message was not sent.
            LinkClosed: the link was closed.
            TransportError: the transport failed.  The message has its number and is kept: do not send it again.
            TypeError, ConfigurationError: not bytes-like, or not C-contiguous.
        """
        host = self._host
        if type(payload) is not bytes:
            payload = payload_view(payload)
        size = len(payload)
        if size > self.max_payload:
            raise self._too_large(size)
        core, unacked = self._core, self._core.unacked
        deadline = None
        while True:
            if size <= unacked.room or host.closing or self._fits(size):  # else no frame is made, as long as that is
                with self._order_lock:
                    if host.closing:
                        raise LinkClosed(f"the link to {host.endpoint} {host.closed_because}")
                    sequence = self._queue.next_sequence
                    now, sent_ns = _monotonic_ns(), _time_ns()  # the round trip begins before the payload is copied
                    frame = self._join(_pack(DATA_WORD, size, host.epoch, sequence, sent_ns), payload)
                    with self._state_lock:
                        had_pending = self._queue.has_pending
                        try:
                            inline = core.send(frame, size, now)
                        except BaseException:
                            core.recover_after_interrupt()
                            raise
                    if inline is not None:
                        if inline and core.receivers.all:
                            self._transport.send(self._topic, frame)
                        elif inline:
                            if host.peer_manager.alone:  # else it would be ahead of what is owed to a node
                                self._transport.offer(self._topic, frame)
                        elif not had_pending:
                            host.wake_transmit()
                        elif not sequence % BUNDLE_CHECK_MESSAGES and self._queue.bundle_is_ready(size, now):
                            self._transmitter.transmit_bundle()
                        return sequence
            deadline = deadline or time.monotonic() + host.send_timeout - min(host.send_timeout * 0.3, WAKE_UP_S)
            self._wait_for_room(size, deadline)

    def _too_large(self, size: int) -> PayloadTooLarge:
        most = self._host.max_payload
        what = f"a payload of {size} octets on flow {self.flow!r}: this link takes at most {most}"
        less = self._host.peer_manager.smaller_limits(min(size, most))
        if less:
            return PayloadTooLarge(f"{what}; {less}: give both sides the same max_payload")
        if most < MAX_PAYLOAD:
            return PayloadTooLarge(f"{what}: open both sides with a greater max_payload, {MAX_PAYLOAD} at most")
        return PayloadTooLarge(f"{what}: send it as several messages")

    def _wait_for_room(self, size: int, deadline: float) -> None:
        host = self._host
        host.wait(lambda: self._fits(size) or host.closing, deadline - time.monotonic())
        if time.monotonic() >= deadline and not self._fits(size) and not host.closing:
            core = self._core
            why = "the peer is stalled or slower than what is sent"
            if core.flow_control.on_ack_is_slow:
                why = "on_ack takes longer than acks take to come, or a handler of this link does not return"
            raise SendTimeout(
                f"flow {self.flow!r} to {', '.join(host.peers()) or 'no peer'} has been full for"
                f" {host.send_timeout:g} s"
                f" ({core.unacked.octets} octets not acknowledged, {core.flow_control.octets} not consumed): {why};"
                " this message was not sent.  Send less, give send_timeout= more time, or choose another overflow="
                " for the flow"
            )

    def _fits(self, size: int) -> bool:
        with self._state_lock:
            return self._core.fits(size)

    def flush(self, timeout: float = 1.0) -> None:
        """Return when every message sent so far, by any thread, has been acknowledged by every peer.

        Raises:
            AckTimeout: some are still outstanding after ``timeout`` seconds, or are lost and no flush has said so
                before; ``missing`` holds their ranges.
            TransportError: the transport failed, perhaps with an ack of this side: the thread that waits receives.
        """
        core, end = self._core, self._queue.next_sequence
        if self._queue.has_pending:
            with self._order_lock:
                self._transmitter.transmit_bundle()
        if core.unacked.entries or core.unconfirmed.open or self.on_ack_pending:
            self._host.wait(partial(self._is_flushed, end), timeout)
        if not core.unacked.entries and not core.unconfirmed.open and not core.losses.unflushed:
            return
        with self._state_lock:
            missing = RangeSet(core.missing().take(0, end))
            outstanding, unacked_by = core.outstanding().take(0, end), core.unacked.unacked_by()
            core.losses.unflushed.take(0, end)
        if not missing:
            return
        if self._host.closed:
            what = f"not acknowledged, and the link {self._host.closed_because}"
        elif outstanding:
            what = f"not acknowledged within {timeout:g} s by {self._host.peer_manager.names(unacked_by)}"
        else:
            what = "lost; the events say why"
        raise AckTimeout(f"flow {self.flow!r}: sequence {missing} {what}", tuple(missing))

    def _is_flushed(self, end: int) -> bool:
        core = self._core
        if core.unacked.entries or core.unconfirmed.open:
            if self._queue.next_sequence == end:  # no thread has sent meanwhile
                return False
            with self._state_lock:
                if not core.is_resolved_below(end):
                    return False
        # A handler that flushes does not wait for the calls that are to follow its own.
        return not self.on_ack_pending or self._host.in_callback

    def stats(self) -> dict[str, Any]:
        """Counters and delays of this flow (docs/library.md); times in ns, of the last 2,048 acks of each peer.

        Of messages that shared a frame one in 16 counts, unless there is an ``on_ack``.
        """
        counters, acks = self.snapshot()
        return {**counters, "peers": rtt.stats(acks)}  # sorting takes ms, during which no other thread waits

    def snapshot(self) -> tuple[dict[str, Any], dict[int, list[Ack]]]:
        """The counters, and by peer the acks that `stats` sums up, in the order in which they came."""
        with self._state_lock:
            return self._core.stats(), self._core.rtt.acks()

    # For the thread that receives

    def ack_received(
        self, epoch: int, consumed: int, records: Records, t2_ns: int, t3_ns: int, t4_ns: int, t4_mono_ns: int
    ) -> list[Ack]:
        """Take in an ack; returns what to give to ``on_ack``.

        Its ``records`` are (sequence, T1, T2), or sequences in a row: their T2 is ``t2_ns``.
        """
        core, every_ack = self._core, self.on_ack is not None
        with self._state_lock:
            if every_ack:  # before anything is acknowledged, or a flush would not wait for it
                self.on_ack_scheduled += len(records)
            try:
                if isinstance(records, range):
                    acks = core.on_ack_range(epoch, records, t2_ns, t3_ns, t4_ns, t4_mono_ns, every_ack)
                else:
                    acks = core.on_ack(epoch, records, t3_ns, t4_ns, t4_mono_ns)
                core.on_consumed(epoch, consumed)
            except BaseException:
                core.recover_after_interrupt()
                raise
        if self._queue.has_pending and self._queue.can_send:
            self._host.wake_transmit()
        return acks

    def nak_received(
        self, epoch: int, known: int, missing: list[tuple[int, int]], t3_ns: int, t4_ns: int, t4_mono_ns: int
    ) -> list[Ack]:
        """Take in what a peer misses; returns what to give to ``on_ack``."""
        core = self._core
        with self._state_lock:
            self.on_ack_scheduled += self.on_ack is not None  # as above
            try:
                acks = core.on_nak(epoch, known, missing, t3_ns, t4_ns, t4_mono_ns)
            except BaseException:
                core.recover_after_interrupt()
                raise
            if self.on_ack is not None:
                self.on_ack_scheduled += len(acks)
        if self._queue.can_send:
            self._host.wake_transmit()
        return acks

    def fragment_progress_received(self, epoch: int, sent_ns: int, octets: int) -> None:
        """Take in how many octets a peer has of a frame that leaves in fragments."""
        with self._state_lock:
            self._queue.on_fragment_progress(epoch, sent_ns, octets)
        if self._queue.can_send:
            self._host.wake_transmit()

    @property
    def on_ack_pending(self) -> bool:
        """Whether on_ack has not yet been called with all acks so far."""
        return self.on_ack_called < self.on_ack_scheduled

    def on_ack_deferred(self) -> None:
        """On_ack has not been called with all acks so far, and others may come before it is."""
        self._core.flow_control.unreported_acks = self.on_ack_scheduled - self.on_ack_called

    def on_ack_done(self, turn: int) -> None:
        """On_ack has been called with all acks up to this turn."""
        flow_control = self._core.flow_control
        slow = flow_control.on_ack_is_slow
        self.on_ack_called = max(self.on_ack_called, turn)
        flow_control.unreported_acks = self.on_ack_scheduled - self.on_ack_called
        if slow and not flow_control.on_ack_is_slow and self._queue.has_pending:
            self._host.wake_transmit()

    # For the heartbeat thread

    @property
    def in_use(self) -> bool:
        """Whether something is in flight, or was sent since `on_tick` was last called."""
        return bool(self.in_flight) or self._queue.next_sequence != self._next_at_tick

    @property
    def has_pending(self) -> bool:
        """Whether messages or announcements of this flow wait to be transmitted."""
        return self._queue.has_pending

    def path_rtt_ns(self, idle: bool) -> int:
        """The round trip as this flow sees it, 0 without acks; ``idle``: nothing of any flow waits."""
        with self._state_lock:
            return self._core.rtt.path_rtt_ns(self._core.receivers.up, idle)

    def on_tick(self) -> None:
        """To be called with every hello: when acks do not come, ask the peers what they miss."""
        core = self._core
        with self._state_lock:
            core.on_tick()
            self._next_at_tick = self._queue.next_sequence
        if self._queue.has_pending:
            self._host.wake_transmit()

    # For the peer manager

    def probe(self) -> None:
        """Ask the peers what they miss, if any owes an ack."""
        with self._state_lock:
            self._core.probe()
        if self._queue.has_pending:
            self._host.wake_transmit()

    @property
    def next_to_send(self) -> int:
        """The first number that has not been transmitted."""
        return self._queue.next_to_send

    def first_owed_by(self, epoch: int) -> int | None:
        """The first number that was owed to a peer when it came up; None if it has not."""
        return self._core.receivers.first_owed.get(epoch)

    @property
    def reliability(self) -> Reliability:
        """``repair`` or ``detect``."""
        return "repair" if self._core.repair else "detect"

    @property
    def overflow(self) -> Overflow:
        """What happens when the flow is full."""
        return self._core.overflow

    def on_peer_up(self, epoch: int, repairs: bool, max_payload: int = MAX_PAYLOAD) -> None:
        """A peer came, or came back; ``repairs``: it requests what it misses; ``max_payload``: what it takes."""
        with self._state_lock:
            self._core.on_peer_up(epoch, repairs, max_payload)
        if self._queue.has_pending:
            self._host.wake_transmit()

    def on_peer_down(self, epoch: int, reason: str, may_return: bool, successor: int | None) -> None:
        """A peer went; ``may_return``: for it messages are kept; ``successor``: the session that takes its place."""
        with self._state_lock:
            self._core.on_peer_down(epoch, reason, may_return, successor)

    def on_peer_ended(self, epoch: int, reason: str, successor: int | None) -> None:
        """A peer that had fallen silent will not come back."""
        with self._state_lock:
            self._core.on_peer_ended(epoch, reason, successor)

    def take_losses(self, most: int) -> list[tuple[int, int, str]]:
        """At most so many ranges of what was lost since the last call, and why."""
        with self._state_lock:
            return self._core.losses.take_unreported(most)

    # For the end of the link

    @property
    def is_settled(self) -> bool:
        """Whether nothing is outstanding that a peer that is up could still acknowledge."""
        with self._state_lock:
            return not self._core.unacked.is_unacked_by(self._core.receivers.up)

    def wait_for_send(self, patience_s: float) -> None:
        """Return when no thread is in the transport on behalf of this flow; none will enter it any more."""
        if self._order_lock.acquire(timeout=max(0.0, patience_s)):
            self._order_lock.release()

    def abandon(self) -> None:
        """In a forked process: a thread that held a lock stayed with the parent, and nothing may leave here."""
        self._transmitter.new_locks()
        self._order_lock, self._state_lock = self._transmitter.order_lock, self._transmitter.state_lock
        self._core.close()

    def close(self) -> tuple[str, str, RangeSet]:
        """Keep no message any more; for the log: the flow, by whom, and what is outstanding, or lost and not named yet.

        Its frames go now: a link refers to itself, and Python's garbage collection may take long to find a closed one.
        """
        with self._state_lock:
            unacked_by = self._core.unacked.unacked_by()
            self._core.close()
            missing = self._core.missing()
        # Name the peers: what a session that died still owes, another peer may have acknowledged long ago.
        by = f" by {self._host.peer_manager.names(unacked_by)}" if unacked_by else ""
        return self.flow, by, missing
