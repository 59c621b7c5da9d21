"""Payload of flow ``sensing``: what the gNB's MAC scheduler left free in an uplink slot.

Energy there is of no UE of this gNB.  In network byte order, a head of 36 octets, and 6 octets for each range:

    offset  octets
         0       1   version: 1
         1       1   number of ranges
         2       2   system frame number
         4       2   slot in the frame
         6       2   beam
         8       8   observed: when the sender read it, Unix time in ns
        16       8   the gNB's time, in ns of its monotonic clock
        24       4   number of the entry: one more each time
        28       4   missing: entries before this one that the sender could not read
        32       4   reserved

         0       1   first symbol
         1       1   symbols
         2       2   first PRB
         4       2   PRBs
"""

import struct
from dataclasses import dataclass
from typing import NamedTuple

from .errors import MalformedPayload

VERSION = 1
MAX_RANGES = 255
_HEAD = struct.Struct(">BBHHHQQII4x")
_RANGE = struct.Struct(">BBHH")


class FreeRange(NamedTuple):
    """A rectangle of symbols and PRBs."""

    first_symbol: int
    symbols: int
    first_prb: int
    prbs: int


@dataclass(frozen=True, slots=True)
class SensingRanges:
    """The rectangles of one slot; the module says what the fields mean."""

    sfn: int
    slot: int
    ranges: tuple[FreeRange, ...]
    observed_ns: int
    gnb_ns: int = 0
    beam: int = 0
    number: int = 0
    missing: int = 0

    def encode(self) -> bytes:
        """The payload.  Raises ValueError for a value that does not fit."""
        try:
            head = _HEAD.pack(
                VERSION, len(self.ranges), self.sfn, self.slot, self.beam, self.observed_ns, self.gnb_ns,
                self.number, self.missing,
            )  # fmt: skip
            return head + b"".join(_RANGE.pack(*entry) for entry in self.ranges)
        except struct.error as error:
            raise ValueError(f"sensing ranges cannot be encoded: {error}") from error

    @classmethod
    def decode(cls, payload: bytes | memoryview) -> "SensingRanges":
        """Read a payload.  Raises MalformedPayload."""
        if len(payload) < _HEAD.size:
            raise MalformedPayload(f"sensing ranges have at least {_HEAD.size} octets, not {len(payload)}")
        version, count, sfn, slot, beam, observed_ns, gnb_ns, number, missing = _HEAD.unpack_from(payload)
        if version != VERSION or len(payload) != _HEAD.size + count * _RANGE.size:
            raise MalformedPayload(f"{len(payload)} octets are no {count} sensing ranges of version {version}")
        ranges = tuple(FreeRange(*values) for values in _RANGE.iter_unpack(payload[_HEAD.size :]))
        return cls(sfn, slot, ranges, observed_ns, gnb_ns, beam, number, missing)
