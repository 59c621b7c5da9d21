"""Clock offset of each peer, second by second, from the acks of what this side sent."""

import struct
from typing import Any, NamedTuple

from ..protocol.frames import ACK_HEAD, ACK_RECORD, HEADER, HEADER_OCTETS, REJECTED, Frame

MAX_PEERS = 1024

_unpack_times = struct.Struct("!QQ").unpack_from  # T1 and T2 of a record, behind its sequence


class _Best(NamedTuple):
    rtt_ns: int
    offset_ns: int
    acks: int


class ClockOffsets:
    """Feed it acks.  Of each second the exchange with the least round trip counts (RFC 5905 section 8)."""

    def __init__(self) -> None:
        self._best: dict[int, _Best] = {}

    def add(self, frame: Frame, received_ns: int) -> None:
        """An ack with records has come in: of those the last, which waited least for its ack."""
        at = len(frame) - ACK_RECORD.size
        if at < HEADER_OCTETS + ACK_HEAD.size:
            return
        _, _, epoch, _, t3_ns = HEADER.unpack_from(frame)
        t1_ns, t2_ns = _unpack_times(frame, at + 8)
        best = self._best.get(epoch)
        if t2_ns == REJECTED or (best is None and len(self._best) >= MAX_PEERS):
            return
        rtt_ns = (received_ns - t1_ns) - (t3_ns - t2_ns)
        count = best.acks + 1 if best else 1
        if best is None or abs(rtt_ns) < abs(best.rtt_ns):
            best = _Best(rtt_ns, (t2_ns - t1_ns + t3_ns - received_ns) // 2, count)
        self._best[epoch] = best._replace(acks=count)

    def take(self, nodes: dict[int, str]) -> list[dict[str, Any]]:
        """The estimates since the last call: offset (peer minus this side) and its bound, half the round trip."""
        taken, self._best = self._best, {}
        return [
            {
                "epoch": f"{epoch:016x}",
                "node": nodes.get(epoch),
                "offset_ns": best.offset_ns,
                "bound_ns": abs(best.rtt_ns) // 2,
                "rtt_ns": best.rtt_ns,
                "acks": best.acks,
            }
            for epoch, best in taken.items()
        ]
