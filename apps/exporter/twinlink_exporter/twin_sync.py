"""Whether a twin is in sync, by its acknowledgements of the observations.  No I/O.

The states and limits are those of ``link.sync`` (`twinlink.sync`), which the twin itself goes by, without STALE: a twin
decides on observations that are at most 0.5 s old, and their acknowledgements and its decision are under way for some
time.  All times are of this host's monotonic clock, in ns, so the offset of the twin's clock does not count.

| state       | when                                                                                           |
|-------------|------------------------------------------------------------------------------------------------|
| BOUND       | the twin has acknowledged nothing since it came up, and no observation for it is older than    |
|             | ``out_after``                                                                                  |
| IN_SYNC     | the newest observation that it acknowledged was sent at most ``out_after`` ago, and its        |
|             | completeness is as it should be                                                                |
| OUT_OF_SYNC | otherwise                                                                                      |
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from twinlink.sync import LOOK_BACK_S, State, Thresholds

SECOND_NS = 1_000_000_000
_DEFAULTS = Thresholds()


@dataclass(frozen=True, slots=True)
class SyncLimits:
    """When a twin is out of sync: age in s; completeness from 0 to 1."""

    out_after: float = _DEFAULTS.out_after
    completeness: float = _DEFAULTS.completeness


class _Slot(NamedTuple):
    """The observations of at least a second."""

    began_ns: int
    first: int  # sequence number


class SentObservations:
    """When which observations were sent; shared by the twins.

    Attributes:
        next_sequence: of the observation that is sent next.
        slots: oldest first; replaced, never changed, as another thread reads it.
    """

    def __init__(self, limits: SyncLimits) -> None:
        self.next_sequence = 0
        self.slots: tuple[_Slot, ...] = ()
        self._keep_ns = int((LOOK_BACK_S + limits.out_after) * SECOND_NS)

    def sending(self, now_ns: int) -> None:
        """An observation is about to be sent: its acknowledgement may be handled before `sent` is called."""
        if self.slots and now_ns - self.slots[-1].began_ns < SECOND_NS:
            return
        kept = [slot for slot in self.slots if now_ns - slot.began_ns <= self._keep_ns]
        self.slots = (*kept, _Slot(now_ns, self.next_sequence))

    def sent(self, sequence: int) -> None:
        """It was sent with this number."""
        self.next_sequence = sequence + 1

    def slot_of(self, sequence: int) -> int | None:
        """The first number of the slot in which this observation was sent; None if that is long past."""
        return next((slot.first for slot in reversed(self.slots) if slot.first <= sequence), None)


@dataclass(frozen=True, slots=True)
class SyncReport:
    """The state of a twin, and why it is not in sync (empty if it is).

    ``age_ns`` is the time since the newest acknowledged observation was sent; None as long as there is none.
    """

    state: State
    reason: str
    age_ns: int | None


class TwinSync:
    """One twin, from when it came up.

    `acknowledged` may be called by another thread than the rest.

    Args:
        limits: when it is out of sync.
        sent: the observations; those sent before now do not count.
        now_ns: the current time.
    """

    def __init__(self, limits: SyncLimits, sent: SentObservations, now_ns: int) -> None:
        self._limits = limits
        self._sent = sent
        self._up_ns = now_ns
        self._first = sent.next_sequence
        self._newest: tuple[int, int] | None = None  # of the acknowledged: sequence and send time
        self._acknowledged: dict[int, int] = {}  # number of observations, by the first of their slot

    def acknowledged(self, sequence: int, sent_ns: int) -> None:
        """The twin has acknowledged an observation."""
        if sequence < self._first:
            return
        if self._newest is None or sequence > self._newest[0]:
            self._newest = sequence, sent_ns
        slot = self._sent.slot_of(sequence)
        if slot is None:
            return
        counts = self._acknowledged
        if slot not in counts:
            oldest = self._sent.slots[0].first
            self._acknowledged = counts = {first: count for first, count in counts.items() if first >= oldest}
        counts[slot] = counts.get(slot, 0) + 1

    def age_ns(self, now_ns: int) -> int | None:
        """Time since the newest acknowledged observation was sent; None as long as there is none."""
        return None if self._newest is None else now_ns - self._newest[1]

    def completeness(self, now_ns: int) -> float | None:
        """The acknowledged part of ten seconds' observations, those before the last ``out_after``; None without any.

        Newer ones do not count yet: they may be in flight, or be retransmitted.
        """
        acknowledged, sent = 0, 0
        until_ns = now_ns - int(self._limits.out_after * SECOND_NS)
        slots, counts = self._sent.slots, self._acknowledged
        for slot, following in pairwise(slots):
            if slot.began_ns >= until_ns - LOOK_BACK_S * SECOND_NS and following.began_ns <= until_ns:
                sent += max(0, following.first - max(self._first, slot.first))
                acknowledged += counts.get(slot.first, 0)
        return acknowledged / sent if sent else None

    def report(self, now_ns: int) -> SyncReport:
        """Its state."""
        limits = self._limits
        age_ns, completeness = self.age_ns(now_ns), self.completeness(now_ns)
        age_s = (self._unanswered_ns(now_ns) if age_ns is None else age_ns) / SECOND_NS
        if age_ns is None:
            state = State.OUT_OF_SYNC if age_s > limits.out_after else State.BOUND
            return SyncReport(state, "it has acknowledged no observation since it came up", age_ns)
        if age_s > limits.out_after:
            text = f"the newest observation that it acknowledged was sent {age_s:.1f} s ago, "
            return SyncReport(State.OUT_OF_SYNC, f"{text}more than {limits.out_after:g} s", age_ns)
        if completeness is not None and completeness < limits.completeness:
            text = f"it acknowledged {completeness:.1%} of {LOOK_BACK_S} seconds' observations, "
            return SyncReport(State.OUT_OF_SYNC, f"{text}less than {limits.completeness:.1%}", age_ns)
        return SyncReport(State.IN_SYNC, "", age_ns)

    def _unanswered_ns(self, now_ns: int) -> int:
        """Time since the first observation for this twin was sent, rounded up by at most a second."""
        sent = self._sent
        if sent.next_sequence <= self._first:
            return 0
        oldest_ns = sent.slots[0].began_ns
        began_ns = next((slot.began_ns for slot in reversed(sent.slots) if slot.first <= self._first), oldest_ns)
        return now_ns - max(began_ns, self._up_ns)
