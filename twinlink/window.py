"""What the peers' applications have not consumed yet: bounds the memory of the receiving side."""

from collections import deque
from collections.abc import Iterable

MAX_IN_FLIGHT = 131_072  # messages; bounds a window full of tiny ones
SLACK_OCTETS = 256 * 1024  # a receiver announces consumption at least this often, so this little never blocks


class Window:
    """A message is in flight from when it is handed over until every peer that is up has consumed or skipped it.

    Attributes:
        octets: in flight.
        consumed: peer epoch -> every sequence below is done with there.
    """

    def __init__(self, limit_octets: int) -> None:
        self.octets = 0
        self.consumed: dict[int, int] = {}
        self._limit = limit_octets
        self._in_flight: deque[tuple[int, int]] = deque()  # sequence, octets

    def admit(self, messages: Iterable[tuple[int, int]], octets: int) -> bool:
        """Take messages in flight, if there is room: sequence and octets of each, octets of all."""
        now = self.octets
        if (now + octets > self._limit and now > SLACK_OCTETS) or len(self._in_flight) >= MAX_IN_FLIGHT:
            return False
        self._in_flight.extend(messages)
        self.octets = now + octets
        return True

    def free(self) -> None:
        """Take out of flight what every peer is done with."""
        done = min(self.consumed.values())
        in_flight = self._in_flight
        while in_flight and in_flight[0][0] < done:
            self.octets -= in_flight.popleft()[1]

    def clear(self) -> None:
        """Nobody is left who could consume."""
        self._in_flight.clear()
        self.octets = 0

    @property
    def oldest(self) -> int | None:
        """The first sequence in flight."""
        return self._in_flight[0][0] if self._in_flight else None
