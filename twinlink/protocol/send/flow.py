"""The sending side of one flow: takes in messages, feedback and time; says what to transmit.  No I/O, no clock."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, cast

from ...message import Ack
from ..frames import (
    HEADER_OCTETS,
    MAX_RANGES,
    MAX_RUN,
    REJECTED,
    AbandonReason,
    Kind,
    MessageFrame,
    Record,
    abandoned_body,
    mark_retransmitted,
    sent_at,
)
from ..frames import frame as make_frame
from ..rangeset import RangeSet
from ..rtt import SAMPLE_EVERY
from . import membership, overflow
from .abandonment import TOO_LONG, abandon, lose_evicted, lose_for_some, lose_skipped, on_request, reject
from .congestion import InFlightBudget
from .flow_control import MAX_UNREPORTED_ACKS
from .kept_run import KeptRun
from .loss import ANY_PEER, NO_PEER
from .options import FlowOptions
from .record import SendRecord
from .retransmit_buffer import run_cost
from .tail_loss_probe import TailLossProbe

_new_ack = tuple.__new__  # a named tuple's own constructor takes three times as long


class SendFlow(SendRecord):
    """A `SendRecord` that changes.

    Attributes:
        pace_checked_mono_ns: when it was last asked because of an ack.
        is_awake: something has happened since it came to rest; see `SendFlows`.
    """

    def __init__(
        self,
        flow: str,
        window: int,
        retention: int,
        budget: InFlightBudget,
        options: FlowOptions = FlowOptions(),  # noqa: B008  (it is frozen)
        *,
        epoch: int = 0,
        framing_octets: int = HEADER_OCTETS,
    ) -> None:
        """``epoch``: of this session.  ``framing_octets``: of a frame, beside its payload."""
        super().__init__(flow, window, retention, budget, options, framing_octets)
        self.pace_checked_mono_ns = 0
        self.is_awake = False
        self._epoch = epoch
        self._tail_loss_probe = TailLossProbe(self)
        self._probed_losses = 0  # how many were lost when the peers were last asked what arrived
        self._next_at_tick = 0  # the next number at the last tick
        self._next_in_bulk = 0  # the next number when the flow was last found in bulk

    # Time

    def on_tick(self, now_mono_ns: int, read: Mapping[int, int] = MappingProxyType({})) -> None:
        """To be called five times a second while it `is_awake`, and more rarely else.

        ``read``: as `PeerManager.read_positions` says.
        """
        self._tail_loss_probe.on_tick()
        self.receivers.end_resumptions()
        self.pace_keeper.on_tick(now_mono_ns, read)
        if not self.repair and self.losses.count != self._probed_losses and self.receivers.up:
            self._probed_losses = self.losses.count
            self.queue.probe()  # the answer says what of it has arrived
        self._next_at_tick = self.queue.next_sequence

    @property
    def in_use(self) -> bool:
        """Whether something is in flight, or was sent since the last tick."""
        return bool(self.in_flight) or self.queue.next_sequence != self._next_at_tick

    @property
    def rests(self) -> bool:
        """Whether the flow awaits nothing, and has nothing to report: no tick is needed until something happens."""
        reports = self.losses.unreported or self.pace_keeper.changes or self.flow_control.unreported_acks
        return not reports and self._tail_loss_probe.awaits_nothing

    # Messages

    fits = overflow.fits

    def send(self, frame: MessageFrame, size: int, now_mono_ns: int) -> bool | None:
        """Take in the next message, whose payload has ``size`` octets.

        Returns True: transmit it now; False: it waits in the queue, or had to be dropped; None: there is no room.
        """
        queue, unacked = self.queue, self.unacked
        sequence = queue.next_sequence
        full = size > unacked.room
        if full and not self.fits(size):
            return None
        self.sent_octets += size
        receivers = self.receivers.all
        if not receivers:
            queue.next_to_send = queue.next_sequence = sequence + 1
            self.losses.add(sequence, sequence + 1, NO_PEER, ANY_PEER)
            return True  # a plain subscriber may listen
        if self.options.overflow == "latest":
            overflow.conflate(self)
        if full and not overflow.make_room(self, size):
            queue.next_sequence = sequence + 1
            abandon(self, sequence, AbandonReason.DROPPED)
            return False
        if size > self.receivers.least_payload:
            return self._send_to_some(sequence, frame, size, now_mono_ns)
        unacked.add(sequence, size, (now_mono_ns, receivers, frame))
        if queue.has_pending:  # as `enqueue` says; in bulk it mostly has
            queue.next_sequence = sequence + 1
            return False
        return queue.enqueue(size, now_mono_ns)

    def send_many(self, frames: Sequence[MessageFrame], sizes: Sequence[int], now_mono_ns: int) -> int:
        """Take in the next messages, whose payloads have these sizes; returns for how many of them there was room.

        They wait in the queue, which makes up bundles of them.
        """
        queue, receivers, count = self.queue, self.receivers.all, 0
        had_pending = queue.has_pending
        if receivers:
            queue.has_pending = True
            if self.options.overflow != "latest" and max(sizes) <= self.receivers.least_payload:
                count = self.unacked.add_all(queue.next_sequence, frames, sizes, now_mono_ns, receivers)
                queue.next_sequence += count
                self.sent_octets += sum(sizes[:count])
        for frame, size in zip(frames[count:], sizes[count:], strict=True):
            if self.send(frame, size, now_mono_ns) is None:
                break
            count += 1
        if not count:
            queue.has_pending = had_pending
        return count

    def run_room(self, size: int) -> int:
        """How many messages of ``size`` octets may be sent as a run now."""
        if not self.repair or self.options.overflow == "latest":
            return 0
        return min(MAX_RUN, self.queue.longest_run(size), self.unacked.room_for(size))

    def send_run(self, frame: bytes, count: int, size: int, now_mono_ns: int) -> bool:
        """Take in the next ``count`` messages, of ``size`` octets each, in one frame; False: they cannot go so."""
        if self.run_room(size) < count:
            return False
        queue, receivers = self.queue, self.receivers.all
        run = KeptRun(queue.next_sequence, count, size, frame, now_mono_ns, receivers)
        queue.has_pending = True
        self.unacked.add_run(run)
        queue.next_sequence = run.first + count
        self.sent_octets += count * size
        return True

    def skip(self, count: int) -> None:
        """The next ``count`` numbers are of no message, which is announced to the peers: a gap."""
        queue, first = self.queue, self.queue.next_sequence
        end = queue.next_sequence = first + count
        self.losses.add_skipped(first, end)
        if self.receivers.all:
            queue.abandon(AbandonReason.DROPPED, first, end)
        else:
            queue.next_to_send = end

    def _send_to_some(self, sequence: int, frame: MessageFrame, size: int, now_mono_ns: int) -> bool:
        """Take in a message that not all peers take: for the others it is lost."""
        refusing, queue = self.receivers.refusing(size), self.queue
        takers = self.receivers.all - refusing
        if takers:
            self.unacked.add(sequence, size, (now_mono_ns, takers, frame))
            lose_for_some(self, refusing, sequence, TOO_LONG)
        else:
            self.losses.add(sequence, sequence + 1, TOO_LONG, lost_by=refusing)
            queue.abandon(AbandonReason.DROPPED, sequence, sequence + 1)
        queue.next_sequence, queue.has_pending = sequence + 1, True
        return False

    # What to transmit

    @property
    def is_backpressured(self) -> bool:
        """Whether a peer that fell silent may make the transport wait: the others get what is offered to it."""
        return self.in_flight.budget.backpressured

    def leaves_to_sender(self, mono_ns: int) -> bool:
        """Whether messages come in bulk just now: the thread that sends them transmits them, a bundle at a time."""
        queue = self.queue
        if self.is_backpressured or queue.next_sequence == self._next_in_bulk or not queue.in_bulk(mono_ns):
            return False
        self._next_in_bulk = queue.next_sequence
        return True

    def next_frame(self, now_ns: int, may_block: bool) -> MessageFrame | None:
        """The frame to transmit next; None: nothing waits, or may go now.  As `SendQueue.next_frame`."""
        try:
            content = self.queue.next_frame(may_block)
        except BaseException:
            self.recover_after_interrupt()
            raise
        return None if content is None else self._encode(*content, now_ns)

    def final_frames(self, now_ns: int) -> list[MessageFrame]:
        """What is to be transmitted where the link ends: what the peers will not get."""
        return [self._encode(Kind.ABANDONED, announcement, now_ns) for announcement in self.final_abandoned()]

    def _encode(self, kind: Kind, what: Any, now_ns: int) -> MessageFrame:
        if kind is Kind.FRAGMENT or kind is Kind.RUN:
            frame: bytes = what
            return frame
        if kind is Kind.ABANDONED:
            return make_frame(kind, self._epoch, self.queue.next_to_send, now_ns, abandoned_body(*what))
        frames: list[Any] = [mark_retransmitted(frame) for frame in what] if kind is Kind.RETRANSMIT else what
        if len(frames) == 1:
            return cast(MessageFrame, frames[0])  # of several none is a `SplitFrame`, which is longer than a bundle
        added = self.added_octets
        body = b"".join([frame[:-added] for frame in frames] if added and kind is Kind.DATA else frames)
        return make_frame(Kind.BUNDLE, self._epoch, 0, now_ns, body)

    # Feedback

    def on_ack(
        self, epoch: int, records: Sequence[Record], t3_ns: int, t4_ns: int, t4_mono_ns: int, timed: bool = True
    ) -> list[Ack]:
        """Take in peer ``epoch``'s ack of these messages (sequence, T1, T2); returns acks for those it still owed.

        ``timed``: T2 is when they arrived, so they count for the delays.
        """
        if self.unacked.runs:
            runs = [self.unacked.run_of(record[0]) for record in records]
            self.unacked.split_runs({run.first: run for run in runs if run is not None}.values())
        flow, entries, unacked_by, is_unacked, alone = self.flow, self.unacked.singles, None, False, False
        acks, fully_acked, count, octets = [], [], 0, 0
        try:
            for sequence, t1_ns, t2_ns in records:
                entry = entries.get(sequence)
                if entry is None:
                    if t2_ns != REJECTED:  # it was unconfirmed, or counted as lost, perhaps until now
                        unconfirmed = self.unconfirmed.open and self.unconfirmed.on_ack(epoch, sequence)
                        self.acknowledged += unconfirmed or self.losses.on_late_ack(sequence, epoch)
                    continue
                if entry[1] is not unacked_by:  # mostly all of them are owed by the same peers
                    unacked_by = entry[1]
                    is_unacked, alone = epoch in unacked_by, len(unacked_by) == 1
                if not is_unacked:
                    continue
                if t2_ns == REJECTED:
                    reject(self, epoch, sequence)
                    continue
                if alone:
                    size = len(entry[2])
                    count += 1  # from here on no call ends before it is among them, see `recover_after_interrupt`
                    octets += size
                    del entries[sequence]
                    fully_acked.append(sequence)
                else:
                    self.acked_by(epoch, sequence)
                fields = (sequence, t4_mono_ns - entry[0], t1_ns, t2_ns, t3_ns, t4_ns, epoch, flow)
                acks.append(_new_ack(Ack, fields))
        finally:
            self.acknowledged += count
            self.unacked.on_removed(count, octets)
            if fully_acked:
                self.acked_by_all(fully_acked)
        if acks and timed:
            self.rtt.add(epoch, acks)
        return acks

    def on_ack_range(
        self, epoch: int, sequences: range, t2_ns: int, t3_ns: int, t4_ns: int, t4_mono_ns: int, every_ack: bool
    ) -> list[Ack]:
        """As `on_ack`, of messages that arrived together, at T2; returns acks of some unless all are ``every_ack``.

        To make them takes longer than all else here.
        """
        every = 1 if every_ack else SAMPLE_EVERY
        if self.unacked.runs:
            run = self.unacked.run_of(sequences.start)
            whole = run is not None and run.first == sequences.start and run.count == len(sequences)
            if run is not None and whole and not self.receivers.have_any_refused:
                acks = self._on_run_acked(epoch, run, t2_ns, t3_ns, t4_ns, t4_mono_ns, every)
                if acks:  # else the peer may not be known
                    self.rtt.add(epoch, acks)
                return acks
            self.unacked.split(sequences.start, sequences.stop)
        entries, unacked_here = self.unacked.singles, self.unacked.unacked_only_by(sequences, epoch)
        if unacked_here is None:
            records = [(one, sent_at(entries[one][2]) if one in entries else 0, t2_ns) for one in sequences]
            return self.on_ack(epoch, records, t3_ns, t4_ns, t4_mono_ns)
        sent_mono_ns, frames = unacked_here
        count, octets = 0, sum(map(len, frames))
        try:
            for sequence in sequences:
                count += 1  # as above
                del entries[sequence]
        finally:
            self.acknowledged += count
        self.unacked.on_removed(count, octets)
        self.acked_by_all(sequences)
        acks = []
        for at in range(-sequences.start % every, len(sequences), every):
            rtt_ns, t1_ns = t4_mono_ns - sent_mono_ns[at], sent_at(frames[at])
            acks.append(_new_ack(Ack, (sequences[at], rtt_ns, t1_ns, t2_ns, t3_ns, t4_ns, epoch, self.flow)))
        self.rtt.add(epoch, acks)
        return acks

    def _on_run_acked(
        self, epoch: int, run: KeptRun, t2_ns: int, t3_ns: int, t4_ns: int, t4_mono_ns: int, every: int
    ) -> list[Ack]:
        """Peer ``epoch`` has all of a run."""
        unacked, left = self.unacked, run.unacked_by - {epoch}
        if len(left) == len(run.unacked_by):
            return []
        if not left:
            at, count, cost = unacked.place_of(run), run.count, run_cost(run)
            self.acknowledged += count  # in a row, without a call: Ctrl-C comes where a call ends
            unacked.room += cost
            del unacked.runs[at]
        run.unacked_by = left
        if epoch in self.queue.unanswered_octets:
            self.queue.on_answers(epoch)
        if left.isdisjoint(self.receivers.pacing):
            self.in_flight.remove((run.first,))
        t1_ns, rtt_ns, numbers = sent_at(run.frame), t4_mono_ns - run.sent_mono_ns, range(run.first, run.end)
        rest = (rtt_ns, t1_ns, t2_ns, t3_ns, t4_ns, epoch, self.flow)
        return [_new_ack(Ack, (one, *rest)) for one in numbers[-run.first % every :: every]]

    def on_nak(
        self, epoch: int, known: int, missing: Sequence[tuple[int, int]], t3_ns: int, t4_ns: int, t4_mono_ns: int
    ) -> list[Ack]:
        """Take in a nak: the peer lacks the ``missing`` ranges, and has, or has given up, all else below ``known``.

        Returns acks for messages that it has and whose own ack was lost.  When they arrived is not known (T2 = T3), so
        they do not count for the delays.
        """
        self.pace_keeper.on_seen(epoch, known)
        unacked, missing_there = self.unacked, RangeSet(missing)
        acks, partly = list[Ack](), list[KeptRun]()
        for run in unacked.runs_of(epoch):
            whole = run.end <= known and not self.receivers.have_any_refused
            if whole and not missing_there.overlaps(run.first, run.end):
                acks += self._on_run_acked(epoch, run, t3_ns, t3_ns, t4_ns, t4_mono_ns, 1)
            elif run.first < known:
                partly.append(run)
        unacked.split_runs(partly)
        entries = unacked.singles
        present = [one for one in unacked.between(0, known) if one in entries and epoch in entries[one][1]]
        records = [(one, sent_at(entries[one][2]), t3_ns) for one in present if one not in missing_there]
        acks += self.on_ack(epoch, records, t3_ns, t4_ns, t4_mono_ns, timed=False)
        acks.sort()
        if not self.repair:  # it only says what arrived
            self.acknowledged += self.losses.on_present(epoch, known, missing_there)
            return acks
        lost, arrived = self.unconfirmed.on_nak(epoch, known, missing)
        lose_evicted(self, epoch, lost)
        self.acknowledged += sum(end - first for first, end in arrived)
        on_request(self, epoch, missing, t4_mono_ns)
        for first, end in self.unconfirmed.answerable(missing, self.receivers.pacing - {epoch}, t4_mono_ns):
            self.queue.retransmit(first, end, epoch, self.receivers.first_owed(epoch, 0))
            self.unconfirmed.on_abandoned(first, end)
        receivers = self.receivers
        if epoch in receivers.resuming and (known >= receivers.of[epoch].resumed_at or len(missing) == MAX_RANGES):
            receivers.resuming.discard(epoch)  # it has said what it could
        return acks

    def on_consumed(self, epoch: int, consumed: int) -> None:
        """Peer ``epoch`` is done with every sequence below ``consumed``.

        What it skipped without an ack is lost, where it cannot request it.
        """
        receivers = self.receivers
        peer = receivers.of.get(epoch)
        if peer is not None and peer.is_up and peer.consumed < consumed <= self.queue.next_to_send:
            peer.consumed = consumed
            if len(receivers.up) == 1:
                self.flow_control.release(consumed)
            elif (end := self.flow_control.releases_at) is not None and receivers.have_consumed(end):
                self.flow_control.release(receivers.consumed_by_pacing)
        elif len(receivers.up) < 2:
            return
        if (self.unacked.singles or self.unacked.runs) and not (receivers.all_take_fragments and self.repair):
            lose_skipped(self)

    def on_acks_reported(self, count: int) -> bool:
        """The application has been called with so many acks; whether what waits may leave now, and could not before."""
        flow_control = self.flow_control
        before = flow_control.unreported_acks
        left = before - count if before > count else 0
        flow_control.unreported_acks = left
        return left < MAX_UNREPORTED_ACKS <= before and self.queue.has_pending

    # Peers

    on_peer_up, on_peer_down, on_peer_ended = membership.join, membership.leave, membership.end

    def probe(self) -> None:
        """Have the peers say what they miss, if an ack is awaited."""
        if self.receivers.repairing and self.unacked:
            self.queue.probe()
