"""Whether a twin takes in what is sent to it, as far as this side can see: from its acknowledgements.  No I/O."""


class Consumption:
    """How long a twin has been behind.  All times are monotonic, in ns.

    It is measured on this host's clock alone, unlike the age of information at the twin, in which the two hosts'
    clocks differ.  `acknowledged` may be called by another thread than the rest.
    """

    def __init__(self) -> None:
        self._last = -1  # number of the newest that was sent
        self._since_ns = 0  # when the first was sent after all had been acknowledged
        self._acknowledged = (-1, 0)  # the newest: its number, and when it was sent

    def twin_up(self, now_ns: int) -> None:
        """A twin came: it owes nothing for what was sent before."""
        self._since_ns = now_ns

    def sent(self, sequence: int, now_ns: int) -> None:
        """An observation was sent."""
        if self._acknowledged[0] >= self._last:
            self._since_ns = now_ns
        self._last = sequence

    def acknowledged(self, sequence: int, sent_ns: int) -> None:
        """A twin has it."""
        if sequence > self._acknowledged[0]:
            self._acknowledged = (sequence, sent_ns)

    @property
    def begun(self) -> bool:
        """Whether a twin has acknowledged anything."""
        return self._acknowledged[0] >= 0

    def behind_ns(self, now_ns: int) -> int:
        """Age of the newest observation that a twin has, while newer ones are on their way; else 0."""
        sequence, sent_ns = self._acknowledged
        return 0 if sequence >= self._last else now_ns - max(self._since_ns, sent_ns)
