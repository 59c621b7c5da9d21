"""E3AP in aligned PER (ITU-T X.691), by asn1tools; hot indications by `indication` (G0) and `slot_indication` (G2)."""

from typing import Any

from . import grammar
from .codec import AnyStructure
from .errors import InvalidPdu, MalformedPdu
from .indication import (
    IndicationMessage,
    IqDataIndication,
    Octets,
    decode_indication,
    decode_iq_data,
    encode_indication,
    encode_iq_data,
    is_indication,
)
from .pdu import ALTERNATIVES, NAMES, Pdu, from_fields, to_fields
from .service_model import (
    WRAPPED,
    PrbBlacklistControl,
    PrbBlacklistReport,
    PrbBlockedControl,
    RanFunctionData,
    SensingIndication,
    SensingPolicyControl,
    SlotIndication,
    Structure,
)
from .slot_indication import decode_g2_indication, decode_slot, encode_g2_indication, encode_slot

_STRUCTURES: dict[type[Any], str] = {
    RanFunctionData: "Spectrum-RanFunctionData",
    PrbBlacklistControl: "Spectrum-PRBBlacklistControl",
    PrbBlacklistReport: "Spectrum-PRBBlacklistReport",
    PrbBlockedControl: "Spectrum-PRBBlockedControl",
    SensingPolicyControl: "Spectrum-SensingPolicyControl",
    SensingIndication: "Spectrum-SensingIndication",
    SlotIndication: "L1KPM-Indication",
}
_REFERENCE = ("shmName", "fhBufferIndex", "fhWriteIndex")  # fields of `SlotIndication` that the grammar nests
_WRAPPER = "Spectrum-DAppControlData"
_TEXTS = ("e3apProtocolVersion", "dAppName", "dAppVersion", "vendor", "ranIdentifier")


class Asn1Codec:
    """The codec of one generation; see `Codec`."""

    encoding = "asn1"

    def __init__(self, generation: str) -> None:
        self.name = self.generation = generation
        order = grammar.GENERATIONS.index
        # Fields that asn1tools would leave out in silence.
        self._absent = grammar.JSON_ONLY | {
            name for name, first in grammar.SINCE.items() if order(first) > order(generation)
        }
        self._texts = _TEXTS if grammar.names_are_octets(generation) else ()
        self._is_g2 = generation.startswith("G2")

    def encode(self, pdu: Pdu) -> bytes:
        """See `Codec`."""
        if self.generation == "G0" and isinstance(pdu, IndicationMessage) and pdu.timestamp is None:
            return encode_indication(pdu)
        if self._is_g2 and isinstance(pdu, IndicationMessage) and (octets := encode_g2_indication(pdu)) is not None:
            return octets
        kind, body = NAMES[type(pdu)], to_fields(pdu)
        message: dict[str, Any] = {"id": pdu.message_id, "msg": (kind, body)}
        if pdu.timestamp is not None:
            message["timestamp"] = pdu.timestamp
        for place, values in (("E3-PDU", message), (kind, body)):
            for name in values:
                if (place, name) in self._absent:
                    raise InvalidPdu(f"{place} has no {name} in generation {self.generation} of E3AP")
        for name in self._texts:
            if isinstance(body.get(name), str):
                body[name] = body[name].encode()
        return encode_type(self._grammar, "E3-PDU", message)

    def decode(self, octets: Octets) -> Pdu:
        """See `Codec`; octets after the PDU's end are ignored."""
        if self.generation == "G0" and is_indication(octets):
            return decode_indication(octets)
        if self._is_g2 and (indication := decode_g2_indication(octets)) is not None:
            return indication
        message = decode_type(self._grammar, "E3-PDU", octets, f" of generation {self.generation}")
        name, body = message["msg"]
        if name is None:
            raise MalformedPdu(f"the PDU is an extension that generation {self.generation} of E3AP does not have")
        for text in self._texts:
            if text in body:
                body[text] = body[text].decode(errors="backslashreplace")
        pdu: Pdu = from_fields(ALTERNATIVES[name], body, message_id=message["id"], timestamp=message.get("timestamp"))
        return pdu

    def is_canonical(self, octets: Octets) -> bool:
        """Whether the octets are a PDU of this generation that encodes to the same octets."""
        try:
            message = decode_type(self._grammar, "E3-PDU", octets)
            return encode_type(self._grammar, "E3-PDU", message) == bytes(octets)
        except (MalformedPdu, InvalidPdu):
            return False

    def encode_structure(self, structure: Structure) -> bytes:
        """See `Codec`."""
        if isinstance(structure, IqDataIndication):
            return encode_iq_data(structure)
        if isinstance(structure, SlotIndication) and (octets := encode_slot(structure)) is not None:
            return octets
        kind, values = _STRUCTURES[type(structure)], to_fields(structure)
        if type(structure) in WRAPPED and self._is_g2:
            kind, values = _WRAPPER, {"controlPayload": (WRAPPED[type(structure)], values)}
        if "shmName" in values:
            values["shmName"] = values["shmName"].encode()
        if isinstance(structure, SlotIndication):
            values["iqSamplesRef"] = {name: values.pop(name) for name in _REFERENCE}
            return encode_type(grammar.l1_kpm(), kind, values)
        return encode_type(grammar.spectrum(), kind, values)

    def decode_structure(self, kind: type[AnyStructure], octets: Octets) -> AnyStructure:
        """See `Codec`."""
        if kind is IqDataIndication:
            data: Any = decode_iq_data(octets)
        elif kind in WRAPPED and self._is_g2:
            chosen, values = decode_type(grammar.spectrum(), _WRAPPER, octets)["controlPayload"]
            if chosen != WRAPPED[kind]:
                raise MalformedPdu(f"the control of RAN function 1 is no {kind.__name__}, but {chosen or 'unknown'}")
            data = from_fields(kind, values)
        elif kind is SlotIndication and (slot := decode_slot(octets)) is not None:
            data = slot
        elif kind is SlotIndication:
            values = decode_type(grammar.l1_kpm(), _STRUCTURES[kind], octets)
            if (reference := values.pop("iqSamplesRef", None)) is None:
                raise MalformedPdu("the indication of RAN function 2 refers to no I/Q samples")
            data = from_fields(kind, _with_text(values | reference))
        else:
            data = from_fields(kind, _with_text(decode_type(grammar.spectrum(), _STRUCTURES[kind], octets)))
        structure: AnyStructure = data
        return structure

    @property
    def _grammar(self) -> Any:
        return grammar.e3ap(self.generation)


def _with_text(values: dict[str, Any]) -> dict[str, Any]:
    if "shmName" in values:
        values["shmName"] = values["shmName"].decode(errors="backslashreplace")
    return values


def encode_type(specification: Any, name: str, value: dict[str, Any]) -> bytes:
    """Encode ``value`` as the ASN.1 type ``name``.  Raises InvalidPdu."""
    try:
        octets: bytes = specification.encode(name, value, check_constraints=True)
    except Exception as error:  # asn1tools raises Python's own errors for values of the wrong type
        raise InvalidPdu(f"{name} cannot be encoded: {error}") from error
    return octets


def decode_type(specification: Any, name: str, octets: Octets, of: str = "") -> dict[str, Any]:
    """Decode the ASN.1 type ``name``; ``of`` belongs to the message of the error.  Raises MalformedPdu."""
    try:
        value: dict[str, Any] = specification.decode(name, bytes(octets), check_constraints=True)
    except Exception as error:  # asn1tools raises Python's own errors for unexpected octets
        raise MalformedPdu(f"{len(octets)} octets are no {name}{of}: {error}") from error
    return value
