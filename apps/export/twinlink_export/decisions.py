"""What the twin has asked for, what stands blocked, and what is labelled, at each point of a recording."""

import json
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from twinlink.block_state import FLOW as BLOCK_STATE
from twinlink.block_state import desired_of
from twinlink.control import PrbBlock, PrbBlockResult, decode_decision
from twinlink.errors import MalformedPayload
from twinlink.signed_payload import body_of

from .source import MAX_NS, Message

CONTROL, CONTROL_RESULT, LABELS = "control", "control-result", "labels"
MAX_LABELS = 65_536  # that hold at a time
_MAX_TEXT = 1024


class _Asked(NamedTuple):
    prbs: frozenset[int]
    end_ns: int  # by the clock of the side that recorded


@dataclass(frozen=True, slots=True)
class Label:
    """A message of flow ``labels``: what is known of some PRBs for some time.

    Attributes:
        label: such as ``ue`` or ``interferer``.
        first_ns, last_ns: times of observation of the first record and of the last, Unix time.
        first_prb, end_prb: of the carrier; ``end_prb`` is not included.
        comment: for a person.
    """

    label: str
    first_ns: int
    last_ns: int
    first_prb: int
    end_prb: int
    comment: str = ""

    def encode(self) -> bytes:
        """The payload."""
        return json.dumps(asdict(self), separators=(",", ":")).encode()

    @classmethod
    def decode(cls, payload: bytes | memoryview) -> "Label":
        """Read a payload.  Raises MalformedPayload."""
        try:
            if len(payload) > 8 * _MAX_TEXT:
                raise ValueError(f"{len(payload)} octets")
            fields: dict[str, Any] = json.loads(bytes(payload))
            made = cls(**fields)
            numbers = made.first_ns, made.last_ns, made.first_prb, made.end_prb
            texts = made.label, made.comment
            if not all(type(number) is int and 0 <= number <= MAX_NS for number in numbers):
                raise ValueError("times and PRBs are whole numbers")
            if not all(isinstance(text, str) and len(text) <= _MAX_TEXT for text in texts):
                raise ValueError("label and comment are text")
        except (ValueError, TypeError, RecursionError) as error:
            raise MalformedPayload(f"no label: {error}") from None
        return made


class Decisions:
    """Fed with the messages of a recording; signatures are not verified."""

    def __init__(self) -> None:
        self._asked: _Asked | None = None
        self._blocked: dict[int, frozenset[int]] = {}
        self._labels: dict[int, list[Label]] = {}

    def take(self, message: Message) -> bool:
        """Take in a message; False where it is of another flow, or cannot be read."""
        try:
            if message.flow == CONTROL:
                decision = decode_decision(body_of(message.payload))
                if isinstance(decision, PrbBlock):
                    self._ask(decision, message.log_ns)
            elif message.flow == BLOCK_STATE:
                for _, block in desired_of(message.payload):
                    self._ask(block, message.log_ns)
                return False  # the message itself is exported as others are
            elif message.flow == CONTROL_RESULT:
                result = PrbBlockResult.decode(body_of(message.payload))
                if len(self._blocked) < MAX_LABELS or message.epoch in self._blocked:
                    self._blocked[message.epoch] = frozenset(result.prbs)
            elif message.flow == LABELS:
                labels = self._labels.setdefault(message.epoch, [])
                if len(labels) < MAX_LABELS:
                    labels.append(Label.decode(message.payload))
            else:
                return False
        except MalformedPayload:
            return False
        return True

    def _ask(self, block: PrbBlock, log_ns: int) -> None:
        self._asked = _Asked(frozenset(block.prbs), log_ns + block.validity_ms * 1_000_000)

    def detected(self, log_ns: int) -> frozenset[int] | None:
        """The PRBs that the newest decision asks to block; None: none was made yet."""
        if self._asked is None:
            return None
        return self._asked.prbs if log_ns < self._asked.end_ns else frozenset()

    def blocked(self, epoch: int) -> frozenset[int] | None:
        """The PRBs that stand blocked at a gNB, as it has said; None: it has not said."""
        return self._blocked.get(epoch)

    def labels(self, epoch: int, observed_ns: int) -> list[Label]:
        """Those of a sender's record; those that end before it are forgotten."""
        labels = self._labels.get(epoch)
        if not labels:
            return []
        if any(label.last_ns < observed_ns for label in labels):
            labels[:] = [label for label in labels if label.last_ns >= observed_ns]
        return [label for label in labels if label.first_ns <= observed_ns]
