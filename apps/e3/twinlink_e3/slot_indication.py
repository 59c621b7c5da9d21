"""The hot PDU of generation G2: indicationMessage with L1KPM-Indication, to and from octets without asn1tools.

There is one for every slot, 2000 a second, and asn1tools takes 0.05 ms to read both, and 0.1 ms to write them.  What is
here knows the usual form alone, and returns None for every other, which asn1tools then reads, writes or refuses
(property tests compare the two).

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
_MAX_NAME_OCTETS = 63


def encode_g2_indication(message: IndicationMessage) -> bytes | None:
    """The PDU; None if a value is out of range."""
    number, length = message.message_id - 1, len(message.protocol_data)
    dapp, function, timestamp = message.dapp_identifier - 1, message.ran_function_identifier - 1, message.timestamp
    if not (0 <= number < 0xFFFFFFFF and 0 < length <= MAX_PROTOCOL_DATA):
        return None
    if not (0 <= dapp < _MAX_IDENTIFIER and 0 <= function < _MAX_IDENTIFIER):
        return None
    digits, time = _digits(number), b"" if timestamp is None else _encode_time(timestamp)
    head = len(digits) - 1 << 4 | (0x40 if time else 0)
    body = _BODY.pack(dapp, function, length - 1)
    return b"".join((bytes((head,)), digits, time, bytes((_INDICATION,)), body, message.protocol_data))


def encode_slot(slot: SlotIndication) -> bytes | None:
    """The ``protocol_data`` of an indication; None if a value is out of range."""
    name = slot.shm_name.encode()
    numbers = [slot.sfn, slot.slot]
    present = 0
    for bit, value in ((4, slot.cell_id), (2, slot.n_rx_ant), (1, slot.valid_symbol_mask)):
        if value is not None:
            present |= bit
            numbers.append(value)
    if not 0 < len(name) <= _MAX_NAME_OCTETS or (slot.valid_symbol_mask or 0) > ALL_SYMBOLS:
        return None
    if not (0 <= slot.fh_buffer_index <= 0xFF and 0 <= slot.fh_write_index <= 0xFFFFFFFF):
        return None
    if min(numbers) < 0 or max(numbers) > 0xFFFF:
        return None
    head, row = 0x8000 | present << 12 | len(name) - 1 << 6, _digits(slot.fh_write_index)
    reference = bytes((slot.fh_buffer_index, len(row) - 1 << 6)) + row
    return b"".join(
        (head.to_bytes(2, "big"), name, reference, _encode_time(slot.timestamp), _NUMBERS[len(numbers)].pack(*numbers))
    )


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


def _encode_time(value: int) -> bytes:
    octets = (value if value >= 0 else ~value).bit_length() // 8 + 1
    return bytes((octets,)) + value.to_bytes(octets, "big", signed=True)


def _digits(value: int) -> bytes:
    """A whole number, big-endian, in as few octets as possible, at least one."""
    return value.to_bytes(max(1, (value.bit_length() + 7) // 8), "big")


@lru_cache(maxsize=16)
def _text(name: bytes) -> str:
    return name.decode(errors="backslashreplace")
