"""The state machine of a control in the RAN: of the PRB block, or of the sensing policy.

A list is that of the blocked PRBs, or that of the masks of a policy.  No I/O: calls report events with their time, and
return actions in order.  The rules:

1. A block stands from the moment it is sent to the RAN.  It is answered ``installed`` when the RAN acknowledges it.
   Without an acknowledgement, that is after `ACK_WAIT_NS` or when the next list follows; the time given then is that
   of sending.
2. Every block that was answered ``installed`` is answered ``cleared`` once, when it no longer stands: its validity
   ended, the twin that held it was lost or is out of sync, the twin requested it, another block replaced it, the E3
   agent was lost, or the exporter ends.  A block with the id of the current one renews it and clears nothing.
3. The exporter runs the timer, because old OpenAirInterface ignores ``validityPeriod``.
4. When the RAN refuses a decision in time, the last acknowledged list still stands.  If the list before was not
   acknowledged, it may have been refused, too, so that an older one stands, which has been answered ``cleared``.  Then,
   and after a late refusal, an empty list is sent.
5. After the loss of the E3 agent, or when the RAN refuses to clear, the state of the RAN is unknown, so the next
   session begins with an empty list.
"""

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import count
from typing import Literal, NamedTuple

from twinlink_e3 import CONTROL_PRB_BLOCK

from twinlink.control import EXPIRED, REPLACED, Decision, E3Control, PrbBlockResult, Status

MS = 1_000_000
ACK_WAIT_NS = 250 * MS
MAX_VALIDITY_PERIOD_S = 3600  # Spectrum-PRBBlacklistControl
REASON_LENGTH = 200  # characters of the twin's reason that are passed on

Cause = Literal[
    "acknowledged", "handed-over", "followed", "refused",
    "expired", "twin-lost", "out-of-sync", "requested", "replaced", "e3-lost", "exporter-ends",
]  # fmt: skip
_TEXT: dict[Cause, str] = {
    "acknowledged": "acknowledged by the RAN",
    "handed-over": "sent to the RAN, which acknowledged nothing",
    "followed": "sent to the RAN; the next list followed before its answer",
    "refused": "refused by the RAN",
    "expired": EXPIRED,
    "twin-lost": "the twin that held it is down",
    "out-of-sync": "the twin that held it is out of sync: its acknowledgements are too old or too few",
    "requested": "the twin asked for it",
    "e3-lost": "the E3 agent was lost; what the RAN does now is not known",
    "exporter-ends": "the exporter ends",
}


class Instant(NamedTuple):
    """One instant on both clocks, in ns: Unix time for messages, monotonic time for timers."""

    wall_ns: int
    monotonic_ns: int

    @classmethod
    def now(cls) -> "Instant":
        """The current instant."""
        return cls(time.time_ns(), time.monotonic_ns())


@dataclass(frozen=True, slots=True)
class Control:
    """Action: send this list to the RAN; it replaces the last one."""

    message_id: int
    content: tuple[int, ...]
    validity_s: int | None
    sequence_id: int | None = None
    control: int = CONTROL_PRB_BLOCK


@dataclass(frozen=True, slots=True)
class Outcome:
    """Action: report the result of a decision to the twin and the log; it was ``sent_ns`` to the RAN, Unix time."""

    result: PrbBlockResult
    cause: Cause
    proposed_ns: int
    received_ns: int
    sent_ns: int
    control: int = CONTROL_PRB_BLOCK
    renews: bool = False  # it stood before, with the same content


@dataclass(frozen=True, slots=True)
class NotCleared:
    """Action: log that the RAN refused an empty list, so that PRBs may be blocked without a block."""

    control: int = CONTROL_PRB_BLOCK


Todo = Control | Outcome | NotCleared


class OnAir(NamedTuple):
    """The list that the RAN has acknowledged last.

    Attributes:
        id: of its decision; None: it clears.
        prbs: that it blocks.
        ran_ns: when, by the RAN's clock, as in `PrbBlockResult`.
        acknowledged_ns: when the acknowledgement arrived, Unix time here.
    """

    id: str | None
    prbs: tuple[int, ...]
    ran_ns: int | None
    acknowledged_ns: int | None


@dataclass(frozen=True, slots=True)
class _Decision:
    block: Decision
    received_ns: int
    handed: Instant
    sequence_id: int | None = None

    @property
    def ends_ns(self) -> int:
        return self.handed.monotonic_ns + self.block.validity_ms * MS


@dataclass(slots=True)
class _List:
    """A list that was sent to the RAN; without a decision, it clears."""

    message_id: int | None
    decision: _Decision | None = None
    acknowledged: bool = False
    acknowledged_ns: int | None = None  # Unix time here
    ran_ns: int | None = None  # that of the RAN

    @property
    def standing(self) -> _Decision | None:
        return self.decision if self.decision and self.decision.block.content else None


class Blocks:
    """The current block and the decision that awaits the RAN's acknowledgement.

    Args:
        next_message_id: returns the E3 message id of the next control.
        control: the identifier of the control.
        sequence_ids: of controls, shared by those of one dApp.
        blocked: the PRBs that stand blocked, for results; None: those of this control.
    """

    def __init__(
        self,
        next_message_id: Callable[[], int],
        control: int = CONTROL_PRB_BLOCK,
        sequence_ids: Iterator[int] | None = None,
        blocked: Callable[[], tuple[int, ...]] | None = None,
    ) -> None:
        self._control = control
        self._blocked = blocked or (lambda: self.prbs)
        self._sequenced = False
        self._sequence_ids = sequence_ids or count(1)
        self._next_message_id = next_message_id
        self._last = _List(None, acknowledged=True)  # the last list that the RAN did not refuse
        self._replaced: _List | None = None  # the list that it replaced, while its decision awaits an answer
        self._uncertain = False

    @property
    def prbs(self) -> tuple[int, ...]:
        """The blocked PRBs, or the masks, as far as known."""
        return self._last.standing.block.content if self._last.standing else ()

    @property
    def id(self) -> str | None:
        """The id of the current block; None without one."""
        return self._last.standing.block.id if self._last.standing else None

    @property
    def sent_ns(self) -> int | None:
        """When the current block was sent to the RAN, Unix time; None without one."""
        return self._last.standing.handed.wall_ns if self._last.standing else None

    @property
    def on_air(self) -> OnAir | None:
        """What the RAN has acknowledged; None: not known, as before the first answer of a session."""
        for one in (self._last, self._replaced):
            if one is not None and one.acknowledged and one.message_id is not None:
                block = one.standing.block if one.standing else None
                return OnAir(
                    block.id if block else None, block.content if block else (), one.ran_ns, one.acknowledged_ns
                )
        return None

    @property
    def ends_ns(self) -> int | None:
        """Monotonic time at which the current block ends unless it is renewed; None without one."""
        return self._last.standing.ends_ns if self._last.standing else None

    @property
    def unknown(self) -> bool:
        """Whether the RAN's state is unknown: it refused to clear, or was lost with a block."""
        return self._uncertain and not self._last.acknowledged

    def propose(self, block: Decision, received_ns: int, now: Instant) -> list[Todo]:
        """Handle a decision that passed the guard."""
        todo = self._settle("followed", now)
        message_id, sequence_id = self._next_message_id(), self._next_sequence_id()
        self._replaced, self._last = self._last, _List(message_id, _Decision(block, received_ns, now, sequence_id))
        validity_s = min(math.ceil(block.validity_ms / 1000), MAX_VALIDITY_PERIOD_S) if block.content else None
        return [*todo, Control(message_id, block.content, validity_s, sequence_id, self._control)]

    def acknowledged(self, request_id: int, positive: bool, now: Instant, ran_ns: int | None = None) -> list[Todo]:
        """Handle the RAN's messageAck for the newest list, or the one before; others are ignored.

        ``ran_ns``: the time in it, Unix time by the RAN's clock.
        """
        if self._replaced and self._replaced.message_id == request_id:
            self._replaced.acknowledged |= positive
        if self._last.message_id != request_id:
            return []
        self._last.acknowledged_ns = now.wall_ns
        self._last.ran_ns = ran_ns if ran_ns is not None and 0 <= ran_ns < 2**63 else None  # no bounds in ASN.1
        if not positive:
            return self._refused(now)
        self._last.acknowledged = True
        return self._settle("acknowledged", now)

    def _refused(self, now: Instant) -> list[Todo]:
        """Handle a refusal of the newest list."""
        decision, replaced = self._last.decision, self._replaced
        if decision is None:
            self._last, self._uncertain = _List(None), True
            return [NotCleared(self._control)]
        if replaced is None:  # answered already, as is the list before
            gone = self._last.standing
            todo: list[Todo] = [self._empty_list()]
            return [*todo, self._outcome(gone, "cleared", "refused", now.wall_ns)] if gone else todo
        self._replaced = None
        if replaced.acknowledged:
            self._last = replaced
            return [self._outcome(decision, "rejected", "refused", now.wall_ns)]
        todo = [self._empty_list(), self._outcome(decision, "rejected", "refused", now.wall_ns)]
        if gone := replaced.standing:
            text = f"the RAN refused {decision.block.id}, which followed, and had not answered this one"
            todo.append(self._outcome(gone, "cleared", "refused", now.wall_ns, text))
        return todo

    def timer(self, now: Instant) -> list[Todo]:
        """Handle the timer; called at `next_timer_ns` or soon after."""
        todo: list[Todo] = []
        waits_until_ns = self._waits_until_ns()
        if waits_until_ns is not None and now.monotonic_ns >= waits_until_ns:
            todo += self._settle("handed-over", now)
        if self._last.standing and now.monotonic_ns >= self._last.standing.ends_ns:
            todo += self.clear("expired", now)
        return todo

    def next_timer_ns(self) -> int | None:
        """Monotonic time at which to call `timer`, or None."""
        return min((time_ns for time_ns in (self._waits_until_ns(), self.ends_ns) if time_ns is not None), default=None)

    def clear(self, cause: Cause, now: Instant) -> list[Todo]:
        """Clear the current block, if any."""
        todo = self._settle("followed", now)
        if gone := self._last.standing:
            todo.append(self._empty_list())
            todo.append(self._outcome(gone, "cleared", cause, now.wall_ns))
        return todo

    def e3_lost(self, now: Instant) -> list[Todo]:
        """Handle the loss of the E3 agent: no list can be sent."""
        gone = self._last.standing
        if gone or not self._last.acknowledged:  # a clear may have been lost
            self._uncertain = True
        todo = self._settle("handed-over", now)
        self._last = _List(None, acknowledged=not self._uncertain)
        if gone:
            todo.append(self._outcome(gone, "cleared", "e3-lost", now.wall_ns))
        return todo

    def e3_ready(self, clear: bool = False, *, sequenced: bool = False) -> list[Todo]:
        """Handle a new E3 session: clear if an earlier one may have left a block, or if ``clear`` is set.

        Its controls have a sequence id if it is ``sequenced``.
        """
        self._sequenced = sequenced
        if not (self._uncertain or clear):
            return []
        self._uncertain = False
        return [self._empty_list()]

    def _empty_list(self) -> Control:
        message_id = self._next_message_id()
        self._last = _List(message_id)
        return Control(message_id, (), None, self._next_sequence_id(), self._control)

    def _next_sequence_id(self) -> int | None:
        return next(self._sequence_ids) if self._sequenced else None

    def _waits_until_ns(self) -> int | None:
        """Monotonic time until which the newest decision awaits the RAN's answer."""
        if self._replaced is None or self._last.decision is None:
            return None
        return self._last.decision.handed.monotonic_ns + ACK_WAIT_NS

    def _settle(self, cause: Literal["acknowledged", "handed-over", "followed"], now: Instant) -> list[Todo]:
        """Answer the waiting decision, and the one that it replaced."""
        decision = self._last.decision
        if self._replaced is None or decision is None:
            return []
        previous, self._replaced = self._replaced.standing, None
        time_ns = now.wall_ns if cause == "acknowledged" else decision.handed.wall_ns
        if not decision.block.content:
            asked = ": ".join(filter(None, (_TEXT["requested"], decision.block.reason[:REASON_LENGTH])))
            todo: list[Todo] = [self._outcome(decision, "cleared", "requested", time_ns, asked)]
            if previous and previous.block.id != decision.block.id:
                todo.append(self._outcome(previous, "cleared", "requested", time_ns, asked))
            return todo
        installed = self._outcome(decision, "installed", cause, time_ns)
        same = previous is not None and (previous.block.id, previous.block.content) == (
            decision.block.id,
            decision.block.content,
        )
        todo = [replace(installed, renews=same)]
        if previous and previous.block.id != decision.block.id:
            text = f"{REPLACED}{decision.block.id}"
            todo.append(self._outcome(previous, "cleared", "replaced", time_ns, text))
        return todo

    def _outcome(
        self, decision: _Decision, status: Status, cause: Cause, time_ns: int, text: str | None = None
    ) -> Outcome:
        e3 = None
        if decision.sequence_id is not None:
            e3 = E3Control(decision.sequence_id, decision.received_ns, decision.handed.wall_ns)
            if self._last.decision is decision:
                e3 = replace(e3, acknowledged_ns=self._last.acknowledged_ns, ran_ns=self._last.ran_ns)
        result = PrbBlockResult(decision.block.id, status, self._blocked(), time_ns, text or _TEXT[cause], e3)
        times = decision.block.issued_ns, decision.received_ns, decision.handed.wall_ns
        return Outcome(result, cause, *times, self._control)
