"""What a sender has lost, until everybody who is to know has been told."""

from collections.abc import Collection

from .ranges import RangeSet

ANYBODY = None
MAX_PEERS = 64  # of whom it is remembered what only they may have


class Losses:
    """A message that turns out to have arrived after all, where it was missed, is taken out again.

    Attributes:
        all: what is lost.
        unflushed: of them, what no flush has named yet.
        unreported: of them, what no event has told yet, by reason.
    """

    def __init__(self) -> None:
        self.all = RangeSet()
        self.unflushed = RangeSet()
        self.unreported: dict[str, RangeSet] = {}
        self._may_have: dict[int | None, RangeSet] = {}  # peer epoch, or anybody

    def add(self, first: int, end: int, reason: str, owed_by: Collection[int] | None = ()) -> None:
        """Sequences from ``first`` to below ``end`` are lost.

        If just one peer owed an ack, or it may be ``ANYBODY``, one that comes yet shows that they are not.
        """
        if owed_by is ANYBODY or len(owed_by) == 1:
            epoch = ANYBODY if owed_by is ANYBODY else next(iter(owed_by))
            self._may_have.setdefault(epoch, RangeSet()).add(first, end)
            if len(self._may_have) > MAX_PEERS:
                del self._may_have[next(iter(self._may_have))]
        self.all.add(first, end)
        self.unflushed.add(first, end)
        self.unreported.setdefault(reason, RangeSet()).add(first, end)

    def found(self, sequence: int, epoch: int) -> bool:
        """A message arrived at this peer; returns whether it counted as lost until now, and does no more."""
        if not any(had.remove(sequence) for who in (epoch, ANYBODY) if (had := self._may_have.get(who))):
            return False
        self.all.remove(sequence)
        self.unflushed.remove(sequence)
        for lost in self.unreported.values():
            lost.remove(sequence)
        return True

    def report(self) -> dict[str, RangeSet]:
        """What no event has told yet, by reason; from now on it counts as told."""
        unreported, self.unreported = self.unreported, {}
        return unreported
