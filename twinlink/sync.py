"""How fresh and how complete what has been received on a flow is.  No I/O; the link gives the time.

| state       | when                                                                                        |
|-------------|---------------------------------------------------------------------------------------------|
| BOUND       | nothing has arrived since the flow is watched                                               |
| IN_SYNC     | the newest message is at most ``stale_after`` old, and ``completeness`` is as it should be  |
| STALE       | it is older                                                                                 |
| OUT_OF_SYNC | it is older than ``out_after``, or too much of the last ten seconds is missing              |

Where the sender's clock is ahead of ours, the age says too little, down to hours below 0.  A message is no younger than
the time since it arrived, so the state goes by that where it is more.
"""

import time
from collections import deque
from dataclasses import dataclass
from enum import StrEnum

SUCCEEDED_NS = 1_000_000_000  # after such a silence another session, whose clock may be earlier, takes its place
LOOK_BACK_S = 10  # of completeness, in whole seconds


class State(StrEnum):
    """Whether a flow can be relied on; each is also the text that stands in events and stats."""

    BOUND = "bound"
    IN_SYNC = "in-sync"
    STALE = "stale"
    OUT_OF_SYNC = "out-of-sync"


@dataclass(frozen=True, slots=True)
class Thresholds:
    """When a flow counts as stale or out of sync: age in s; completeness from 0 to 1."""

    stale_after: float = 0.5
    out_after: float = 2.0
    completeness: float = 0.99


class Sync:
    """The age of information of one flow: now minus the sender's time stamp of the newest message that is here.

    Ages contain what the two clocks differ by (docs/metrics.md); they grow with this host's monotonic clock, so a
    step of the wall clock shows only in what arrives after it.  All times in ns; None as long as nothing has arrived.
    ``mono_ns`` is this host's monotonic clock; now, when it is not given.

    Attributes:
        state: as of when it was last looked at: ten times a second or more, and at every message while not IN_SYNC.
        thresholds: as given to ``link.sync``.
        peak_age_ns: the oldest that the newest message ever was.
    """

    def __init__(self, thresholds: Thresholds) -> None:
        self.thresholds = thresholds
        self.state = State.BOUND
        self.peak_age_ns: int | None = None
        self._sequence = 0  # of the newest message
        self._epoch = 0  # of its sender
        # Of the newest message: its age when it arrived, when that was, and the area under the curve of the age until
        # then (ns * ns).  Replaced together: any thread may ask.
        self._newest = (0, 0, 0)
        self._began_mono_ns: int | None = None
        self._seconds: deque[tuple[int, int, int]] = deque()  # monotonic s, arrived, missing

    def arrived(self, sequence: int, sent_ns: int, received_ns: int, mono_ns: int, epoch: int = 0) -> None:
        """A message of a sender's session is here.  What is newer its number says: a clock may be set back.

        Of several sessions the younger message is newer; or any, when the session of the newest has been silent.
        """
        self._count(mono_ns, 1, 0)
        age_ns, at_mono_ns, area = self._newest
        if self._began_mono_ns is None:
            pass
        elif sequence <= self._sequence and epoch == self._epoch:
            return  # older than what is here: nothing became fresher
        else:
            passed, peak = mono_ns - at_mono_ns, age_ns + mono_ns - at_mono_ns
            if epoch != self._epoch and received_ns - sent_ns > peak and passed < SUCCEEDED_NS:
                return
            area += (age_ns + peak) * passed // 2
            self.peak_age_ns = max(self.peak_age_ns or 0, peak)
        self._sequence, self._epoch = sequence, epoch
        self._newest = (received_ns - sent_ns, mono_ns, area)
        self._began_mono_ns = self._began_mono_ns or mono_ns

    def missed(self, count: int, mono_ns: int) -> None:
        """So many messages will not come."""
        self._count(mono_ns, 0, count)

    def look(self, mono_ns: int) -> State | None:
        """The new state, if it has changed."""
        age_ns = self.age_ns(mono_ns)
        completeness = self.completeness(mono_ns)
        if age_ns is not None:
            age_ns = max(age_ns, mono_ns - self._newest[1])
        if age_ns is None:
            state = State.BOUND
        elif age_ns > self.thresholds.out_after * 1e9 or (
            completeness is not None and completeness < self.thresholds.completeness
        ):
            state = State.OUT_OF_SYNC
        else:
            state = State.STALE if age_ns > self.thresholds.stale_after * 1e9 else State.IN_SYNC
        if state is self.state:
            return None
        self.state = state
        return state

    def age_ns(self, mono_ns: int | None = None) -> int | None:
        """The age of information."""
        if self._began_mono_ns is None:
            return None
        age_ns, at_mono_ns, _ = self._newest
        return age_ns + _now(mono_ns) - at_mono_ns

    def mean_age_ns(self, mono_ns: int | None = None) -> int | None:
        """The time average of the age since the first message."""
        now = _now(mono_ns)
        if self._began_mono_ns is None or now <= self._began_mono_ns:
            return None
        age_ns, at_mono_ns, area = self._newest
        passed = now - at_mono_ns
        return (area + (2 * age_ns + passed) * passed // 2) // (now - self._began_mono_ns)

    def completeness(self, mono_ns: int | None = None) -> float | None:
        """The part of the last ten seconds' messages that is here; None when there were none."""
        oldest = _now(mono_ns) // 1_000_000_000 - LOOK_BACK_S
        arrived = missing = 0
        for second, came, lost in list(self._seconds):
            if second >= oldest:
                arrived += came
                missing += lost
        return arrived / (arrived + missing) if arrived + missing else None

    def _count(self, mono_ns: int, arrived: int, missing: int) -> None:
        second = mono_ns // 1_000_000_000
        seconds = self._seconds
        if seconds and seconds[-1][0] == second:
            _, before, lost = seconds[-1]
            seconds[-1] = (second, before + arrived, lost + missing)
            return
        seconds.append((second, arrived, missing))
        if len(seconds) > LOOK_BACK_S + 1:
            seconds.popleft()

    def stats(self) -> dict[str, object]:
        """All of it, as plain data."""
        now = time.monotonic_ns()
        return {
            "state": self.state.value,
            "age_ns": self.age_ns(now),
            "mean_age_ns": self.mean_age_ns(now),
            "peak_age_ns": max(self.peak_age_ns or 0, self.age_ns(now) or 0) if self._began_mono_ns else None,
            "completeness": self.completeness(now),
        }


def _now(mono_ns: int | None) -> int:
    return time.monotonic_ns() if mono_ns is None else mono_ns
