"""What of a flow waits to be handed to the transport: new messages, those asked for again, what is gone.  No I/O."""

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

from ..fragmentation import Cut
from ..frames import MAX_RANGES, Kind, Why
from ..rangeset import RangeSet
from .flow_control import Window
from .in_flight import FRAMING_OCTETS, Transit
from .receivers import Recipients
from .retransmit_buffer import Entry, Kept

# So many messages sent within so short a time, and not acknowledged, come in bulk: the next ones share frames.
BULK_MESSAGES = 32
BULK_NS = 1_000_000
BUNDLE_OCTETS = 48 * 1024  # framing included: one batch of Zenoh's, and few enough to be copied
STUCK_LOOKS = 4  # when no more of a frame has got through in so many looks, what is not there leaves again


class Backlog:
    """Kept messages leave in order, as far as two limits allow.

    ``transit`` bounds the octets that were handed over and not acknowledged by the peers that are up; ``window`` those
    that their applications have not consumed, and so the memory of receivers.

    Attributes:
        next: the number of the next message.
        unsent: the first number that has not been handed to the transport.
        waits: whether something waits to be handed over, or is being handed over after it has waited.
        announced: no message from this number on has been announced as gone.
    """

    def __init__(self, kept: Kept, transit: Transit, window: Window, recipients: Recipients) -> None:
        self.next = 0
        self.unsent = 0
        self.waits = False
        self.announced = 0
        self._kept = kept
        self._transit = transit
        self._window = window
        self._recipients = recipients
        self._again: OrderedDict[int, int] = OrderedDict()  # asked for, in order -> by whom
        self._sent_again: set[int] = set()  # and not acknowledged yet
        self._gone: dict[Why, RangeSet] = {}  # to be announced; an empty set: ask what is missing
        self._conflated = RangeSet()  # of what will not come, beyond what everybody has consumed
        self._cut: Cut | None = None  # what leaves in parts, or was the last to

    # What comes in

    def in_bulk(self, now_mono_ns: int) -> bool:
        """Whether so many messages are sent now that they better share frames."""
        before = self._kept.entries.get(self.next - BULK_MESSAGES)
        return (
            before is not None
            and now_mono_ns - before[0] < BULK_NS
            and len(before[2]) < BUNDLE_OCTETS // BULK_MESSAGES
            and self._recipients.bundles
        )

    def take_in(self, size: int, now_mono_ns: int) -> bool:
        """Take in message number ``next``, of ``size`` octets and kept already.

        Returns True: whoever sends it is to hand it over now; False: it waits here.
        """
        sequence, octets = self.next, size + FRAMING_OCTETS
        self.next = end = sequence + 1
        if (
            not self.waits
            and self._recipients.up
            and (len(self._kept.entries) < BULK_MESSAGES or not self.in_bulk(now_mono_ns))
            and octets <= self._transit.direct_room
            and self._window.admit(end, 1, size)
        ):
            self._transit.add(sequence, octets)
            self.unsent = end
            return True
        self.waits = True
        return False

    def announce(self, why: Why, first: int, end: int) -> None:
        """Have the peers told that messages ``first`` to ``end - 1`` will not come, and why."""
        if first < end:
            if why is Why.CONFLATED:
                self._conflated.add(first, end)
            self._gone.setdefault(why, RangeSet()).add(first, end)
            self.waits = True

    def ask(self) -> None:
        """Have the peers asked what they miss."""
        self._gone.setdefault(Why.EVICTED, RangeSet())
        self.waits = True

    def send_again(self, first: int, end: int, epoch: int, owed_from: int) -> None:
        """Peer ``epoch`` misses ``first`` to ``end - 1``: what is kept of that leaves again, the rest will not come.

        What is lost to some, and it owes no ack for though it did, from ``owed_from`` on, it has refused: not that.
        """
        end = min(end, self.unsent)
        kept, leaving = self._kept, self._leaving
        for sequence in kept.between(first, end):
            if first < sequence:
                self._will_not_come(first, sequence)
            first = sequence + 1
            if leaving is not None and leaving.sequence == sequence:
                continue  # it comes: whoever is up has had the first part, or will have it again
            if sequence in kept.lost and sequence >= owed_from and epoch not in kept.entries[sequence][1]:
                continue
            self._again[sequence] = epoch  # also where it is kept for others: a gone would be heard by all
            self._transit.remove((sequence,))  # it is not on its way: it is missing
            self.waits = True
        self._will_not_come(first, end)

    def _will_not_come(self, first: int, end: int) -> None:
        """Announce that these will not come, perhaps not for the first time: the peer may have missed that, too."""
        for replaced, newer in self._conflated.take(first, end):
            self.announce(Why.EVICTED, first, replaced)
            self.announce(Why.CONFLATED, replaced, newer)
            first = newer
        self.announce(Why.EVICTED, first, end)

    # What leaves

    def bundle_waits(self, size: int, now_mono_ns: int) -> bool:
        """Whether messages of about this size that wait make up a bundle, or the first has waited long enough."""
        if (self.next - self.unsent) * (size + FRAMING_OCTETS) >= BUNDLE_OCTETS:
            return True
        first = self._kept.entries.get(self.unsent)
        return first is not None and now_mono_ns - first[0] >= BULK_NS

    def first_unsent(self) -> int | None:
        """The first that waits to be handed over.

        Passes what was given up, and, when others are up, what only absent peers owe: they ask for it when they return.
        """
        while self.unsent < self.next:
            entry = self._kept.entries.get(self.unsent)
            if entry is not None and (entry[1] & self._recipients.up or not self._recipients.up):
                break
            self.unsent += 1
        return self.unsent if self.unsent < self.next else None

    @property
    def may_go(self) -> bool:
        """Whether something that waits may leave now; of many messages not each as soon as there is room for it."""
        if not self.waits or not self._recipients.up:
            return False
        if (cut := self._leaving) is not None:
            return self._transit.takes_part(cut.sequence) or (cut.stuck and bool(self._gone))
        if self._gone or self.next - self.unsent + len(self._again) < BULK_MESSAGES:
            return True
        return self._transit.room >= (min(BUNDLE_OCTETS, self._transit.budget.share // 2) if self._transit else 1)

    def take(self, patient: bool = True) -> tuple[Kind, Any] | None:
        """What to hand to the transport next; None: nothing waits, or nothing of it may go now.

        It is one of

        - ``(GONE, (why, ranges))``: ranges to announce; without any, the peers are asked what they miss;
        - ``(DATA, frames)``: one message, or several for one bundle;
        - ``(AGAIN, frames)``: the same, of messages that were sent before and asked for;
        - ``(PART, part)``: the next part of a long frame.  Nothing else goes before its last part, so that what is
          announced is known to be behind all that was sent.  Only when parts do not get through announcements pass
          them: what was lost may have all the room that they need, until it is asked for.

        Call it again when that has been handed over: until then something ``waits``.  ``patient``: the caller can wait
        for the transport, so it may get more than the transport takes at once; only such a caller gets parts.
        """
        room = self._transit.room if patient else self._transit.direct_room
        if not self.may_go or (room <= 0 and not patient):
            return None
        if (cut := self._leaving) is not None and not (cut.stuck and self._gone):
            return (Kind.PART, self._next_part()) if patient else None
        if self._gone:
            return Kind.GONE, self._next_announcement()
        alone = patient and not self._transit and room > 0  # then one message goes, however long it is
        if self._again and (frames := self._take_again(room, alone)):
            return Kind.AGAIN, frames
        if not self._again and self._leaving is None and (frames := self._take_unsent(room, alone)):
            return Kind.DATA, frames
        return (Kind.PART, self._next_part()) if self._leaving is not None else None

    def _octets(self, entry: Entry) -> int:
        """What a kept message counts for in `Transit`."""
        return self._kept.size(entry) + FRAMING_OCTETS

    def _next_announcement(self) -> tuple[Why, list[tuple[int, int]]]:
        why, gone = next(iter(self._gone.items()))
        ranges = [gone.drop_first_range() for _ in range(min(len(gone), MAX_RANGES))]
        if ranges:
            self.announced = max(self.announced, ranges[-1][1])
        if not gone:
            del self._gone[why]
        return why, ranges

    def _take_again(self, room: int, alone: bool) -> list[bytes]:
        taken: list[bytes] = []
        messages: dict[int, int] = {}  # of them, those that are not on their way yet
        most = BUNDLE_OCTETS if self._recipients.bundles else 0
        while self._again:
            sequence, epoch = next(iter(self._again.items()))
            entry = self._kept.entries[sequence]
            if epoch not in self._recipients.up and not entry[1] & self._recipients.up:  # it will ask again
                del self._again[sequence]
                continue
            octets, awaited = self._octets(entry), entry[1] & self._recipients.up
            most -= octets
            if taken and most < 0:
                break
            if awaited and self._is_long(octets):
                if not taken and (alone or room >= self._transit.budget.part):
                    self._begin(sequence, entry[2], again=True)
                    self._sent_again.add(sequence)
                    del self._again[sequence]
                break
            if awaited and sequence not in self._transit:
                room -= octets
                if room < 0 and (taken or not alone):
                    break
                messages[sequence] = octets
            self._sent_again.add(sequence)
            taken.append(entry[2])
            del self._again[sequence]
        self._transit.add_all(messages, sum(messages.values()))
        return taken

    def _take_unsent(self, room: int, alone: bool) -> list[bytes]:
        taken: list[bytes] = []
        messages: dict[int, int] = {}
        sequence = self.first_unsent()
        if sequence is None:
            self.waits = False
            return taken
        entries, up, beside = self._kept.entries, self._recipients.up, FRAMING_OCTETS - self._kept.framing_octets
        if self._is_long(octets := self._octets(entries[sequence])):
            if self._transit.unsure:
                return taken  # what is missing goes first
            size = octets - FRAMING_OCTETS
            if (alone or room >= self._transit.budget.part) and self._window.admit(sequence + 1, 1, size):
                self._begin(sequence, entries[sequence][2])
                self.unsent = sequence + 1
            return taken
        most = left = max(octets, min(room, BUNDLE_OCTETS) if self._recipients.bundles else 0)
        end = self.next
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
        if not alone and octets > room:  # the first, however long, was taken
            return []
        if not self._window.admit(end, len(taken), octets - FRAMING_OCTETS * len(taken)):
            return []
        self._transit.add_all(messages, octets)
        self.unsent = end
        return taken

    # What leaves in parts

    def _is_long(self, octets: int) -> bool:
        return octets > self._transit.budget.whole and self._recipients.parts

    def _begin(self, sequence: int, frame: bytes, again: bool = False) -> None:
        self._cut = Cut(sequence, frame, again)
        self._transit.add(sequence, FRAMING_OCTETS)

    @property
    def _leaving(self) -> Cut | None:
        """The frame that leaves in parts, while some of it has not left and a peer that is up owes an ack for it."""
        cut = self._cut
        return cut if cut is not None and cut.at < cut.octets and cut.sequence in self._transit else None

    def _next_part(self) -> bytes:
        assert self._cut is not None
        part = self._cut.next(self._transit.budget.part)
        self._count_parts(self._cut)
        return part

    def _count_parts(self, cut: Cut) -> None:
        self._transit.set(cut.sequence, cut.under_way(self._owing(cut)) + FRAMING_OCTETS)

    def _owing(self, cut: Cut) -> frozenset[int]:
        """Peers that are up and owe an ack for it."""
        return self._kept.entries[cut.sequence][1] & self._recipients.up

    def progress(self, epoch: int, sent_ns: int, octets: int) -> None:
        """Peer ``epoch`` has so many octets of the frame that was sent, as a whole, at ``sent_ns``."""
        cut = self._cut
        if cut is None or cut.sequence not in self._transit or epoch not in self._owing(cut):
            return
        if cut.progress(epoch, sent_ns, octets):
            self._count_parts(cut)

    def returned(self, epoch: int) -> None:
        """Peer ``epoch`` is back, and may have lost the parts that left before: they leave again."""
        if (cut := self._leaving) is not None:
            cut.forget(epoch)
            self._go_back(cut)

    def _go_back(self, cut: Cut) -> None:
        cut.go_back(self._owing(cut))
        self._count_parts(cut)

    def look(self) -> bool:
        """To be called a few times a second: what has left in parts, and does not get through, leaves again.

        Returns whether something is leaving in parts, and moves: then peers say how much they have without being asked.
        """
        if (cut := self._leaving) is not None:
            cut.looks += 1
            if cut.looks > STUCK_LOOKS:
                self._go_back(cut)
                cut.stuck = True
            return not cut.stuck
        if self._cut is not None and self._cut.sequence not in self._transit:
            self._cut = None  # and its frame
        return False

    def last_announcements(self, first: int) -> list[tuple[Why, list[tuple[int, int]]]]:
        """What the peers are to be told where the link ends: what is kept, from ``first`` on, will not come."""
        self._will_not_come(first, self.next)
        self.unsent = self.next
        announcements = []
        while self._gone:
            announcements.append(self._next_announcement())
        return announcements

    def end(self) -> None:
        """Nothing will be handed over any more."""
        self.waits = False
        self._cut = None

    def mend(self) -> None:
        """An interruption came between two steps: what is not kept is not sent again."""
        kept = self._kept.entries
        for sequence in [one for one in self._again if one not in kept]:
            del self._again[sequence]
        self._sent_again &= kept.keys()
        self.waits = self.waits or bool(self._again) or self.unsent < self.next

    # What is done with

    def settle(self, sequences: Sequence[int]) -> int:
        """No peer's ack for these counts any more, so none is sent again; returns how many had been."""
        self._transit.remove(sequences)
        if not self._sent_again and not self._again:
            return 0
        for sequence in sequences:
            self._again.pop(sequence, None)
        repaired = self._sent_again.intersection(sequences)
        self._sent_again -= repaired
        return len(repaired)

    def forget_below(self, consumed: int) -> None:
        """Every peer has consumed what is below ``consumed``, and will not ask for it."""
        self._conflated.take(0, consumed)

    def clear(self) -> None:
        """Drop all that waits: nobody is left to hand it to."""
        self._gone.clear()
        self._conflated.clear()
        self._again.clear()
        self._sent_again.clear()
        self.unsent = self.next
        self.end()
