"""Who is to get what one flow sends, and how far each of them is.  No I/O, no clock."""


class Recipients:
    """Peers by epoch: *up*, or *absent*, which fell silent and will ask for what they missed when they return.

    Attributes:
        all: those that get what is sent now, or have it kept for them: up and absent.  Replaced, never changed.
        up: likewise.
        bundles: whether all that are up read bundles, and ask again for what was in one that is lost.
        parts: whether all that are up take frames in parts, and say how much is there.
        asking: of who is up, those that ask for what they miss.
        since: of all -> the first number that it owes an ack for.
        consumed: of who is up -> every sequence below is done with there.
        absent: of who is absent -> the same, as it was.
        unread: the same of those that may return, and will ask for nothing.
        returned: of who is up, those that came back -> what was unsent then; until they have said what they miss.
    """

    def __init__(self) -> None:
        self.all: frozenset[int] = frozenset()
        self.up: frozenset[int] = frozenset()
        self.bundles = False
        self.parts = False
        self.asking: set[int] = set()
        self.since: dict[int, int] = {}
        self.consumed: dict[int, int] = {}
        self.absent: dict[int, int] = {}
        self.unread: dict[int, int] = {}
        self.returned: dict[int, int] = {}
        self._plain: set[int] = set()  # of who is up: those that take every frame whole

    def come(self, epoch: int, since: int, unsent: int, repairs: bool, asks: bool) -> None:
        """It is up, and owes acks from ``since`` on; or from where it did, and has consumed what it had, if it is back.

        ``repairs``: it reads bundles and parts.  ``asks``: it asks for what it misses.
        """
        self.since.setdefault(epoch, since)
        if epoch in self.absent:
            self.returned[epoch] = unsent
        if not repairs:
            self._plain.add(epoch)
        self.consumed.setdefault(epoch, self.absent.pop(epoch, self.unread.pop(epoch, since)))
        if asks:
            self.asking.add(epoch)
        self._changed()

    def go(self, epoch: int, may_return: bool) -> bool:
        """It is not up any more; returns whether it is absent now, so that what it owes is kept for it."""
        consumed = self.consumed.pop(epoch, None)
        if may_return and consumed is not None:
            (self.absent if epoch in self.asking else self.unread)[epoch] = consumed
        self.returned.pop(epoch, None)
        self.asking.discard(epoch)
        self._plain.discard(epoch)
        if not may_return:
            self.forget(epoch)
        elif epoch not in self.absent:
            self.since.pop(epoch, None)
        self._changed()
        return epoch in self.absent

    def forget(self, epoch: int) -> None:
        """It will not return."""
        self.absent.pop(epoch, None)
        self.unread.pop(epoch, None)
        self.since.pop(epoch, None)
        self._changed()

    @property
    def slowest(self) -> int:
        """Every peer that is up is done with what is below; `consumed` must not be empty."""
        return min(self.consumed.values())

    def _changed(self) -> None:
        self.up = frozenset(self.consumed)
        self.all = self.up | frozenset(self.absent) if self.absent else self.up
        self.bundles = len(self.asking) == len(self.up)
        self.parts = not self._plain
