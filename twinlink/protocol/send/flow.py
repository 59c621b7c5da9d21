"""The sending side of one flow: what is unacknowledged, in flight, retransmitted, lost.  No I/O, no clock."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from ...message import Ack
from ..frames import HEADER_OCTETS, MAX_PAYLOAD, MAX_RANGES, REJECTED, AbandonReason, Record, sent_at
from ..rangeset import RangeSet
from ..rtt import SAMPLE_EVERY, RttSamples
from .abandonment import TOO_LONG, Abandonment
from .congestion import InFlightBudget
from .flow_control import FlowControlWindow
from .in_flight import InFlight
from .loss import ANY_PEER, NO_PEER, REASONS, LossLedger, UnconfirmedEvictions
from .overflow import Overflow, OverflowPolicy
from .pace import Pace, PaceKeeper
from .queue import SendQueue
from .receivers import ReceiverSet
from .retransmit_buffer import RetransmitBuffer
from .tail_loss_probe import TailLossProbe

MAX_SUSPENDED = 64  # silent peers for which messages are kept

_new_ack = tuple.__new__  # a named tuple's own constructor takes three times as long


class SendFlow:
    """Feed it what is sent, acks, naks and peers that come and go; ask its queue what to transmit.

    A message is *kept* until every peer that owes an ack has sent it: the peers that were up when the message was sent,
    or came before it left, and the suspended ones.  All that is kept is at most ``retention`` octets.  A message is
    *lost* when no ack can come any more, though it may be kept for other peers.  An eviction of a message that has been
    transmitted is *unconfirmed* until the peers say whether they have it.
    """

    def __init__(
        self,
        flow: str,
        window: int,
        retention: int,
        budget: InFlightBudget,
        *,
        repair: bool = True,
        overflow: Overflow = "block",
        pace: Pace = "fastest",
        framing_octets: int = HEADER_OCTETS,
    ) -> None:
        """``framing_octets``: of a frame, beside its payload."""
        self.flow = flow
        self.repair = repair
        self.overflow = overflow
        self.sent_octets = self.acknowledged = self.repaired = 0
        self.losses = LossLedger()
        self.rtt = RttSamples()
        self.unacked = RetransmitBuffer(retention, framing_octets)
        self.in_flight = InFlight(budget, single=overflow == "latest")  # of states one at a time: the next is newer
        self.flow_control = FlowControlWindow(window)
        self.receivers = ReceiverSet()
        self.queue = SendQueue(self.unacked, self.in_flight, self.flow_control, self.receivers)
        self.unconfirmed = UnconfirmedEvictions()
        self._asked_losses = 0  # how many were lost when the peers were last asked what arrived
        self.abandonment = abandonment = Abandonment(
            self.queue, self.receivers, self.unacked, self.losses, self.unconfirmed, self._acked_by
        )
        abandon = abandonment.abandon
        self._overflow_policy = OverflowPolicy(overflow, self.unacked, self.receivers, self.queue, abandon)
        self.fits = self._overflow_policy.fits
        sending = self.queue, self.receivers, self.unacked, self.in_flight, self.flow_control
        self.pace_keeper = PaceKeeper(pace, *sending)
        self._tail_loss_probe = TailLossProbe(*sending, self.unconfirmed, repair=repair, lose=abandonment.lose_unacked)

    def on_tick(self, now_mono_ns: int, read: Mapping[int, int] = MappingProxyType({})) -> bool:
        """To be called five times a second; ``read``: as `PeerManager.read_positions` says.

        Returns whether the caller may skip ticks while nothing happens on this flow.
        """
        self._tail_loss_probe.on_tick()
        if self.receivers.end_resumptions():
            self.in_flight.uncertain = bool(self.receivers.resuming)
        self.pace_keeper.on_tick(now_mono_ns, read)
        if not self.repair and self.losses.count != self._asked_losses and self.receivers.up:
            self._asked_losses = self.losses.count
            self.queue.probe()  # the answer says what of it has arrived
        return self._tail_loss_probe.awaits_nothing

    def send(self, frame: bytes, size: int, now_mono_ns: int) -> bool | None:
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
        if self.overflow == "latest":
            self._overflow_policy.conflate()
        if full and not self._overflow_policy.make_room(size):
            queue.next_sequence = sequence + 1
            self.abandonment.abandon(sequence, AbandonReason.DROPPED)
            return False
        if size > self.receivers.least_payload:
            return self._send_to_some(sequence, frame, size, now_mono_ns)
        unacked.add(sequence, size, (now_mono_ns, receivers, frame))
        if queue.has_pending:  # as `enqueue` says; in bulk it mostly has
            queue.next_sequence = sequence + 1
            return False
        return queue.enqueue(size, now_mono_ns)

    def _send_to_some(self, sequence: int, frame: bytes, size: int, now_mono_ns: int) -> bool:
        """Take in a message that not all peers take: for the others it is lost."""
        refusing, queue = self.receivers.refusing(size), self.queue
        takers = self.receivers.all - refusing
        if takers:
            self.unacked.add(sequence, size, (now_mono_ns, takers, frame))
            self.abandonment.lose_for_some(refusing, sequence, TOO_LONG)
        else:
            self.losses.add(sequence, sequence + 1, TOO_LONG, lost_by=refusing)
            queue.abandon(AbandonReason.DROPPED, sequence, sequence + 1)
        queue.next_sequence, queue.has_pending = sequence + 1, True
        return False

    # What comes back

    def on_ack(
        self, epoch: int, records: Sequence[Record], t3_ns: int, t4_ns: int, t4_mono_ns: int, timed: bool = True
    ) -> list[Ack]:
        """Take in peer ``epoch``'s ack of these messages (sequence, T1, T2); returns acks for those it still owed.

        ``timed``: T2 is when they arrived, so they count for the delays.
        """
        flow, entries, unacked_by, is_unacked, alone = self.flow, self.unacked.entries, None, False, False
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
                    self.abandonment.reject(epoch, sequence)
                    continue
                if alone:
                    size = len(entry[2])
                    count += 1  # from here on no call ends before it is among them, see `recover_after_interrupt`
                    octets += size
                    del entries[sequence]
                    fully_acked.append(sequence)
                else:
                    self._acked_by(epoch, sequence)
                fields = (sequence, t4_mono_ns - entry[0], t1_ns, t2_ns, t3_ns, t4_ns, epoch, flow)
                acks.append(_new_ack(Ack, fields))
        finally:
            self.acknowledged += count
            self.unacked.on_removed(count, octets)
            if fully_acked:
                self._fully_acked(fully_acked)
        if acks and timed:
            self.rtt.add(epoch, acks)
        return acks

    def on_ack_range(
        self, epoch: int, sequences: range, t2_ns: int, t3_ns: int, t4_ns: int, t4_mono_ns: int, every_ack: bool
    ) -> list[Ack]:
        """As `on_ack`, of messages that arrived together, at T2; returns acks of some unless all are ``every_ack``.

        To make them takes longer than all else here.
        """
        entries, unacked_here = self.unacked.entries, self.unacked.unacked_only_by(sequences, epoch)
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
        self._fully_acked(sequences)
        acks, every = [], 1 if every_ack else SAMPLE_EVERY
        for at in range(-sequences.start % every, len(sequences), every):
            rtt_ns, t1_ns = t4_mono_ns - sent_mono_ns[at], sent_at(frames[at])
            acks.append(_new_ack(Ack, (sequences[at], rtt_ns, t1_ns, t2_ns, t3_ns, t4_ns, epoch, self.flow)))
        self.rtt.add(epoch, acks)
        return acks

    def recover_after_interrupt(self) -> None:
        """An interruption (Ctrl-C, which comes where a call ends) came between two steps of one of these methods."""
        self.unacked.recover_after_interrupt(self.queue.next_sequence)
        self.in_flight.recover_after_interrupt({one for one in self.unacked.entries if one < self.queue.next_to_send})
        self.queue.recover_after_interrupt()
        known = self.acknowledged + self.stats()["outstanding"] + self.losses.count + self.abandonment.conflated
        # of what has just come, and counted as lost before
        self.acknowledged -= max(0, known - self.queue.next_sequence)
        # the last was sent without any peer, and is not counted
        if known < self.queue.next_sequence and not self.receivers.all:
            self.losses.add(known, self.queue.next_sequence, NO_PEER, ANY_PEER)

    def _acked_by(self, epoch: int, sequence: int) -> None:
        """Peer ``epoch`` owes no ack for it any more; others do, so it stays kept."""
        sent_mono_ns, unacked_by, frame = self.unacked.entries[sequence]
        unacked_by -= {epoch}
        self.unacked.entries[sequence] = (sent_mono_ns, unacked_by, frame)
        if epoch in self.queue.unanswered_octets:
            self.queue.on_answers(epoch)
        receivers = self.receivers
        awaited_by = unacked_by & receivers.pacing
        if not awaited_by or (receivers.refused and receivers.have_refused(sequence, awaited_by)):
            self.in_flight.remove((sequence,))

    def _fully_acked(self, fully_acked: Sequence[int]) -> None:
        """These are kept no longer, and counted as acknowledged: every peer has them.  None is retransmitted."""
        if self.unacked.lost:
            self.acknowledged -= self.unacked.forget_lost(fully_acked)
        self.repaired += self.queue.forget(fully_acked)

    def on_nak(
        self, epoch: int, known: int, missing: Sequence[tuple[int, int]], t3_ns: int, t4_ns: int, t4_mono_ns: int
    ) -> list[Ack]:
        """Take in a nak: the peer lacks the ``missing`` ranges, and has, or has given up, all else below ``known``.

        Returns acks for messages that it has and whose own ack was lost.  When they arrived is not known (T2 = T3), so
        they do not count for the delays.
        """
        self.pace_keeper.on_seen(epoch, known)
        entries, missing_there = self.unacked.entries, RangeSet(missing)
        present = [
            one for one in self.unacked.between(0, known) if epoch in entries[one][1] and one not in missing_there
        ]
        records = [(one, sent_at(entries[one][2]), t3_ns) for one in present]
        acks = self.on_ack(epoch, records, t3_ns, t4_ns, t4_mono_ns, timed=False)
        if not self.repair:  # it only says what arrived
            self.acknowledged += self.losses.on_present(epoch, known, missing_there)
            return acks
        lost, arrived = self.unconfirmed.on_nak(epoch, known, missing)
        self._lose_evicted(epoch, lost)
        self.acknowledged += sum(end - first for first, end in arrived)
        self.abandonment.on_request(epoch, missing, t4_mono_ns)
        for first, end in self.unconfirmed.answerable(missing, self.receivers.pacing - {epoch}, t4_mono_ns):
            self.queue.retransmit(first, end, epoch, self.receivers.first_owed.get(epoch, 0))
            self.unconfirmed.on_abandoned(first, end)
        resuming = self.receivers.resuming
        if known >= resuming.get(epoch, 0) or len(missing) == MAX_RANGES:  # it has said what it could
            resuming.pop(epoch, None)
            self.in_flight.uncertain = bool(resuming)
        return acks

    def on_consumed(self, epoch: int, consumed: int) -> None:
        """Peer ``epoch`` is done with every sequence below ``consumed``.

        What it went past without an ack is lost, where it cannot request it.
        """
        receivers, all_consumed = self.receivers, self.receivers.consumed
        known = all_consumed.get(epoch)
        if known is not None and known < consumed <= self.queue.next_to_send:
            all_consumed[epoch] = consumed
            self.flow_control.release(receivers.consumed_by_pacing)
        elif len(receivers.up) < 2:
            return
        if self.unacked.entries and not (receivers.all_take_fragments and self.repair):
            self.abandonment.lose_skipped()

    # Peers

    def on_peer_up(self, epoch: int, repairs: bool = False, max_payload: int = MAX_PAYLOAD) -> None:
        """A peer joined: it owes nothing for what has left before.  Or it is back: it still owes what it owed.

        ``repairs``: it requests what it misses, and reads bundles and fragments.  ``max_payload``: what it takes.
        """
        queue, receivers = self.queue, self.receivers
        first_owed = queue.next_sequence
        if epoch not in receivers.all:  # what waits for others reaches it as well, and goes as it takes it
            first_owed = self.unacked.add_receiver(
                epoch, range(queue.next_to_send, queue.next_sequence), receivers.up, max_payload
            )
        was_away = epoch in receivers.unread_by
        receivers.on_up(epoch, first_owed, queue.next_to_send, repairs, repairs and self.repair, max_payload)
        self.flow_control.release(receivers.consumed_by_pacing)
        if was_away:
            queue.probe()
        if epoch in receivers.resuming:
            self.in_flight.uncertain = True
            queue.fragments.on_peer_resumed(epoch)
            queue.probe()
        queue.has_pending = queue.has_pending or queue.next_to_send < queue.next_sequence
        self.rtt.add_peer(epoch, receivers.all)

    def on_peer_down(self, epoch: int, reason: str, may_return: bool = False, successor: int | None = None) -> None:
        """A peer went: for good, or perhaps to return; then what it owes is kept for it.

        What a ``successor`` of the same node has acknowledged in its stead is not lost.
        """
        receivers = self.receivers
        is_suspended = receivers.on_down(epoch, may_return)
        self.in_flight.uncertain = bool(receivers.resuming)
        if not is_suspended:
            self._declare_peer_lost(epoch, reason, successor)
            return
        if len(receivers.suspended) > MAX_SUSPENDED:
            self.on_peer_ended(next(iter(receivers.suspended)), "too many silent peers to keep messages for")
        self.pace_keeper.release()

    def on_peer_ended(self, epoch: int, reason: str, successor: int | None = None) -> None:
        """A peer will not return: what it owed is lost; what others owe, too, is kept for them."""
        self.receivers.forget(epoch)
        self._declare_peer_lost(epoch, reason, successor)

    def _declare_peer_lost(self, epoch: int, reason: str, successor: int | None) -> None:
        end = self.queue.next_sequence
        taken_over = end if successor is None else self.receivers.first_owed.get(successor, end)
        for sequence, entry in list(self.unacked.entries.items()):
            if epoch not in entry[1]:
                continue
            if len(entry[1]) > 1:
                if sequence < taken_over:
                    self.abandonment.lose_for_some((epoch,), sequence, reason)
                self._acked_by(epoch, sequence)
            elif sequence < taken_over:
                self.abandonment.lose_unacked(sequence, entry[1], reason)
            elif not self.abandonment.release(sequence):
                self.acknowledged += 1
        self._lose_evicted(epoch, self.unconfirmed.on_peer_ended(epoch))
        if self.receivers.consumed:
            self.flow_control.release(self.receivers.consumed_by_pacing)
        elif not self.receivers.all:
            if not self.receivers.unread_by:  # else its application may still have it before it
                self.flow_control.clear()
            self.queue.clear()

    def _lose_evicted(self, epoch: int, ranges: list[tuple[int, int, bool]]) -> None:
        """A peer will not get these; of each range, whether it counts as lost already."""
        for first, end, counts in ranges:
            (self.losses.name if counts else self.losses.add)(
                first, end, REASONS[AbandonReason.EVICTED], lost_by=(epoch,)
            )

    def is_resolved_below(self, end: int) -> bool:
        """Whether the fate of every sequence below ``end`` is known."""
        oldest = self.unacked.oldest()
        unconfirmed = self.unconfirmed.all().first_range() if self.unconfirmed.open else None
        return (oldest is None or oldest >= end) and (unconfirmed is None or unconfirmed[0] >= end)

    def outstanding(self) -> RangeSet:
        """The sequences whose fate is not known yet."""
        unacked = sorted(self.unacked.entries.keys() - self.unacked.lost)
        return RangeSet([*self.unconfirmed.all(), *((sequence, sequence + 1) for sequence in unacked)])

    def missing(self) -> RangeSet:
        """What is outstanding, or lost and not named by a flush yet."""
        return RangeSet([*self.outstanding(), *self.losses.unflushed])

    def final_abandoned(self) -> list[tuple[AbandonReason, list[tuple[int, int]]]]:
        """What is to be announced where the link ends, so that the peers that are up know what they will not get."""
        queue, oldest = self.queue, self.unacked.oldest()
        if not self.receivers.up:
            return []
        if not self.repair or self.receivers.consumed_by_all < queue.next_to_send:
            queue.probe()  # without ranges it is the end of what was sent: what was announced may be lost
        return queue.final_abandoned(oldest if self.repair and oldest is not None else queue.next_sequence)

    def close(self) -> None:
        """Nothing will be transmitted any more: no frame is kept, only what is outstanding."""
        self.queue.close()
        self.unacked.release_frames()

    def probe(self) -> None:
        """Have the peers say what they miss, if an ack is awaited."""
        if self.receivers.repairing and self.unacked.entries:
            self.queue.probe()

    def stats(self) -> dict[str, Any]:
        """Counters."""
        return {
            "sent": self.queue.next_sequence,
            "sent_octets": self.sent_octets,
            "acknowledged": self.acknowledged,
            "outstanding": len(self.unacked.entries) - len(self.unacked.lost) + self.unconfirmed.all().count(),
            "lost": self.losses.count,
            "conflated": self.abandonment.conflated,
            "repaired": self.repaired,
            "kept_octets": self.unacked.octets,
            "in_flight_octets": self.flow_control.octets,
        }
