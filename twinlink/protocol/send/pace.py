"""Pace: the peers that a flow waits for, how much they have room for, and those that have fallen behind.  No I/O.

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

A peer that the flow waits for may have a smaller window than this side.  What it refuses is in flight no more, and is
retransmitted when the peer requests it.  Until then no more is sent than the peer had room for.  So a flow that a
peer's application does not read holds up no other flow.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from itertools import islice

from .flow_control import SLACK_OCTETS, FlowControlWindow
from .in_flight import InFlight
from .options import Pace
from .queue import SendQueue
from .receivers import Lag, Receiver, ReceiverSet
from .retransmit_buffer import RetransmitBuffer

LAG_NS = 200_000_000
SEND_LAG_NS = 20_000_000  # while a thread waits for room to send
# Over a transport in which hellos overtake data, what a peer is taken to have read may still be on its way: a megabyte
# takes a path of 80 Mb/s 0.1 s, and waits behind another.  Or the transport dropped it: a probe and the peer's nak take
# 0.4 s and a round trip.
OVERTAKEN_NS = 1_000_000_000
READS_ON_LIMITS = 16  # times what may be in flight: so much beyond its last hello a peer that withholds acks is sent
REPEAT_NS = 1_000_000_000  # so long a peer may take for what was retransmitted, or for more of a long message
MAX_LOOKED_AT = 256  # messages in flight, to find out which peers they wait for
SLOW_TICKS = 5  # of 0.2 s: a peer that has not consumed what was sent so long ago is reported as slow
MAX_DOUBLINGS = 7  # of the ticks for which a peer that withholds acks again and again is not waited for: 26 s
CAUGHT_UP_TICKS = 2  # and a peer that has consumed what was sent so long ago has caught up
GROWTH = 8  # a window may be larger by an eighth than it seemed; if it is not, as much is refused and sent twice


class PaceKeeper:
    """Decides for which peers a flow waits, by what their records in `ReceiverSet` say.

    Attributes:
        pace: as the flow was opened.
        suspects: the peers that alone hold up the flow.  A hello finds out whether they read.
        changes: what is to be reported: by epoch, how many messages a peer is behind now; 0: it has caught up.
    """

    def __init__(
        self,
        pace: Pace,
        queue: SendQueue,
        receivers: ReceiverSet,
        unacked: RetransmitBuffer,
        in_flight: InFlight,
        window: FlowControlWindow,
    ) -> None:
        self.pace = pace
        self.suspects: frozenset[int] = frozenset()
        self.changes: dict[int, int] = {}
        self._queue, self._receivers, self._unacked = queue, receivers, unacked
        self._in_flight, self._window = in_flight, window
        self._hellos_overtake = in_flight.budget.hellos_overtake
        self._sent_at_ticks: deque[int] = deque([0] * SLOW_TICKS, SLOW_TICKS)  # the next number to leave, at each tick
        self._since_mono_ns = 0  # the flow has waited for the suspects

    # Who holds up the flow

    def check(self, now_mono_ns: int, size: int, read: Mapping[int, int]) -> bool:
        """Wait no longer for the peers that alone hold up the flow; whether it may go on.

        To be called at each tick, after each ack or hello while what waits cannot go, and while there is no room to
        keep a message of ``size`` octets.  ``read``: as `PeerManager.read_positions` says.
        """
        receivers = self._receivers
        if self.pace == "slowest" or len(receivers.up) < 2:
            return False
        had_room = self._in_flight.room > 0
        withholding = self._find_withholding(now_mono_ns, read)
        self._limit_unseen()
        raised = not had_room and self._in_flight.room > 0
        blockers = self._blockers(size)
        suspects = self.suspects & blockers
        if not suspects or receivers.pacing in {suspects, self.suspects}:  # until now it waited for all of them
            suspects, self._since_mono_ns = suspects or blockers, now_mono_ns
        self.suspects = suspects
        lagging = withholding & receivers.pacing
        if now_mono_ns - self._since_mono_ns >= (SEND_LAG_NS if size else LAG_NS):
            lagging |= self._refusing_or_slow(suspects)
        if not lagging or lagging == receivers.pacing:
            return raised
        sent = self._queue.next_to_send
        for epoch in lagging:
            peer = receivers.of[epoch]
            peer.offences += epoch in withholding
            # longer each time that it withholds acks
            penalty_ticks = 1 << min(max(0, peer.offences - 1), MAX_DOUBLINGS)
            peer.lag = Lag(sent, sent, epoch in withholding, penalty_ticks)
        self._leave_behind()
        return True

    def _find_withholding(self, now_mono_ns: int, read: Mapping[int, int]) -> set[int]:
        """The peers that have read something, and neither acknowledged, refused nor requested it.

        Notes what lagging peers have read.
        """
        first_unacked, found = self._first_unacked(read), set[int]()
        for epoch, peer in self._receivers.those_up():
            before, peer.withheld = peer.withheld, None
            if (lag := peer.lag) is not None:
                lag.reads = epoch in read
                lag.seen = lag.seen if self._hellos_overtake else max(lag.seen, read.get(epoch, 0))
            if (sequence := first_unacked.get(epoch)) is None:
                continue
            arrived = self._queue.fragments.arrived(sequence, epoch)
            since_mono_ns = before[2] if before is not None and before[:2] == (sequence, arrived) else now_mono_ns
            peer.withheld = sequence, arrived, since_mono_ns
            again = arrived or sequence in self._queue.retransmitted
            allowed_ns = REPEAT_NS if again else OVERTAKEN_NS if self._hellos_overtake else 0
            if now_mono_ns - since_mono_ns >= allowed_ns:
                found.add(epoch)
                if lag is not None:
                    lag.withholds = True
        return found

    def _first_unacked(self, read: Mapping[int, int]) -> dict[int, int]:
        """By peer, the first message that it has read, owes an ack for, and has not refused.

        Of what is in flight; for a lagging peer, of what is kept for it.
        """
        unacked, receivers, first = self._unacked, self._receivers, dict[int, int]()
        pacing = receivers.pacing & read.keys()
        for sequence in islice(self._in_flight, MAX_LOOKED_AT):
            for epoch in (unacked.owed_by(sequence) & pacing) - first.keys():
                if receivers.of[epoch].refused <= sequence < read[epoch]:
                    first[epoch] = sequence
        oldest = unacked.oldest() or 0
        for epoch in receivers.lagging & read.keys():
            begin = max(oldest, receivers.of[epoch].refused)
            for sequence in range(begin, min(read[epoch], begin + MAX_LOOKED_AT)):
                if epoch in unacked.owed_by(sequence) and not self._queue.is_repairing(sequence):
                    first[epoch] = sequence
                    break
        return first

    def _blockers(self, size: int) -> frozenset[int]:
        """The peers for which the flow waits now, or will soon.

        A limit counts from when half of it is used: a slow peer makes a little room now and then.
        """
        receivers, queue = self._receivers, self._queue
        blockers: set[int] = set()
        oldest = self._unacked.oldest()
        if self._unacked.room < size and oldest is not None and oldest < queue.next_to_send:
            blockers |= self._unacked.owed_by(oldest)
        if queue.next_to_send < queue.next_sequence and self._in_flight.is_half_full:
            blockers |= self._late() or receivers.pacing
        if self._window.is_half_full and (awaited := self._window.awaited) is not None:
            blockers |= {epoch for epoch in receivers.pacing if receivers.of[epoch].consumed < awaited}
        return receivers.pacing & blockers

    def _refusing_or_slow(self, suspects: frozenset[int]) -> set[int]:
        """The suspects that have refused some of the last that was sent, or whose applications are slow."""
        limit, of = self._in_flight.budget.limit, self._receivers.of
        lagging = {one for one in suspects if of[one].refused and self._unseen(of[one].refused) <= limit}
        # Those that have acknowledged what was sent, and whose applications are slow.
        return lagging | {one for one in suspects - self._late() if not self._lacks(one)}

    def _late(self) -> set[int]:
        """The peers that owe an ack for something in flight that another peer has acknowledged."""
        pacing, late = self._receivers.pacing, set[int]()
        for sequence in islice(self._in_flight, MAX_LOOKED_AT):
            unacked_by = self._unacked.owed_by(sequence)
            if not unacked_by >= pacing:
                late |= unacked_by
        return late

    def _lacks(self, epoch: int) -> bool:
        """Whether a peer owes an ack for something that is not in flight: it was lost, and is retransmitted."""
        unacked = self._unacked
        sent = unacked.between(0, self._queue.next_to_send)[:MAX_LOOKED_AT]
        return any(epoch in unacked.owed_by(one) and unacked.kept_as(one) not in self._in_flight for one in sent)

    def _leave_behind(self) -> None:
        """Wait no longer for the peers that have begun to lag."""
        self.suspects = frozenset()
        self._receivers.update()
        self.release()
        self._apply_windows()
        self._limit_unseen()

    def release(self) -> None:
        """What only peers owe that the flow does not wait for is not in flight, and takes no room in the window."""
        owed_by, pacing = self._unacked.owed_by, self._receivers.pacing
        self._in_flight.remove([one for one in self._in_flight if not owed_by(one) & pacing])
        self._queue.fragments.recount()
        if pacing:
            self._window.release(self._receivers.consumed_by_pacing)

    # What lagging peers are sent

    def on_acked(self, epoch: int, records: Sequence[Sequence[int]] | range) -> None:
        """A peer has acknowledged these."""
        if records:
            self.on_seen(epoch, records.stop if isinstance(records, range) else records[-1][0] + 1)

    def on_seen(self, epoch: int, end: int) -> None:
        """By what a peer says, what was sent below ``end`` has arrived there."""
        peer, end = self._receivers.of.get(epoch), min(end, self._queue.next_to_send)
        if peer is not None and peer.lag is not None and end > peer.lag.seen:
            peer.lag.seen = end
            self._limit_unseen()

    def _limit_unseen(self) -> None:
        """No lagging peer is to be sent more beyond what it has seen than may be in flight, unless it reads without
        acknowledging."""
        unseen, limit = [], self._in_flight.budget.limit
        for lag in [peer.lag for _, peer in self._receivers.those_up() if peer.lag is not None]:
            reads_on = lag.withholds and lag.reads
            if not (reads_on and self._hellos_overtake):  # there, hellos do not show what it has seen
                unseen.append(self._unseen(lag.seen) - reads_on * (READS_ON_LIMITS - 1) * limit)
        self._in_flight.limit_unseen(max(unseen, default=None))

    def _unseen(self, seen: int) -> int:
        """About how many octets have been sent from this number on."""
        mean_octets = self._in_flight.transmitted // max(1, self._queue.next_to_send)
        return (self._queue.next_to_send - seen) * mean_octets

    # What peers have no room for

    def on_refused(self, epoch: int, end: int) -> bool:
        """What was sent below ``end`` has arrived at a peer, which had no room for some of it.

        Returns whether the flow waits no longer for it: that is so where it waits for others.
        """
        receivers = self._receivers
        if epoch not in receivers.up:
            return False
        peer, sent = receivers.of[epoch], self._queue.next_to_send
        peer.refused = end = min(max(end, peer.refused), sent)
        receivers.have_any_refused = True
        if peer.lag is not None:
            self.on_seen(epoch, end)
        elif self.pace == "fastest" and len(receivers.pacing) > 1:
            peer.lag = Lag(sent, end)
            self._leave_behind()
            return True
        else:
            self._learn_window(epoch, peer)
        return False

    def _learn_window(self, epoch: int, peer: Receiver) -> None:
        """A peer that the flow waits for has room for what is below the first that it owes."""
        entries, oldest = self._unacked.entries, self._unacked.oldest()
        if oldest is None or (peer.window is not None and not self._in_flight):
            return  # that is known
        owed = range(max(oldest, peer.consumed), peer.refused)
        first = next((one for one in owed if one in entries and epoch in entries[one][1]), None)
        if first is None:
            return
        peer.window, peer.window_end = self._window.octets_below(first), peer.refused
        receivers, refused = self._receivers, [one for one in self._in_flight if first <= one < peer.refused]
        self._in_flight.remove(
            [one for one in refused if receivers.have_refused(one, entries[one][1] & receivers.pacing)]
        )
        self._apply_windows()

    def _apply_windows(self) -> None:
        """The smallest window counts, of the peers that the flow waits for."""
        windows = [self._receivers.of[epoch].window for epoch in self._receivers.pacing]
        self._window.limit_to(min([one for one in windows if one is not None], default=self._window.most))

    # Time

    def on_tick(self, now_mono_ns: int, read: Mapping[int, int]) -> None:
        """To be called five times a second: `check`, which peers are slow, and which have caught up."""
        self.check(now_mono_ns, 0, read)
        receivers, sent = self._receivers, self._sent_at_ticks
        slow_below, caught_up_from = sent[0], sent[SLOW_TICKS - CAUGHT_UP_TICKS]
        ended = False
        sent.append(self._queue.next_to_send)
        for epoch, peer in receivers.those_up():
            if peer.window is not None and peer.consumed >= peer.window_end:  # it may have room for more
                peer.window = max(peer.window, SLACK_OCTETS) * (GROWTH + 1) // GROWTH
                peer.window_end = self._queue.next_to_send
                if peer.window >= self._window.most:
                    peer.window = None
            if (lag := peer.lag) is not None:
                lag.penalty_ticks -= 1
                has_caught_up = peer.consumed >= max(caught_up_from, lag.left_at)
                if has_caught_up and peer.withheld is None and lag.penalty_ticks <= 0:
                    peer.lag, ended = None, True
            if peer.is_slow:
                if peer.consumed >= caught_up_from:
                    peer.is_slow, self.changes[epoch] = False, 0
            elif peer.consumed < slow_below and self._takes_or_owes(epoch, peer, slow_below):
                peer.is_slow, self.changes[epoch] = True, self._queue.next_to_send - peer.consumed
        if ended:
            receivers.update()
        self._apply_windows()
        self._limit_unseen()

    def _takes_or_owes(self, epoch: int, peer: Receiver, sent: int) -> bool:
        """Whether a peer consumes this flow at all, or owes an ack of long ago: else it has not subscribed."""
        if peer.consumed > peer.first_owed:
            return True
        return any(epoch in self._unacked.owed_by(one) for one in self._unacked.between(0, sent))
