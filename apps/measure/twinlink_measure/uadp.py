"""UADP, the binary mapping of OPC UA PubSub (OPC 10000-14, section 7.2.4): data messages, encoder and decoder.

A NetworkMessage, all integers little-endian; in brackets what flags announce::

    +---------------+---------------+---------------+---------------+
    | version 0-3,  |[ExtendedFlags1|[ExtendedFlags2| [PublisherId  |   UADPFlags: 0x10 PublisherId, 0x20 GroupHeader,
    | UADPFlags 4-7 |               |               | 1 to 8, or    |   0x40 PayloadHeader, 0x80 ExtendedFlags1
    +---------------+---------------+---------------+ String] ...   +   ExtendedFlags1: 0-2 type of PublisherId,
    |[GroupFlags    |[WriterGroupId                ]|[GroupVersion  |   0x20 Timestamp, 0x40 PicoSeconds
    +---------------+---------------+---------------+---------------+
    |                              ]|[NetworkMessageNumber         ]|
    +---------------+---------------+---------------+---------------+
    |[SequenceNumber               ]|[Count        ]|[DataSetWriter-|   PayloadHeader: Count and as many ids
    +---------------+---------------+---------------+---------------+
    | Id UInt16]... |[Timestamp 8] [PicoSeconds 2] [Sizes UInt16...]|   Sizes: only where Count is above 1
    +---------------+---------------+---------------+---------------+
    | DataSetMessages ...

A DataSetMessage::

    +---------------+---------------+---------------+---------------+
    |DataSetFlags1  |[DataSetFlags2]|[SequenceNumber               ]|   Flags1: 1 valid, bits 1-2 encoding, 8 sequence,
    +---------------+---------------+---------------+---------------+   0x10 status, 0x20 major, 0x40 minor, 0x80 Flags2
    |[Timestamp 8] [PicoSeconds 2] [Status 2] [ConfigurationVersion:|   Flags2: bits 0-3 type, 0x10 timestamp,
    | MajorVersion 4] [MinorVersion 4]                              |   0x20 picoseconds
    +---------------+---------------+---------------+---------------+
    |[FieldCount UInt16            ]| fields ...                        FieldCount: not with RawData
    +---------------+---------------+

A field of the encoding Variant is an octet with its built-in type (OPC 10000-6, section 5.1.2), then its value.

Not here: security, discovery, chunks, promoted fields, DataSetClassId, the encoding DataValue, delta frames and arrays.
A message that has one of them is refused.  Without a PayloadHeader there is one DataSetMessage.
"""

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from twinlink.errors import TwinlinkError

ETHER_TYPE = 0xB62C  # over Ethernet (OPC 10000-14, section 7.3.3)
MOST = 65_507 - 100  # octets of fields that a UDP datagram surely has room for
_VERSION = 1


class UadpError(TwinlinkError):
    """Octets that are no NetworkMessage which this codec takes, or values that it cannot encode."""


class BuiltIn(IntEnum):
    """Built-in types of OPC UA, those of one value and without structure."""

    BOOLEAN = 1
    SBYTE = 2
    BYTE = 3
    INT16 = 4
    UINT16 = 5
    INT32 = 6
    UINT32 = 7
    INT64 = 8
    UINT64 = 9
    FLOAT = 10
    DOUBLE = 11
    STRING = 12
    DATE_TIME = 13  # 100 ns since 1601-01-01
    BYTE_STRING = 15


class PublisherIdType(IntEnum):
    """Bits 0 to 2 of ExtendedFlags1."""

    BYTE = 0
    UINT16 = 1
    UINT32 = 2
    UINT64 = 3
    STRING = 4


_SCALARS = {
    BuiltIn.BOOLEAN: struct.Struct("<?"),
    BuiltIn.SBYTE: struct.Struct("<b"),
    BuiltIn.BYTE: struct.Struct("<B"),
    BuiltIn.INT16: struct.Struct("<h"),
    BuiltIn.UINT16: struct.Struct("<H"),
    BuiltIn.INT32: struct.Struct("<i"),
    BuiltIn.UINT32: struct.Struct("<I"),
    BuiltIn.INT64: struct.Struct("<q"),
    BuiltIn.UINT64: struct.Struct("<Q"),
    BuiltIn.FLOAT: struct.Struct("<f"),
    BuiltIn.DOUBLE: struct.Struct("<d"),
    BuiltIn.DATE_TIME: struct.Struct("<q"),
}
_PUBLISHER_IDS = {
    PublisherIdType.BYTE: struct.Struct("<B"),
    PublisherIdType.UINT16: struct.Struct("<H"),
    PublisherIdType.UINT32: struct.Struct("<I"),
    PublisherIdType.UINT64: struct.Struct("<Q"),
}
_U8, _U16, _U32, _I32, _I64 = (struct.Struct(f"<{code}") for code in "BHIiq")
_VARIANT, _RAW = 0, 1  # field encodings
_KEY_FRAME, _KEEP_ALIVE = 0, 3  # types of DataSetMessages


@dataclass(frozen=True, slots=True)
class Variant:
    """A value with its built-in type: bool, int, float, str or bytes; None for a null String or ByteString."""

    type: BuiltIn
    value: Any


@dataclass(frozen=True, kw_only=True, slots=True)
class DataSetMessage:
    """A DataSetMessage: a data key frame, or a keep-alive without fields.

    Attributes:
        writer_id: DataSetWriterId, in the PayloadHeader; None without one.
        fields: of the encoding Variant.
        raw: the fields of the encoding RawData, whose types the metadata has; None: `fields` is used.
        keep_alive: whether it has no fields, and says only that the writer is alive.
        timestamp: 100 ns since 1601-01-01.
        status: the upper 16 bits of a StatusCode.
        major_version, minor_version: of the configuration.
    """

    writer_id: int | None = None
    fields: tuple[Variant, ...] = ()
    raw: bytes | None = None
    keep_alive: bool = False
    valid: bool = True
    sequence_number: int | None = None
    timestamp: int | None = None
    pico_seconds: int | None = None
    status: int | None = None
    major_version: int | None = None
    minor_version: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class NetworkMessage:
    """A NetworkMessage; None for what it does not have.

    Attributes:
        publisher_id: a number, or a text with `PublisherIdType.STRING`.
        publisher_id_type: its type.
        timestamp: 100 ns since 1601-01-01.
    """

    messages: tuple[DataSetMessage, ...]
    publisher_id: int | str | None = None
    publisher_id_type: PublisherIdType = PublisherIdType.UINT16
    writer_group_id: int | None = None
    group_version: int | None = None
    network_message_number: int | None = None
    sequence_number: int | None = None
    timestamp: int | None = None
    pico_seconds: int | None = None


# Encoder


def encode(message: NetworkMessage) -> bytes:
    """The octets of a NetworkMessage.  Raises UadpError."""
    try:
        return _encode(message)
    except (struct.error, TypeError, AttributeError, UnicodeEncodeError) as error:
        raise UadpError(f"a value does not fit its type in UADP: {error}") from error


def _encode(message: NetworkMessage) -> bytes:
    ids = [each.writer_id for each in message.messages if each.writer_id is not None]
    if not message.messages or len(ids) not in (0, len(message.messages)) or (not ids and len(message.messages) > 1):
        raise UadpError("a NetworkMessage has DataSetMessages, all of them with a writer_id, or one without")
    extended = message.publisher_id_type if message.publisher_id is not None else 0
    extended |= (message.timestamp is not None) << 5 | (message.pico_seconds is not None) << 6
    group = _flagged(
        (_U16, message.writer_group_id),
        (_U32, message.group_version),
        (_U16, message.network_message_number),
        (_U16, message.sequence_number),
    )
    flags = _VERSION | (message.publisher_id is not None) << 4 | bool(group[0]) << 5 | bool(ids) << 6
    parts = [_U8.pack(flags | bool(extended) << 7)]
    if extended:
        parts.append(_U8.pack(extended))
    if message.publisher_id is not None:
        parts.append(_publisher_id(message.publisher_id_type, message.publisher_id))
    if group[0]:
        parts += [_U8.pack(group[0]), group[1]]
    if ids:
        parts += [_U8.pack(len(ids)), *map(_U16.pack, ids)]
    parts.append(_flagged((_I64, message.timestamp), (_U16, message.pico_seconds))[1])
    bodies = list(map(_data_set_message, message.messages))
    if len(bodies) > 1:
        parts += [_U16.pack(len(body)) for body in bodies]
    return b"".join(parts + bodies)


def _flagged(*values: tuple[struct.Struct, int | None]) -> tuple[int, bytes]:
    """The flags of the values that are there, from bit 0 on, and their octets."""
    flags = sum(1 << place for place, (_, value) in enumerate(values) if value is not None)
    return flags, b"".join(code.pack(value) for code, value in values if value is not None)


def _publisher_id(kind: PublisherIdType, value: int | str) -> bytes:
    if kind == PublisherIdType.STRING:
        return _octets(str(value).encode())
    return _PUBLISHER_IDS[kind].pack(value)


def _data_set_message(message: DataSetMessage) -> bytes:
    encoding = _VARIANT if message.raw is None else _RAW
    kind = _KEEP_ALIVE if message.keep_alive else _KEY_FRAME
    second = kind | (message.timestamp is not None) << 4 | (message.pico_seconds is not None) << 5
    version = _flagged((_U16, message.status), (_U32, message.major_version), (_U32, message.minor_version))
    first = int(message.valid) | encoding << 1 | (message.sequence_number is not None) << 3 | version[0] << 4
    parts = [_U8.pack(first | bool(second) << 7)]
    if second:
        parts.append(_U8.pack(second))
    parts.append(_flagged((_U16, message.sequence_number))[1])
    parts.append(_flagged((_I64, message.timestamp), (_U16, message.pico_seconds))[1])
    parts.append(version[1])
    if message.keep_alive:
        if message.fields or message.raw is not None:
            raise UadpError("a keep-alive has no fields")
    elif message.raw is not None:
        parts.append(message.raw)
    else:
        parts += [_U16.pack(len(message.fields)), *map(_variant, message.fields)]
    return b"".join(parts)


def _variant(variant: Variant) -> bytes:
    code = _SCALARS.get(variant.type)
    if code is not None:
        return _U8.pack(variant.type) + code.pack(variant.value)
    value = variant.value.encode() if variant.type == BuiltIn.STRING and variant.value is not None else variant.value
    return _U8.pack(variant.type) + _octets(value)


def _octets(value: bytes | bytearray | None) -> bytes:
    """A String or a ByteString: its length, -1 if it is null, and its octets."""
    return _I32.pack(-1) if value is None else _I32.pack(len(value)) + value


# Decoder


class _Reader:
    """Reads from octets; what is beyond their end raises UadpError."""

    def __init__(self, octets: bytes | bytearray | memoryview) -> None:
        self._octets = bytes(octets)
        self._place = 0

    def take(self, count: int) -> bytes:
        if count < 0 or count > self.left:
            raise UadpError(f"{count} octets are announced at octet {self._place}, and {self.left} are there")
        self._place += count
        return self._octets[self._place - count : self._place]

    @property
    def left(self) -> int:
        return len(self._octets) - self._place

    def one(self, code: struct.Struct) -> Any:
        return code.unpack(self.take(code.size))[0]

    def some(self, flags: int, *codes: struct.Struct) -> list[Any]:
        """A value for each flag from bit 0 on; None where it is not set."""
        return [self.one(code) if flags >> place & 1 else None for place, code in enumerate(codes)]

    def octets(self) -> bytes | None:
        length = self.one(_I32)
        return None if length == -1 else self.take(length)

    def text(self) -> str | None:
        octets = self.octets()
        try:
            return None if octets is None else octets.decode()
        except UnicodeDecodeError as error:
            raise UadpError(f"a String is not UTF-8: {error}") from error


def decode(octets: bytes | bytearray | memoryview) -> NetworkMessage:
    """The NetworkMessage in a datagram.  Raises UadpError."""
    reader = _Reader(octets)
    flags = reader.one(_U8)
    if flags & 0x0F != _VERSION:
        raise UadpError(f"UADP version {flags & 0x0F}; this codec reads version {_VERSION}")
    extended = reader.one(_U8) if flags & 0x80 else 0
    second = reader.one(_U8) if extended & 0x80 else 0
    if extended & 0x18 or second:
        raise UadpError(
            f"a NetworkMessage with {_unread(extended, second)} is not read (ExtendedFlags1 0x{extended:02x}, "
            f"ExtendedFlags2 0x{second:02x})"
        )
    kind, publisher_id = PublisherIdType.UINT16, None
    if flags & 0x10:
        if extended & 7 not in list(PublisherIdType):
            raise UadpError(f"type {extended & 7} of a PublisherId is reserved")
        kind = PublisherIdType(extended & 7)
        # A null String is an id, unlike None.
        publisher_id = reader.text() or "" if kind == PublisherIdType.STRING else reader.one(_PUBLISHER_IDS[kind])
    group = reader.some(reader.one(_U8) if flags & 0x20 else 0, _U16, _U32, _U16, _U16)
    ids = [reader.one(_U16) for _ in range(reader.one(_U8))] if flags & 0x40 else [None]
    timestamp, pico_seconds = reader.some(extended >> 5 & 3, _I64, _U16)
    sizes = [reader.one(_U16) for _ in ids] if len(ids) > 1 else [reader.left]
    messages = tuple(_read_message(_Reader(reader.take(size)), which) for size, which in zip(sizes, ids, strict=False))
    if reader.left or not messages:
        raise UadpError(f"{reader.left} octets follow {len(messages)} DataSetMessages")
    return NetworkMessage(
        messages=messages,
        publisher_id=publisher_id,
        publisher_id_type=kind,
        writer_group_id=group[0],
        group_version=group[1],
        network_message_number=group[2],
        sequence_number=group[3],
        timestamp=timestamp,
        pico_seconds=pico_seconds,
    )


def _unread(extended: int, second: int) -> str:
    """The features of a NetworkMessage that this codec does not have, by ExtendedFlags1 and 2."""
    known = (
        (extended & 0x08, "DataSetClassId"),
        (extended & 0x10, "security"),
        (second & 0x01, "chunks"),
        (second & 0x02, "promoted fields"),
        (second & 0x1C, "discovery"),
        (second & 0xE0, "reserved flags"),
    )
    return ", ".join(name for flag, name in known if flag)


def _read_message(reader: _Reader, writer_id: int | None) -> DataSetMessage:
    first = reader.one(_U8)
    second = reader.one(_U8) if first & 0x80 else 0
    encoding, kind = first >> 1 & 3, second & 0x0F
    if encoding not in (_VARIANT, _RAW) or kind not in (_KEY_FRAME, _KEEP_ALIVE):
        raise UadpError(f"a DataSetMessage of type {kind} with field encoding {encoding} is not read")
    (sequence_number,) = reader.some(first >> 3 & 1, _U16)
    timestamp, pico_seconds = reader.some(second >> 4 & 3, _I64, _U16)
    status, major, minor = reader.some(first >> 4 & 7, _U16, _U32, _U32)
    fields: tuple[Variant, ...] = ()
    raw = None
    if kind == _KEY_FRAME and encoding == _RAW:
        raw = reader.take(reader.left)
    elif kind == _KEY_FRAME:
        fields = tuple(_read_variant(reader) for _ in range(reader.one(_U16)))
    if reader.left:
        raise UadpError(f"{reader.left} octets follow the last field of a DataSetMessage")
    return DataSetMessage(
        writer_id=writer_id,
        fields=fields,
        raw=raw,
        keep_alive=kind == _KEEP_ALIVE,
        valid=bool(first & 1),
        sequence_number=sequence_number,
        timestamp=timestamp,
        pico_seconds=pico_seconds,
        status=status,
        major_version=major,
        minor_version=minor,
    )


def _read_variant(reader: _Reader) -> Variant:
    number = reader.one(_U8)
    if number not in list(BuiltIn):
        raise UadpError(f"a Variant of type {number & 0x3F}{' (an array)' if number & 0xC0 else ''} is not read")
    kind = BuiltIn(number)
    if kind == BuiltIn.STRING:
        return Variant(kind, reader.text())
    return Variant(kind, reader.octets() if kind == BuiltIn.BYTE_STRING else reader.one(_SCALARS[kind]))
