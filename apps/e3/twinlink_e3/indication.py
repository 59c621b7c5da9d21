"""The hot PDU of generation G0: indicationMessage with Spectrum-IQDataIndication, to and from octets without asn1tools.

asn1tools takes more than half a millisecond for one 6 KB symbol, as much as the whole path to the twin.  This module
accepts and produces exactly the same octets (checked by property tests) and does not copy the I/Q.

Aligned PER, ITU-T X.691: integers of a range up to 255 are bit fields, larger ones start on an octet; a length of a
constrained range is a constrained integer.  Numbers on the wire are offsets from the lower bound.

E3-PDU with the alternative indicationMessage:

     0                   1                   2                   3
     0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
    +-------------------------------+-------+-------------+---------+
    |            id - 1             |   5   |  dAppId - 1 | ranFunc |  ranFunctionIdentifier - 1: 7 bits
    +---+-----------+---------------+-------+-------+-----+---------+
    |-1 |  0 0 ..   |     length of protocolData - 1  | protocolData...
    +---+-----------+-------------------------------+---------------+

    5 is the index of indicationMessage in the CHOICE (4 bits); the six bits after ranFunctionIdentifier are padding.

Spectrum-IQDataIndication, the protocolData:

    +-+-------------+-------------------------------+---------------+
    |T|    0 0 ..   |   length of iqSamples - 1     | iqSamples ... |  T: the timestamp is present
    +-+-------------+---------------+---+-----------+---------------+
    |          sampleCount          | n |   0 0 ..  | timestamp ... |  timestamp of n + 1 octets, only with T
    +-------------------------------+---+-----------+---------------+
"""

import struct
from dataclasses import dataclass

from .errors import InvalidPdu, MalformedPdu
from .message import Message

Octets = bytes | bytearray | memoryview

MAX_PROTOCOL_DATA = 32768
MAX_IQ_OCTETS = 16384
MAX_SAMPLE_COUNT = 32768
MAX_TIMESTAMP = 2**31 - 1
MAX_MESSAGE_ID = 1000
MAX_IDENTIFIER = 100

_INDICATION = 5
_HEAD = struct.Struct(">HHBH")  # id, then choice, dAppId and ranFunction over three octets, then the length
_IQ_HEAD = struct.Struct(">BH")
_COUNT = struct.Struct(">H")


@dataclass(frozen=True, slots=True)
class IndicationMessage(Message):
    """A report of a RAN function to one dApp.

    Attributes:
        dapp_identifier: the addressed dApp, 1 to 100 (G2: 65535).  The RAN sends to all of them.
        ran_function_identifier: 1 to 100 (G2: 65535); 1 is the spectrum service model.
        protocol_data: 1 to 32768 octets of the RAN function's service model; after decoding a view of the input.
    """

    dapp_identifier: int
    ran_function_identifier: int
    protocol_data: Octets


@dataclass(frozen=True, slots=True)
class IqDataIndication:
    """One OFDM symbol as the gNB received it.

    Attributes:
        iq_samples: 1 to 16384 octets, ``ci16_le`` in FFT order; after decoding a view of what came in.
        sample_count: complex samples, 0 to 32768, as the RAN states it.
        timestamp: 0 to 2**31 - 1 or None; its unit and accuracy depend on the RAN (OpenAirInterface has sent 0).
    """

    iq_samples: Octets
    sample_count: int
    timestamp: int | None = None


def is_indication(octets: Octets) -> bool:
    """Whether the octets are a PDU with the alternative indicationMessage, which is all that is checked."""
    return len(octets) > 2 and octets[2] >> 4 == _INDICATION


def encode_indication(message: IndicationMessage) -> bytes:
    """The PDU.  Raises InvalidPdu that names a value out of range."""
    _require("id", message.message_id, 1, MAX_MESSAGE_ID)
    _require("dAppIdentifier", message.dapp_identifier, 1, MAX_IDENTIFIER)
    _require("ranFunctionIdentifier", message.ran_function_identifier, 1, MAX_IDENTIFIER)
    _require("length of protocolData", len(message.protocol_data), 1, MAX_PROTOCOL_DATA)
    bits = _INDICATION << 20 | (message.dapp_identifier - 1) << 13 | (message.ran_function_identifier - 1) << 6
    head = _HEAD.pack(message.message_id - 1, bits >> 8, bits & 0xFF, len(message.protocol_data) - 1)
    return head + message.protocol_data


def decode_indication(octets: Octets) -> IndicationMessage:
    """Read a PDU; octets after its end are ignored.  Raises MalformedPdu."""
    if len(octets) < _HEAD.size:
        raise MalformedPdu(f"an indication has at least {_HEAD.size + 1} octets, this one has {len(octets)}")
    message_id, high, low, length = _HEAD.unpack_from(octets)
    bits = high << 8 | low
    dapp_identifier = (bits >> 13 & 0x7F) + 1
    ran_function_identifier = (bits >> 6 & 0x7F) + 1
    length += 1
    if bits >> 20 != _INDICATION:
        raise MalformedPdu(f"not an indication: the alternative has index {bits >> 20}, not {_INDICATION}")
    if message_id >= MAX_MESSAGE_ID or dapp_identifier > MAX_IDENTIFIER or ran_function_identifier > MAX_IDENTIFIER:
        raise MalformedPdu(
            f"an identifier is out of range: message {message_id + 1}, dApp {dapp_identifier}, "
            f"RAN function {ran_function_identifier}"
        )
    if length > MAX_PROTOCOL_DATA or _HEAD.size + length > len(octets):
        raise MalformedPdu(
            f"protocolData claims {length} octets (at most {MAX_PROTOCOL_DATA}), {len(octets) - _HEAD.size} are there"
        )
    return IndicationMessage(
        message_id + 1,
        dapp_identifier,
        ran_function_identifier,
        memoryview(octets)[_HEAD.size : _HEAD.size + length],
    )


def encode_iq_data(data: IqDataIndication) -> bytes:
    """The ``protocol_data`` of an indication.  Raises InvalidPdu that names a value out of range."""
    _require("length of iqSamples", len(data.iq_samples), 1, MAX_IQ_OCTETS)
    _require("sampleCount", data.sample_count, 0, MAX_SAMPLE_COUNT)
    tail = _COUNT.pack(data.sample_count)
    if data.timestamp is not None:
        _require("timestamp", data.timestamp, 0, MAX_TIMESTAMP)
        size = max(1, (data.timestamp.bit_length() + 7) // 8)
        tail += bytes(((size - 1) << 6,)) + data.timestamp.to_bytes(size, "big")
    present = 0 if data.timestamp is None else 0x80
    return b"".join((_IQ_HEAD.pack(present, len(data.iq_samples) - 1), data.iq_samples, tail))


def decode_iq_data(octets: Octets) -> IqDataIndication:
    """Read the ``protocol_data`` of an indication; octets after its end are ignored.  Raises MalformedPdu."""
    try:
        flags, length = _IQ_HEAD.unpack_from(octets)
        length += 1
        end = _IQ_HEAD.size + length
        (sample_count,) = _COUNT.unpack_from(octets, end)
        timestamp = _timestamp(octets, end + _COUNT.size) if flags & 0x80 else None
    except (struct.error, IndexError):
        raise MalformedPdu(f"I/Q data of {len(octets)} octets is truncated") from None
    if length > MAX_IQ_OCTETS or sample_count > MAX_SAMPLE_COUNT:
        raise MalformedPdu(f"I/Q data states {length} octets and {sample_count} samples, which is out of range")
    return IqDataIndication(memoryview(octets)[_IQ_HEAD.size : end], sample_count, timestamp)


def _timestamp(octets: Octets, start: int) -> int:
    size = (octets[start] >> 6) + 1
    digits = bytes(octets[start + 1 : start + 1 + size])
    value = int.from_bytes(digits, "big")
    if len(digits) < size:
        raise MalformedPdu("the timestamp of an I/Q data indication is truncated")
    if value > MAX_TIMESTAMP:
        raise MalformedPdu(f"the timestamp {value} is above {MAX_TIMESTAMP}")
    return value


def _require(name: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise InvalidPdu(f"{name} must be from {low} to {high}, not {value}")
