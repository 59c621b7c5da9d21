"""Flow control: what the peers' applications have not consumed yet.  Bounds the memory of both sides.

Three modules: the window of a flow is here; receivers.py has what is known of each peer; and pace.py finds out how much
the peers have room for, and which of them the flow does not wait for.
"""

from collections import deque

MAX_UNCONSUMED = 131_072  # messages; bounds a window full of tiny ones
MAX_UNREPORTED_ACKS = 32_768  # acks; each takes some 350 octets
SLACK_OCTETS = 256 * 1024  # a receiver announces consumption at least this often, so this little never blocks


class FlowControlWindow:
    """A message is unconsumed from when it is transmitted until every peer that is up has consumed or skipped it.

    That is longer than it is in flight (in_flight.py), which ends with the ack.  What is transmitted together counts
    until all of it has been consumed: at most a run, which the slack has room for.

    Attributes:
        octets: sent and not consumed.
        most: octets that may be unconsumed where every peer has room for them.
        unreported_acks: acks with which `on_ack` has not been called yet, where others come meanwhile.
    """

    def __init__(self, limit_octets: int) -> None:
        self.octets = 0
        self.unreported_acks = 0
        self.most = self._limit = limit_octets
        self._messages = 0
        self._unconsumed: deque[tuple[int, int, int]] = deque()  # end, messages, octets of what went together

    def admit(self, end: int, messages: int, octets: int) -> bool:
        """Count so many messages more as unconsumed, all below ``end``, if there is room."""
        now = self.octets
        if (
            (now + octets > self._limit and now > SLACK_OCTETS)
            or self._messages >= MAX_UNCONSUMED
            or self.unreported_acks >= MAX_UNREPORTED_ACKS
        ):
            return False
        self._messages += messages
        self.octets = now + octets
        self._unconsumed.append((end, messages, octets))  # last, as in `release`: Ctrl-C comes where a call ends
        return True

    @property
    def is_half_full(self) -> bool:
        """Whether half of what may be unconsumed is."""
        return 2 * self.octets >= self._limit or 2 * self._messages >= MAX_UNCONSUMED

    @property
    def releases_at(self) -> int | None:
        """What every peer must be done with, all below it, before `release` changes anything; None: nothing will."""
        return self._unconsumed[0][0] if self._unconsumed else None

    def release(self, done: int) -> None:
        """Release the credit of what every peer is done with: all below ``done``."""
        unconsumed = self._unconsumed
        while unconsumed and unconsumed[0][0] <= done:
            _, messages, octets = unconsumed[0]
            self._messages -= messages
            self.octets -= octets
            unconsumed.popleft()

    def octets_below(self, end: int) -> int:
        """Octets that are unconsumed below ``end``."""
        return sum(octets for until, _, octets in self._unconsumed if until <= end)

    def limit_to(self, octets: int) -> None:
        """At most so many octets may be unconsumed, beside what never blocks."""
        self._limit = min(octets, self.most)

    def clear(self) -> None:
        """No peer is left that could consume."""
        self._unconsumed.clear()
        self._messages = self.octets = 0

    @property
    def awaited(self) -> int | None:
        """Nothing leaves the window before every peer is done with what is below this; None while it is empty."""
        return self._unconsumed[0][0] if self._unconsumed else None
