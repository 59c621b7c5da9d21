"""The receivers of one flow, and how far each of them is.  No I/O, no clock."""

from collections.abc import Collection

from ..frames import MAX_PAYLOAD

RESUME_TICKS = 5  # a second: a peer that came back has been probed as often


class ReceiverSet:
    """Peers by epoch: *up*, or *suspended*, which fell silent and will request what they missed when they return.

    Attributes:
        all: those that get what is sent now, or have it kept for them: up and suspended.  Replaced, never changed.
        up: likewise.
        lagging: of the peers that are up, those that have fallen behind: the flow does not wait for them.
        pacing: of the peers that are up, the others; all of them where none keeps up.  Replaced, never changed.
        all_take_bundles: whether all that are up read bundles, and ask again for what was in one that is lost.
        all_take_fragments: whether all that are up take frames in fragments, and say how much is there.
        repairing: of the peers that are up, those that request what they miss.
        first_owed: of all -> the first number that it owes an ack for.
        least_payload: octets that all take.
        consumed: of the peers that are up -> every sequence below is done with there.
        suspended: of the suspended peers -> what they had consumed.
        unread_by: the consumed positions of the peers that are down, may return, and will request nothing.
        refused: of the peers that are up, those that had no room for something -> one more than its highest number.
            What they have not acknowledged below that is not in flight to them.
        resuming: of the peers that are up, those that came back -> the first unsent number then; until they have said
            what they miss, or `RESUME_TICKS` long.
    """

    def __init__(self) -> None:
        self.all: frozenset[int] = frozenset()
        self.up: frozenset[int] = frozenset()
        self.lagging: frozenset[int] = frozenset()
        self.pacing: frozenset[int] = frozenset()
        self.all_take_bundles = False
        self.all_take_fragments = False
        self.repairing: set[int] = set()
        self.first_owed: dict[int, int] = {}
        self.consumed: dict[int, int] = {}
        self.suspended: dict[int, int] = {}
        self.unread_by: dict[int, int] = {}
        self.refused: dict[int, int] = {}
        self.resuming: dict[int, int] = {}
        self._resuming_ticks: dict[int, int] = {}  # left, of each
        self.least_payload = MAX_PAYLOAD
        self._max_payload: dict[int, int] = {}  # of all
        self._unfragmented_only: set[int] = set()  # of the peers that are up: those that take every frame whole

    def on_up(
        self, epoch: int, first_owed: int, next_to_send: int, repairs: bool, sends_naks: bool, max_payload: int
    ) -> None:
        """It is up, and owes acks from ``first_owed`` on; or from where it did, and has consumed what it had, if it is
        back.

        ``repairs``: it reads bundles and fragments.  ``sends_naks``: it requests what it misses.
        ``max_payload``: what it takes.
        """
        self._max_payload[epoch] = max_payload
        self.first_owed.setdefault(epoch, first_owed)
        if epoch in self.suspended:
            self.resuming[epoch], self._resuming_ticks[epoch] = next_to_send, RESUME_TICKS
        if not repairs:
            self._unfragmented_only.add(epoch)
        self.consumed.setdefault(epoch, self.suspended.pop(epoch, self.unread_by.pop(epoch, first_owed)))
        if sends_naks:
            self.repairing.add(epoch)
        self._update()

    def end_resumptions(self) -> bool:
        """Forget which peers are `resuming` that answer no probe; to be called at each tick.

        Returns whether there were any.
        """
        before = list(self.resuming)
        for epoch in before:
            self._resuming_ticks[epoch] -= 1
            if self._resuming_ticks[epoch] <= 0:
                del self.resuming[epoch]
        return bool(before)

    def on_down(self, epoch: int, may_return: bool) -> bool:
        """It is not up any more; returns whether it is suspended now, so that what it owes is kept for it."""
        consumed = self.consumed.pop(epoch, None)
        if may_return and consumed is not None:
            (self.suspended if epoch in self.repairing else self.unread_by)[epoch] = consumed
        self.resuming.pop(epoch, None)
        self.refused.pop(epoch, None)
        self.repairing.discard(epoch)
        self._unfragmented_only.discard(epoch)
        if not may_return:
            self.forget(epoch)
        elif epoch not in self.suspended:
            self.first_owed.pop(epoch, None)
        self._update()
        return epoch in self.suspended

    def forget(self, epoch: int) -> None:
        """It will not return."""
        self.suspended.pop(epoch, None)
        self.unread_by.pop(epoch, None)
        self.first_owed.pop(epoch, None)
        self._update()

    def refusing(self, size: int) -> frozenset[int]:
        """The peers, suspended ones included, that do not take a payload of so many octets."""
        return frozenset(epoch for epoch in self.all if self._max_payload[epoch] < size)

    def have_refused(self, sequence: int, epochs: frozenset[int]) -> bool:
        """Whether each of these peers, which owe an ack for a message, had no room for it, or for a later one."""
        return all(self.refused.get(epoch, 0) > sequence for epoch in epochs)

    def set_lagging(self, epochs: Collection[int]) -> None:
        """The flow does not wait for these peers."""
        self.lagging = frozenset(epochs)
        self._update()

    @property
    def consumed_by_pacing(self) -> int:
        """Every peer that the flow waits for is done with what is below; `consumed` must not be empty."""
        return min(self.consumed[epoch] for epoch in self.pacing)

    @property
    def consumed_by_all(self) -> int:
        """Every peer that is up is done with what is below; `consumed` must not be empty."""
        return min(self.consumed.values())

    def _update(self) -> None:
        self.up = frozenset(self.consumed)
        self.lagging &= self.up
        self.pacing = self.up - self.lagging
        if not self.pacing:
            self.lagging, self.pacing = frozenset(), self.up
        self.all = self.up | frozenset(self.suspended) if self.suspended else self.up
        self._max_payload = {epoch: self._max_payload[epoch] for epoch in self.all}
        self.least_payload = min(self._max_payload.values(), default=MAX_PAYLOAD)
        self.all_take_bundles = len(self.repairing) == len(self.up)
        self.all_take_fragments = not self._unfragmented_only
