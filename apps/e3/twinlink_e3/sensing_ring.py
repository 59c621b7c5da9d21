"""The layout of ``/e3_l2_sensing``, in which a gNB writes what its MAC left free in each uplink slot (RAN function 1).

The header has 64 octets: five 32-bit numbers, little-endian, and eleven that are reserved.

    version (1), entries (256), octets of an entry, ranges of an entry (128), octets of a range (16)

An entry:

     0                   1                   2                   3
     0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
    +-------------------------------+-------------------------------+
    |              sfn              |             slot              |
    +-------------------------------+-------------------------------+
    |             beam              |            ranges             |
    +-------------------------------+-------------------------------+
    |                  time, ns, monotonic clock                    |
    |                                                               |
    +---------------------------------------------------------------+
    |                 number, one more each time                    |
    +---------------------------------------------------------------+
    |                           padding                             |
    +---------------------------------------------------------------+
    | ranges: first symbol, symbols, first PRB, PRBs, 32 bits each  |

The gNB writes ranges, number and time first, and ``sfn`` and ``slot`` last: an entry counts if these are the
indication's, before and after it is read, and if the number has not changed.
"""

import struct
from dataclasses import dataclass
from typing import NamedTuple, Self

from .shared_memory import SharedMemoryError

NAME = "/e3_l2_sensing"
VERSION = 1
HEADER_OCTETS = 64
ENTRY = struct.Struct("<4HQI4x")
RANGE = struct.Struct("<4i")
MAX_RANGES = 128
_HEADER = struct.Struct("<5I44x")


class SensingEntry(NamedTuple):
    """The head of an entry; the rules are those of the module."""

    sfn: int
    slot: int
    beam: int
    n_ranges: int
    time_ns: int
    number: int


@dataclass(frozen=True, slots=True)
class SensingRing:
    """What the header says: how many entries there are, and ranges in each."""

    entries: int = 256
    max_ranges: int = MAX_RANGES

    @property
    def entry_octets(self) -> int:
        """Octets of an entry."""
        return ENTRY.size + self.max_ranges * RANGE.size

    @property
    def octets(self) -> int:
        """Octets of the whole."""
        return HEADER_OCTETS + self.entries * self.entry_octets

    def offset(self, entry: int) -> int:
        """Where an entry begins.  Raises SharedMemoryError if there is no such entry."""
        if not 0 <= entry < self.entries:
            raise SharedMemoryError(f"there is no entry {entry} of sensing ranges: there are {self.entries}")
        return HEADER_OCTETS + entry * self.entry_octets

    def header(self) -> bytes:
        """The header."""
        return _HEADER.pack(VERSION, self.entries, self.entry_octets, self.max_ranges, RANGE.size)

    @classmethod
    def of(cls, header: bytes) -> Self:
        """Read a header.  Raises SharedMemoryError if the layout is another one."""
        version, entries, entry_octets, max_ranges, range_octets = _HEADER.unpack(header)
        layout = cls(entries, max_ranges)
        known = version == VERSION and range_octets == RANGE.size and entries > 0 and 0 < max_ranges <= MAX_RANGES
        if not known or entry_octets != layout.entry_octets:
            raise SharedMemoryError(
                f"a layout of sensing ranges that is not known here: version {version}, {entries} entries of "
                f"{entry_octets} octets, {max_ranges} ranges of {range_octets} octets"
            )
        return layout
