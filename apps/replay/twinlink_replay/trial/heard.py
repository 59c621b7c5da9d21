"""What was heard of the cell in the last seconds, in steps of `STEP_MS`."""

import numpy as np
from numpy.typing import NDArray

STEP_MS = 10  # a gNB delivers a symbol a frame; of faster records, one a step is kept
STEP_NS = STEP_MS * 1_000_000
STEPS = 3000  # remembered: half a minute, after which the load is known to a few hundredths
MAX_GAP = 50  # steps without a record that are taken to be as the last one; later the twin is stale, and hears anew

Rows = NDArray[np.bool_]


class Heard:
    """The last `STEPS` steps.  A record later than those before it by more than a step fills the gap.

    Args:
        n_prbs: PRBs of a record.

    Attributes:
        anew: how often hearing began anew: after a gap, or because time was set back.
    """

    def __init__(self, n_prbs: int) -> None:
        self.n_prbs = n_prbs
        self.anew = 0
        self._rows = np.zeros((2 * STEPS, 3, n_prbs), np.bool_)  # written from left to right, then moved to the left
        self._end = 0
        self._step: int | None = None  # of the newest row

    def add(self, observed_ns: int, occupied: Rows, interfered: Rows, blocked: Rows) -> None:
        """Take in a record.

        Args:
            observed_ns: its time.
            occupied: which PRBs a UE or an interferer uses, shape ``(n_prbs,)``.
            interfered: which PRBs an interferer uses, alone or below a UE; same shape.
            blocked: which PRBs are kept free of UEs; same shape.
        """
        step = observed_ns // STEP_NS
        ahead = 1 if self._step is None else step - self._step
        if not -MAX_GAP <= ahead <= MAX_GAP:
            self._end, ahead = 0, 1
            self.anew += 1
        if ahead <= 0:
            return
        if self._end + ahead > len(self._rows):
            kept = self._rows[self._end - STEPS : self._end].copy()
            self._rows[:STEPS], self._end = kept, STEPS
        if ahead > 1:
            self._rows[self._end : self._end + ahead - 1] = self._rows[self._end - 1]
        self._end += ahead
        self._rows[self._end - 1] = occupied, interfered, blocked
        self._step = step

    @property
    def steps(self) -> int:
        """Number of steps heard."""
        return min(self._end, STEPS)

    @property
    def rows(self) -> tuple[Rows, Rows, Rows]:
        """Occupied, interfered, blocked, each ``(steps, n_prbs)``, the oldest first; valid until the next `add`."""
        rows = self._rows[self._end - self.steps : self._end]
        return rows[:, 0], rows[:, 1], rows[:, 2]
