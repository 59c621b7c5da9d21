"""Whether the block that stands has the effect that it is for, and does no harm.  No I/O; time is passed in.

A block is to be taken back when

1. it was not installed `ANSWER_NS` after it was sent, or was neither on air nor of effect;
2. its PRBs have carried UE traffic for `EFFECT_NS` on end, from when it was on air: the gNB schedules UEs there all the
   same.  They carry UE traffic while the mean of the last `RECORDS` records is above `BUSY` of them;
3. the UEs are gone: outside of the block, less than `BUSY` of the PRBs that they had before it carried any traffic for
   `HARM_NS` on end, and they had at least `HARM_PRBS` there.

A list that follows while one stands is the same block in this: its time goes on, since an interferer that moves changes
the list several times a second.

Rules 2 and 3 need records: without them the twin is out of sync, which ends a block as well.
"""

import numpy as np
from numpy.typing import NDArray

from twinlink.prbs import format_prbs
from twinlink.story import Story

MS = 1_000_000
ANSWER_NS, EFFECT_NS, HARM_NS = 1_000 * MS, 1_000 * MS, 2_000 * MS
RECORDS, BEFORE_RECORDS = 8, 100  # time constants of means over records
MIN_RECORDS = 10  # since then, for rules 2 and 3
BUSY = 0.1
HARM_PRBS = 3.0


class Supervision:
    """Of one block at a time.

    Args:
        n_prbs: PRBs of a record.
        first_prb: number of a record's first PRB in the carrier.

    Attributes:
        story: of the block; None: none is supervised.
        effect_ns: when its effect was first observed, on the exporter's clock; None: it was not.
    """

    def __init__(self, n_prbs: int, first_prb: int = 0) -> None:
        self._first_prb = first_prb
        self._share = np.zeros(n_prbs, np.float32)  # of records with UE traffic, before the block
        self.story: Story | None = None
        self.effect_ns: int | None = None
        self._inside = np.zeros(n_prbs, np.bool_)
        self._unanswered: list[tuple[Story, int]] = []  # lists, and when they were sent, the one that stands last
        self._since_ns: int | None = None  # when the first of the lists was on air
        self._before = 0.0  # PRBs with UEs outside the block, before it
        self._busy: float | None = None  # mean share of the block's PRBs with UE traffic
        self._quiet_ns: int | None = None  # since when they carry none
        self._calm_ns = self._alive_ns = 0  # newest records without UE traffic inside, and with it outside
        self._records = 0  # since it was on air

    def begin(self, story: Story, mono_ns: int) -> None:
        """A block was sent, which is supervised until `end` or the next one."""
        before, self.story, self.effect_ns, self._quiet_ns = self.story, story, None, None
        self._inside[:] = False
        self._inside[np.array(story.prbs, np.int64) - self._first_prb] = True
        self._before = float(self._share[~self._inside].sum())
        if before is None or (before.ended and "replaced" not in before.stages):
            self._unanswered.clear()
            self._busy = self._since_ns = None
            self._calm_ns = self._alive_ns = self._records = 0
        self._unanswered.append((story, mono_ns))

    def end(self) -> None:
        """No block is to stand."""
        self.story = None

    def look(self, mono_ns: int) -> str | None:
        """Why the block is to be taken back by rule 1; None if it is not."""
        story = self.story
        if story is None or story.ended:
            return None
        lists = self._unanswered
        answered = [k for k, (one, _) in enumerate(lists) if "installed" in one.stages]
        if answered:
            del lists[: min(answered[-1] + 1, len(lists) - 1)]
        if mono_ns - lists[0][1] < ANSWER_NS:
            return None
        if "installed" not in story.stages:
            return f"it was not installed {ANSWER_NS / 1e9:g} s after it was sent"
        if "on air" not in story.stages and self.effect_ns is None:
            return f"it was not on air {ANSWER_NS / 1e9:g} s after it was sent, as far as the gNB tells"
        return None

    def add(self, ue: NDArray[np.bool_], observed_ns: int) -> str | None:
        """Take in which PRBs of a record carry UE traffic; returns why the block is to be taken back, or None.

        Args:
            ue: shape ``(n_prbs,)``.
            observed_ns: when the record was observed, on the exporter's clock.
        """
        story = self.story
        if story is None or story.ended:
            self._share += (ue - self._share) / BEFORE_RECORDS
            return None
        since = story.stages.get("on air") or story.stages.get("installed")
        if since is None or since.time_ns is None or observed_ns <= since.time_ns:
            return None
        self._records += 1
        since_ns = self._since_ns = since.time_ns if self._since_ns is None else self._since_ns
        return self._lacks_effect(ue, observed_ns, since_ns) or self._harms(ue, observed_ns, since_ns)

    def _lacks_effect(self, ue: NDArray[np.bool_], observed_ns: int, since_ns: int) -> str | None:
        busy = float(ue[self._inside].mean())
        self._busy = busy if self._busy is None else self._busy + (busy - self._busy) / RECORDS
        if busy > BUSY:
            self._quiet_ns = None
        elif self._quiet_ns is None:
            self._quiet_ns = observed_ns
        if self._busy <= BUSY:
            self._calm_ns = observed_ns
            self.effect_ns = self.effect_ns or self._quiet_ns
        if observed_ns - max(since_ns, self._calm_ns) < EFFECT_NS or self._records < MIN_RECORDS:
            return None
        prbs = format_prbs(int(prb) + self._first_prb for prb in np.flatnonzero(ue & self._inside))
        what = f"PRBs {prbs} still carry" if prbs else "its PRBs carried"
        return f"no effect: {what} UE traffic for {EFFECT_NS / 1e9:g} s while it was on air"

    def _harms(self, ue: NDArray[np.bool_], observed_ns: int, since_ns: int) -> str | None:
        carried = int(ue[~self._inside].sum())
        if self._before < HARM_PRBS or carried >= BUSY * self._before:
            self._alive_ns = observed_ns
        if observed_ns - max(since_ns, self._alive_ns) < HARM_NS or self._records < MIN_RECORDS:
            return None
        return f"harm: UEs had {self._before:.0f} PRBs outside of it before, and {carried} for {HARM_NS / 1e9:g} s now"
