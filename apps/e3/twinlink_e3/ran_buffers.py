"""The layout of ``/e3_ran_buffers``, in which a gNB writes the I/Q of each uplink slot (RAN function 2, L1-KPM).

The header begins with nine 32-bit numbers, little-endian:

    version, octets of a buffer: I/Q, PUSCH, channel estimates, values in a row of I/Q,
    rows of a buffer: I/Q, PUSCH, channel estimates, values in a row of channel estimates

The first 64 octets are all that is read of it. Its version tells its length: 1 is 64 octets, in OpenAirInterface;
0x010100 is 200 octets, in NVIDIA's Aerial, with the sizes of SRS buffers after the nine. Two buffers of I/Q follow the
header, and then the others, which are not read.
The gNB writes the rows of buffer 0, then those of buffer 1, and begins again.  A row is a slot:

    antenna (4), symbol (14), PRB (273), subcarrier (12), I and Q: 16-bit floating point numbers (IEEE 754)

PRBs are in natural order, with zeros above those of the carrier.  A value is the gNB's int16 times ``beta``, which
nothing in the memory tells.  Rows carry no time, number or lock: an indication names the row and its time.
OpenAirInterface, which has 16 rows, indicates a row when it has written it; NVIDIA's agents indicate first.
"""

import struct
from dataclasses import dataclass
from typing import Self

from .service_model import N_PRBS_MAX
from .shared_memory import SharedMemoryError

NAME = "/e3_ran_buffers"
VERSION, VERSION_SRS = 1, 0x010100
HEADERS = {VERSION: 64, VERSION_SRS: 200}  # octets
BUFFERS = 2
SYMBOLS = 14
SUBCARRIERS = N_PRBS_MAX * 12
VALUE_OCTETS = 2
SAMPLE_OCTETS = 2 * VALUE_OCTETS
SYMBOL_OCTETS = SUBCARRIERS * SAMPLE_OCTETS
ANTENNA_OCTETS = SYMBOLS * SYMBOL_OCTETS
MAX_ROWS = 65536
OPENAIRINTERFACE_ROWS = 16
HEADER_OCTETS = 64
_HEADER = struct.Struct("<9I28x")


@dataclass(frozen=True, slots=True)
class RanBuffers:
    """What the header says: antennas in a row, rows of each of the two buffers, version of the layout."""

    antennas: int = 4
    rows: int = 16
    version: int = VERSION

    @property
    def header_octets(self) -> int:
        """Octets of the header, after which the rows begin."""
        return HEADERS[self.version]

    @property
    def row_octets(self) -> int:
        """Octets of a row."""
        return self.antennas * ANTENNA_OCTETS

    @property
    def octets(self) -> int:
        """Octets of the header and the two buffers."""
        return self.header_octets + BUFFERS * self.rows * self.row_octets

    @property
    def written_first(self) -> bool:
        """Whether a row is complete when it is indicated; an agent that is not known to do so may write it later."""
        return self.rows == OPENAIRINTERFACE_ROWS

    def offset(self, buffer: int, row: int) -> int:
        """Where a row begins.  Raises SharedMemoryError if there is no such row."""
        if not (0 <= buffer < BUFFERS and 0 <= row < self.rows):
            raise SharedMemoryError(
                f"there is no row {row} of buffer {buffer}: there are {self.rows} rows in each of 2"
            )
        return self.header_octets + (buffer * self.rows + row) * self.row_octets

    def header(self) -> bytes:
        """The header, with no rows of other buffers than I/Q."""
        values = self.row_octets // VALUE_OCTETS
        header = _HEADER.pack(self.version, self.rows * self.row_octets, 0, 0, values, self.rows, 0, 0, 0)
        return header.ljust(self.header_octets, b"\0")

    @classmethod
    def of(cls, header: bytes) -> Self:
        """Read the first `HEADER_OCTETS` of a header.  Raises SharedMemoryError if the layout is another one."""
        version, buffer_octets, _, _, values, rows, *_ = _HEADER.unpack(header)
        antennas, rest = divmod(values * VALUE_OCTETS, ANTENNA_OCTETS)
        if version not in HEADERS or rest or not antennas or not 0 < rows <= MAX_ROWS:
            raise SharedMemoryError(
                f"a layout of I/Q buffers that is not known here: version {version:#x}, {rows} rows of {values} values"
            )
        layout = cls(antennas, rows, version)
        if buffer_octets != rows * layout.row_octets:
            raise SharedMemoryError(
                f"the header of the I/Q buffers contradicts itself: {rows} rows of {values} values are not "
                f"{buffer_octets} octets"
            )
        return layout
