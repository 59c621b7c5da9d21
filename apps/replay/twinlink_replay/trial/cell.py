"""A model of the cell: what is known of it now, and by which laws it goes on.

UEs and interferers go on as those of the RAN emulator (`scheduler.schedule`, `interferer.draw_episodes`).  Its
parameters are fitted to what was heard: the load, the mean length of a grant, and how long interferers stay.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from twinlink_ran_emulator.scheduler import MEAN_GRANT_RECORDS, MEAN_SILENCE_RECORDS, MIN_GRANT_RECORDS

from .heard import STEPS, Heard, Rows

MIN_STEPS = 20  # with less there is no model
PRIOR_STEPS = 50  # as which the usual load counts
PRIOR_ENDS = 40  # ended PRBs of grants, about two grants, as which the emulator's mean length counts
LAG = 8  # steps within which an interferer may still have been taken for a UE
FLICKER = 3  # steps in which a transmission that goes on may not be found
LEAST_DWELL = 5  # steps; what is shorter is taken for a false alarm
# Mean load of the emulator's scheduler by n UEs of its usual durations, n = 0 to 16 (a test compares them).
LOADS = (0.0, 0.12, 0.23, 0.34, 0.43, 0.50, 0.545, 0.58, 0.602, 0.62, 0.635, 0.645, 0.654, 0.66, 0.665, 0.668, 0.672)
USUAL_LOAD = LOADS[5]


@dataclass(frozen=True, slots=True)
class Emitter:
    """An interferer that is on the air: its first PRB, number of PRBs, and for how many steps it has been heard."""

    first_prb: int
    n_prbs: int
    age: int


@dataclass(frozen=True, slots=True)
class Cell:
    """The cell at the end of what was heard.

    Attributes:
        n_prbs: PRBs of the model, numbered from 0.
        used: probability that a UE wants each PRB now, 0 or 1 where that was heard; float, shape ``(n_prbs,)``.
        group: PRBs of the same number are those of one grant, or of one gap; int, same shape.
        load: mean share of the PRBs that UEs want.
        dwell_steps: for how many steps a PRB is used in the mean.
        emitters: the interferers that are on the air.
        stays: for how many steps each of the interferers stayed that were heard from beginning to end.
        silence: steps since the last interferer; None: none was heard, and the model has none.
    """

    n_prbs: int
    used: NDArray[np.float64]
    group: NDArray[np.int64]
    load: float
    dwell_steps: float
    emitters: tuple[Emitter, ...]
    stays: tuple[int, ...]
    silence: int | None

    @property
    def memory_steps(self) -> float:
        """Mean steps after which a PRB no longer depends on its state now (relaxation of a two-state chain)."""
        return _memory(self.dwell_steps, self.load)

    @property
    def grant_steps(self) -> float:
        """Mean length of a grant: a PRB is used for longer, because the next grant may follow at once."""
        return self.dwell_steps * _part_of_dwell(self.load)

    @property
    def n_ues(self) -> float:
        """Number of UEs of the emulator's scheduler that make this load: between two numbers if need be."""
        usual = _activity(MIN_GRANT_RECORDS + MEAN_GRANT_RECORDS)
        return float(np.interp(self.load, LOADS, range(len(LOADS)))) * usual / _activity(self.grant_steps)


def _memory(dwell_steps: float, load: float) -> float:
    return max(dwell_steps * (1 - load), 1.0)


def _part_of_dwell(load: float) -> float:
    """As runs of the emulator's scheduler have it, at grants of 13 to 64 records (a test compares them)."""
    return 0.9 - 0.3 * load


def _usual_dwell(load: float) -> float:
    return (MIN_GRANT_RECORDS + MEAN_GRANT_RECORDS) / _part_of_dwell(load)


def _activity(grant_steps: float) -> float:
    """Share of the time in which a UE has a grant: a silence follows every other one."""
    return grant_steps / (grant_steps + MEAN_SILENCE_RECORDS / 2)


def usual(n_prbs: int) -> Cell:
    """A cell of which nothing was heard: as the emulator's, and empty now."""
    nothing = np.zeros(n_prbs)
    return Cell(n_prbs, nothing, nothing.astype(np.int64), USUAL_LOAD, _usual_dwell(USUAL_LOAD), (), (), None)


def fit(heard: Heard, steps: int = STEPS) -> Cell | None:
    """The model of what was heard in the last steps; None if that is shorter than `MIN_STEPS`."""
    if heard.steps < MIN_STEPS:
        return None
    occupied, interfered, blocked = (rows[-steps:] for rows in heard.rows)
    hidden = interfered | blocked
    ue = occupied & ~hidden
    ue[1:-1] |= ue[:-2] & ue[2:] & ~hidden[1:-1]
    seen = hidden.size - np.count_nonzero(hidden)
    all_used = np.count_nonzero(ue)
    prior = PRIOR_STEPS * heard.n_prbs
    load = min((all_used + prior * USUAL_LOAD) / (seen + prior), LOADS[-1])
    ends = np.count_nonzero(ue[:-1] & ~ue[1:] & ~hidden[1:])
    dwell = (all_used + PRIOR_ENDS * _usual_dwell(load)) / (ends + PRIOR_ENDS)
    used = _used(ue, hidden, load, _memory(dwell, load))
    on = interfered.any(axis=1)
    silence = int(np.argmax(on[::-1])) if on.any() else None
    return Cell(heard.n_prbs, used, _groups(ue, hidden), load, dwell, _emitters(interfered), _stays(on), silence)


def _ages(rows: Rows) -> NDArray[np.int64]:
    """For how many rows each column has kept its last value, shape ``(n_prbs,)``."""
    changed = rows[::-1] != rows[-1]
    return np.asarray(np.where(changed.any(axis=0), changed.argmax(axis=0), len(rows)), np.int64)


def _used(ue: Rows, hidden: Rows, load: float, memory: float) -> NDArray[np.float64]:
    """Where an interferer or a block hides the UEs: as before it, which becomes less sure with time."""
    used: NDArray[np.float64] = ue[-1].astype(np.float64)
    ages = _ages(hidden)
    for prb in np.flatnonzero(hidden[-1]):
        before = len(ue) - 1 - int(ages[prb]) - LAG
        was = float(ue[before, prb]) if before >= 0 else load
        used[prb] = load + (was - load) * np.exp(-(int(ages[prb]) + LAG) / memory)
    return used


def _groups(ue: Rows, hidden: Rows) -> NDArray[np.int64]:
    """Numbers of the grants and gaps: neighbouring PRBs that are alike since about the same time."""
    alike = np.diff(ue[-1].astype(np.int8)) == 0
    alike &= np.diff(hidden[-1].astype(np.int8)) == 0
    together = np.abs(np.diff(_ages(ue))) <= FLICKER
    return np.concatenate(([0], np.cumsum(~(alike & (together | ~ue[-1, 1:])))))


def _emitters(interfered: Rows) -> tuple[Emitter, ...]:
    """Those that are on the air."""
    return tuple(
        Emitter(first, end - first, len(interfered) - _dwells(interfered[:, first:end].any(axis=1))[-1][0])
        for first, end in _runs(interfered[-FLICKER:].any(axis=0))
    )


def _stays(on: Rows) -> tuple[int, ...]:
    """Of those that were heard from beginning to end; of several at a time, all of their time together."""
    ended = [(first, end) for first, end in _dwells(on) if first > 0 and end < len(on) - FLICKER]
    return tuple(end - first for first, end in ended if end - first >= LEAST_DWELL)


def _dwells(on: Rows) -> list[tuple[int, int]]:
    """The runs of True, as half-open ranges, that are more than `FLICKER` apart."""
    joined: list[tuple[int, int]] = []
    for first, end in _runs(on):
        begin = joined.pop()[0] if joined and first - joined[-1][1] <= FLICKER else first
        joined.append((begin, end))
    return joined


def _runs(on: Rows) -> list[tuple[int, int]]:
    edges = np.flatnonzero(np.diff(np.concatenate(([0], on.astype(np.int8), [0]))))
    return [(first, end) for first, end in edges.reshape(-1, 2).tolist()]
