"""What a sender has lost, until everybody who is to know has been told."""

from .ranges import RangeSet


class Losses:
    """A message that turns out to have arrived after all is taken out again.

    Attributes:
        all: lost.
        unflushed: of them, what no flush has named yet.
        unreported: of them, what no event has told yet, by reason.
    """

    def __init__(self) -> None:
        self.all = RangeSet()
        self.unflushed = RangeSet()
        self.unreported: dict[str, RangeSet] = {}

    def add(self, first: int, end: int, reason: str) -> None:
        """Sequences from ``first`` to below ``end`` are lost."""
        self.all.add(first, end)
        self.unflushed.add(first, end)
        self.unreported.setdefault(reason, RangeSet()).add(first, end)

    def found(self, sequence: int) -> bool:
        """It arrived; whether it had been lost."""
        if not self.all.remove(sequence):
            return False
        self.unflushed.remove(sequence)
        for lost in self.unreported.values():
            lost.remove(sequence)
        return True

    def report(self) -> dict[str, RangeSet]:
        """What events have to tell, by reason."""
        unreported, self.unreported = self.unreported, {}
        return unreported
