"""Which PRB block stands in the RAN, and until when.

No I/O: calls bring what happened and when, and return what to do, in order.  The rules:

1. A block stands from the moment it is handed to the RAN.  It is answered ``installed`` when the RAN acknowledges it,
   or, by an agent that acknowledges nothing, after `ACK_WAIT_NS`; the time given then is that of handing over.
   A refusal that comes later still clears it.
2. Every block that was answered ``installed`` is answered ``cleared`` once, when it no longer stands: because its
   validity ended, the last twin was lost or is out of sync, it was asked for, another block replaced it, the E3 agent
   was lost, or the exporter ends.  A block with the id of the one that stands renews it and clears nothing.
3. The exporter keeps the time itself: old OpenAirInterface ignores ``validityPeriod``.
4. After the loss of the E3 agent, or when the RAN refuses to clear, nobody knows what stands, so the next session
   begins by clearing.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

from twinlink.control import PrbBlock, PrbBlockResult, Status

MS = 1_000_000
ACK_WAIT_NS = 250 * MS
MAX_VALIDITY_PERIOD_S = 3600  # Spectrum-PRBBlacklistControl
REASON_LENGTH = 200  # characters of the twin's reason that are repeated

Cause = Literal[
    "acknowledged", "handed-over", "refused",
    "expired", "twin-lost", "out-of-sync", "requested", "replaced", "e3-lost", "exporter-ends",
]  # fmt: skip
_TEXT: dict[Cause, str] = {
    "acknowledged": "acknowledged by the RAN",
    "handed-over": "handed over to the RAN, which acknowledged nothing",
    "refused": "refused by the RAN",
    "expired": "its validity ended",
    "twin-lost": "the last twin was lost",
    "out-of-sync": "the twin is out of sync: it does not take in what is sent to it",
    "requested": "the twin asked for it",
    "e3-lost": "the E3 agent was lost; what the RAN does now is not known",
    "exporter-ends": "the exporter ends",
}


class Instant(NamedTuple):
    """One moment on both clocks, in ns: Unix time to tell others, monotonic time to measure by."""

    wall_ns: int
    monotonic_ns: int

    @classmethod
    def now(cls) -> "Instant":
        """This moment."""
        return cls(time.time_ns(), time.monotonic_ns())


@dataclass(frozen=True, slots=True)
class Control:
    """To do: hand this list to the RAN; it replaces the last one."""

    message_id: int
    prbs: tuple[int, ...]
    validity_s: int | None


@dataclass(frozen=True, slots=True)
class Outcome:
    """To do: tell the twin and the log what became of a decision."""

    result: PrbBlockResult
    cause: Cause
    proposed_ns: int
    received_ns: int


@dataclass(frozen=True, slots=True)
class NotCleared:
    """To do: tell the log that the RAN refused an empty list, so that PRBs may be blocked although nothing stands."""


Todo = Control | Outcome | NotCleared


@dataclass(frozen=True, slots=True)
class _Decision:
    block: PrbBlock
    received_ns: int
    handed: Instant

    @property
    def ends_ns(self) -> int:
        return self.handed.monotonic_ns + self.block.validity_ms * MS


@dataclass(frozen=True, slots=True)
class _Unanswered:
    message_id: int
    decision: _Decision
    previous: _Decision | None


class Blocks:
    """The block that stands and the decision that waits for the RAN's acknowledgement.

    Args:
        next_message_id: gives the E3 message id of the next control.
    """

    def __init__(self, next_message_id: Callable[[], int]) -> None:
        self._next_message_id = next_message_id
        self._standing: _Decision | None = None
        self._unanswered: _Unanswered | None = None
        self._assumed: int | None = None  # message id of what stands without having been acknowledged
        self._clearing: int | None = None  # message id of the newest list, where it was sent to clear
        self._uncertain = False

    @property
    def prbs(self) -> tuple[int, ...]:
        """What stands in the RAN, as far as is known here."""
        return self._standing.block.prbs if self._standing else ()

    def propose(self, block: PrbBlock, received_ns: int, now: Instant) -> list[Todo]:
        """A decision that passed the guard."""
        todo = self._settle("handed-over", now)
        decision = _Decision(block, received_ns, now)
        self._unanswered = _Unanswered(self._next_message_id(), decision, self._standing)
        self._standing = decision if block.prbs else None
        self._assumed = self._clearing = None
        validity_s = min(math.ceil(block.validity_ms / 1000), MAX_VALIDITY_PERIOD_S) if block.prbs else None
        return [*todo, Control(self._unanswered.message_id, block.prbs, validity_s)]

    def acknowledged(self, request_id: int, positive: bool, now: Instant) -> list[Todo]:
        """The RAN's messageAck; of consequence if it is for what waits, for what stands, or for a clear."""
        if request_id == self._clearing:
            self._clearing = None
            if positive:
                return []
            self._uncertain = True
            return [NotCleared()]
        if self._unanswered is None or self._unanswered.message_id != request_id:
            return self.clear("refused", now) if request_id == self._assumed and not positive else []
        if positive:
            return self._settle("acknowledged", now)
        decision, self._standing = self._unanswered.decision, self._unanswered.previous
        self._unanswered = None
        return [self._outcome(decision, "rejected", "refused", now.wall_ns)]

    def timer(self, now: Instant) -> list[Todo]:
        """To be called at `next_timer_ns` or soon after."""
        todo: list[Todo] = []
        if self._unanswered and now.monotonic_ns >= self._unanswered.decision.handed.monotonic_ns + ACK_WAIT_NS:
            todo += self._settle("handed-over", now)
        if self._standing and now.monotonic_ns >= self._standing.ends_ns:
            todo += self.clear("expired", now)
        return todo

    def next_timer_ns(self) -> int | None:
        """Monotonic time at which `timer` has something to do, or None."""
        times = []
        if self._unanswered:
            times.append(self._unanswered.decision.handed.monotonic_ns + ACK_WAIT_NS)
        if self._standing:
            times.append(self._standing.ends_ns)
        return min(times, default=None)

    def clear(self, cause: Cause, now: Instant) -> list[Todo]:
        """Take back what stands, if anything does."""
        todo = self._settle("handed-over", now)
        if self._standing:
            gone, self._standing = self._standing, None
            todo.append(self._empty_list())
            todo.append(self._outcome(gone, "cleared", cause, now.wall_ns))
        return todo

    def e3_lost(self, now: Instant) -> list[Todo]:
        """The E3 agent is gone: there is nobody to hand a list to."""
        asked_to_clear = self._unanswered is not None and not self._unanswered.decision.block.prbs
        if self._standing or self._clearing is not None or asked_to_clear:  # a clear may have been lost on the way
            self._uncertain = True
        self._clearing = None
        todo = self._settle("handed-over", now)
        if self._standing:
            gone, self._standing = self._standing, None
            todo.append(self._outcome(gone, "cleared", "e3-lost", now.wall_ns))
        return todo

    def e3_ready(self, clear: bool = False) -> list[Todo]:
        """A new E3 session: clear what an earlier one may have left, or when ``clear`` asks for it."""
        if not (self._uncertain or clear):
            return []
        self._uncertain = False
        return [self._empty_list()]

    def _empty_list(self) -> Control:
        self._clearing = self._next_message_id()
        return Control(self._clearing, (), None)

    def _settle(self, cause: Literal["acknowledged", "handed-over"], now: Instant) -> list[Todo]:
        """Answer the decision that waits, and the one that it replaced."""
        if self._unanswered is None:
            return []
        decision, previous = self._unanswered.decision, self._unanswered.previous
        self._assumed = self._unanswered.message_id if cause == "handed-over" else None
        self._unanswered = None
        time_ns = now.wall_ns if cause == "acknowledged" else decision.handed.wall_ns
        if not decision.block.prbs:
            asked = ": ".join(filter(None, (_TEXT["requested"], decision.block.reason[:REASON_LENGTH])))
            todo: list[Todo] = [self._outcome(decision, "cleared", "requested", time_ns, asked)]
            if previous and previous.block.id != decision.block.id:
                todo.append(self._outcome(previous, "cleared", "requested", time_ns, asked))
            return todo
        todo = [self._outcome(decision, "installed", cause, time_ns)]
        if previous and previous.block.id != decision.block.id:
            text = f"replaced by {decision.block.id}"
            todo.append(self._outcome(previous, "cleared", "replaced", time_ns, text))
        return todo

    def _outcome(
        self, decision: _Decision, status: Status, cause: Cause, time_ns: int, text: str | None = None
    ) -> Outcome:
        result = PrbBlockResult(decision.block.id, status, self.prbs, time_ns, text or _TEXT[cause])
        return Outcome(result, cause, decision.block.issued_ns, decision.received_ns)
