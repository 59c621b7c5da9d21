"""The sending side of one flow: what is kept, under way, acknowledged, asked for again, lost.  No I/O, no clock."""

from collections.abc import Sequence
from typing import Any, Literal

from ...message import Ack
from ..frames import HEADER_OCTETS, MAX_PAYLOAD, MAX_RANGES, REFUSED, Record, Why, sent_at
from ..rangeset import RangeSet
from ..rtt import SAMPLED, Delays
from .congestion import Budget
from .flow_control import Window
from .in_flight import Transit
from .loss import ANYBODY, NOBODY, REASONS, TAKES_NOTHING, UNANSWERED, Doubt, Losses, Standstill
from .queue import Backlog
from .receivers import Recipients
from .retransmit_buffer import Entry, Kept

Overflow = Literal["block", "drop-oldest", "drop-newest", "latest"]

MAX_ABSENT = 64  # peers that fell silent and for whom messages are kept

_new_ack = tuple.__new__  # a named tuple's own constructor takes three times as long


class Outgoing:
    """Feed it what is sent, acks, asks and peers that come and go; ask its backlog what to hand to the transport.

    A message is *kept* until every peer that owes an ack for it has acknowledged it: the peers that were up when it was
    sent, or came before it left, and those that had fallen silent and may return (*absent*).  What is kept is bounded
    by ``retention`` octets.  It is *lost* when that can no longer happen, though it may be kept for others: nobody was
    there, a peer went for good, refused it, or it had to give up its place; had it been handed over by then, it is in
    *doubt* until the peers say whether they have it.  A lost message that is acknowledged after all is lost no more.
    """

    def __init__(
        self,
        flow: str,
        window: int,
        retention: int,
        budget: Budget,
        *,
        repair: bool = True,
        overflow: Overflow = "block",
        framing_octets: int = HEADER_OCTETS,
    ) -> None:
        """``framing_octets``: of a frame, beside its payload."""
        self.flow = flow
        self.repair = repair
        self.overflow = overflow
        self.sent_octets = self.acknowledged = self.repaired = self.conflated = 0
        self.losses = Losses()
        self.delays = Delays()
        self.kept = Kept(retention, framing_octets)
        self.transit = Transit(budget, single=overflow == "latest")  # of states one at a time: the next is newer
        self.window = Window(window)
        self.recipients = Recipients()
        self.backlog = Backlog(self.kept, self.transit, self.window, self.recipients)
        self._standstill = Standstill()
        self._made_way: list[int] = []
        self.doubt = Doubt()

    def fits(self, size: int) -> bool:
        """Whether a payload of ``size`` octets may be sent now.

        Peers that are down hold nobody up: what only they owe an ack for makes room.
        """
        excess = size - self.kept.room
        return excess <= 0 or self.overflow != "block" or self.kept.yields(excess, self.recipients.up)

    def send(self, frame: bytes, size: int, now_mono_ns: int) -> bool | None:
        """Take in the next message, whose payload has ``size`` octets.

        Returns True: hand it to the transport now; False: it waits in the backlog, or had to be dropped; None: there is
        no room for it, and it was not taken in.
        """
        backlog, kept = self.backlog, self.kept
        sequence = backlog.next
        full = size > kept.room
        if full and not self.fits(size):
            return None
        self.sent_octets += size
        recipients = self.recipients.all
        if not recipients:
            backlog.unsent = backlog.next = sequence + 1
            self.losses.add(sequence, sequence + 1, NOBODY, ANYBODY)
            return True  # a plain subscriber may listen
        while self.overflow == "latest" and (waiting := backlog.first_unsent()) is not None:
            self._give_up(waiting, Why.CONFLATED)  # it is old now
        if full and not self._make_room(size):
            backlog.next = sequence + 1
            self._give_up(sequence, Why.DROPPED)
            return False
        kept.add(sequence, size, (now_mono_ns, recipients, frame))
        if backlog.waits:  # as take_in says; in bulk it mostly does
            backlog.next = sequence + 1
            return False
        return backlog.take_in(size, now_mono_ns)

    def _make_room(self, size: int) -> bool:
        """Give up what must make room for the new message; False where that is the new message itself."""
        while (oldest := self.kept.oldest()) is not None and size > self.kept.room:
            if self.kept.entries[oldest][1] & self.recipients.up:
                if self.overflow == "drop-newest":
                    return False
                if self.overflow != "block":
                    waiting = self.backlog.first_unsent()
                    self._give_up(oldest if waiting is None else waiting, Why.DROPPED)
                    continue
            self._give_up(oldest, Why.EVICTED)
        return True

    def _give_up(self, sequence: int, why: Why) -> None:
        """It will not be sent any more, though peers may owe an ack for it: count it, and have them told."""
        entry = self.kept.entries.get(sequence)
        owed_by = entry[1] if entry else frozenset[int]()
        lost = entry is not None and self._let_go(sequence)
        if why is Why.EVICTED and sequence < self.backlog.unsent:
            if not lost:
                self.doubt.add(owed_by, sequence)
            return  # it is announced as gone when somebody misses it
        if why is Why.CONFLATED:
            self.conflated += not lost
        elif not lost:
            self.losses.add(sequence, sequence + 1, REASONS[why], owed_by)
        self.backlog.announce(why, sequence, sequence + 1)

    def _let_go(self, sequence: int) -> bool:
        """Keep it no longer, nor send it again: no ack for it counts any more; returns whether it is lost already."""
        self.kept.remove(sequence)
        self.backlog.settle((sequence,))
        return self.kept.forget_lost((sequence,)) > 0

    # What comes back

    def acknowledge(
        self, epoch: int, records: Sequence[Record], t3_ns: int, t4_ns: int, t4_mono_ns: int, timed: bool = True
    ) -> list[Ack]:
        """Take in peer ``epoch``'s ack of these messages (sequence, T1, T2); returns acks for those it still owed.

        ``timed``: T2 is when they arrived, so they count for the delays.
        """
        flow, entries = self.flow, self.kept.entries
        acks, had_by_all, count, octets = [], [], 0, 0
        owed_by, owes, alone = None, False, False
        try:
            for sequence, t1_ns, t2_ns in records:
                entry = entries.get(sequence)
                if entry is None:
                    if t2_ns != REFUSED:  # it was in doubt, or counted as lost, perhaps until now
                        doubtful = self.doubt.open and self.doubt.arrived(epoch, sequence)
                        self.acknowledged += doubtful or self.losses.found(sequence, epoch)
                    continue
                if entry[1] is not owed_by:  # mostly all of them are owed by the same peers
                    owed_by = entry[1]
                    owes, alone = epoch in owed_by, len(owed_by) == 1
                if not owes:
                    continue
                if t2_ns == REFUSED:
                    self._refused_by(epoch, sequence, entry)
                    continue
                if alone:
                    size = len(entry[2])
                    count += 1  # from here on no call ends before it is among them, see `mend`
                    octets += size
                    del entries[sequence]
                    had_by_all.append(sequence)
                else:
                    self._owes_no_more(epoch, sequence, entry)
                fields = (sequence, t4_mono_ns - entry[0], t1_ns, t2_ns, t3_ns, t4_ns, epoch, flow)
                acks.append(_new_ack(Ack, fields))
        finally:
            self.acknowledged += count
            self.kept.removed(count, octets)
            if had_by_all:
                self._settle(had_by_all)
        if acks and timed:
            self.delays.add(epoch, acks)
        return acks

    def acknowledge_row(
        self, epoch: int, row: range, t2_ns: int, t3_ns: int, t4_ns: int, t4_mono_ns: int, told: bool
    ) -> list[Ack]:
        """As `acknowledge`, of messages that arrived together, at T2; returns acks of some unless all are ``told``.

        To make them takes longer than all else here.
        """
        entries, owed = self.kept.entries, self.kept.owed_alone(row, epoch)
        if owed is None:
            records = [(one, sent_at(entries[one][2]) if one in entries else 0, t2_ns) for one in row]
            return self.acknowledge(epoch, records, t3_ns, t4_ns, t4_mono_ns)
        sent_mono_ns, frames = owed
        count, octets = 0, sum(map(len, frames))
        try:
            for sequence in row:
                count += 1  # as above
                del entries[sequence]
        finally:
            self.acknowledged += count
        self.kept.removed(count, octets)
        self._settle(row)
        acks, every = [], 1 if told else SAMPLED
        for at in range(-row.start % every, len(row), every):
            rtt_ns, t1_ns = t4_mono_ns - sent_mono_ns[at], sent_at(frames[at])
            acks.append(_new_ack(Ack, (row[at], rtt_ns, t1_ns, t2_ns, t3_ns, t4_ns, epoch, self.flow)))
        self.delays.add(epoch, acks)
        return acks

    def mend(self) -> None:
        """An interruption (Ctrl-C, which comes where a call ends) came between two steps of one of these methods."""
        self.kept.mend(self.backlog.next)
        self.transit.mend({one for one in self.kept.entries if one < self.backlog.unsent})
        self.backlog.mend()
        known = self.acknowledged + self.stats()["outstanding"] + self.losses.count + self.conflated
        self.acknowledged -= max(0, known - self.backlog.next)  # of what has just come, and counted as lost before
        if known < self.backlog.next and not self.recipients.all:  # the last was sent to nobody, and is not counted
            self.losses.add(known, self.backlog.next, NOBODY, ANYBODY)

    def _owes_no_more(self, epoch: int, sequence: int, entry: Entry) -> None:
        """Peer ``epoch`` owes no ack for it any more; others do, so it stays kept."""
        sent_mono_ns, owed_by, frame = entry
        owed_by -= {epoch}
        self.kept.entries[sequence] = (sent_mono_ns, owed_by, frame)
        if not owed_by & self.recipients.up:
            self.transit.remove((sequence,))

    def _settle(self, had_by_all: Sequence[int]) -> None:
        """These are kept no longer, and counted as acknowledged: every peer has them.  None is sent again."""
        if self.kept.lost:
            self.acknowledged -= self.kept.forget_lost(had_by_all)
        self.repaired += self.backlog.settle(had_by_all)

    def _refused_by(self, epoch: int, sequence: int, entry: Entry) -> None:
        """Peer ``epoch`` refused it, so it is lost; it is kept as long as others may ask for it."""
        if len(entry[1]) > 1:
            self._lose_to_some(sequence, TAKES_NOTHING)
            self._owes_no_more(epoch, sequence, entry)
        elif not self._let_go(sequence):
            self.losses.add(sequence, sequence + 1, TAKES_NOTHING)

    def _lose_to_some(self, sequence: int, reason: str) -> None:
        """Somebody will not get it, and others owe an ack for it."""
        if sequence not in self.kept.lost:
            self.kept.lost.add(sequence)
            self.losses.add(sequence, sequence + 1, reason)

    def asked(
        self, epoch: int, known: int, missing: Sequence[tuple[int, int]], t3_ns: int, t4_ns: int, t4_mono_ns: int
    ) -> list[Ack]:
        """Take in peer ``epoch``'s ask: it lacks the ``missing`` ranges, and has all else below ``known``.

        Returns acks for the messages that it has and whose own ack did not come: how long they took is not known, only
        that they were there when the peer asked (T2 = T3), so they do not count for the delays.
        """
        entries, absent_there = self.kept.entries, RangeSet(missing)
        there = [one for one in self.kept.between(0, known) if epoch in entries[one][1] and one not in absent_there]
        records = [(one, sent_at(entries[one][2]), t3_ns) for one in there]
        acks = self.acknowledge(epoch, records, t3_ns, t4_ns, t4_mono_ns, timed=False)
        lost, arrived = self.doubt.answer(epoch, known, missing)
        for first, end in lost:
            self.losses.add(first, end, REASONS[Why.EVICTED])
        self.acknowledged += sum(end - first for first, end in arrived)
        for first, end in missing:
            self.backlog.send_again(first, end, epoch, self.recipients.since.get(epoch, 0))
            self.doubt.announced(first, end)
        returned = self.recipients.returned
        if known >= returned.get(epoch, 0) or len(missing) == MAX_RANGES:  # it has said what it could
            returned.pop(epoch, None)
            self.transit.unsure = bool(returned)
        return acks

    def consume(self, epoch: int, consumed: int) -> None:
        """Peer ``epoch`` is done with every sequence below ``consumed``.

        What it went past without an ack is lost, where it cannot ask for it.
        """
        recipients, all_consumed = self.recipients, self.recipients.consumed
        known = all_consumed.get(epoch)
        if known is not None and known < consumed <= self.backlog.unsent:
            all_consumed[epoch] = consumed
            self.window.free(min(all_consumed.values()))
        elif len(recipients.up) < 2:
            return
        if self.kept.entries and not (recipients.parts and self.repair):
            self._lose_skipped()

    def _lose_skipped(self) -> None:
        """Lose, from the oldest on, what every peer that owes an ack went past, and none of them will ask for."""
        entries, consumed, asking = self.kept.entries, self.recipients.consumed, self.recipients.asking
        while (sequence := self.kept.oldest()) is not None:
            owed_by = entries[sequence][1]
            if any(epoch in asking or consumed.get(epoch, 0) <= sequence for epoch in owed_by):
                return
            if not self._let_go(sequence):
                self.losses.add(sequence, sequence + 1, "the peer went past it without acknowledging it", owed_by)

    # Peers

    def peer_up(self, epoch: int, repairs: bool = False, max_payload: int = MAX_PAYLOAD) -> None:
        """A peer joined: it owes nothing for what has left before.  Or it is back: it still owes what it owed.

        ``repairs``: it asks for what it misses, and reads bundles and parts.  ``max_payload``: what it takes.
        """
        backlog, recipients = self.backlog, self.recipients
        since = backlog.next
        if epoch not in recipients.all:  # what waits for others reaches it as well, and goes as it takes it
            since = self.kept.owe(epoch, range(backlog.unsent, backlog.next), recipients.up, max_payload)
        recipients.come(epoch, since, backlog.unsent, repairs, repairs and self.repair)
        self.window.free(recipients.slowest)
        if epoch in recipients.returned:
            self.transit.unsure = True
            backlog.returned(epoch)
            backlog.ask()
        backlog.waits = backlog.waits or backlog.unsent < backlog.next
        self.delays.join(epoch, recipients.all)

    def peer_down(self, epoch: int, reason: str, may_return: bool = False, successor: int | None = None) -> None:
        """A peer went: for good, or perhaps to return; then what it owes is kept for it.

        What a ``successor`` of the same node has acknowledged in its stead is not lost.
        """
        recipients = self.recipients
        is_absent = recipients.go(epoch, may_return)
        self.transit.unsure = bool(recipients.returned)
        if not is_absent:
            self._lose_peer(epoch, reason, successor)
            return
        if len(recipients.absent) > MAX_ABSENT:
            self.forget(next(iter(recipients.absent)), "too many silent peers to keep messages for")
        entries = self.kept.entries
        self.transit.remove([one for one in self.transit.sequences() if not entries[one][1] & recipients.up])
        if recipients.consumed:
            self.window.free(recipients.slowest)

    def forget(self, epoch: int, reason: str, successor: int | None = None) -> None:
        """A peer will not return: what it owed is lost; what others owe, too, is kept for them."""
        self.recipients.forget(epoch)
        self._lose_peer(epoch, reason, successor)

    def _lose_peer(self, epoch: int, reason: str, successor: int | None) -> None:
        end = self.backlog.next
        taken_over = end if successor is None else self.recipients.since.get(successor, end)
        for sequence, entry in list(self.kept.entries.items()):
            if epoch not in entry[1]:
                continue
            if len(entry[1]) > 1:
                if sequence < taken_over:
                    self._lose_to_some(sequence, reason)
                self._owes_no_more(epoch, sequence, entry)
            elif self._let_go(sequence):
                continue
            elif sequence < taken_over:
                self.losses.add(sequence, sequence + 1, reason, (epoch,))
            else:
                self.acknowledged += 1
        for first, end in self.doubt.forget(epoch):
            self.losses.add(first, end, REASONS[Why.EVICTED])
        if self.recipients.consumed:
            self.window.free(self.recipients.slowest)
        elif not self.recipients.all:
            if not self.recipients.unread:  # else its application may still have it before it
                self.window.clear()
            self.backlog.clear()

    def is_settled_below(self, end: int) -> bool:
        """Whether the fate of every sequence below ``end`` is known."""
        oldest = self.kept.oldest()
        doubtful = self.doubt.all().first_range() if self.doubt.open else None
        return (oldest is None or oldest >= end) and (doubtful is None or doubtful[0] >= end)

    def outstanding(self) -> RangeSet:
        """The sequences whose fate is not known yet."""
        kept = sorted(self.kept.entries.keys() - self.kept.lost)
        return RangeSet([*self.doubt.all(), *((sequence, sequence + 1) for sequence in kept)])

    def missing(self) -> RangeSet:
        """What is outstanding, or lost and not named by a flush yet."""
        return RangeSet([*self.outstanding(), *self.losses.unflushed])

    def last_announcements(self) -> list[tuple[Why, list[tuple[int, int]]]]:
        """What is to be announced where the link ends, so that who is up knows what it will not get."""
        backlog, oldest = self.backlog, self.kept.oldest()
        if not self.recipients.up:
            return []
        if not self.repair or self.recipients.slowest < backlog.unsent:
            backlog.ask()  # without ranges it is the end of what was sent: what was announced may be lost
        return backlog.last_announcements(oldest if self.repair and oldest is not None else backlog.next)

    def end(self) -> None:
        """Nothing will be handed over any more: no frame is kept, only what is outstanding."""
        self.backlog.end()
        self.kept.release()

    def look(self) -> None:
        """To be called a few times a second: asks what the peers miss when something waits for the same as before.

        That is an ack, room in the window, an answer of who returned or lacks something, or that all went past what was
        announced as gone: the message, its ack, the ask, what was consumed or the announcement may have been lost.
        """
        backlog, recipients = self.backlog, self.recipients
        in_parts = backlog.look()
        slowest = recipients.slowest if recipients.consumed else backlog.announced
        waits_for = (
            self.transit.oldest,
            self.window.awaited if backlog.unsent < backlog.next else None,
            0 if recipients.returned or self.doubt.asks(recipients.up) else None,
            slowest if slowest < backlog.announced else None,
        )
        waits_as_before, makes_way = self._standstill.look(waits_for)
        backlog.forget_below(min([slowest, *recipients.absent.values()]))
        if makes_way:
            self._make_way()
        self._look_for_who_stands(slowest)
        if in_parts:
            self._standstill.forget()
        elif recipients.asking and waits_as_before:
            backlog.ask()

    def _look_for_who_stands(self, slowest: int) -> None:
        """Ask now and then where a peer has consumed nothing for long: what it waits for may not be kept here.

        Where nothing is sent again it waits for nothing, and a gap shows when something later arrives; so then only
        while nothing leaves: at rest, or when what was lost has all the room in the window.
        """
        backlog = self.backlog
        place = (0 if self.repair else backlog.unsent, slowest)
        due = slowest < backlog.unsent
        if self._standstill.stands(place, due) and self.recipients.up and self.recipients.parts:
            self._standstill.begin_again()
            backlog.ask()

    def ask(self) -> None:
        """Have the peers say what they miss, if an ack is awaited."""
        if self.recipients.asking and self.kept.entries:
            self.backlog.ask()

    def _make_way(self) -> None:
        """What only peers owe that cannot ask for it is taken not to have arrived: it leaves `transit` for others.

        It stays kept until they are past it, or until others have to make way, two seconds later: then it is lost.
        """
        entries, asking = self.kept.entries, self.recipients.asking
        for sequence in self._made_way:
            owed_by = entries[sequence][1] if sequence in entries else asking
            if owed_by and asking.isdisjoint(owed_by) and not self._let_go(sequence):
                self.losses.add(sequence, sequence + 1, UNANSWERED, owed_by)
        self._made_way = [one for one in self.transit.sequences() if asking.isdisjoint(entries[one][1])]
        self.transit.remove(self._made_way)

    def stats(self) -> dict[str, Any]:
        """Counters."""
        return {
            "sent": self.backlog.next,
            "sent_octets": self.sent_octets,
            "acknowledged": self.acknowledged,
            "outstanding": len(self.kept.entries) - len(self.kept.lost) + self.doubt.all().count(),
            "lost": self.losses.count,
            "conflated": self.conflated,
            "repaired": self.repaired,
            "kept_octets": self.kept.octets,
            "in_flight_octets": self.window.octets,
        }
