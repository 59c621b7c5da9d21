"""What applications have not consumed yet, messages there and acks here: bounds the memory of both sides."""

from collections import deque

MAX_IN_FLIGHT = 131_072  # messages; bounds a window full of tiny ones
MAX_UNTOLD = 32_768  # acks; each takes some 350 octets
SLACK_OCTETS = 256 * 1024  # a receiver announces consumption at least this often, so this little never blocks


class Window:
    """A message is in flight from when it is handed over until every peer that is up has consumed or skipped it.

    That is longer than it is on its way (in_flight.py), which ends with the ack.  What is handed over together is in
    flight until all of it has been consumed: at most a bundle, which the slack has room for.

    Attributes:
        octets: in flight.
        untold: acks with which `on_ack` has not been called yet, where others come meanwhile.
    """

    def __init__(self, limit_octets: int) -> None:
        self.octets = 0
        self.untold = 0
        self._limit = limit_octets
        self._messages = 0
        self._in_flight: deque[tuple[int, int, int]] = deque()  # end, messages, octets of what went together

    def admit(self, end: int, messages: int, octets: int) -> bool:
        """Take so many messages in flight, all below ``end``, if there is room."""
        now = self.octets
        if (
            (now + octets > self._limit and now > SLACK_OCTETS)
            or self._messages >= MAX_IN_FLIGHT
            or self.untold >= MAX_UNTOLD
        ):
            return False
        self._messages += messages
        self.octets = now + octets
        self._in_flight.append((end, messages, octets))  # last, as in `free`: Ctrl-C comes where a call ends
        return True

    @property
    def tells_slowly(self) -> bool:
        """Whether nothing more leaves before `on_ack` has been called with some of the acks that are here."""
        return self.untold >= MAX_UNTOLD

    def free(self, done: int) -> None:
        """Take out of flight what every peer is done with: all below ``done``."""
        in_flight = self._in_flight
        while in_flight and in_flight[0][0] <= done:
            _, messages, octets = in_flight[0]
            self._messages -= messages
            self.octets -= octets
            in_flight.popleft()

    def clear(self) -> None:
        """Nobody is left who could consume."""
        self._in_flight.clear()
        self._messages = self.octets = 0

    @property
    def awaited(self) -> int | None:
        """Nothing leaves the window before every peer is done with what is below this; None while it is empty."""
        return self._in_flight[0][0] if self._in_flight else None
