"""A run that is kept for retransmission: one entry of the buffer for messages in a row.  No I/O."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import repeat

from ..frames import HEADER_OCTETS, RUN_AT, data_headers, parse, run_header


@dataclass(slots=True, eq=False)
class KeptRun:
    """Messages in a row, all as long, sent together and owed by the same peers.

    Attributes:
        first, count: their sequences.
        size: octets of each payload.
        frame: of all of them.
        sent_mono_ns: when they were sent.
        unacked_by: epochs of the peers that owe an ack.
    """

    first: int
    count: int
    size: int
    frame: bytes
    sent_mono_ns: int
    unacked_by: frozenset[int]

    @property
    def end(self) -> int:
        """One more than the last sequence."""
        return self.first + self.count

    @property
    def octets(self) -> int:
        """Octets of all payloads."""
        return self.count * self.size

    @property
    def payloads(self) -> memoryview:
        """The payloads, one behind the other."""
        return memoryview(self.frame)[RUN_AT : RUN_AT + self.octets]

    def cut(self, count: int) -> "tuple[KeptRun, KeptRun]":
        """The first so many of them, and the others."""
        _, epoch, _, sent_ns = _fields(self.frame)
        added, at = self.frame[RUN_AT + self.octets :], count * self.size
        parts = ((self.first, self.payloads[:at]), (self.first + count, self.payloads[at:]))
        first, others = [
            KeptRun(
                start,
                len(payloads) // self.size,
                self.size,
                b"".join((run_header(len(payloads) // self.size, self.size, epoch, start, sent_ns), payloads, added)),
                self.sent_mono_ns,
                self.unacked_by,
            )
            for start, payloads in parts
        ]
        return first, others

    def data_frames(self) -> Iterator[bytes]:
        """Each message in a frame of its own, with what the transport adds behind it."""
        _, epoch, first, sent_ns = _fields(self.frame)
        headers = data_headers([self.size] * self.count, epoch, first, sent_ns)
        payloads, size, added = self.payloads, self.size, self.frame[RUN_AT + self.octets :]
        parts = [payloads[at : at + size] for at in range(0, len(payloads), size)]
        return map(b"".join, zip(headers, parts, repeat(added), strict=False))


def _fields(frame: bytes) -> tuple[int, int, int, int]:
    """Kind, epoch, sequence and sent_ns."""
    kind, epoch, sequence, sent_ns = parse(memoryview(frame)[: HEADER_OCTETS + int.from_bytes(frame[4:8])])
    return kind, epoch, sequence, sent_ns
