"""E3AP: every PDU of generation G0 as a dataclass, to and from octets.

Fields have the grammar's names in Python's spelling (``dAppIdentifier`` is ``dapp_identifier``), converted by one rule.
indicationMessage is encoded by `indication`, the rest by asn1tools.
"""

from dataclasses import dataclass, fields
from itertools import count
from typing import Any, Literal

from . import grammar
from .errors import InvalidPdu, MalformedPdu
from .indication import MAX_MESSAGE_ID, IndicationMessage, Octets, decode_indication, encode_indication, is_indication

ResponseCode = Literal["positive", "negative"]
PROTOCOL_VERSION = "1.0.0"  # the same in every generation


@dataclass(frozen=True, slots=True)
class RanFunctionDefinition:
    """A RAN function in setupResponse; ``ran_function_data`` belongs to its service model."""

    ran_function_identifier: int
    telemetry_identifier_list: tuple[int, ...]
    control_identifier_list: tuple[int, ...]
    ran_function_data: Octets


@dataclass(frozen=True, slots=True)
class SetupRequest:
    """dApp -> RAN on the setup channel: identification of the dApp."""

    message_id: int
    e3ap_protocol_version: str
    dapp_name: str
    dapp_version: str
    vendor: str


@dataclass(frozen=True, slots=True)
class SetupResponse:
    """RAN -> dApp on the setup channel: the dApp's identifier and the RAN functions."""

    message_id: int
    request_id: int
    response_code: ResponseCode
    ran_identifier: str
    e3ap_protocol_version: str | None = None
    dapp_identifier: int | None = None
    ran_function_list: tuple[RanFunctionDefinition, ...] | None = None


@dataclass(frozen=True, slots=True)
class SubscriptionRequest:
    """dApp -> RAN; ``subscription_time`` in s, ``periodicity`` in a unit on which implementations differ."""

    message_id: int
    dapp_identifier: int
    ran_function_identifier: int
    telemetry_identifier_list: tuple[int, ...]
    control_identifier_list: tuple[int, ...]
    subscription_time: int | None = None
    periodicity: int | None = None


@dataclass(frozen=True, slots=True)
class SubscriptionDelete:
    """dApp -> RAN: end this subscription."""

    message_id: int
    dapp_identifier: int
    subscription_id: int


@dataclass(frozen=True, slots=True)
class SubscriptionResponse:
    """RAN -> dApp, among the indications."""

    message_id: int
    request_id: int
    dapp_identifier: int
    response_code: ResponseCode
    subscription_id: int | None = None
    telemetry_identifier_list: tuple[int, ...] | None = None
    control_identifier_list: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class DAppControlAction:
    """dApp -> RAN; ``action_data`` belongs to the service model."""

    message_id: int
    dapp_identifier: int
    ran_function_identifier: int
    control_identifier: int
    action_data: Octets


@dataclass(frozen=True, slots=True)
class DAppReport:
    """dApp -> RAN, for the near-RT RIC's xApps."""

    message_id: int
    dapp_identifier: int
    ran_function_identifier: int
    report_data: Octets


@dataclass(frozen=True, slots=True)
class XAppControlAction:
    """xApp -> RAN -> dApp; ``xapp_control_data`` belongs to the service model."""

    message_id: int
    dapp_identifier: int
    ran_function_identifier: int
    xapp_control_data: Octets


@dataclass(frozen=True, slots=True)
class ReleaseMessage:
    """dApp -> RAN: this dApp is leaving."""

    message_id: int
    dapp_identifier: int


@dataclass(frozen=True, slots=True)
class MessageAck:
    """Either way; ``request_id`` is the message id of the acknowledged PDU."""

    message_id: int
    request_id: int
    response_code: ResponseCode


Pdu = (
    SetupRequest
    | SetupResponse
    | SubscriptionRequest
    | SubscriptionDelete
    | SubscriptionResponse
    | IndicationMessage
    | DAppControlAction
    | DAppReport
    | XAppControlAction
    | ReleaseMessage
    | MessageAck
)

# The alternatives of the CHOICE in E3-PDU.
ALTERNATIVES: dict[str, type[Any]] = {
    "setupRequest": SetupRequest,
    "setupResponse": SetupResponse,
    "subscriptionRequest": SubscriptionRequest,
    "subscriptionDelete": SubscriptionDelete,
    "subscriptionResponse": SubscriptionResponse,
    "indicationMessage": IndicationMessage,
    "dAppControlAction": DAppControlAction,
    "dAppReport": DAppReport,
    "xAppControlAction": XAppControlAction,
    "releaseMessage": ReleaseMessage,
    "messageAck": MessageAck,
}
_NAMES = {pdu: name for name, pdu in ALTERNATIVES.items()}


def encode(pdu: Pdu) -> bytes:
    """The octets of one PDU.

    Raises:
        InvalidPdu: a value that the grammar does not allow.
        GrammarMissing: the extra ``twinlink[e3]`` is not installed (indicationMessage works without it).
    """
    if isinstance(pdu, IndicationMessage):
        return encode_indication(pdu)
    message = {"id": pdu.message_id, "msg": (_NAMES[type(pdu)], to_asn1(pdu))}
    return encode_type(grammar.e3ap(), "E3-PDU", message)


def decode(octets: Octets) -> Pdu:
    """Read one PDU; octets after its end are ignored.

    Raises:
        MalformedPdu: the octets are no PDU of generation G0.
        GrammarMissing: as for `encode`.
    """
    if is_indication(octets):
        return decode_indication(octets)
    message = decode_type(grammar.e3ap(), "E3-PDU", octets)
    name, body = message["msg"]
    pdu: Pdu = from_asn1(ALTERNATIVES[name], body, message_id=message["id"])
    return pdu


class MessageIds:
    """Message ids, 1 to 1000 in a circle.  E3 requires no order; counting makes logs readable."""

    def __init__(self) -> None:
        self._counter = count()

    def __call__(self) -> int:
        """The next message id."""
        return next(self._counter) % MAX_MESSAGE_ID + 1


def encode_type(specification: Any, name: str, value: dict[str, Any]) -> bytes:
    """Encode ``value`` as the ASN.1 type ``name``.  Raises InvalidPdu."""
    try:
        octets: bytes = specification.encode(name, value, check_constraints=True)
    except Exception as error:  # asn1tools raises Python's own errors for values of the wrong type
        raise InvalidPdu(f"{name} cannot be encoded: {error}") from error
    return octets


def decode_type(specification: Any, name: str, octets: Octets) -> dict[str, Any]:
    """Decode the ASN.1 type ``name``.  Raises MalformedPdu."""
    try:
        value: dict[str, Any] = specification.decode(name, bytes(octets), check_constraints=True)
    except Exception as error:  # asn1tools raises Python's own errors for unexpected octets
        raise MalformedPdu(f"{len(octets)} octets are no {name} of generation G0: {error}") from error
    return value


def to_asn1(structure: Any) -> dict[str, Any]:
    """The dictionary for asn1tools: without absent fields, tuples as lists."""
    values = {
        asn1_name(field.name): _to_asn1_value(getattr(structure, field.name))
        for field in fields(structure)
        if field.name != "message_id"
    }
    return {name: value for name, value in values.items() if value is not None}


def from_asn1(kind: type[Any], values: dict[str, Any], **known: Any) -> Any:
    """An instance of ``kind`` from asn1tools' dictionary."""
    for field in fields(kind):
        name = asn1_name(field.name)
        if name == "ranFunctionList" and name in values:
            known[field.name] = tuple(from_asn1(RanFunctionDefinition, entry) for entry in values[name])
        elif name in values:
            known[field.name] = tuple(values[name]) if isinstance(values[name], list) else values[name]
    return kind(**known)


def asn1_name(name: str) -> str:
    """``dapp_identifier`` -> ``dAppIdentifier``."""
    first, *rest = name.split("_")
    first = {"dapp": "dApp", "xapp": "xApp"}.get(first, first)
    return first + "".join({"prbs": "PRBs"}.get(word, word.capitalize()) for word in rest)


def _to_asn1_value(value: Any) -> Any:
    if isinstance(value, tuple):
        return [to_asn1(entry) if isinstance(entry, RanFunctionDefinition) else entry for entry in value]
    return bytes(value) if isinstance(value, bytearray | memoryview) else value
