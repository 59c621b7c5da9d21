"""Pace: the peers that a flow waits for, and those that have fallen behind.  No I/O, no clock.

Publish/subscribe sends one copy to all peers, so a flow cannot go slower for one of them.  With pace ``fastest`` it
waits only for the peers that keep up.  A peer is *lagging* until it has caught up if it refuses messages for want of
room, or if the flow has waited for it for `LAG_NS`, while another peer would have taken more.  It requests what it
missed as it finds room, as long as that is kept.

That is for applications that are slow.  A peer that is stopped, or behind a slow path, does not read what is sent to
it, and the transport would have to keep that: the flow waits for it.  So a peer is lagging only if

- it has seen what was sent, as its refusals and acks say; then it is not sent much more than it has seen;
- or it says that it is behind, as a handler takes its time;
- or it is mute: it acknowledges nothing, though its hellos say that it reads.
"""

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from itertools import islice
from typing import Literal

from .flow_control import FlowControlWindow
from .in_flight import InFlight
from .peer_windows import PeerWindows
from .queue import SendQueue
from .receivers import ReceiverSet
from .retransmit_buffer import RetransmitBuffer

Pace = Literal["fastest", "slowest"]

LAG_NS = 200_000_000
SEND_LAG_NS = 20_000_000  # while a thread waits for room to send
MAX_LOOKED_AT = 256  # messages in flight, to find out which peers they wait for
SLOW_TICKS = 5  # of 0.2 s: a peer that has not consumed what was sent so long ago is reported as slow
CAUGHT_UP_TICKS = 2  # and a peer that has consumed what was sent so long ago has caught up


class PaceKeeper:
    """Of one flow.

    Attributes:
        watches: whether it matters which peer acknowledges something.
        changes: what is to be reported: by epoch, how many messages a peer is behind now; 0: it has caught up.
    """

    def __init__(
        self,
        pace: Pace,
        queue: SendQueue,
        receivers: ReceiverSet,
        unacked: RetransmitBuffer,
        in_flight: InFlight,
        flow_control: FlowControlWindow,
    ) -> None:
        self.pace = pace
        self.changes: dict[int, int] = {}
        self._queue = queue
        self._receivers = receivers
        self._unacked = unacked
        self._in_flight = in_flight
        self._flow_control = flow_control
        self._sent_at_ticks: deque[int] = deque([0] * SLOW_TICKS, SLOW_TICKS)  # the next number to leave, at each tick
        self.watches = False
        self._peer_windows = PeerWindows(queue, receivers, unacked, in_flight, flow_control)
        self._unlimited: set[int] = set()  # of the lagging peers, those that are behind or mute
        self._acking: set[int] = set()  # of the suspects, those that have acknowledged something since
        self._slow: set[int] = set()
        self._seen: dict[
            int, int
        ] = {}  # by lagging peer: one more than the highest that it has refused or acknowledged
        self._suspects: frozenset[int] = frozenset()  # the flow has waited for them since then
        self._since_mono_ns = 0

    def check(self, now_mono_ns: int, size: int, read_until: Mapping[int, int]) -> bool:
        """Wait no longer for the peers that alone hold up the flow; whether there are any.

        To be called at each tick, after each ack while what waits cannot go, and while there is no room to keep a
        message of ``size`` octets.  ``read_until``: as `PeerManager.read_until` says.
        """
        receivers = self._receivers
        if self.pace == "slowest" or len(receivers.pacing) < 2:
            return False
        blockers = self._blockers(size)
        suspects = self._suspects & blockers
        if not suspects or receivers.pacing in {suspects, self._suspects}:  # until now it waited for all of them
            suspects, self._since_mono_ns = suspects or blockers, now_mono_ns
            self._acking.clear()
        self._suspects = suspects
        self.watches = bool(suspects or receivers.lagging)
        waited_ns = now_mono_ns - self._since_mono_ns
        if not suspects or suspects == receivers.pacing or waited_ns < (SEND_LAG_NS if size else LAG_NS):
            return False
        unlimited = {one for one in suspects - self._acking if read_until.get(one, 0) >= self._since_mono_ns + LAG_NS}
        limit = self._in_flight.budget.limit
        lagging = unlimited | {one for one in suspects if self._unseen(receivers.refused.get(one, 0)) <= limit}
        # Those that have acknowledged what was sent, and whose applications are slow.
        lagging |= {one for one in suspects - self._late() if not self._lacks(one)}
        if not lagging:
            return False
        self._unlimited |= unlimited
        self._leave_behind(lagging, self._queue.next_to_send)
        return True

    def _leave_behind(self, lagging: Collection[int], seen: int) -> None:
        """Wait no longer for these peers, which have seen what is below a number."""
        self._suspects = frozenset()
        self._seen |= dict.fromkeys(lagging, seen)
        self._receivers.set_lagging(self._receivers.lagging.union(lagging))
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
            self._leave_behind((epoch,), end)
            return True
        if epoch in receivers.pacing:
            self._peer_windows.on_refused(epoch)
        if epoch in self._seen:
            self._seen[epoch] = max(end, self._seen[epoch])
        self._limit_unseen()
        return False

    def on_acked(self, epoch: int, records: Sequence[Sequence[int]] | range) -> None:
        """A peer has acknowledged these."""
        if not records:
            return
        self.on_answer(epoch)
        if epoch in self._seen:
            end = records.stop if isinstance(records, range) else records[-1][0] + 1
            self._seen[epoch] = max(end, self._seen[epoch])
        self._limit_unseen()

    def on_answer(self, epoch: int) -> None:
        """A peer has said what it lacks, or how much of a long message it has: it is not mute."""
        if epoch in self._suspects:
            self._acking.add(epoch)

    def _limit_unseen(self) -> None:
        """No lagging peer is to be sent more beyond what it has seen than may be in flight, unless it is behind or
        mute."""
        unseen = [self._unseen(self._seen[one]) for one in self._receivers.lagging - self._unlimited]
        self._in_flight.limit_unseen(max(unseen, default=None))

    def _unseen(self, seen: int) -> int:
        """About how many octets have been sent from this number on."""
        mean_octets = self._in_flight.transmitted // max(1, self._queue.next_to_send)
        return (self._queue.next_to_send - seen) * mean_octets

    def release(self) -> None:
        """What only peers owe that the flow does not wait for is not in flight, and takes no room in the window."""
        entries, pacing = self._unacked.entries, self._receivers.pacing
        self._in_flight.remove([one for one in self._in_flight.sequences() if not entries[one][1] & pacing])
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
        for sequence in islice(self._in_flight.sequences(), MAX_LOOKED_AT):
            unacked_by = entries[sequence][1]
            if not unacked_by >= pacing:
                late |= unacked_by
        return late

    def _lacks(self, epoch: int) -> bool:
        """Whether a peer owes an ack for something that is not in flight: it was lost, and is retransmitted."""
        sent = self._unacked.between(0, self._queue.next_to_send)[:MAX_LOOKED_AT]
        return any(epoch in self._unacked.entries[one][1] and one not in self._in_flight for one in sent)

    def on_tick(self) -> None:
        """To be called five times a second, after `check`: which peers are slow, and which have caught up."""
        self._peer_windows.on_tick()
        receivers, sent = self._receivers, self._sent_at_ticks
        self._seen = {epoch: end for epoch, end in self._seen.items() if epoch in receivers.lagging}
        slow_below, caught_up_from = sent[0], sent[SLOW_TICKS - CAUGHT_UP_TICKS]
        sent.append(self._queue.next_to_send)
        caught_up = {epoch for epoch in receivers.lagging if receivers.consumed[epoch] >= caught_up_from}
        if caught_up:
            receivers.set_lagging(receivers.lagging - caught_up)
        self._unlimited &= receivers.lagging
        self.watches = bool(self._suspects or receivers.lagging)
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
