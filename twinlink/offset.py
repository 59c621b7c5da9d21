"""The peer's clock against ours, from the four timestamps of acks (RFC 5905 section 8, minimum-delay filter)."""

from collections.abc import Sequence

from .message import Ack


def clock_offset(acks: Sequence[Ack]) -> tuple[int, int] | None:
    """Offset (peer minus ours) and its bound, in ns, of one peer; None without acks.

    Taken from the exchange with the least network round trip; not from one in which that is below 0, because a clock
    was set meanwhile, unless there is no other.  Each direction's share of it is unknown, so the offset is known to
    half of it: that is the bound.  A fit over time, for skew, is the task of measuring tools.
    """
    if not acks:
        return None
    best = min(acks, key=_doubtfulness)
    offset = (best.peer_received_ns - best.sent_ns + best.peer_sent_ns - best.received_ns) // 2
    return offset, abs(_network_round_trip(best)) // 2


def _doubtfulness(ack: Ack) -> tuple[bool, int]:
    network_ns = _network_round_trip(ack)
    return network_ns < 0, abs(network_ns)


def _network_round_trip(ack: Ack) -> int:
    return (ack.received_ns - ack.sent_ns) - (ack.peer_sent_ns - ack.peer_received_ns)
