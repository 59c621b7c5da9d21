"""Payloads of the decision path: what the twin asks of the gNB, and what the gNB answers.

Flow ``control`` (Digital Twin -> Real World) carries `PrbBlock` and `SensingPolicy`; flow ``control-result`` answers
each with `PrbBlockResult`.  All are UTF-8 JSON objects with exactly the fields below: a field too many is refused,
because a RAN must not act on what it half understands.  Only ``e3`` may be absent.

A decision counts only from a peer that is up, that acknowledges flow ``spectrum`` in time, and while no other peer
holds the block.  Of one session, the message with the highest sequence number is the newest (docs/exporter.md).

A payload has at most `MAX_OCTETS`, which is looked at before it is read.
"""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, Literal, Self, get_args

from .errors import MalformedPayload, PayloadTooLarge
from .text_payload import short_json

MAX_PRBS = 275  # 3GPP TS 38.101-1: at most 273 PRBs; TS 38.331 maxNrofPhysicalResourceBlocks
MAX_ID_LENGTH = 64
MAX_TEXT_LENGTH = 1024
UNREAD = "unread-"  # with this begins the id in the result of a decision that was not read
EXPIRED = "its validity ended"  # reason of the result of a block that was not renewed
REPLACED = "replaced by "  # so begins the reason of the result of a block in whose place another stands
MAX_OCTETS = 16_384  # the longest id, list and reason fit, each character escaped to twelve octets

Status = Literal["installed", "rejected", "cleared"]
MAX_SLOTS = 160  # of a frame, 3GPP TS 38.211 table 4.3.2-1: at 240 kHz
MAX_SYMBOL_MASK = 0x3FFF  # 14 symbols


@dataclass(frozen=True, slots=True)
class PrbBlock:
    """A full list of PRBs to keep free; it replaces the last one, and an empty list clears it.

    Attributes:
        id: chosen by the twin, unique in its session; the answer repeats it.
        prbs: PRB indices, ascending, without repetition, within the carrier; decoding refuses others.
        issued_ns: when the twin decided, Unix time in ns on the twin's clock.
        validity_ms: how long the block may stand without being renewed.
        reason: for the log that explains why a UE got no resources.
    """

    id: str
    prbs: tuple[int, ...]
    issued_ns: int
    validity_ms: int
    reason: str = ""

    @property
    def content(self) -> tuple[int, ...]:
        """What is to stand."""
        return self.prbs

    def encode(self) -> bytes:
        """The payload.  Raises PayloadTooLarge above `MAX_OCTETS`."""
        return _encode(self, self.__slots__)

    @classmethod
    def decode(cls, payload: bytes | memoryview) -> Self:
        """Read a payload; raises MalformedPayload naming the field that is wrong."""
        fields = _object(payload, {"id", "prbs", "issued_ns", "validity_ms", "reason"})
        prbs = _prbs(fields)
        if sorted(set(prbs)) != list(prbs):
            raise MalformedPayload("prbs must be ascending and without repetition")
        return cls(_identifier(fields), prbs, _time(fields, "issued_ns"), _validity(fields), _text(fields, "reason"))


@dataclass(frozen=True, slots=True)
class SensingPolicy:
    """Which uplink symbols the gNB's MAC is to keep free for sensing; it replaces the last one, and no mask clears it.

    Attributes:
        id, issued_ns, validity_ms, reason: as in `PrbBlock`.
        mask_per_slot: for each slot of a frame a mask: bit s is set if symbol s is to stay free.  Empty: none.
    """

    id: str
    mask_per_slot: tuple[int, ...]
    issued_ns: int
    validity_ms: int
    reason: str = ""

    @property
    def content(self) -> tuple[int, ...]:
        """What is to stand."""
        return self.mask_per_slot

    def encode(self) -> bytes:
        """The payload."""
        return _encode(self, self.__slots__)

    @classmethod
    def decode(cls, payload: bytes | memoryview) -> Self:
        """Read a payload; raises MalformedPayload naming the field that is wrong."""
        fields = _object(payload, {"id", "mask_per_slot", "issued_ns", "validity_ms", "reason"})
        masks = fields["mask_per_slot"]
        if not isinstance(masks, list) or len(masks) > MAX_SLOTS:
            raise MalformedPayload(f"mask_per_slot must be a list of at most {MAX_SLOTS}")
        if not all(_is_int(mask, 0, MAX_SYMBOL_MASK) for mask in masks):
            raise MalformedPayload(f"mask_per_slot must hold integers from 0 to {MAX_SYMBOL_MASK}")
        return cls(
            _identifier(fields), tuple(masks), _time(fields, "issued_ns"), _validity(fields), _text(fields, "reason")
        )


Decision = PrbBlock | SensingPolicy


def decode_decision(payload: bytes | memoryview) -> Decision:
    """Read a payload of flow ``control``; raises MalformedPayload naming the field that is wrong."""
    try:
        return PrbBlock.decode(payload)
    except MalformedPayload:
        if b'"mask_per_slot"' not in bytes(payload):
            raise
    return SensingPolicy.decode(payload)


@dataclass(frozen=True, slots=True)
class E3Control:
    """The control that carried a block over E3, where controls have a sequence id (generation G2).

    Attributes:
        sequence_id: of the control; 1 to 2**32 - 1.
        received_ns: when the decision arrived, Unix time in ns on the exporter's clock.
        sent_ns: when the control was sent to the RAN, on the same clock.
        acknowledged_ns: when its acknowledgement arrived, on the same clock; None without one.
        ran_ns: when the RAN acknowledged it, having installed the block, Unix time on its own clock; None if it does
            not tell.  When the block was first on air is not told to dApps.
    """

    sequence_id: int
    received_ns: int
    sent_ns: int
    acknowledged_ns: int | None = None
    ran_ns: int | None = None


@dataclass(frozen=True, slots=True)
class PrbBlockResult:
    """What became of a `PrbBlock`, or of a `SensingPolicy`.

    Attributes:
        id: of the block that is meant, or `unread_id`.
        status: ``installed`` (handed to the RAN), ``rejected`` (by the exporter or the RAN), ``cleared`` (no longer
            stands).
        prbs: that stand blocked in the RAN after this, as far as the exporter knows.
        time_ns: when, Unix time in ns on the exporter's clock.
        reason: why it was rejected or cleared.  If the exporter rejected it, the broken rule, a colon and a text; rule
            ``holder`` names the twin that holds the block.
        e3: of the control that carried the block; None if none did, or if controls have no sequence id.
    """

    id: str
    status: Status
    prbs: tuple[int, ...]
    time_ns: int
    reason: str = ""
    e3: E3Control | None = None

    def encode(self) -> bytes:
        """The payload.  Raises PayloadTooLarge above `MAX_OCTETS`."""
        return _encode(self, self.__slots__)

    @classmethod
    def decode(cls, payload: bytes | memoryview) -> Self:
        """Read a payload; raises MalformedPayload naming the field that is wrong."""
        fields = _object(payload, {"id", "status", "prbs", "time_ns", "reason"}, "e3")
        prbs = _prbs(fields)
        if fields["status"] not in get_args(Status):
            raise MalformedPayload(f"status must be one of {', '.join(get_args(Status))}")
        identifier, reason = _identifier(fields), _text(fields, "reason")
        return cls(identifier, fields["status"], prbs, _time(fields, "time_ns"), reason, _e3(fields.get("e3")))


def _encode(one: object, names: Iterable[str]) -> bytes:
    # Not dataclasses.asdict, which copies each PRB: ten times as long as all else.
    fields = {name: getattr(one, name) for name in names}
    control = fields.pop("e3", None)
    if control is not None:
        fields["e3"] = {name: value for name, value in asdict(control).items() if value is not None}
    octets = json.dumps(fields, separators=(",", ":")).encode()
    if len(octets) > MAX_OCTETS:
        raise PayloadTooLarge(
            f"a {type(one).__name__} of {len(octets)} octets: at most {MAX_OCTETS} are taken, so shorten its id (to "
            f"{MAX_ID_LENGTH} characters) and its reason (to {MAX_TEXT_LENGTH})"
        )
    return octets


def unread_id(epoch: int, sequence: int) -> str:
    """The id in the result of a decision that was not read: the session of its sender, and the message's number."""
    return f"{UNREAD}{epoch:016x}-{sequence}"


def _object(payload: bytes | memoryview, names: set[str], optional: str | None = None) -> dict[str, Any]:
    fields = short_json(payload, MAX_OCTETS)
    if not isinstance(fields, dict) or set(fields) - {optional} != names:
        raise MalformedPayload(f"a JSON object with exactly the fields {', '.join(sorted(names))} is expected")
    return fields


def _validity(fields: dict[str, Any]) -> int:
    value = fields["validity_ms"]
    if not _is_int(value, 1, 2**31 - 1):
        raise MalformedPayload("validity_ms must be a positive integer")
    return int(value)


def _is_int(value: object, low: int, high: int) -> bool:
    return type(value) is int and low <= value <= high  # bool is an int to isinstance


def _prbs(fields: dict[str, Any]) -> tuple[int, ...]:
    value = fields["prbs"]
    if not isinstance(value, list) or not all(_is_int(prb, 0, MAX_PRBS - 1) for prb in value):
        raise MalformedPayload(f"prbs must be a list of integers from 0 to {MAX_PRBS - 1}")
    return tuple(value)


def _identifier(fields: dict[str, Any]) -> str:
    value = fields["id"]
    if not isinstance(value, str) or not 1 <= len(value) <= MAX_ID_LENGTH:
        raise MalformedPayload(f"id must be a string of 1 to {MAX_ID_LENGTH} characters")
    return value


def _text(fields: dict[str, Any], name: str) -> str:
    value = fields[name]
    if not isinstance(value, str) or len(value) > MAX_TEXT_LENGTH:
        raise MalformedPayload(f"{name} must be a string of at most {MAX_TEXT_LENGTH} characters")
    return value


def _e3(value: object) -> E3Control | None:
    if value is None:
        return None
    times = ("received_ns", "sent_ns", "acknowledged_ns", "ran_ns")
    if not isinstance(value, dict) or not {"sequence_id", *times[:2]} <= set(value) <= {"sequence_id", *times}:
        raise MalformedPayload(f"e3 must be an object with sequence_id and some of {', '.join(times)}")
    if not _is_int(value["sequence_id"], 1, 2**32 - 1):
        raise MalformedPayload("sequence_id must be an integer from 1 to 4294967295")
    return E3Control(value["sequence_id"], **{name: _time(value, name) for name in times if name in value})


def _time(fields: dict[str, Any], name: str) -> int:
    value = fields[name]
    if not _is_int(value, 0, 2**63 - 1):
        raise MalformedPayload(f"{name} must be Unix time in ns")
    return int(value)
