"""E3AP in the JSON of libe3: a flat object with ``type``, ``id`` and ``timestamp`` beside the PDU's fields.

    {"type": "messageAck", "id": 5, "timestamp": 1764259200000, "requestId": 3, "responseCode": "positive"}

``protocolData`` of an indication is itself a JSON value.  The other payloads are strings of hexadecimal digits, also
within structures of the service model.  dapps 0.0.6 nests a PDU in another object, which libe3 refuses.
"""

import json
import time
from collections.abc import Callable
from dataclasses import MISSING, fields
from typing import Any

from .codec import AnyStructure
from .errors import InvalidPdu, MalformedPdu
from .indication import MAX_IQ_OCTETS, MAX_SAMPLE_COUNT, MAX_TIMESTAMP, IndicationMessage, Octets
from .pdu import ALTERNATIVES, NAMES, Pdu, RanFunctionDefinition, field_name, from_fields, to_fields
from .service_model import (
    ALL_SYMBOLS,
    N_PRBS_MAX,
    PrbBlacklistControl,
    SensingIndication,
    SlotIndication,
    Structure,
)

MAX_PAYLOAD = 32768  # of hexadecimal payloads, as in ASN.1
NS_SINCE = 10**15  # a Unix time from here on is in ns, not in ms

Reader = Callable[[Any], Any]  # the value of a field; raises ValueError


def _whole(low: int, high: int) -> Reader:
    def read(value: Any) -> int:
        if type(value) is not int or not low <= value <= high:
            raise ValueError(f"a whole number from {low} to {high} is expected, not {value!r:.40}")
        return value

    return read


def _text(longest: int) -> Reader:
    def read(value: Any) -> str:
        if not isinstance(value, str) or not 1 <= len(value) <= longest:
            raise ValueError(f"a text of 1 to {longest} characters is expected, not {value!r:.40}")
        value.encode()  # raises ValueError for half of a surrogate pair
        return value

    return read


def _octets(longest: int) -> Reader:
    def read(value: Any) -> bytes:
        if not isinstance(value, str) or len(value) > 2 * longest:
            raise ValueError(f"at most {longest} octets in hexadecimal are expected")
        octets = bytes.fromhex(value)
        if not octets:
            raise ValueError("at least one octet is expected")
        return octets

    return read


def _list(longest: int, read_entry: Reader) -> Reader:
    def read(value: Any) -> list[Any]:
        if not isinstance(value, list) or len(value) > longest:
            raise ValueError(f"a list of at most {longest} is expected, not {value!r:.40}")
        return [read_entry(entry) for entry in value]

    return read


def _response_code(value: Any) -> str:
    if value not in ("positive", "negative"):
        raise ValueError(f"positive or negative is expected, not {value!r:.40}")
    return str(value)


def _ran_function(value: Any) -> dict[str, Any]:
    return _read_fields(value)


_message_id, _identifier = _whole(1, 2**32 - 1), _whole(1, 65535)
_identifiers, _prbs = _list(1000, _identifier), _list(N_PRBS_MAX, _whole(0, N_PRBS_MAX - 1))
_READERS: dict[str, Reader] = {
    "e3apProtocolVersion": _text(32),
    "dAppName": _text(64),
    "dAppVersion": _text(32),
    "vendor": _text(64),
    "ranIdentifier": _text(64),
    "requestId": _message_id,
    "sequenceId": _message_id,
    "responseCode": _response_code,
    **dict.fromkeys(("dAppIdentifier", "ranFunctionIdentifier", "controlIdentifier", "subscriptionId"), _identifier),
    **dict.fromkeys(("telemetryIdentifierList", "controlIdentifierList"), _identifiers),
    "ranFunctionList": _list(64, _ran_function),
    "subscriptionTime": _whole(0, 86400),
    "periodicity": _whole(0, 60_000_000),
    "protocolData": lambda value: json.dumps(value, separators=(",", ":")).encode(),
    **dict.fromkeys(("actionData", "reportData", "xAppControlData", "ranFunctionData"), _octets(MAX_PAYLOAD)),
    # Of the service model
    "name": _octets(32),
    "version": _whole(0, 65535),
    "description": _octets(128),
    "iqSamples": _octets(MAX_IQ_OCTETS),
    "sampleCount": _whole(0, MAX_SAMPLE_COUNT),
    "timestamp": _whole(0, MAX_TIMESTAMP),
    **dict.fromkeys(("blacklistedPRBs", "blockedPRBs"), _prbs),
    "samplingThreshold": _whole(0, 100),
    "validityPeriod": _whole(1, 3600),
}

# References into shared memory have names of their own in JSON, some of them in another object.
_REFERENCES: dict[type[Any], tuple[str, dict[str, str]]] = {
    SlotIndication: ("iq_samples", {name: name for name in ("shm_name", "fh_buffer_index", "fh_write_index")}),
    SensingIndication: ("sensing_shm", {"shm_name": "shm_name", "shm_write_idx": "write_idx", "n_ranges": "n_ranges"}),
}
_REFERENCE_READERS: dict[str, Reader] = {
    "shm_name": _text(63),
    "fh_buffer_index": _whole(0, 255),
    "fh_write_index": _whole(0, 2**32 - 1),
    "shm_write_idx": _whole(0, 65535),
    "n_ranges": _whole(0, 128),
    "timestamp": _whole(0, 2**64 - 1),
    "beam": _whole(0, 3),
    "valid_symbol_mask": _whole(0, ALL_SYMBOLS),
    **dict.fromkeys(("sfn", "slot", "cell_id", "n_rx_ant"), _whole(0, 65535)),
}


class JsonCodec:
    """The codec of JSON; see `Codec`.  In G2 a control is wrapped, and sequence ids are allowed."""

    encoding = "json"

    def __init__(self, generation: str) -> None:
        self.generation = generation
        self.name = f"JSON-{generation[:2]}"
        self._is_g2 = generation.startswith("G2")

    def encode(self, pdu: Pdu) -> bytes:
        """See `Codec`; a PDU without a timestamp gets that of now, as libe3 does."""
        body = to_fields(pdu)
        if "sequenceId" in body and not self._is_g2:
            raise InvalidPdu(f"{NAMES[type(pdu)]} has no sequenceId in generation {self.generation} of E3AP")
        timestamp = pdu.timestamp
        if timestamp is None:
            timestamp = time.time_ns() if self._is_g2 else time.time_ns() // 1_000_000
        if isinstance(pdu, IndicationMessage):
            body["protocolData"] = _parse(pdu.protocol_data, InvalidPdu)
        message = {"type": NAMES[type(pdu)], "id": pdu.message_id, "timestamp": timestamp, **_to_json(body)}
        octets = _dump(message)
        try:
            self.decode(octets)  # holds the fields to their ranges
        except MalformedPdu as error:
            raise InvalidPdu(f"{NAMES[type(pdu)]} cannot be encoded: {error}") from error
        return octets

    def decode(self, octets: Octets) -> Pdu:
        """See `Codec`; fields that are unknown here are ignored."""
        message = _parse(octets, MalformedPdu)
        kind = ALTERNATIVES.get(str(message.get("type"))) if isinstance(message, dict) else None
        if kind is None:
            raise MalformedPdu(f"{len(octets)} octets of JSON are no PDU of libe3: the object has no known type")
        try:
            message_id = _message_id(message.pop("id", None))
            timestamp = _whole(0, 2**64 - 1)(message.pop("timestamp", 0)) or None
            pdu: Pdu = _build(kind, _read_fields(message), message_id=message_id, timestamp=timestamp)
        except ValueError as error:
            raise MalformedPdu(f"{len(octets)} octets of JSON are no {kind.__name__}: {error}") from error
        return pdu

    def encode_structure(self, structure: Structure) -> bytes:
        """See `Codec`."""
        if isinstance(structure, SlotIndication | SensingIndication):
            return _dump(_reference_to_json(structure))
        values = _to_json(to_fields(structure))
        try:
            _read_fields(values)
        except ValueError as error:
            raise InvalidPdu(f"{type(structure).__name__} cannot be encoded: {error}") from error
        if isinstance(structure, PrbBlacklistControl) and self._is_g2:
            values = {"controlPayload": {"prbBlacklistControl": values}}
        return _dump(values)

    def decode_structure(self, kind: type[AnyStructure], octets: Octets) -> AnyStructure:
        """See `Codec`."""
        values = _parse(octets, MalformedPdu)
        try:
            if kind in _REFERENCES:
                reference: AnyStructure = _reference_of(kind, values)
                return reference
            if kind is PrbBlacklistControl and self._is_g2:
                values = values["controlPayload"]["prbBlacklistControl"]
            structure: AnyStructure = _build(kind, _read_fields(values))
        except (ValueError, TypeError, KeyError) as error:
            raise MalformedPdu(f"{len(octets)} octets of JSON are no {kind.__name__}: {error}") from error
        return structure


def _build(kind: type[Any], values: dict[str, Any], **known: Any) -> Any:
    """As `from_fields`, but a missing field, also of a RAN function, raises ValueError."""
    parts: list[tuple[type[Any], dict[str, Any]]] = [
        (kind, values),
        *((RanFunctionDefinition, entry) for entry in values.get("ranFunctionList", ())),
    ]
    for part, given in parts:
        for field in fields(part):
            if field.default is MISSING and field_name(field.name) not in given and field.name not in known:
                raise ValueError(f"{field_name(field.name)} is missing")
    return from_fields(kind, values, **known)


def _reference_to_json(structure: SlotIndication | SensingIndication) -> dict[str, Any]:
    """Raises InvalidPdu."""
    outer, inner = _REFERENCES[type(structure)]
    message: dict[str, Any] = {outer: {}}
    for field in fields(structure):
        if (value := getattr(structure, field.name)) is None:
            continue
        try:
            _REFERENCE_READERS[field.name](value)
        except ValueError as error:
            raise InvalidPdu(f"{type(structure).__name__} cannot be encoded: {field.name}: {error}") from error
        place = message[outer] if field.name in inner else message
        place[inner.get(field.name, field.name)] = value
    return message


def _reference_of(kind: type[Any], message: Any) -> Any:
    """Raises ValueError, KeyError or TypeError."""
    outer, inner = _REFERENCES[kind]
    values = {}
    for field in fields(kind):
        place = message[outer] if field.name in inner else message
        name = inner.get(field.name, field.name)
        if name in place or field.default is MISSING:
            values[field.name] = _REFERENCE_READERS[field.name](place[name])
    return kind(**values)


def _read_fields(values: Any) -> dict[str, Any]:
    """The known fields of an object, each by its reader.  Raises ValueError."""
    if not isinstance(values, dict):
        raise ValueError(f"an object is expected, not {values!r:.40}")
    known = {}
    for name, value in values.items():
        if (read := _READERS.get(name)) is not None:
            try:
                known[name] = read(value)
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from error
    return known


def _to_json(value: Any) -> Any:
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).hex()
    if isinstance(value, dict):
        return {name: _to_json(entry) for name, entry in value.items()}
    return [_to_json(entry) for entry in value] if isinstance(value, list) else value


def _dump(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _parse(octets: Octets, error: type[InvalidPdu | MalformedPdu]) -> Any:
    try:
        return json.loads(bytes(octets), parse_constant=_no_constant)
    except (ValueError, RecursionError) as reason:
        raise error(f"{len(octets)} octets are no JSON: {reason}") from reason


def _no_constant(text: str) -> Any:
    raise ValueError(f"{text} is no JSON number")
