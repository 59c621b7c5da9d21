"""Whether a twin keeps up with the observations, by its acknowledgements.  No I/O."""


class Consumption:
    """How long a twin has been behind.  All times are monotonic, in ns.

    It is measured on this host's clock alone, unlike the age of information at the twin, which contains the clock
    offset.  `acknowledged` may be called by another thread than the rest.
    """

    def __init__(self) -> None:
        self._last = -1  # sequence of the newest observation sent
        self._since_ns = 0  # send time of the first observation after all had been acknowledged
        self._acknowledged = (-1, 0)  # the newest acknowledged: sequence and send time

    def twin_up(self, now_ns: int) -> None:
        """A twin is up; earlier observations do not count."""
        self._since_ns = now_ns

    def sent(self, sequence: int, now_ns: int) -> None:
        """An observation was sent."""
        if self._acknowledged[0] >= self._last:
            self._since_ns = now_ns
        self._last = sequence

    def acknowledged(self, sequence: int, sent_ns: int) -> None:
        """A twin has acknowledged an observation."""
        if sequence > self._acknowledged[0]:
            self._acknowledged = (sequence, sent_ns)

    @property
    def begun(self) -> bool:
        """Whether a twin has acknowledged anything."""
        return self._acknowledged[0] >= 0

    def behind_ns(self, now_ns: int) -> int:
        """Age of the newest acknowledged observation, while newer ones are unacknowledged; else 0."""
        sequence, sent_ns = self._acknowledged
        return 0 if sequence >= self._last else now_ns - max(self._since_ns, sent_ns)
