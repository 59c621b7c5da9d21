"""The transmit queue of a flow: new messages, retransmissions, and notice of what is abandoned.  No I/O."""

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

from ..frames import MAX_RANGES, AbandonReason, Kind, MessageFrame
from ..rangeset import RangeSet
from .flow_control import FlowControlWindow
from .fragments import FragmentTransmission
from .in_flight import FRAMING_OCTETS, InFlight
from .kept_run import KeptRun
from .receivers import ReceiverSet
from .retransmit_buffer import RetransmitBuffer, UnackedMessage

# So many messages sent within so short a time, and not acknowledged, come in bulk: the next ones share frames.
BULK_MESSAGES = 32
BULK_NS = 1_000_000
BUNDLE_OCTETS = 48 * 1024  # framing included: one batch of Zenoh's, and few enough to be copied
RUN_OCTETS = 128 * 1024  # likewise: what a receiver consumes until it announces that, see `FlowControlWindow`
MAX_UNANSWERED_OCTETS = 1024 * 1024  # retransmitted to a peer at its request before it acknowledges any of it
MAX_PROBES_AFTER_ANSWERS = 16  # between two ticks; all peers answer each of them


class SendQueue:
    """Kept messages leave in order, as far as two limits allow.

    `InFlight` bounds the octets that were transmitted and not acknowledged by the peers that are up, and
    `FlowControlWindow` those that their applications have not consumed, and so the memory of receivers.

    Attributes:
        next_sequence: the number of the next message.
        next_to_send: the first number that has not been transmitted.
        has_pending: whether something waits to be transmitted, or is being transmitted after it has waited.
        retransmitted: what was, and has not been acknowledged yet.
        unanswered_octets: by peer, what it was retransmitted since its last ack, or the last tick.
        abandoned_end: no message from this number on has been announced as abandoned.
        fragments: of the message that leaves in fragments.
    """

    def __init__(
        self, unacked: RetransmitBuffer, in_flight: InFlight, flow_control: FlowControlWindow, receivers: ReceiverSet
    ) -> None:
        self.next_sequence = self.next_to_send = 0
        self.has_pending = False
        self.abandoned_end = 0
        self._unacked = unacked
        self._in_flight = in_flight
        self._flow_control, self._receivers = flow_control, receivers
        self._to_retransmit: OrderedDict[int, int] = OrderedDict()  # requested -> by which peer
        self._unsorted = False  # the lowest of them is to go first
        self.retransmitted: set[int] = set()
        self.unanswered_octets: dict[int, int] = {}
        self._dropped_requests: set[int] = set()  # of these peers, for want of an answer
        self._probes_after_answers = 0  # since the last tick
        self._abandoned: dict[AbandonReason, RangeSet] = {}  # to be announced; an empty set: ask what is missing
        self._conflated = RangeSet()  # of what will not come, beyond what every peer has consumed
        self.fragments = FragmentTransmission(unacked, in_flight, receivers)
        unacked.on_split = in_flight.split

    # What comes in

    def in_bulk(self, now_mono_ns: int) -> bool:
        """Whether so many messages are sent now that they better share frames."""
        before = self._unacked.singles.get(self.next_sequence - BULK_MESSAGES)
        return (
            before is not None
            and now_mono_ns - before[0] < BULK_NS
            and len(before[2]) < BUNDLE_OCTETS // BULK_MESSAGES
            and self._receivers.all_take_bundles
        )

    def enqueue(self, size: int, now_mono_ns: int) -> bool:
        """Take in message number ``next_sequence``, of ``size`` octets and kept already.

        Returns True: the sending thread is to transmit it now; False: it waits here.
        """
        sequence, octets = self.next_sequence, size + FRAMING_OCTETS
        self.next_sequence = end = sequence + 1
        if (
            not self.has_pending
            and self._receivers.up
            and (len(self._unacked.singles) < BULK_MESSAGES or not self.in_bulk(now_mono_ns))
            and octets <= self._in_flight.inline_room
            and self._flow_control.admit(end, 1, size)
        ):
            self._in_flight.add(sequence, octets)
            self.next_to_send = end
            return True
        self.has_pending = True
        return False

    def abandon(self, reason: AbandonReason, first: int, end: int) -> None:
        """Announce to the peers that messages ``first`` to ``end - 1`` will not come, and why."""
        if first < end:
            if reason is AbandonReason.CONFLATED:
                self._conflated.add(first, end)
            self._abandoned.setdefault(reason, RangeSet()).add(first, end)
            self.has_pending = True

    def probe(self) -> None:
        """Have the peers asked what they miss."""
        self._abandoned.setdefault(AbandonReason.EVICTED, RangeSet())
        self.has_pending = True

    def retransmit(self, first: int, end: int, epoch: int, first_owed: int) -> None:
        """Peer ``epoch`` misses ``first`` to ``end - 1``: what is kept of that is retransmitted.

        What is lost to some, and it owes no ack for though it did, from ``first_owed`` on, it has rejected: not that.
        """
        end = min(end, self.next_to_send)
        unacked, fragmented = self._unacked, self.fragments.sequence
        unacked.split(first, end)
        for sequence in unacked.between(first, end):
            if first < sequence:
                self._abandon_range(first, sequence)
            first = sequence + 1
            if sequence == fragmented:
                continue  # it comes: every peer that is up has had the first fragment, or will have it again
            if sequence in unacked.lost and sequence >= first_owed and epoch not in unacked.singles[sequence][1]:
                continue
            # also where it is kept for others: an ABANDONED frame reaches all
            self._unsorted = self._unsorted or next(reversed(self._to_retransmit), -1) > sequence
            self._to_retransmit[sequence] = epoch
            self._in_flight.lose(sequence)
            self.has_pending = True
        self._abandon_range(first, end)

    def _abandon_range(self, first: int, end: int) -> None:
        """Announce that these will not come, perhaps not for the first time: the peer may have missed that, too."""
        for replaced, newer in self._conflated.take(first, end):
            self.abandon(AbandonReason.EVICTED, first, replaced)
            self.abandon(AbandonReason.CONFLATED, replaced, newer)
            first = newer
        self.abandon(AbandonReason.EVICTED, first, end)

    # What leaves

    def bundle_is_ready(self, size: int, now_mono_ns: int) -> bool:
        """Whether messages of about this size that wait make up a bundle, or the first has waited long enough."""
        if (self.next_sequence - self.next_to_send) * (size + FRAMING_OCTETS) >= BUNDLE_OCTETS:
            return True
        first = self._unacked.singles.get(self.next_to_send)
        return first is not None and now_mono_ns - first[0] >= BULK_NS

    def find_unsent(self) -> int | None:
        """The first that waits to be transmitted.

        Passes what was given up, and, when others are up, what only suspended peers owe: they request it when they
        return.
        """
        while self.next_to_send < self.next_sequence:
            owed_by = self._unacked.owed_by(self.next_to_send)
            if owed_by and (owed_by & self._receivers.up or not self._receivers.up):
                break
            self.next_to_send += 1
        return self.next_to_send if self.next_to_send < self.next_sequence else None

    @property
    def can_send(self) -> bool:
        """Whether something that waits may leave now; of many messages not each as soon as there is room for it."""
        if not self.has_pending or not self._receivers.up:
            return False
        if self.fragments:
            return self.fragments.may_go(self.is_requested) or (self.fragments.stalled and bool(self._abandoned))
        if self._abandoned or self.next_sequence - self.next_to_send + len(self._to_retransmit) < BULK_MESSAGES:
            return True
        return self._in_flight.room >= (min(BUNDLE_OCTETS, self._in_flight.budget.share // 2) if self._in_flight else 1)

    @property
    def is_requested(self) -> bool:
        """Whether something waits to be retransmitted; it may go although not `can_send`."""
        return bool(self._to_retransmit)

    def is_repairing(self, sequence: int) -> bool:
        """Whether a message was requested, and has not been acknowledged since."""
        return sequence in self._to_retransmit or sequence in self.retransmitted

    def _put_due_first(self) -> bool:
        """Move the lowest requested message that may exceed the limit to the front; False if there is none.

        It is the first that the flow waits for, if nothing before it that was retransmitted is in flight.  The peer may
        have refused what takes the room, and acknowledges that only after what it requests.
        """
        if not self._in_flight or self.fragments:
            return False
        entries, pacing = self._unacked.singles, self._receivers.pacing
        first = next((one for one in self._to_retransmit if not entries[one][1].isdisjoint(pacing)), None)
        if first is None or any(one < first and one in self._in_flight for one in self.retransmitted):
            return False
        self._to_retransmit.move_to_end(first, last=False)
        return True

    def next_frame(self, may_block: bool = True) -> tuple[Kind, Any] | None:
        """What to transmit next; None: nothing waits, or nothing of it may go now.

        It is one of

        - ``(ABANDONED, (reason, ranges))``: ranges to announce; without any it probes: the peers say what they miss;
        - ``(DATA, frames)``: one message, or several for one bundle;
        - ``(RETRANSMIT, frames)``: the same, of messages that were sent before and requested;
        - ``(FRAGMENT, fragment)``: the next fragment of a long frame.  Nothing else goes before its last fragment, so
          that what is announced is known to be behind all that was sent.  Only when fragments do not get through
          announcements pass them: what was lost may have all the room that they need, until it is requested.

        Call it again when that has been transmitted: until then something ``has_pending``.  ``may_block``: the caller
        can wait for the transport, so it may get more than the transport takes at once; only such a caller gets
        fragments.
        """
        if self._unsorted:
            self._to_retransmit, self._unsorted = OrderedDict(sorted(self._to_retransmit.items())), False
        room = self._in_flight.room if may_block else self._in_flight.inline_room
        due = may_block and room < max(BUNDLE_OCTETS, self._in_flight.budget.unfragmented) and self._put_due_first()
        if not (due or self.can_send) or (room <= 0 and not may_block):
            return None
        if self.fragments and not (self.fragments.stalled and self._abandoned):
            return (Kind.FRAGMENT, self.fragments.next()) if may_block else None
        if self._abandoned:
            return Kind.ABANDONED, self._next_abandoned()
        alone = may_block and not self._in_flight and room > 0  # then one message goes, however long it is
        due_octets = max(room, min(BUNDLE_OCTETS, self._in_flight.budget.limit)) if due else room
        if self._to_retransmit and (frames := self._take_retransmissions(due_octets, alone or due)):
            return Kind.RETRANSMIT, frames
        if not self._to_retransmit and not self.fragments and (new := self._take_new(room, alone)):
            return (Kind.DATA, new) if isinstance(new, list) else (Kind.RUN, new.frame)
        return (Kind.FRAGMENT, self.fragments.next()) if self.fragments else None

    def _octets(self, entry: UnackedMessage) -> int:
        """What a kept message counts for in `InFlight`."""
        return self._unacked.size(entry) + FRAMING_OCTETS

    @property
    def _bundle_octets(self) -> int:
        """Most octets of a frame with several messages; 0: each has a frame of its own."""
        return min(BUNDLE_OCTETS, self._in_flight.budget.frame_limit) if self._receivers.all_take_bundles else 0

    def _next_abandoned(self) -> tuple[AbandonReason, list[tuple[int, int]]]:
        reason, unannounced = next(iter(self._abandoned.items()))
        ranges = [unannounced.drop_first_range() for _ in range(min(len(unannounced), MAX_RANGES))]
        if ranges:
            self.abandoned_end = max(self.abandoned_end, ranges[-1][1])
        if not unannounced:
            del self._abandoned[reason]
        return reason, ranges

    def _take_retransmissions(self, room: int, alone: bool) -> list[MessageFrame]:
        taken: list[MessageFrame] = []
        messages: dict[int, int] = {}  # of them, those that are not in flight yet
        most = self._bundle_octets
        while self._to_retransmit:
            sequence, epoch = next(iter(self._to_retransmit.items()))
            entry = self._unacked.singles[sequence]
            unanswered, up = self.unanswered_octets.get(epoch, 0), self._receivers.up
            if unanswered >= MAX_UNANSWERED_OCTETS or (epoch not in up and not entry[1] & up):  # it will ask again
                if unanswered >= MAX_UNANSWERED_OCTETS:
                    self._dropped_requests.add(epoch)
                del self._to_retransmit[sequence]
                continue
            octets, awaited = self._octets(entry), entry[1] & self._receivers.pacing
            most -= octets
            if taken and most < 0:
                break
            if awaited and self.fragments.are_needed(octets):
                if not taken and (alone or room >= self._in_flight.budget.fragment):
                    self.fragments.start(sequence, entry[2], retransmit=True)
                    self.retransmitted.add(sequence)
                    self.unanswered_octets[epoch] = unanswered + octets
                    del self._to_retransmit[sequence]
                break
            if awaited and sequence not in self._in_flight:
                room -= octets
                if room < 0 and (taken or not alone):
                    break
                messages[sequence] = octets
            self.retransmitted.add(sequence)
            self.unanswered_octets[epoch] = unanswered + octets
            taken.append(entry[2])
            del self._to_retransmit[sequence]
        self._in_flight.add_all(messages, sum(messages.values()))
        return taken

    @property
    def _run_limit(self) -> int:
        """Octets of the longest frame of a run, framing included."""
        budget = self._in_flight.budget
        return min(RUN_OCTETS, budget.unfragmented, budget.frame_limit, self._receivers.least_payload)

    def longest_run(self, size: int) -> int:
        """How many messages of ``size`` octets may leave in a run; 0: none, now."""
        if not size or not self._receivers.up or not self._receivers.all_take_runs:
            return 0
        return max(0, self._run_limit - FRAMING_OCTETS) // size

    def _take_run(self, run: KeptRun, room: int, alone: bool) -> KeptRun | None:
        """The run, or as much of it as may go now; None for nothing."""
        fits = self._run_limit if alone else min(self._run_limit, room)
        count = (fits - FRAMING_OCTETS) // run.size
        if count < run.count:
            if count < 1 if alone else count < BULK_MESSAGES:
                return None
            run = self._unacked.cut(run, count)
        if not self._flow_control.admit(run.end, run.count, run.octets):
            return None
        self._in_flight.add(run.first, run.octets + FRAMING_OCTETS)
        self.next_to_send = run.end
        return run

    def _take_new(self, room: int, alone: bool) -> list[MessageFrame] | KeptRun | None:
        taken: list[MessageFrame] = []
        messages: dict[int, int] = {}
        sequence = self.find_unsent()
        if sequence is None:
            self.has_pending = False
            return taken
        end = self.next_sequence
        if self._unacked.runs:
            if (run := self._unacked.run_of(sequence)) is not None:
                if run.first == sequence and self.longest_run(run.size):
                    return self._take_run(run, room, alone)
                self._unacked.split(sequence, run.end)
            end = self._unacked.next_run(sequence)
        entries, up, beside = self._unacked.singles, self._receivers.up, FRAMING_OCTETS - self._unacked.framing_octets
        if self.fragments.are_needed(octets := self._octets(entries[sequence])):
            if self._in_flight.uncertain:
                return taken  # what is missing goes first
            size = octets - FRAMING_OCTETS
            if (alone or room >= self._in_flight.budget.fragment) and self._flow_control.admit(sequence + 1, 1, size):
                self.fragments.start(sequence, entries[sequence][2])
                self.next_to_send = sequence + 1
            return taken
        most = left = max(octets, min(room, self._bundle_octets))
        for place in range(sequence, end):
            entry = entries.get(place)
            if entry is not None and (entry[1] is up or entry[1] & up):
                octets = len(entry[2]) + beside  # as _octets says, without two calls for each message
                if octets > left:
                    end = place
                    break
                left -= octets
                messages[place] = octets
                taken.append(entry[2])
        octets = most - left
        size = octets - FRAMING_OCTETS * len(taken)
        if (not alone and octets > room) or not self._flow_control.admit(end, len(taken), size):
            return []  # the first, however long, was taken
        self._in_flight.add_all(messages, octets)
        self.next_to_send = end
        return taken

    def on_tick(self) -> bool:
        """To be called a few times a second.

        Returns whether something is leaving in fragments, and moves: then peers say how much they have without being
        asked.
        """
        self.unanswered_octets.clear()
        self._probes_after_answers = 0
        return self.fragments.on_tick()

    def final_abandoned(self, first: int) -> list[tuple[AbandonReason, list[tuple[int, int]]]]:
        """What is to be announced where the link ends: what is kept, from ``first`` on, will not come."""
        self._abandon_range(first, self.next_sequence)
        self.next_to_send = self.next_sequence
        announcements = []
        while self._abandoned:
            announcements.append(self._next_abandoned())
        return announcements

    def close(self) -> None:
        """Nothing will be transmitted any more."""
        self.has_pending = False
        self.fragments.close()

    def recover_after_interrupt(self) -> None:
        """An interruption came between two steps: what is not kept is not retransmitted."""
        unacked = self._unacked.entries
        self._to_retransmit = OrderedDict(one for one in self._to_retransmit.items() if one[0] in unacked)
        self.retransmitted &= unacked.keys()
        self.has_pending = self.has_pending or bool(self._to_retransmit) or self.next_to_send < self.next_sequence

    # What is done with

    def forget(self, sequences: Sequence[int]) -> int:
        """No peer's ack for these counts any more, so none is retransmitted; returns how many had been."""
        self._in_flight.remove(sequences)
        if not self.retransmitted and not self._to_retransmit:
            return 0
        for sequence in sequences:
            self._to_retransmit.pop(sequence, None)
        repaired = self.retransmitted.intersection(sequences)
        self.retransmitted -= repaired
        if repaired:
            self.on_answers(*self.unanswered_octets)
        return len(repaired)

    def on_answers(self, *epochs: int) -> None:
        """These peers have acknowledged something: they may request again what was dropped before they did."""
        for epoch in epochs:
            self.unanswered_octets.pop(epoch, None)
        if self._dropped_requests and self._probes_after_answers < MAX_PROBES_AFTER_ANSWERS:
            self._dropped_requests.clear()
            self._probes_after_answers += 1
            self.probe()

    def forget_below(self, consumed: int) -> None:
        """Every peer has consumed what is below ``consumed``, and will not request it."""
        self._conflated.take(0, consumed)

    def clear(self) -> None:
        """Drop all that waits: no peer is left."""
        self._abandoned.clear()
        self._conflated.clear()
        self._to_retransmit.clear()
        self.retransmitted.clear()
        self.next_to_send = self.next_sequence
        self.close()
