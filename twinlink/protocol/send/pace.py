"""Pace: the peers that a flow waits for, and those that have fallen behind.  No I/O, no clock.

Publish/subscribe sends one copy to all peers, so a flow cannot go slower for one of them.  With pace ``fastest`` it
waits only for the peers that keep up.  A peer is *lagging* until it has caught up

- if it refuses messages for want of room;
- if it acknowledges nothing of what it has read, as a hello of this side that it confirms shows;
- or if the flow has waited for it for `LAG_NS`, while another peer would have taken more, and it has refused some of
  the last that was sent, or has acknowledged it and its application is slow.

It requests what it missed as it finds room, as long as that is kept.

A peer that is stopped, or behind a slow path, does not read what is sent to it, and the transport would have to keep
that: the flow waits for it.  For the same reason a lagging peer is not sent much more than it has seen, and one that
reads without acknowledging `READS_ON_LIMITS` times as much beyond its last hello.
"""

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from .peer_windows import PeerWindows
from .record import SendRecord

LAG_NS = 200_000_000
SEND_LAG_NS = 20_000_000  # while a thread waits for room to send
# Over a transport in which hellos overtake data, what a peer is taken to have read may still be on its way.
OVERTAKEN_NS = 200_000_000
READS_ON_LIMITS = 16  # times what may be in flight: so much beyond its last hello a peer that withholds acks is sent
REPEAT_NS = 1_000_000_000  # so long a peer may take for what was retransmitted, or for more of a long message
MAX_LOOKED_AT = 256  # messages in flight, to find out which peers they wait for
SLOW_TICKS = 5  # of 0.2 s: a peer that has not consumed what was sent so long ago is reported as slow
MAX_DOUBLINGS = 7  # of the ticks for which a peer that withholds acks again and again is not waited for: 26 s
CAUGHT_UP_TICKS = 2  # and a peer that has consumed what was sent so long ago has caught up


@dataclass(slots=True)
class LaggingPeer:
    """A peer that the flow does not wait for.

    Attributes:
        left_at: the next number to leave when the flow stopped waiting for it.
        seen: what was sent below has arrived there.
        withholds: since then, it has read something, and neither acknowledged, refused nor requested it.
        penalty_ticks: so long it does not count as having caught up.
        reads: its hellos confirm new ones of this side.
    """

    left_at: int
    seen: int
    withholds: bool = False
    penalty_ticks: int = 0
    reads: bool = True


class PaceKeeper:
    """Decides for which peers a flow waits.

    Attributes:
        watches: whether it matters which peer acknowledges something.
        suspects: the peers that alone hold up the flow.  A hello finds out whether they read.
        changes: what is to be reported: by epoch, how many messages a peer is behind now; 0: it has caught up.
    """

    def __init__(self, flow: SendRecord) -> None:
        self.pace = flow.options.pace
        self.changes: dict[int, int] = {}
        self.watches = False
        self.suspects: frozenset[int] = frozenset()
        self._queue = flow.queue
        self._receivers = flow.receivers
        self._unacked = flow.unacked
        self._in_flight = flow.in_flight
        self._flow_control = flow.flow_control
        self._hellos_overtake = flow.in_flight.budget.hellos_overtake
        self._sent_at_ticks: deque[int] = deque([0] * SLOW_TICKS, SLOW_TICKS)  # the next number to leave, at each tick
        self._peer_windows = PeerWindows(flow)
        self._since_mono_ns = 0  # the flow has waited for the suspects
        self._lagging: dict[int, LaggingPeer] = {}
        # By peer: the first message whose ack it withholds, how much it has of that, since when that has been so.
        self._withheld: dict[int, tuple[int, int, int]] = {}
        self._offences: dict[int, int] = {}  # by peer: how often the flow has waited anew for acks that it withheld
        self._slow: set[int] = set()

    def check(self, now_mono_ns: int, size: int, read: Mapping[int, int]) -> bool:
        """Wait no longer for the peers that alone hold up the flow; whether it may go on.

        To be called at each tick, after each ack or hello while what waits cannot go, and while there is no room to
        keep a message of ``size`` octets.  ``read``: as `PeerManager.read_positions` says.
        """
        receivers = self._receivers
        if self.pace == "slowest" or len(receivers.up) < 2:
            return False
        withholding = self._find_withholding(now_mono_ns, read)
        raised = self._extend(withholding, read)
        blockers = self._blockers(size)
        suspects = self.suspects & blockers
        if not suspects or receivers.pacing in {suspects, self.suspects}:  # until now it waited for all of them
            suspects, self._since_mono_ns = suspects or blockers, now_mono_ns
        self.suspects = suspects
        self.watches = bool(suspects or receivers.lagging)
        lagging = withholding & receivers.pacing
        if now_mono_ns - self._since_mono_ns >= (SEND_LAG_NS if size else LAG_NS):
            lagging |= self._refusing_or_slow(suspects)
        if not lagging or lagging == receivers.pacing:
            return raised
        sent = self._queue.next_to_send
        for epoch in withholding & lagging:
            self._offences[epoch] = self._offences.get(epoch, -1) + 1
        self._leave_behind(
            {one: LaggingPeer(sent, sent, one in withholding, self._penalty_ticks(one)) for one in lagging}
        )
        return True

    def _penalty_ticks(self, epoch: int) -> int:
        """For how long a peer does not count as having caught up: longer each time that it withholds acks."""
        return 1 << min(self._offences.get(epoch, 0), MAX_DOUBLINGS)

    def _find_withholding(self, now_mono_ns: int, read: Mapping[int, int]) -> set[int]:
        """The peers that have read something, and neither acknowledged, refused nor requested it."""
        withheld = self._withheld
        self._withheld = {}
        found = set[int]()
        for epoch, sequence in self._first_unacked(read).items():
            arrived = self._queue.fragments.arrived(sequence, epoch)
            before = withheld.get(epoch, (0, 0, 0))
            since_mono_ns = before[2] if before[:2] == (sequence, arrived) else now_mono_ns
            self._withheld[epoch] = sequence, arrived, since_mono_ns
            again = arrived or sequence in self._queue.retransmitted
            allowed_ns = REPEAT_NS if again else OVERTAKEN_NS if self._hellos_overtake else 0
            if now_mono_ns - since_mono_ns >= allowed_ns:
                found.add(epoch)
        return found

    def _first_unacked(self, read: Mapping[int, int]) -> dict[int, int]:
        """By peer, the first message that it has read, owes an ack for, and has not refused.

        Of what is in flight; for a lagging peer, of what is kept for it.
        """
        entries, receivers, first = self._unacked.entries, self._receivers, dict[int, int]()
        refused, pacing = receivers.refused, receivers.pacing & read.keys()
        for sequence in islice(self._in_flight, MAX_LOOKED_AT):
            for epoch in (entries[sequence][1] & pacing) - first.keys():
                if refused.get(epoch, 0) <= sequence < read[epoch]:
                    first[epoch] = sequence
        oldest = self._unacked.oldest() or 0
        for epoch in receivers.lagging & read.keys():
            begin = max(oldest, refused.get(epoch, 0))
            for sequence in range(begin, min(read[epoch], begin + MAX_LOOKED_AT)):
                entry = entries.get(sequence)
                if entry is not None and epoch in entry[1] and not self._queue.is_repairing(sequence):
                    first[epoch] = sequence
                    break
        return first

    def _extend(self, withholding: Collection[int], read: Mapping[int, int]) -> bool:
        """Note what lagging peers have read; whether more may be sent to them, and none could."""
        if not self._lagging:
            return False
        had_room = self._in_flight.room > 0
        for epoch, peer in self._lagging.items():
            peer.withholds, peer.reads = peer.withholds or epoch in withholding, epoch in read
            if not self._hellos_overtake:
                peer.seen = max(peer.seen, read.get(epoch, 0))
        self._limit_unseen()
        return not had_room and self._in_flight.room > 0

    def _refusing_or_slow(self, suspects: frozenset[int]) -> set[int]:
        """The suspects that have refused some of the last that was sent, or whose applications are slow."""
        limit, refused = self._in_flight.budget.limit, self._receivers.refused
        lagging = {one for one in suspects if one in refused and self._unseen(refused[one]) <= limit}
        # Those that have acknowledged what was sent, and whose applications are slow.
        return lagging | {one for one in suspects - self._late() if not self._lacks(one)}

    def _leave_behind(self, lagging: dict[int, LaggingPeer]) -> None:
        """Wait no longer for these peers."""
        self.suspects = frozenset()
        self._lagging |= lagging
        self._receivers.set_lagging(self._receivers.lagging.union(lagging))
        self.watches = True
        self.release()
        self._peer_windows.apply()
        self._limit_unseen()

    def on_refused(self, epoch: int, end: int) -> bool:
        """What was sent below ``end`` has arrived at a peer, which had no room for some of it.

        Returns whether the flow waits no longer for it: that is so where it waits for others.
        """
        receivers = self._receivers
        if epoch not in receivers.up:
            return False
        end = min(max(end, receivers.refused.get(epoch, 0)), self._queue.next_to_send)
        receivers.refused[epoch] = end
        if self.pace == "fastest" and epoch in receivers.pacing and len(receivers.pacing) > 1:
            self._leave_behind({epoch: LaggingPeer(self._queue.next_to_send, end)})
            return True
        if epoch in receivers.pacing:
            self._peer_windows.on_refused(epoch)
        self.on_seen(epoch, end)
        return False

    def on_acked(self, epoch: int, records: Sequence[Sequence[int]] | range) -> None:
        """A peer has acknowledged these."""
        if records:
            self.on_seen(epoch, records.stop if isinstance(records, range) else records[-1][0] + 1)

    def on_seen(self, epoch: int, end: int) -> None:
        """By what a peer says, what was sent below ``end`` has arrived there."""
        peer, end = self._lagging.get(epoch), min(end, self._queue.next_to_send)
        if peer is not None and end > peer.seen:
            peer.seen = end
            self._limit_unseen()

    def _limit_unseen(self) -> None:
        """No lagging peer is to be sent more beyond what it has seen than may be in flight, unless it reads without
        acknowledging."""
        unseen, limit = [], self._in_flight.budget.limit
        for peer in [self._lagging[epoch] for epoch in self._receivers.lagging]:
            reads_on = peer.withholds and peer.reads
            if not (reads_on and self._hellos_overtake):  # there, hellos do not show what it has seen
                unseen.append(self._unseen(peer.seen) - reads_on * (READS_ON_LIMITS - 1) * limit)
        self._in_flight.limit_unseen(max(unseen, default=None))

    def _unseen(self, seen: int) -> int:
        """About how many octets have been sent from this number on."""
        mean_octets = self._in_flight.transmitted // max(1, self._queue.next_to_send)
        return (self._queue.next_to_send - seen) * mean_octets

    def release(self) -> None:
        """What only peers owe that the flow does not wait for is not in flight, and takes no room in the window."""
        entries, pacing = self._unacked.entries, self._receivers.pacing
        self._in_flight.remove([one for one in self._in_flight if not entries[one][1] & pacing])
        self._queue.fragments.recount()
        if pacing:
            self._flow_control.release(self._receivers.consumed_by_pacing)

    def _blockers(self, size: int) -> frozenset[int]:
        """The peers for which the flow waits now, or will soon.

        A limit counts from when half of it is used: a slow peer makes a little room now and then.
        """
        entries, receivers, queue = self._unacked.entries, self._receivers, self._queue
        blockers: set[int] = set()
        oldest = self._unacked.oldest()
        if self._unacked.room < size and oldest is not None and oldest < queue.next_to_send:
            blockers |= entries[oldest][1]
        if queue.next_to_send < queue.next_sequence and self._in_flight.is_half_full:
            blockers |= self._late() or receivers.pacing
        if self._flow_control.is_half_full and (awaited := self._flow_control.awaited) is not None:
            blockers |= {epoch for epoch, consumed in receivers.consumed.items() if consumed < awaited}
        return receivers.pacing & blockers

    def _late(self) -> set[int]:
        """The peers that owe an ack for something in flight that another peer has acknowledged."""
        entries, pacing, late = self._unacked.entries, self._receivers.pacing, set[int]()
        for sequence in islice(self._in_flight, MAX_LOOKED_AT):
            unacked_by = entries[sequence][1]
            if not unacked_by >= pacing:
                late |= unacked_by
        return late

    def _lacks(self, epoch: int) -> bool:
        """Whether a peer owes an ack for something that is not in flight: it was lost, and is retransmitted."""
        sent = self._unacked.between(0, self._queue.next_to_send)[:MAX_LOOKED_AT]
        return any(epoch in self._unacked.entries[one][1] and one not in self._in_flight for one in sent)

    def on_tick(self, now_mono_ns: int, read: Mapping[int, int]) -> None:
        """To be called five times a second: `check`, which peers are slow, and which have caught up."""
        self.check(now_mono_ns, 0, read)
        self._peer_windows.on_tick()
        receivers, sent = self._receivers, self._sent_at_ticks
        slow_below, caught_up_from = sent[0], sent[SLOW_TICKS - CAUGHT_UP_TICKS]
        sent.append(self._queue.next_to_send)
        for epoch, peer in self._lagging.items():
            peer.penalty_ticks -= 1
            caught_up = receivers.consumed.get(epoch, 0) >= max(caught_up_from, peer.left_at)
            if caught_up and epoch not in self._withheld and peer.penalty_ticks <= 0:
                receivers.set_lagging(receivers.lagging - {epoch})
        self._lagging = {epoch: peer for epoch, peer in self._lagging.items() if epoch in receivers.lagging}
        self._offences = {epoch: times for epoch, times in self._offences.items() if epoch in receivers.up}
        self.watches = bool(self.suspects or receivers.lagging)
        self._limit_unseen()
        for epoch, consumed in receivers.consumed.items():
            if epoch in self._slow:
                if consumed >= caught_up_from:
                    self._slow.discard(epoch)
                    self.changes[epoch] = 0
            elif consumed < slow_below and self._takes_or_owes(epoch, consumed, slow_below):
                self._slow.add(epoch)
                self.changes[epoch] = self._queue.next_to_send - consumed
        self._slow &= receivers.consumed.keys()

    def _takes_or_owes(self, epoch: int, consumed: int, sent: int) -> bool:
        """Whether a peer consumes this flow at all, or owes an ack of long ago: else it has not subscribed."""
        if consumed > self._receivers.first_owed.get(epoch, 0):
            return True
        return any(epoch in self._unacked.entries[n][1] for n in self._unacked.between(0, sent))
