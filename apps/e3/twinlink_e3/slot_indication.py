"""The hot PDU of generation G2: indicationMessage with L1KPM-Indication, from octets without asn1tools.

There is one for every slot, 2000 a second, and asn1tools takes 0.05 ms for both.  What is here reads the usual form
alone, and returns None for every other, which asn1tools then reads or refuses (property tests compare the two).

Aligned PER, ITU-T X.691; bits after those that are shown are padding, up to an octet.  E3-PDU:

    extended 0, timestamp present, octets of the id - 1 (2 bits) | id - 1 | length, timestamp |
    extended 0, alternative 5 (4 bits), extended 0 | dAppIdentifier - 1 (16 bits) | ranFunctionIdentifier - 1 (16) |
    length - 1 (16) | protocolData

L1KPM-Indication, the protocolData:

    iqSamplesRef, cellId, nRxAnt, validSymbolMask present, length of shmName - 1 (6 bits) | shmName |
    fhBufferIndex (8) | octets of fhWriteIndex - 1 (2 bits) | fhWriteIndex | length, timestamp | sfn (16) | slot (16) |
    cellId (16) | nRxAnt (16) | validSymbolMask (16)
"""

import struct
from functools import lru_cache

from .indication import MAX_PROTOCOL_DATA, IndicationMessage, Octets
from .service_model import ALL_SYMBOLS, SlotIndication

_INDICATION = 0b0_0101_0_00
_BODY = struct.Struct(">HHH")
_NUMBERS = tuple(struct.Struct(f">{count}H") for count in range(6))
_MAX_IDENTIFIER = 65535
_MAX_TIME_OCTETS = 9  # of a time of 64 bits without sign


def decode_g2_indication(octets: Octets) -> IndicationMessage | None:
    """Read a PDU; None if it is another one, or not in the usual form."""
    try:
        head = octets[0]
        at = 2 + (head >> 4 & 3)
        message_id = int.from_bytes(octets[1:at], "big") + 1
        if head & 0x8F or (at > 2 and not octets[1]):
            return None
        timestamp = None
        if head & 0x40:
            end = at + 1 + octets[at]
            timestamp = _time(octets, at, end)
            if timestamp is None:
                return None
            at = end
        if octets[at] != _INDICATION:
            return None
        dapp, function, length = _BODY.unpack_from(octets, at + 1)
    except (IndexError, struct.error):
        return None
    at += 1 + _BODY.size
    if max(dapp, function) >= _MAX_IDENTIFIER or message_id > 0xFFFFFFFF or length >= MAX_PROTOCOL_DATA:
        return None
    if at + length + 1 != len(octets):
        return None
    return IndicationMessage(message_id, dapp + 1, function + 1, memoryview(octets)[at:], timestamp=timestamp)


def decode_slot(octets: Octets) -> SlotIndication | None:
    """Read the ``protocol_data`` of an indication; None if it is not in the usual form."""
    try:
        head = octets[0] << 8 | octets[1]
        at = 3 + (head >> 6 & 0x3F)
        name = bytes(octets[2:at])
        buffer, size = octets[at], octets[at + 1]
        end = at + 3 + (size >> 6)
        row = int.from_bytes(octets[at + 2 : end], "big")
        if not head & 0x8000 or head & 0x3F or at > 2 + 63 or size & 0x3F or (size and not octets[at + 2]):
            return None
        at, end = end, end + 1 + octets[end]
        timestamp = _time(octets, at, end)
        present = head >> 12 & 7
        numbers = _NUMBERS[2 + present.bit_count()]
        values = iter(numbers.unpack_from(octets, end))
    except (IndexError, struct.error):
        return None
    if timestamp is None or end + numbers.size != len(octets):
        return None
    sfn, slot = next(values), next(values)
    cell, antennas, mask = (next(values) if present & bit else None for bit in (4, 2, 1))
    if mask is not None and mask > ALL_SYMBOLS:
        return None
    return SlotIndication(_text(name), buffer, row, timestamp, sfn, slot, cell, antennas, mask)


def _time(octets: Octets, at: int, end: int) -> int | None:
    """An integer without bounds, with its length before it, in as few octets as there can be."""
    size = end - at - 1
    if not 1 <= size <= _MAX_TIME_OCTETS or end > len(octets):
        return None
    if size > 1 and octets[at + 1] in (0, 0xFF) and octets[at + 1] >> 7 == octets[at + 2] >> 7:
        return None
    return int.from_bytes(octets[at + 1 : end], "big", signed=True)


@lru_cache(maxsize=16)
def _text(name: bytes) -> str:
    return name.decode(errors="backslashreplace")
