"""E3AP in the JSON of libe3: a flat object with ``type``, ``id`` and ``timestamp`` beside the PDU's fields.

    {"type": "messageAck", "id": 5, "timestamp": 1764259200000, "requestId": 3, "responseCode": "positive"}

``protocolData`` of an indication is itself a JSON value.  The other payloads have two forms, of which each agent reads
its own alone: strings of hexadecimal digits in libe3 up to 0.2, and nested JSON in NVIDIA's Aerial and in later libe3.
Both are read here; `JsonCodec` writes one of them.  Octets within structures of the service model are hexadecimal in
both.  dapps 0.0.6 nests a PDU in another object, which libe3 refuses.

NVIDIA's agent leaves ``timestamp`` out.  Its negative answers have few fields, and ``message`` says why.
"""

import json
import time
from collections.abc import Callable
from dataclasses import MISSING, fields, replace
from typing import Any

from .codec import AnyStructure
from .errors import InvalidPdu, MalformedPdu
from .indication import MAX_IQ_OCTETS, MAX_SAMPLE_COUNT, MAX_TIMESTAMP, IndicationMessage, Octets
from .pdu import ALTERNATIVES, NAMES, Pdu, RanFunctionDefinition, SetupResponse, field_name, from_fields, to_fields
from .service_model import (
    ALL_SYMBOLS,
    N_PRBS_MAX,
    WRAPPED,
    SensingIndication,
    SlotIndication,
    Structure,
)

MAX_PAYLOAD = 32768  # octets of a payload, as in ASN.1
MAX_FUNCTION_DATA = 262144  # as in G2b; NVIDIA's agent describes 78 streams there
MAX_MESSAGE = 1024  # characters of a reason
MAX_CELLS = 64  # of a slot
MAX_UES = 1024  # of a cell in a slot
NS_SINCE = 10**15  # a Unix time from here on is in ns, not in ms

Reader = Callable[[Any], Any]  # the value of a field; raises ValueError


def _whole(low: int, high: int) -> Reader:
    def read(value: Any) -> int:
        if type(value) is not int or not low <= value <= high:
            raise ValueError(f"a whole number from {low} to {high} is expected, not {value!r:.40}")
        return value

    return read


def _text(longest: int, shortest: int = 1) -> Reader:
    def read(value: Any) -> str:
        if not isinstance(value, str) or not shortest <= len(value) <= longest:
            raise ValueError(f"a text of {shortest} to {longest} characters is expected, not {value!r:.40}")
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


def _payload(longest: int) -> Reader:
    """A payload in either form."""
    read_octets = _octets(longest)

    def read(value: Any) -> bytes:
        if not isinstance(value, dict | list):
            return bytes(read_octets(value))
        if len(octets := _dump(value)) > longest:
            raise ValueError(f"at most {longest} octets of JSON are expected")
        return octets

    return read


def _list(longest: int, read_entry: Reader) -> Reader:
    def read(value: Any) -> list[Any]:
        if not isinstance(value, list) or len(value) > longest:
            raise ValueError(f"a list of at most {longest} is expected, not {value!r:.40}")
        return [read_entry(entry) for entry in value]

    return read


def _truth(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"true or false is expected, not {value!r:.40}")
    return value


def _response_code(value: Any) -> str:
    if value not in ("positive", "negative"):
        raise ValueError(f"positive or negative is expected, not {value!r:.40}")
    return str(value)


def _ran_function(value: Any) -> dict[str, Any]:
    return _read_fields(value)


_message_id, _identifier = _whole(1, 2**32 - 1), _whole(1, 65535)
_counted = _whole(1, 2**32 - 1)  # by NVIDIA's agent, which gives no identifier a second time
_identifiers, _prbs = _list(1000, _identifier), _list(N_PRBS_MAX, _whole(0, N_PRBS_MAX - 1))
_READERS: dict[str, Reader] = {
    "e3apProtocolVersion": _text(32),
    "dAppName": _text(64),
    "dAppVersion": _text(32),
    "vendor": _text(64),
    "ranIdentifier": _text(64, shortest=0),
    "requestId": _whole(0, 2**32 - 1),  # 0 to a request that the agent could not read
    "message": _text(MAX_MESSAGE, shortest=0),
    "sequenceId": _message_id,
    "responseCode": _response_code,
    **dict.fromkeys(("dAppIdentifier", "subscriptionId"), _counted),
    "ranFunctionIdentifier": _identifier,
    "controlIdentifier": _whole(0, 65535),  # 0 in NVIDIA's sample dApps
    **dict.fromkeys(("telemetryIdentifierList", "controlIdentifierList"), _identifiers),
    "ranFunctionList": _list(64, _ran_function),
    "subscriptionTime": _whole(0, 86400),
    "periodicity": _whole(0, 60_000_000),
    "protocolData": lambda value: json.dumps(value, separators=(",", ":")).encode(),
    **dict.fromkeys(("actionData", "reportData", "xAppControlData"), _payload(MAX_PAYLOAD)),
    "ranFunctionData": _payload(MAX_FUNCTION_DATA),
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
    "maskPerSlot": _list(160, _whole(0, ALL_SYMBOLS)),
    "deactivate": _truth,
}

_ALIASES = {"telemetryGrantedList": "telemetryIdentifierList", "controlGrantedList": "controlIdentifierList"}
_NESTED = frozenset(("actionData", "reportData", "ranFunctionData"))
_REFUSAL = {"requestId": 0, "ranIdentifier": ""}  # what a negative setupResponse may leave out

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
    **dict.fromkeys(("sfn", "slot", "cell_id", "n_rx_ant", "n_cells"), _whole(0, 65535)),
}
# The fields that have a place of their own, and whether they are needed.
_REFERENCE_FIELDS = {
    kind: {field.name: field.default is MISSING for field in fields(kind) if field.name in _REFERENCE_READERS}
    for kind in _REFERENCES
}
# What NVIDIA's agent says of each cell of a slot, in ``cells``; the rest is of all of them.
_OF_CELL = ("iq_samples", "cell_id", "n_rx_ant", "valid_symbol_mask")
_GRANTS, _GRANTS_OF_CELL, _GRANT = "ue_metrics", "ues", ("rb_start", "rb_size")
_PRB = _whole(0, N_PRBS_MAX)


class JsonCodec:
    """The codec of JSON; see `Codec`.  In G2 a control is wrapped, and sequence ids are allowed.

    Args:
        generation: ``G0`` or ``G2b``.
        nested: whether payloads are written as nested JSON, not as hexadecimal digits.
    """

    encoding = "json"

    def __init__(self, generation: str, *, nested: bool = False) -> None:
        self.generation = generation
        self.name = "JSON-nested" if nested else f"JSON-{generation[:2]}"
        self._is_g2 = generation.startswith("G2")
        self._nested = nested

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
        if self._nested:
            for part in (body, *body.get("ranFunctionList", ())):
                for name in _NESTED.intersection(part):
                    part[name] = _parse(part[name], InvalidPdu)
        message = {"type": NAMES[type(pdu)], "id": pdu.message_id, "timestamp": timestamp, **_to_json(body)}
        octets = _dump(message)
        try:
            self.decode(octets)  # holds the fields to their ranges
        except MalformedPdu as error:
            raise InvalidPdu(f"{NAMES[type(pdu)]} cannot be encoded: {error}") from error
        return octets

    def decode(self, octets: Octets) -> Pdu:
        """See `Codec`; fields that are unknown here are ignored."""
        return _decode(_parse(octets, MalformedPdu), len(octets))

    def encode_structure(self, structure: Structure) -> bytes:
        """See `Codec`."""
        if isinstance(structure, SlotIndication) and structure.names_cells:
            return _dump(_cells_to_json(structure))
        if isinstance(structure, SlotIndication | SensingIndication):
            return _dump(_reference_to_json(structure))
        values = _to_json(to_fields(structure))
        try:
            _read_fields(values)
        except ValueError as error:
            raise InvalidPdu(f"{type(structure).__name__} cannot be encoded: {error}") from error
        if type(structure) in WRAPPED and self._is_g2:
            values = {"controlPayload": {WRAPPED[type(structure)]: values}}
        return _dump(values)

    def decode_structure(self, kind: type[AnyStructure], octets: Octets) -> AnyStructure:
        """See `Codec`."""
        values = _parse(octets, MalformedPdu)
        try:
            if kind in _REFERENCES:
                reference: AnyStructure = _cells_of(values) if _has_cells(kind, values) else _reference_of(kind, values)
                return reference
            if kind in WRAPPED and self._is_g2:
                values = values["controlPayload"][WRAPPED[kind]]
            structure: AnyStructure = _build(kind, _read_fields(values))
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise MalformedPdu(f"{len(octets)} octets of JSON are no {kind.__name__}: {error}") from error
        return structure


def decode_setup_reply(octets: Octets) -> tuple[SetupResponse, bool | None]:
    """A reply on the setup channel, and whether its agent nests payloads; None if the reply does not tell.

    NVIDIA's agent answers what it cannot read with a refusal that has neither type nor message id.

    Raises MalformedPdu.
    """
    message = _parse(octets, MalformedPdu)
    nested = _nests(message)
    if isinstance(message, dict) and message.get("responseCode") == "negative" and "id" not in message:
        message, nested = {**message, "type": NAMES[SetupResponse], "id": 1}, True
    response = _decode(message, len(octets))
    if not isinstance(response, SetupResponse):
        raise MalformedPdu(f"the reply is a {type(response).__name__} in JSON, not a setupResponse")
    return response, nested


def _nests(message: Any) -> bool | None:
    """Whether the payloads of a setupResponse are nested; None if it has none."""
    functions = message.get("ranFunctionList") if isinstance(message, dict) else None
    if not isinstance(functions, list) or not functions:
        return None
    return any(isinstance(entry, dict) and isinstance(entry.get("ranFunctionData"), dict | list) for entry in functions)


def _decode(message: Any, size: int) -> Pdu:
    """The PDU of a parsed message of so many octets.  Raises MalformedPdu."""
    kind = ALTERNATIVES.get(str(message.get("type"))) if isinstance(message, dict) else None
    if kind is None:
        raise MalformedPdu(f"{size} octets of JSON are no PDU of libe3: the object has no known type")
    if kind is SetupResponse and message.get("responseCode") == "negative":
        message = _REFUSAL | message
    try:
        message_id = _message_id(message.pop("id", None))
        timestamp = _whole(0, 2**64 - 1)(message.pop("timestamp", 0)) or None
        pdu: Pdu = _build(kind, _read_fields(message), message_id=message_id, timestamp=timestamp)
    except (ValueError, RecursionError) as error:  # to write what is nested takes a deeper stack than to read it
        raise MalformedPdu(f"{size} octets of JSON are no {kind.__name__}: {error}") from error
    return pdu


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
    for name in _REFERENCE_FIELDS[type(structure)]:
        if (value := getattr(structure, name)) is None:
            continue
        try:
            _REFERENCE_READERS[name](value)
        except ValueError as error:
            raise InvalidPdu(f"{type(structure).__name__} cannot be encoded: {name}: {error}") from error
        place = message[outer] if name in inner else message
        place[inner.get(name, name)] = value
    if isinstance(structure, SlotIndication) and structure.grants is not None:
        message[_GRANTS] = [dict(zip(_GRANT, grant, strict=True)) for grant in structure.grants]
    return message


def _reference_of(kind: type[Any], message: Any) -> Any:
    """Raises ValueError, KeyError or TypeError."""
    outer, inner = _REFERENCES[kind]
    values = {}
    for name, needed in _REFERENCE_FIELDS[kind].items():
        place = message[outer] if name in inner else message
        if inner.get(name, name) in place or needed:
            values[name] = _REFERENCE_READERS[name](place[inner.get(name, name)])
    if kind is SlotIndication:
        values["grants"] = _grants(message.get(_GRANTS))
    return kind(**values)


def _grants(ues: Any) -> tuple[tuple[int, int], ...] | None:
    """The grants of UEs; None where they are not told, or otherwise than is known here: the I/Q counts all the same."""
    try:
        entries = _list(MAX_UES, lambda ue: tuple(_PRB(ue[name]) for name in _GRANT))(ues)
    except (ValueError, KeyError, TypeError):
        return None
    return tuple((first, count) for first, count in entries)


def _has_cells(kind: type[Any], message: Any) -> bool:
    return kind is SlotIndication and isinstance(message, dict) and "cells" in message and "iq_samples" not in message


def _cells_of(message: dict[str, Any]) -> Any:
    """A slot of several cells: that of the first with I/Q.  Raises ValueError, KeyError or TypeError."""
    cells = _list(MAX_CELLS, lambda cell: cell)(message["cells"])
    found = [cell for cell in cells if isinstance(cell, dict) and "iq_samples" in cell]
    if not found:
        raise ValueError("none of its cells has iq_samples")
    flat = ({**message, **cell, _GRANTS: cell.get(_GRANTS_OF_CELL), "n_cells": len(found)} for cell in found)
    first, *others = (_reference_of(SlotIndication, each) for each in flat)
    if any(other.shm_name != first.shm_name for other in others):
        raise ValueError("the rows of its cells are expected in one shared memory")
    return replace(first, others=tuple(others), names_cells=True)


def _cells_to_json(structure: SlotIndication) -> dict[str, Any]:
    """Raises InvalidPdu."""
    flat = [_reference_to_json(each) for each in (structure, *structure.others)]
    cells = [{name: each[name] for name in _OF_CELL if name in each} for each in flat]
    for cell, each in zip(cells, flat, strict=True):
        if _GRANTS in each:
            cell[_GRANTS_OF_CELL] = each[_GRANTS]
    of_all = {name: value for name, value in flat[0].items() if name not in (*_OF_CELL, _GRANTS)}
    return {**of_all, "cells": cells}


def _read_fields(values: Any) -> dict[str, Any]:
    """The known fields of an object, each by its reader.  Raises ValueError."""
    if not isinstance(values, dict):
        raise ValueError(f"an object is expected, not {values!r:.40}")
    known: dict[str, Any] = {}
    for given, value in values.items():
        name = str(_ALIASES.get(given, given))
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
