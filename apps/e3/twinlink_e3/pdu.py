"""E3AP: the PDUs of all generations as dataclasses, and their fields as `grammar` and JSON name them.

A field has the grammar's name in Python's spelling (``dAppIdentifier`` is ``dapp_identifier``), converted by one rule.
"""

from dataclasses import dataclass, fields
from functools import cache
from itertools import count
from typing import Any, Literal

from .indication import MAX_MESSAGE_ID, IndicationMessage, Octets
from .message import Message

ResponseCode = Literal["positive", "negative"]
PROTOCOL_VERSION = "1.0.0"  # the same in every generation
_ENVELOPE = tuple(field.name for field in fields(Message))


@dataclass(frozen=True, slots=True)
class RanFunctionDefinition:
    """A RAN function in setupResponse; ``ran_function_data`` belongs to its service model."""

    ran_function_identifier: int
    telemetry_identifier_list: tuple[int, ...]
    control_identifier_list: tuple[int, ...]
    ran_function_data: Octets


@dataclass(frozen=True, slots=True)
class SetupRequest(Message):
    """dApp -> RAN on the setup channel: identification of the dApp."""

    e3ap_protocol_version: str
    dapp_name: str
    dapp_version: str
    vendor: str


@dataclass(frozen=True, slots=True)
class SetupResponse(Message):
    """RAN -> dApp on the setup channel: the dApp's identifier and the RAN functions.

    ``message`` says why it is negative, in JSON only.
    """

    request_id: int
    response_code: ResponseCode
    ran_identifier: str
    e3ap_protocol_version: str | None = None
    dapp_identifier: int | None = None
    ran_function_list: tuple[RanFunctionDefinition, ...] | None = None
    message: str | None = None


@dataclass(frozen=True, slots=True)
class SubscriptionRequest(Message):
    """dApp -> RAN; ``subscription_time`` in s, ``periodicity`` in us in G2b, before in the agent's own unit."""

    dapp_identifier: int
    ran_function_identifier: int
    telemetry_identifier_list: tuple[int, ...]
    control_identifier_list: tuple[int, ...]
    subscription_time: int | None = None
    periodicity: int | None = None


@dataclass(frozen=True, slots=True)
class SubscriptionDelete(Message):
    """dApp -> RAN: end this subscription."""

    dapp_identifier: int
    subscription_id: int


@dataclass(frozen=True, slots=True)
class SubscriptionResponse(Message):
    """RAN -> dApp, among the indications.

    RAN function and granted ``periodicity`` (us): G2b and JSON only.  ``message`` as in `SetupResponse`.
    """

    request_id: int
    dapp_identifier: int
    response_code: ResponseCode
    subscription_id: int | None = None
    telemetry_identifier_list: tuple[int, ...] | None = None
    control_identifier_list: tuple[int, ...] | None = None
    ran_function_identifier: int | None = None
    periodicity: int | None = None
    message: str | None = None


@dataclass(frozen=True, slots=True)
class DAppControlAction(Message):
    """dApp -> RAN; ``action_data`` belongs to the service model.  ``sequence_id``: G2 only."""

    dapp_identifier: int
    ran_function_identifier: int
    control_identifier: int
    action_data: Octets
    sequence_id: int | None = None


@dataclass(frozen=True, slots=True)
class DAppReport(Message):
    """dApp -> RAN, for the near-RT RIC's xApps.  ``sequence_id``: mandatory in G2, absent before."""

    dapp_identifier: int
    ran_function_identifier: int
    report_data: Octets
    sequence_id: int | None = None


@dataclass(frozen=True, slots=True)
class XAppControlAction(Message):
    """xApp -> RAN -> dApp; ``xapp_control_data`` belongs to the service model.  ``sequence_id`` as in `DAppReport`."""

    dapp_identifier: int
    ran_function_identifier: int
    xapp_control_data: Octets
    sequence_id: int | None = None


@dataclass(frozen=True, slots=True)
class ReleaseMessage(Message):
    """dApp -> RAN: this dApp is leaving."""

    dapp_identifier: int


@dataclass(frozen=True, slots=True)
class MessageAck(Message):
    """Either way; ``request_id`` is the message id of the acknowledged PDU."""

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

# The alternatives of the CHOICE in E3-PDU; also the types of JSON.
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
NAMES = {pdu: name for name, pdu in ALTERNATIVES.items()}


class MessageIds:
    """Message ids, 1 to 1000 in a circle.  E3 requires no order; counting makes logs readable."""

    def __init__(self) -> None:
        self._counter = count()

    def __call__(self) -> int:
        """The next message id."""
        return next(self._counter) % MAX_MESSAGE_ID + 1


def to_fields(structure: Any) -> dict[str, Any]:
    """The fields by the grammar's names: without absent ones and those of the envelope, tuples as lists."""
    envelope = _ENVELOPE if isinstance(structure, Message) else ()
    values = {
        field_name(field.name): _to_value(getattr(structure, field.name))
        for field in fields(structure)
        if field.name not in envelope
    }
    return {name: value for name, value in values.items() if value is not None}


def from_fields(kind: type[Any], values: dict[str, Any], **known: Any) -> Any:
    """An instance of ``kind``; ``known`` are the envelope's fields.  Raises TypeError if a field is missing."""
    envelope = _ENVELOPE if issubclass(kind, Message) else ()
    for field in fields(kind):
        name = field_name(field.name)
        if name == "ranFunctionList" and name in values:
            known[field.name] = tuple(from_fields(RanFunctionDefinition, entry) for entry in values[name])
        elif name in values and field.name not in envelope:
            known[field.name] = tuple(values[name]) if isinstance(values[name], list) else values[name]
    return kind(**known)


@cache
def field_name(name: str) -> str:
    """``dapp_identifier`` -> ``dAppIdentifier``."""
    first, *rest = name.split("_")
    first = {"dapp": "dApp", "xapp": "xApp"}.get(first, first)
    return first + "".join({"prbs": "PRBs"}.get(word, word.capitalize()) for word in rest)


def _to_value(value: Any) -> Any:
    if isinstance(value, tuple):
        return [to_fields(entry) if isinstance(entry, RanFunctionDefinition) else entry for entry in value]
    return bytes(value) if isinstance(value, bytearray | memoryview) else value
