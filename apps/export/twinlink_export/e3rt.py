"""The layout of E3RT, the traces of NVIDIA's agent as it stands alone: little-endian, packed.

    file     0  "E3RT", u32 version, u32 layout of the memory, u32 0
    record   0  u16 tag (1 PUSCH, 2 SRS), u16 0, u32 octets of the body

Records are in ascending TAI time.  The body of a PUSCH record is the slot of a cell:

    0   u64 time: Unix time in ns       8   u64 time: TAI in ns
    16  u16 system frame number         18  u16 slot in the frame
    20  u16 cell                        22  u16 antennas
    24  u16 antennas of SRS             26  u16 cells
    28  u8  antennas of the station     30  u16 UEs

then 73 octets of each UE, and two parts, each with its u32 octets before it: I/Q, and channel estimates.  I/Q is a row
of `twinlink_e3.ran_buffers`: four antennas, 14 symbols, 273 PRBs, in words of 16 bits, which are float16 there.
"""

import struct

from twinlink.spectrum import SUBCARRIERS_PER_PRB

MAGIC = b"E3RT"
VERSION = 0x010100
FILE_HEAD = struct.Struct("<4sIII")
RECORD_HEAD = struct.Struct("<HHI")
PUSCH, SRS = 1, 2
SLOT = struct.Struct("<QQHHHHHHBxH")
PART = struct.Struct("<I")
UE_OCTETS = 73
ANTENNAS, SYMBOLS, PRBS = 4, 14, 273
SHAPE = ANTENNAS, SYMBOLS, PRBS * SUBCARRIERS_PER_PRB, 2
ROW_OCTETS = 2 * ANTENNAS * SYMBOLS * PRBS * SUBCARRIERS_PER_PRB * 2
MAX_BODY_OCTETS = 256 * 1024 * 1024
TAI_NS = 37_000_000_000  # ahead of Unix time, since 2017
CELL = "cell-"  # begins the name of the node that stands for a cell
