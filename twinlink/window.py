"""What the peers' applications have not consumed yet: bounds the memory of the receiving side."""

from collections import deque

MAX_IN_FLIGHT = 131_072  # messages; bounds a window full of tiny ones
SLACK_OCTETS = 256 * 1024  # a receiver announces consumption at least this often, so this little never blocks
SLACK_MESSAGES = 64


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

    def has_room(self, octets: int) -> bool:
        """Whether a payload may be handed over now."""
        now, count = self.octets, len(self._in_flight)
        return (now + octets <= self._limit or now <= SLACK_OCTETS) and (
            count < MAX_IN_FLIGHT or count <= SLACK_MESSAGES
        )

    def add(self, sequence: int, octets: int) -> None:
        """A message was handed over."""
        self._in_flight.append((sequence, octets))
        self.octets += octets

    def free(self) -> None:
        """Take out of flight what every peer is done with."""
        (done,) = self.consumed.values() if len(self.consumed) == 1 else (min(self.consumed.values()),)
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
