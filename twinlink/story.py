"""The story of a decision: which stages a PRB block has passed, each with the time of the clock where it happened.

| stage      | clock    | is the time when                                                                            |
|------------|----------|---------------------------------------------------------------------------------------------|
| seen       | exporter | the record was observed in which interference was first found on a PRB that the list adds;  |
|            |          | of a list that could not leave before, the record that led to it now                        |
| tried      | twin     | the twin's model had answered what the block would do                                       |
| signed     | twin     | it was signed                                                                               |
| sent       | twin     | it was handed to the link                                                                   |
| installed  | exporter | it was sent to the RAN                                                                      |
| on air     | exporter | the gNB had acknowledged it                                                                 |
| effect     | exporter | the first record was observed in which its PRBs carry no UE traffic, after it was on air    |
| withdrawn  | twin     | the twin asked for its end: the interference has ended, or the twin is out of sync          |
| taken back | twin     | the twin asked for its end: its effect is missing, or harm shows                            |
| expired    | exporter | its validity had ended                                                                      |
| replaced   | exporter | another list replaced it                                                                    |
| cleared    | exporter | it was cleared for another reason: the twin asked for that, or the exporter lost it         |
| refused    | twin     | the twin's model refused it, so that it was not sent                                        |
| rejected   | exporter | the exporter or the RAN rejected it                                                         |
| no answer  | twin     | its validity had ended, and the twin had heard neither of it nor of its end                 |

A stage that is absent is not known.  One without a time did not take place, for the reason in its note.
"""

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Self, get_args

from .control import EXPIRED, MAX_ID_LENGTH, MAX_PRBS, REPLACED, PrbBlockResult
from .errors import MalformedPayload
from .prbs import format_prbs
from .stats import ClockOffset
from .text_payload import short_json

COLUMN = "story"  # of the state prb-block
Way = Literal["seen", "tried", "signed", "sent", "installed", "on air", "effect"]
Asked = Literal["withdrawn", "taken back"]
End = Literal["expired", "replaced", "cleared", "refused", "rejected", "no answer"]
Name = Way | Asked | End
Clock = Literal["twin", "exporter"]
WAY: tuple[Way, ...] = get_args(Way)
ASKED: tuple[Asked, ...] = get_args(Asked)
ENDS: tuple[End, ...] = get_args(End)
NAMES: tuple[Name, ...] = (*WAY, *ASKED, *ENDS)
CLOCKS: tuple[Clock, ...] = get_args(Clock)
TAKEN_BACK = "taken back: "  # so begins the reason of the empty list that takes a block back
MAX_STORIES = 4  # in a value of the column
MAX_OCTETS = 65_536
MAX_NOTE = 200  # characters
MAX_NS = 2**63 - 1


class Stage(NamedTuple):
    """One stage.

    Attributes:
        time_ns: Unix time; None: it did not take place.
        clock: by which.
        note: why, or what was said.
    """

    time_ns: int | None
    clock: Clock
    note: str = ""


class Tried(NamedTuple):
    """What the twin's model has answered.

    Attributes:
        tried_ns: when, Unix time on the twin's clock.
        outcome: such as ``accepted``.
        reason: for a person.
    """

    tried_ns: int
    outcome: str
    reason: str = ""


@dataclass(slots=True)
class Story:
    """Of one decision.

    Attributes:
        id, prbs: of the decision.
        twin, exporter: names of the nodes.
        stages: those that are known, by name.
        offset: of the exporter's clock against the twin's, in ns; None: not known.
    """

    id: str
    prbs: tuple[int, ...]
    twin: str = ""
    exporter: str = ""
    stages: dict[Name, Stage] = field(default_factory=dict)
    offset: ClockOffset | None = None

    @property
    def ended(self) -> bool:
        """Whether the decision stands no more."""
        return any(name in self.stages for name in ENDS)

    def note(self, name: Name, time_ns: int | None, clock: Clock, note: str = "") -> bool:
        """A stage was reached; returns whether that is new.  The first word counts, and none after the end."""
        if name in self.stages or self.ended:
            return False
        self.stages[name] = Stage(time_ns, clock, note[:MAX_NOTE])
        return True

    def answered(self, result: PrbBlockResult) -> bool:
        """The exporter's answer; returns whether it says anything new."""
        if result.status == "installed":
            if result.e3 is None:
                return self.note("installed", result.time_ns, "exporter", result.reason)
            is_new = self.note("installed", result.e3.sent_ns, "exporter")
            acknowledged_ns = result.e3.acknowledged_ns
            return (acknowledged_ns is not None and self.note("on air", acknowledged_ns, "exporter")) or is_new
        name: End = "rejected" if result.status == "rejected" else "cleared"
        if name == "cleared" and result.reason.startswith(REPLACED):
            name = "replaced"
        elif name == "cleared" and result.reason == EXPIRED:
            name = "expired"
        is_known = name == "cleared" and any(asked in self.stages for asked in ASKED)
        return self.note(name, result.time_ns, "exporter", "" if is_known else result.reason)

    def known(self) -> Iterator[tuple[Name, Stage | None]]:
        """The stages in their order, with None where one is not known; without those that cannot follow."""
        way = WAY[:2] if "refused" in self.stages else WAY[:4] if "rejected" in self.stages else WAY
        for name in NAMES:
            if name in self.stages or name in way:
                yield name, self.stages.get(name)

    def since(self, name: Name, first: Name = "seen") -> tuple[int, int | None] | None:
        """Time from one stage to another in ns, and its error: 0 on one clock, None if the clocks' offset is not known.

        None where one of the stages is not known or did not take place.
        """
        one, other = self.stages.get(first), self.stages.get(name)
        if one is None or other is None or one.time_ns is None or other.time_ns is None:
            return None
        took_ns = other.time_ns - one.time_ns
        if one.clock == other.clock:
            return took_ns, 0
        if self.offset is None:
            return took_ns, None
        ahead_ns = self.offset["offset"]
        return took_ns + (ahead_ns if other.clock == "twin" else -ahead_ns), self.offset["bound"]

    def line(self) -> str:
        """One line for a person: the first known time, and the others since then."""
        first = next((name for name, stage in self.known() if stage is not None and stage.time_ns is not None), None)
        said = [self._said(name, stage, first) for name, stage in self.known()]
        return f"{self.id}, PRBs {format_prbs(self.prbs) or 'none'}: {', '.join(said)}"

    def _said(self, name: Name, stage: Stage | None, first: Name | None) -> str:
        if stage is None or first is None:
            return f"{name} not known"
        if stage.time_ns is None:
            return f"{name}: {stage.note}"
        note = f" ({stage.note})" if stage.note else ""
        if name == first:
            clock = time.strftime("%H:%M:%S", time.localtime(stage.time_ns // 1_000_000_000))
            return f"{name} {clock}.{stage.time_ns // 1_000_000 % 1000:03d}{note}"
        took = self.since(name, first)
        assert took is not None
        error = "" if took[1] == 0 else " ± not known" if took[1] is None else f" ± {took[1] / 1e6:.1f}"
        return f"{name} {took[0] / 1e6:+.1f}{error} ms{note}"

    def as_dict(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "id": self.id,
            "prbs": list(self.prbs),
            "twin": self.twin,
            "exporter": self.exporter,
            "stages": {name: self.stages[name]._asdict() for name in NAMES if name in self.stages},
            "clock_offset_ns": self.offset,
        }

    @classmethod
    def of(cls, fields: Any) -> Self:
        """From `as_dict`; raises MalformedPayload."""
        try:
            offset = fields["clock_offset_ns"]
            stages: dict[Name, Stage] = {}
            for name, stage in fields["stages"].items():
                stages[name] = Stage(**stage)
            if offset is not None:
                offset = ClockOffset(offset=offset["offset"], bound=offset["bound"])
            made = cls(fields["id"], tuple(fields["prbs"]), fields["twin"], fields["exporter"], stages, offset)
        except (AttributeError, KeyError, TypeError) as error:
            raise MalformedPayload(f"no story of a decision: {error!r}") from None
        if not made._is_sound():
            raise MalformedPayload("no story of a decision: a field that cannot be")
        return made

    def _is_sound(self) -> bool:
        texts = [(self.id, MAX_ID_LENGTH), (self.twin, 255), (self.exporter, 255)]
        texts += [(stage.note, MAX_NOTE) for stage in self.stages.values()]
        times = [stage.time_ns for stage in self.stages.values() if stage.time_ns is not None]
        errors = list(self.offset.values()) if self.offset else []
        return (
            all(isinstance(text, str) and len(text) <= limit for text, limit in texts)
            and all(type(prb) is int and 0 <= prb < MAX_PRBS for prb in self.prbs)
            and len(self.prbs) <= MAX_PRBS
            and all(name in NAMES and stage.clock in CLOCKS for name, stage in self.stages.items())
            and all(type(time_ns) is int and 0 <= time_ns <= MAX_NS for time_ns in times)
            and all(type(error) is int and abs(error) <= MAX_NS for error in errors)
        )


def encode(stories: list[Story]) -> bytes:
    """A value of column `COLUMN`: the newest stories, the newest last."""
    told = [json.dumps(story.as_dict(), separators=(",", ":")) for story in stories[-MAX_STORIES:]]
    while sum(map(len, told)) + len(told) + 1 > MAX_OCTETS:
        del told[0]
    return f"[{','.join(told)}]".encode()


def decode(payload: bytes | memoryview) -> list[Story]:
    """Read such a value; raises MalformedPayload."""
    fields = short_json(payload, MAX_OCTETS)
    if not isinstance(fields, list) or len(fields) > MAX_STORIES:
        raise MalformedPayload(f"stories are a list of at most {MAX_STORIES}")
    return [Story.of(one) for one in fields]
