"""The MGEN packet: the content of a UDP datagram, and each fragment of a TCP message.

All integers are big-endian::

     0                   1                   2                   3
     0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
    +-------------------------------+---------------+---------------+
  0 |    size of this packet        |  version = 2  |     flags     |
    +-------------------------------+---------------+---------------+
  4 |                             flow                              |
    +---------------------------------------------------------------+
  8 |                           sequence                            |
    +---------------------------------------------------------------+
 12 |                     sent: seconds since 1970                  |
    +---------------------------------------------------------------+
 16 |                     sent: microseconds                        |
    +-------------------------------+---------------+---------------+
 20 |    destination port           | type: 1 v4 2 v6| length 4 16  |
    +-------------------------------+---------------+---------------+
 24 |                  destination address (4 or 16)                |
    +-------------------------------+---------------+---------------+
    |    host port                  | type, 0: none |    length     |
    +-------------------------------+---------------+---------------+
    |                  host address (0, 4 or 16)                    |
    +---------------------------------------------------------------+
    |       latitude, unsigned: (degrees + 180) x 60000             |
    +---------------------------------------------------------------+
    |       longitude, likewise                                     |
    +---------------------------------------------------------------+
    |       altitude, signed                                        |
    +---------------+---------------+-------------------------------+
    |  GPS status   |   reserved    |       length of payload       |
    +---------------+---------------+-------------------------------+
    |       payload, zeros up to the size; with flag CHECKSUM the last 4 octets are a CRC-32 of all before

The fields after the destination address are present as far as the size has room for them; the least size is 28 octets.

A TCP message longer than 65535 octets is several packets of the same flow and sequence, each with its own send time;
all but the last have the flag CONTINUES, the last has END_OF_MSG.  A shorter one has neither.
"""

import dataclasses
import enum
import ipaddress
import struct
import zlib
from dataclasses import dataclass
from typing import NamedTuple

from ..errors import MalformedPayload
from ..process.ip_address import bracketed

VERSION = 2
MIN_OCTETS = 28
MAX_UDP_OCTETS = 8192  # stock MGEN's longest datagram

# size, version, flags, flow, sequence, seconds, microseconds, destination port, address type and length
HEADER = struct.Struct(">HBBIIIIHBB")
_ADDRESS = struct.Struct(">HBB")
_POSITION = struct.Struct(">IIiB")
_LENGTHS = {1: 4, 2: 16}
_TYPES = {4: 1, 6: 2}


class Protocol(enum.IntEnum):
    """The protocol of a message, with the numbers of MGEN's binary log."""

    UDP = 1
    TCP = 2


class Flag(enum.IntFlag):
    """Octet 3."""

    CONTINUES = 0x01
    END_OF_MSG = 0x02
    CHECKSUM = 0x04
    LAST_BUFFER = 0x08
    CHECKSUM_ERROR = 0x10


class Address(NamedTuple):
    """Destination or source of a packet."""

    host: str  # in a packet, as digits
    port: int

    def __str__(self) -> str:
        return f"{bracketed(self.host)}:{self.port}"


class Position(NamedTuple):
    """Position from MGEN's GPS receiver; without one 999 degrees and status 0."""

    latitude_degrees: float
    longitude_degrees: float
    altitude_m: int
    status: int  # 0 invalid, 1 stale, 2 current


class Start(NamedTuple):
    """The part of a header that the bridge needs."""

    size: int
    flags: int
    flow: int
    sequence: int
    sent_ns: int


@dataclass(frozen=True, slots=True)
class Packet:
    """One MGEN packet.

    Attributes:
        size: octets of the packet, with header and fill.
        flags: see `Flag`.
        flow, sequence: as the sender numbered them.
        sent_ns: Unix time in ns on the sender's clock; a multiple of 1000.
        destination: the sender's destination.
        host: the sender's own address, if present.
        position: of the sender; None if the packet is too short for it.
        payload: of the sender's DATA option, without the fill.
    """

    size: int
    flags: int
    flow: int
    sequence: int
    sent_ns: int
    destination: Address
    host: Address | None = None
    position: Position | None = None
    payload: bytes = b""

    def serialize(self) -> bytes:
        """The packet's octets, ``size`` in number.  Raises ValueError if mandatory fields do not fit."""
        destination = _pack_address(self.destination)
        octets = bytearray(HEADER.pack(*self._start(), *_ADDRESS.unpack_from(destination)) + destination[4:])
        host = _pack_address(self.host) if self.host else bytes(4)
        if self.size < len(octets):
            raise ValueError(f"an MGEN packet of {self.size} octets: its header alone has {len(octets)}")
        if self.size >= len(octets) + len(host):
            octets += host
            if self.size >= len(octets) + _POSITION.size:
                octets += _pack_position(self.position or Position(999.0, 999.0, -999, 0))
                data = len(self.payload).to_bytes(2, "big") + self.payload
                if self.size >= len(octets) + 1 + len(data):
                    octets += b"\0" + data
        octets += bytes(self.size - len(octets))
        if self.flags & Flag.CHECKSUM:
            octets[-4:] = zlib.crc32(octets[:-4]).to_bytes(4, "big")
        return bytes(octets)

    def _start(self) -> tuple[int, ...]:
        seconds, rest_ns = divmod(self.sent_ns, 1_000_000_000)
        return self.size, VERSION, self.flags, self.flow, self.sequence, seconds, rest_ns // 1000


def parse_logged(octets: bytes) -> Packet:
    """The packet in a record of a binary log, where a TCP message's size may be 0 and the checksum is absent."""
    if int.from_bytes(octets[:2], "big") >= MIN_OCTETS:
        return parse(octets)
    return dataclasses.replace(parse(len(octets).to_bytes(2, "big") + octets[2:]), size=0)


def start(octets: bytes | bytearray | memoryview, offset: int = 0) -> Start:
    """The start of the packet at ``offset``, of which at least 24 octets are present.

    Raises:
        MalformedPayload: an MGEN listener would refuse it.
    """
    size, version, flags, flow, sequence, seconds, microseconds, _, kind, length = HEADER.unpack_from(octets, offset)
    if version != VERSION:
        raise MalformedPayload(f"version {version} in place of {VERSION}")
    if _LENGTHS.get(kind) != length:
        raise MalformedPayload(f"a destination address of type {kind} with {length} octets")
    if size < HEADER.size + length:
        raise MalformedPayload(f"a size of {size}, less than its header")
    return Start(size, flags, flow, sequence, (seconds * 1_000_000 + microseconds) * 1000)


def parse(octets: bytes | bytearray | memoryview) -> Packet:
    """The packet that ``octets`` begin with; they may end before its size, as in a binary log.

    Raises:
        MalformedPayload: they are no MGEN packet.
    """
    if len(octets) < MIN_OCTETS:
        raise MalformedPayload(f"{len(octets)} octets, less than MGEN's {MIN_OCTETS}")
    size, flags, flow, sequence, sent_ns = start(octets)
    octets = bytes(octets[:size])
    destination, end = read_address(octets, 20)
    if destination is None:
        raise MalformedPayload("the destination address is cut off")
    host = position = None
    payload = b""
    if len(octets) >= end + 4 and (known := octets[end + 2]) in (0, *_LENGTHS):
        host, end = read_address(octets, end) if known else (None, end + 4 + octets[end + 3])
        if len(octets) >= end + _POSITION.size:
            latitude, longitude, altitude, status = _POSITION.unpack_from(octets, end)
            position = Position(latitude / 60000 - 180, longitude / 60000 - 180, altitude, status)
            end += _POSITION.size + 1  # the reserved octet
            if len(octets) >= end + 2:
                payload = octets[end + 2 : end + 2 + int.from_bytes(octets[end : end + 2], "big")]
    return Packet(size, flags, flow, sequence, sent_ns, destination, host, position, payload)


def _pack_address(address: Address) -> bytes:
    number = ipaddress.ip_address(address.host)
    return _ADDRESS.pack(address.port, _TYPES[number.version], len(number.packed)) + number.packed


def _pack_position(position: Position) -> bytes:
    latitude, longitude = (round((degrees + 180) * 60000) for degrees in position[:2])
    return _POSITION.pack(latitude, longitude, position.altitude_m, position.status)


def read_address(octets: bytes, offset: int) -> tuple[Address | None, int]:
    """The address there, and where it ends; None when it is cut off or of no kind that is known."""
    port, kind, length = _ADDRESS.unpack_from(octets, offset)
    end = offset + _ADDRESS.size + length
    if _LENGTHS.get(kind) != length or len(octets) < end:
        return None, end
    return Address(str(ipaddress.ip_address(octets[end - length : end])), port), end
