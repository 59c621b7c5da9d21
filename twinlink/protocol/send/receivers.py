"""The table of flow control: the peers of one sending flow, and what is known of each.  No I/O, no clock."""

from collections.abc import Iterator
from dataclasses import dataclass

from ..frames import MAX_PAYLOAD

RESUME_TICKS = 5  # a second: a peer that came back has been probed as often


@dataclass(slots=True)
class Lag:
    """A peer that is up, has fallen behind, and is not waited for.

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


@dataclass(slots=True)
class Receiver:
    """A peer: up, or down and perhaps to return.  What follows ``repairs`` is of a peer that is up.

    Attributes:
        max_payload: octets that it takes.
        first_owed: the first number that it owes an ack for.
        consumed: every sequence below is done with there.
        repairs: it requests what it misses; so what it owes is kept for it while it is down.
        takes_fragments: it takes frames in fragments, and says how much is there.
        takes_runs: it reads runs.
        refused: one more than the highest number that it had no room for; 0: it had.  What it has not acknowledged
            below that is not in flight to it.
        window: the octets that it has room for, as far as its refusals show; None: they do not.
        window_end: the number up to which that is tried.
        lag: why the flow does not wait for it; None: it does.
        withheld: the first message whose ack it withholds, how much it has of that, since when that has been so.
        offences: how often the flow has waited anew for acks that it withheld.
        is_slow: it is reported as slow.
        resumed_at: the first unsent number when it returned; ``resuming_ticks``: left to say what it misses.
    """

    max_payload: int
    first_owed: int
    consumed: int
    repairs: bool
    takes_fragments: bool = True
    takes_runs: bool = False
    is_up: bool = True
    refused: int = 0
    window: int | None = None
    window_end: int = 0
    lag: Lag | None = None
    withheld: tuple[int, int, int] | None = None
    offences: int = 0
    is_slow: bool = False
    resumed_at: int = 0
    resuming_ticks: int = 0


class ReceiverSet:
    """Peers by epoch.  The sets follow from the records; each message reads them, so they are made when those change.

    Attributes:
        of: the records.
        all: those that get what is sent now, or have it kept for them: up and suspended.  Replaced, never changed.
        up: likewise.
        suspended: those that fell silent, and will request what they missed when they return; the oldest first.
        lagging: of the peers that are up, those that have fallen behind: the flow does not wait for them.
        pacing: of the peers that are up, the others; all of them where none keeps up.  Replaced, never changed.
        repairing: of the peers that are up, those that request what they miss.
        resuming: of the peers that are up, those that came back, until they have said what they miss, or
            `RESUME_TICKS` long.  Changed, never replaced.
        have_any_refused: whether any that is up had no room for something.  Stored, as each ack asks that leaves others
            owing one: 0.2 of its 1.9 us.
        all_take_bundles: whether all that are up read bundles, and ask again for what was in one that is lost.
        all_take_runs: whether they read runs as well.
        all_take_fragments: whether all that are up take frames in fragments.
        least_payload: octets that all take.
    """

    def __init__(self) -> None:
        self.of: dict[int, Receiver] = {}
        self.resuming: set[int] = set()
        self.update()

    def on_up(
        self,
        epoch: int,
        first_owed: int,
        next_to_send: int,
        repairs: bool,
        sends_naks: bool,
        max_payload: int,
        takes_runs: bool = False,
    ) -> None:
        """It is up, and owes acks from ``first_owed`` on; or from where it did, and has consumed what it had, if it is
        back.

        ``repairs``: it reads bundles and fragments.  ``sends_naks``: it requests what it misses.
        ``max_payload``: what it takes.  ``takes_runs``: it reads runs.
        """
        consumed, before = first_owed, self.of.pop(epoch, None)
        if before is not None:
            consumed = before.consumed
        if before is not None and epoch in self.all:
            first_owed = before.first_owed
        self.of[epoch] = Receiver(max_payload, first_owed, consumed, sends_naks, repairs, takes_runs)
        if epoch in self.suspended:
            self.of[epoch].resumed_at, self.of[epoch].resuming_ticks = next_to_send, RESUME_TICKS
            self.resuming.add(epoch)
        self.update()

    def end_resumptions(self) -> None:
        """Forget which peers are `resuming` that answer no probe; to be called at each tick."""
        for epoch in list(self.resuming):
            self.of[epoch].resuming_ticks -= 1
            if self.of[epoch].resuming_ticks <= 0:
                self.resuming.discard(epoch)

    def on_down(self, epoch: int, may_return: bool) -> bool:
        """It is not up any more; returns whether it is suspended now, so that what it owes is kept for it."""
        peer = self.of.pop(epoch, None)
        if peer is not None and may_return:
            self.of[epoch] = Receiver(peer.max_payload, peer.first_owed, peer.consumed, peer.repairs, is_up=False)
        self.resuming.discard(epoch)
        self.update()
        return epoch in self.suspended

    def first_owed(self, epoch: int, unknown: int) -> int:
        """The first number that a peer owes an ack for; ``unknown``: of one that owes none."""
        return self.of[epoch].first_owed if epoch in self.all else unknown

    def refusing(self, size: int) -> frozenset[int]:
        """The peers, suspended ones included, that do not take a payload of so many octets."""
        return frozenset(epoch for epoch in self.all if self.of[epoch].max_payload < size)

    def have_refused(self, sequence: int, epochs: frozenset[int]) -> bool:
        """Whether each of these peers, which owe an ack for a message, had no room for it, or for a later one."""
        return all(self.of[epoch].refused > sequence for epoch in epochs)

    def those_up(self) -> Iterator[tuple[int, Receiver]]:
        """The peers that are up, in the order in which they came."""
        return ((epoch, peer) for epoch, peer in self.of.items() if peer.is_up)

    @property
    def consumed_by_pacing(self) -> int:
        """Every peer that the flow waits for is done with what is below; some must be `up`."""
        return min([self.of[epoch].consumed for epoch in self.pacing])

    def have_consumed(self, end: int) -> bool:
        """Whether every peer that the flow waits for is done with what is below ``end``.

        It stops at the first that is not: acks of many peers come one by one, and all but the last change nothing.
        """
        for epoch in self.pacing:  # noqa: SIM110  (a generator would take longer than one look)
            if self.of[epoch].consumed < end:
                return False
        return True

    @property
    def consumed_by_all(self) -> int:
        """Every peer that is up is done with what is below; some must be `up`."""
        return min([self.of[epoch].consumed for epoch in self.up])

    def update(self) -> None:
        """Make the sets anew: a record has come, gone, or begun or ceased to lag."""
        self.up = frozenset(epoch for epoch, _ in self.those_up())
        self.lagging = frozenset(epoch for epoch in self.up if self.of[epoch].lag is not None)
        if self.lagging == self.up:
            for epoch in self.lagging:
                self.of[epoch].lag = None
            self.lagging = frozenset()
        self.pacing = self.up - self.lagging
        self.suspended = [epoch for epoch, peer in self.of.items() if peer.repairs and not peer.is_up]
        self.all = self.up.union(self.suspended) if self.suspended else self.up
        self.repairing = frozenset(epoch for epoch in self.up if self.of[epoch].repairs)
        self.least_payload = min((self.of[epoch].max_payload for epoch in self.all), default=MAX_PAYLOAD)
        self.have_any_refused = any(peer.refused for _, peer in self.those_up())
        self.all_take_bundles = self.repairing == self.up
        self.all_take_runs = self.all_take_bundles and all(peer.takes_runs for _, peer in self.those_up())
        self.all_take_fragments = all(peer.takes_fragments for _, peer in self.those_up())
