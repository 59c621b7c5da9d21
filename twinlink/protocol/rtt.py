"""Round-trip time, one-way delay and clock offset, from the four timestamps of acks (RFC 5905 names).

The offset is that of the exchange with the least network round trip: RFC 5905 section 8, minimum-delay filter.
"""

from collections import deque
from collections.abc import Collection, Iterable, Sequence
from itertools import islice
from typing import Any

from ..message import Ack

MAX_PEERS = 4  # whose delays are kept, the gone among them
SAMPLES = 2048  # acks of each peer kept for percentiles: 0.6 MB
RECENT_SAMPLES = 64
SAMPLE_EVERY = 16  # of so many messages that were acknowledged in a row, the ack of one is enough


class RttSamples:
    """Feed it acks."""

    def __init__(self) -> None:
        self._acks: dict[int, deque[Ack]] = {}
        self._path_rtt_ns: dict[int, int] = {}

    def add_peer(self, epoch: int, staying: Collection[int]) -> None:
        """A peer came; when there are too many, one that is not ``staying`` makes way."""
        if epoch not in self._acks and len(self._acks) >= MAX_PEERS:
            oldest = next((old for old in self._acks if old not in staying), epoch)
            self._acks.pop(oldest, None)
            self._path_rtt_ns.pop(oldest, None)
        self._acks.setdefault(epoch, deque(maxlen=SAMPLES))

    def add(self, epoch: int, acks: list[Ack]) -> None:
        """The peer must have joined."""
        self._acks[epoch].extend(acks)

    def path_rtt_ns(self, epochs: Collection[int], idle: bool) -> int:
        """The round trip of the path to the farthest of these peers, without waiting; 0 without acks.

        To be called about five times a second.  A path that has become longer is believed slowly: after a partition
        everything that waited shows seconds.  And only when it is ``idle``: else acks show what was ahead.
        """
        for epoch in epochs:
            recent = min(
                (ack.rtt_ns for ack in islice(reversed(self._acks.get(epoch, ())), RECENT_SAMPLES)), default=None
            )
            if recent is not None:
                known = self._path_rtt_ns.get(epoch, recent)
                self._path_rtt_ns[epoch] = min(recent, known + known // 50 if idle else known)
        return max((self._path_rtt_ns.get(epoch, 0) for epoch in epochs), default=0)

    def acks(self) -> dict[int, list[Ack]]:
        """The latest of each peer: a copy, for `stats`."""
        return {epoch: list(acks) for epoch, acks in self._acks.items()}


def stats(acks_of: dict[int, list[Ack]]) -> dict[str, Any]:
    """By peer: percentiles of round-trip time and one-way delay, and the clock offset, in ns; None without acks."""
    return {f"{epoch:016x}": _stats(acks) for epoch, acks in acks_of.items()}


def _stats(acks: list[Ack]) -> dict[str, Any]:
    estimate = clock_offset(acks)
    if estimate is None:
        return {"rtt_ns": None, "one_way_ns": None, "clock_offset_ns": None}
    offset_ns, bound_ns = estimate
    return {
        "rtt_ns": percentiles([ack.rtt_ns for ack in acks]),
        "one_way_ns": {
            **percentiles([ack.peer_received_ns - ack.sent_ns - offset_ns for ack in acks]),
            "bound": bound_ns,
        },
        "clock_offset_ns": {"offset": offset_ns, "bound": bound_ns},
    }


def percentiles(values: Iterable[int]) -> dict[str, int]:
    """Number, minimum, percentiles and maximum of at least one value.

    By nearest rank: the least of the values that 50, 95, 99 % of them do not exceed.
    """
    ordered = sorted(values)
    n = len(ordered)
    points = {f"p{percent}": ordered[-(-percent * n // 100) - 1] for percent in (50, 95, 99)}
    return {"n": n, "min": ordered[0], **points, "max": ordered[-1]}


def clock_offset(acks: Sequence[Ack]) -> tuple[int, int] | None:
    """Offset (peer minus ours) and its bound, in ns, of one peer; None without acks.

    Taken from the exchange with the least network round trip; not from one in which that is below 0, because a clock
    was set meanwhile, unless there is no other.  Each direction's share of it is unknown, so the offset is known to
    half of it: that is the bound.  A fit over time, for skew, is the task of measuring tools.
    """
    if not acks:
        return None
    best = min(acks, key=_uncertainty)
    offset = (best.peer_received_ns - best.sent_ns + best.peer_sent_ns - best.received_ns) // 2
    return offset, abs(_network_round_trip(best)) // 2


def _uncertainty(ack: Ack) -> tuple[bool, int]:
    network_ns = _network_round_trip(ack)
    return network_ns < 0, abs(network_ns)


def _network_round_trip(ack: Ack) -> int:
    return (ack.received_ns - ack.sent_ns) - (ack.peer_sent_ns - ack.peer_received_ns)
