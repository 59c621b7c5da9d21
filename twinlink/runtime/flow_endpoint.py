"""The inner side of a flow's sending end: its locks, and what the link's threads do with it."""

import time
from collections.abc import Callable
from typing import Any

from ..message import Ack
from ..protocol.frames import MAX_PAYLOAD, Records
from ..protocol.rangeset import RangeSet
from ..protocol.send.endpoint import Priority, Reliability
from ..protocol.send.flow import SendFlow
from ..protocol.send.loss import Loss
from ..protocol.send.overflow import Overflow
from ..protocol.send.pace import Pace
from ..transports import Transport
from .link_state import LinkState
from .transmitter import Transmitter

PACE_CHECK_NS = 5_000_000

_monotonic_ns = time.monotonic_ns


class FlowEndpoint:
    """Behind a `Sender`: a `SendFlow` with locks, as the threads of the link need it.

    Attributes:
        flow: name of the flow.
        priority: ``high`` or ``normal``.
        on_ack: called with each `Ack`, or None.
        max_payload: octets of the longest payload that this link sends, and some peer takes that is up or suspended.
        core: the flow; its methods are called with ``state_lock`` held.
        in_flight, losses, pace_changes: of the flow.
        on_ack_scheduled, on_ack_called: with so many acks `on_ack` is going to be called at most, and has been.
        path_rtt_ns: the round trip as this flow saw it when it was last measured, 0 without acks.
        delivered_octets: what got through or was given up until then, framing included.
    """

    def __init__(self, link: LinkState, transport: Transport, core: SendFlow, priority: Priority) -> None:
        self.flow = core.flow
        self.priority = priority
        self.on_ack: Callable[[Ack], None] | None = None
        self.max_payload = link.max_payload
        self.core = core
        self.in_flight = core.in_flight
        self.losses = core.losses
        self.pace_changes = core.pace_keeper.changes
        self.on_ack_scheduled = self.on_ack_called = 0
        self.path_rtt_ns = self.delivered_octets = 0
        self._link = link
        self._queue = core.queue
        self._next_at_tick = 0  # number of the next message at the last tick
        self._at_rest = False  # at the last tick
        self._receivers_at_tick = core.receivers.all
        self._pace_checked_mono_ns = 0
        self.transmitter = Transmitter(core, transport, f"traffic/{core.flow}".encode(), link.epoch)
        self.order_lock, self.state_lock = self.transmitter.order_lock, self.transmitter.state_lock

    def snapshot(self) -> tuple[dict[str, Any], dict[int, list[Ack]]]:
        """The counters, and by peer the acks that `stats` sums up, in the order in which they came."""
        with self.state_lock:
            return self.core.stats(), self.core.rtt.acks()

    # For the thread that receives

    def ack_received(
        self, epoch: int, consumed: int, records: Records, t2_ns: int, t3_ns: int, t4_ns: int, t4_mono_ns: int
    ) -> list[Ack]:
        """Take in an ack; returns what to give to ``on_ack``.

        Its ``records`` are (sequence, T1, T2), or sequences in a row: their T2 is ``t2_ns``.
        """
        core, every_ack = self.core, self.on_ack is not None
        with self.state_lock:
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
        if core.pace_keeper.watches:
            with self.state_lock:
                core.pace_keeper.on_acked(epoch, records)
        queue = self._queue
        if queue.has_pending and (queue.can_send or self._check_pace_on_ack(t4_mono_ns) or queue.is_requested):
            self._link.wake_transmit()
        return acks

    def _check_pace_on_ack(self, now_mono_ns: int) -> bool:
        """As `check_pace`, now and then: acks come by the thousand."""
        if now_mono_ns - self._pace_checked_mono_ns < PACE_CHECK_NS:
            return False
        self._pace_checked_mono_ns = now_mono_ns
        return self.check_pace(now_mono_ns)

    def refused_received(self, epoch: int, end: int, t4_mono_ns: int) -> None:
        """Take in that a peer has no room for some of what arrived there, below ``end``."""
        with self.state_lock:
            freed = self.core.pace_keeper.on_refused(epoch, end)
        if self._queue.has_pending and (freed or self._queue.can_send or self.check_pace(t4_mono_ns)):
            self._link.wake_transmit()

    def check_pace(self, now_mono_ns: int, size: int = 0) -> bool:
        """Whether the flow waits no longer for a peer that has fallen behind.

        To be called when what waits cannot go, or a message of ``size`` octets cannot be kept.
        """
        if len(self.core.receivers.up) < 2:
            return False
        peer_manager, pace_keeper = self._link.peer_manager, self.core.pace_keeper
        read = peer_manager.read_positions(self.flow, now_mono_ns)
        with self.state_lock:
            suspects = pace_keeper.suspects
            goes_on = pace_keeper.check(now_mono_ns, size, read)
            if not suspects and pace_keeper.suspects:
                peer_manager.hello_due = True  # a suspect that confirms it has read what is in flight
        return goes_on

    def on_read(self, mono_ns: int) -> None:
        """A peer has said how far it has read: a flow that waits for it may perhaps go on without it."""
        if self._queue.has_pending and not self._queue.can_send and self.check_pace(mono_ns):
            self._link.wake_transmit()

    def nak_received(
        self, epoch: int, known: int, missing: list[tuple[int, int]], t3_ns: int, t4_ns: int, t4_mono_ns: int
    ) -> list[Ack]:
        """Take in what a peer misses; returns what to give to ``on_ack``."""
        core = self.core
        with self.state_lock:
            self.on_ack_scheduled += self.on_ack is not None  # as above
            try:
                acks = core.on_nak(epoch, known, missing, t3_ns, t4_ns, t4_mono_ns)
            except BaseException:
                core.recover_after_interrupt()
                raise
            if self.on_ack is not None:
                self.on_ack_scheduled += len(acks)
        if self._queue.can_send or self._queue.is_requested:
            self._link.wake_transmit()
        return acks

    def fragment_progress_received(self, epoch: int, sent_ns: int, octets: int) -> None:
        """Take in how many octets a peer has of a frame that leaves in fragments."""
        with self.state_lock:
            self._queue.fragments.on_progress(epoch, sent_ns, octets)
        if self._queue.can_send:
            self._link.wake_transmit()

    @property
    def on_ack_pending(self) -> bool:
        """Whether on_ack has not yet been called with all acks so far."""
        return self.on_ack_called < self.on_ack_scheduled

    def on_ack_deferred(self) -> None:
        """On_ack has not been called with all acks so far, and others may come before it is."""
        self.core.flow_control.unreported_acks = self.on_ack_scheduled - self.on_ack_called

    def on_ack_done(self, turn: int) -> None:
        """On_ack has been called with all acks up to this turn."""
        flow_control = self.core.flow_control
        slow = flow_control.on_ack_is_slow
        self.on_ack_called = max(self.on_ack_called, turn)
        flow_control.unreported_acks = self.on_ack_scheduled - self.on_ack_called
        if slow and not flow_control.on_ack_is_slow and self._queue.has_pending:
            self._link.wake_transmit()

    # For the heartbeat thread

    @property
    def in_use(self) -> bool:
        """Whether something is in flight, or was sent since `on_tick` was last called."""
        return bool(self.in_flight) or self._queue.next_sequence != self._next_at_tick

    @property
    def has_pending(self) -> bool:
        """Whether messages or announcements of this flow wait to be transmitted."""
        return self._queue.has_pending

    @property
    def rests(self) -> bool:
        """Whether the flow was at rest at the last tick, and nothing has happened since."""
        queue = self._queue
        same = queue.next_sequence == self._next_at_tick and self._receivers_at_tick is self.core.receivers.all
        return self._at_rest and same and not queue.has_pending

    def measure_path(self, idle: bool) -> None:
        """Set `path_rtt_ns` and `delivered_octets`; ``idle``: nothing of any flow waits."""
        with self.state_lock:
            self.path_rtt_ns = self.core.rtt.path_rtt_ns(self.core.receivers.pacing, idle)
        self.delivered_octets = self.in_flight.delivered

    def on_tick(self) -> None:
        """To be called with every hello, and more rarely while it `rests`: have the peers say what they miss."""
        core, now_mono_ns = self.core, _monotonic_ns()
        several = len(core.receivers.up) > 1
        read = self._link.peer_manager.read_positions(self.flow, now_mono_ns) if several else {}
        with self.state_lock:
            self._at_rest = core.on_tick(now_mono_ns, read)
            self._next_at_tick, self._receivers_at_tick = self._queue.next_sequence, core.receivers.all
        if self._queue.has_pending:
            self._link.wake_transmit()

    # For the peer manager

    def give_up_longer(self, size: int, reason: str) -> None:
        """No payload of more than ``size`` octets gets through: what is longer is lost."""
        with self.state_lock:
            self.core.abandonment.give_up_longer(size, reason)
        if self._queue.has_pending:
            self._link.wake_transmit()

    def probe(self) -> None:
        """Ask the peers what they miss, if any owes an ack."""
        with self.state_lock:
            self.core.probe()
        if self._queue.has_pending:
            self._link.wake_transmit()

    @property
    def next_to_send(self) -> int:
        """The first number that has not been transmitted."""
        return self._queue.next_to_send

    def first_owed_by(self, epoch: int) -> int | None:
        """The first number that was owed to a peer when it came up; None if it has not."""
        return self.core.receivers.first_owed.get(epoch)

    @property
    def reliability(self) -> Reliability:
        """``repair`` or ``detect``."""
        return "repair" if self.core.repair else "detect"

    @property
    def overflow(self) -> Overflow:
        """What happens when the flow is full."""
        return self.core.overflow

    @property
    def pace(self) -> Pace:
        """Whether the flow waits for a peer that falls behind."""
        return self.core.pace_keeper.pace

    def on_peer_up(self, epoch: int, repairs: bool, max_payload: int = MAX_PAYLOAD) -> None:
        """A peer came, or came back; ``repairs``: it requests what it misses; ``max_payload``: what it takes."""
        with self.state_lock:
            self.core.on_peer_up(epoch, repairs, max_payload)
        if self._queue.has_pending:
            self._link.wake_transmit()

    def on_peer_down(self, epoch: int, reason: str, may_return: bool, successor: int | None) -> None:
        """A peer went; ``may_return``: for it messages are kept; ``successor``: the session that takes its place."""
        with self.state_lock:
            self.core.on_peer_down(epoch, reason, may_return, successor)

    def on_peer_ended(self, epoch: int, reason: str, successor: int | None) -> None:
        """A peer that had fallen silent will not come back."""
        with self.state_lock:
            self.core.on_peer_ended(epoch, reason, successor)

    def take_losses(self, most: int) -> list[Loss]:
        """At most so many ranges of what was lost since the last call, and why."""
        with self.state_lock:
            return self.core.losses.take_unreported(most)

    def take_pace_changes(self) -> dict[int, int]:
        """By epoch, how many messages a peer is behind that has become slow since the last call; 0: it has caught
        up."""
        with self.state_lock:
            changes = self.pace_changes.copy()
            self.pace_changes.clear()
            return changes

    # For the end of the link

    @property
    def is_settled(self) -> bool:
        """Whether nothing is outstanding that a peer that is up could still acknowledge."""
        with self.state_lock:
            return not self.core.unacked.is_unacked_by(self.core.receivers.up)

    @property
    def ack_progress(self) -> tuple[int, int, int]:
        """Grows while feedback comes: messages acknowledged by all, consumed by each, octets of one in fragments."""
        with self.state_lock:
            core = self.core
            return core.acknowledged, sum(core.receivers.consumed.values()), self._queue.fragments.received_octets

    def wait_for_send(self, patience_s: float) -> None:
        """Return when no thread is in the transport on behalf of this flow; none will enter it any more."""
        if self.order_lock.acquire(timeout=max(0.0, patience_s)):
            self.order_lock.release()

    def abandon(self) -> None:
        """In a forked process: a thread that held a lock stayed with the parent, and nothing may leave here."""
        self.transmitter.new_locks()
        self.order_lock, self.state_lock = self.transmitter.order_lock, self.transmitter.state_lock
        self.core.close()

    def close(self) -> tuple[str, str, RangeSet]:
        """Keep no message any more; for the log: the flow, the peers that owe acks, and what is outstanding or lost.

        Its frames go now: a link refers to itself, and Python's garbage collection may take long to find a closed one.
        """
        with self.state_lock:
            unacked_by = self.core.unacked.unacked_by()
            self.core.close()
            missing = self.core.missing()
        # Name the peers: what a session that died still owes, another peer may have acknowledged long ago.
        by = f" by {self._link.peer_manager.names(unacked_by)}" if unacked_by else ""
        return self.flow, by, missing
