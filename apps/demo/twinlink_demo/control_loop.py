"""The control loop, per episode of the interferer: detected, block proposed, installed, applied, effective."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .evidence import Evidence, Playout, Times, prb_power
from .lateness import late_ns
from .pace import LIMIT_NS
from .score import on_air

# Durations are those of the recording: at half its pace they take twice as long.
STRONG_DB = 6.0  # an interferer with this INR, and ...
LONG_NS = 1_000_000_000  # ... this duration must be blocked; with a record that is more than LIMIT_NS late, it may be
WEAK, SHORT, STALLED = "weak", "short", "stalled"
FREE_SHARE = 0.05  # of the cells freed by the block in which the twin may still see energy
FREE_CELLS = 20  # least number of freed cells for a verdict
AFTER_RECORDS = 200  # by which a block may outlast the interferer
SOON_NS = 3_000_000_000  # within which the end of an interferer must be seen


@dataclass(frozen=True, slots=True)
class Episode:
    """One appearance of an interferer.

    Attributes:
        prbs: covered by the interferer.
        first_record, end_record: as played, half open.
        on_ns: time at which its first record was played.
        at_ns: from the start of the playout until then.
        duration_ns: up to its last record.
        late_ns: the greatest lateness of a record (`lateness`) in which it, or the effect of its block, is to be seen.
        inr_db: its power above the floor in cells without a UE, None without such cells.
        waived: why it need not be blocked: `WEAK`, `SHORT`, or `STALLED` (that failed, and the machine was late); None
            if it must be.
        proposed_ns: when the twin first proposed a block of all its PRBs, or None.
        installed_ns: when the gNB acknowledged a block of all of them, or None.
        applied_record: the first record played with all of them blocked, or None.
        freed_cells: PRBs of records after its end from which the block kept UEs away.
        freed_busy: of these, those in which the twin saw energy.
        end_seen_ns: when the twin reported its end on all of them, or None.
        effect_seen: the freed cells are free, or the twin saw its end; None if the run ended too soon to tell.
        closed: installed and applied, and the effect was seen or could not be.
    """

    prbs: tuple[int, ...]
    first_record: int
    end_record: int
    on_ns: int
    at_ns: int
    duration_ns: int
    late_ns: int
    inr_db: float | None
    waived: str | None
    proposed_ns: int | None
    installed_ns: int | None
    applied_record: int | None
    freed_cells: int
    freed_busy: int
    end_seen_ns: int | None
    effect_seen: bool | None
    closed: bool

    @property
    def required(self) -> bool:
        """Whether the loop must close for it: it is strong and long enough, and the machine kept pace."""
        return self.waived is None

    @property
    def time_to_block_ns(self) -> int | None:
        """Time from the start of the interferer to the installed block."""
        return None if self.installed_ns is None else self.installed_ns - self.on_ns

    def as_dict(self) -> dict[str, Any]:
        """As a dictionary for the summary."""
        derived = {"required": self.required, "time_to_block_ns": self.time_to_block_ns}
        return asdict(self) | {"prbs": list(self.prbs), **derived}


def episodes(evidence: Evidence) -> list[Episode]:
    """Every episode that was played; empty without the gNB's record."""
    playout = evidence.playout
    if playout is None or not len(playout.played_ns):
        return []
    power, late = prb_power(playout.samples), late_ns(playout, evidence.rebuilt)
    return [_episode(evidence, playout, power, late, *which) for which in _rectangles(playout)]


def _rectangles(playout: Playout) -> list[tuple[tuple[int, ...], int, int]]:
    """PRBs that start together, first record, and the record in which the first of them ends."""
    truth = playout.interferer
    before = np.vstack([np.zeros((1, truth.shape[1]), bool), truth[:-1]])
    came = truth & ~before
    found = []
    for first in np.flatnonzero(came.any(axis=1)):
        prbs = np.flatnonzero(came[first])
        gone = ~truth[first:, prbs].all(axis=1)
        end = int(first + gone.argmax()) if gone.any() else len(truth)
        found.append((tuple(map(int, prbs)), int(first), end))
    return found


def _episode(
    evidence: Evidence,
    playout: Playout,
    power: NDArray[np.float32],
    late: Times,
    prbs: tuple[int, ...],
    first: int,
    end: int,
) -> Episode:
    on_ns = int(playout.played_ns[first])
    over_ns = int(playout.played_ns[end]) if end < len(playout.played_ns) else None
    last_ns = int(playout.played_ns[end - 1]) if over_ns is None else over_ns
    wanted = set(prbs)
    covering = [event for event in evidence.named("exporter", "block-installed") if wanted <= set(event["prbs"])]
    installed_ns = _first(covering, "installed_ns", on_ns, last_ns)
    asked = [event for event in evidence.named("replay", "proposed") if wanted <= set(event["prbs"])]
    proposed_ns = _first(asked, "time_ns", on_ns, last_ns)
    obeyed = np.flatnonzero(playout.blocked[first:end, list(prbs)].all(axis=1))
    applied = int(first + obeyed[0]) if len(obeyed) else None
    inr_db = _inr_db(playout, power, prbs, first, end)
    cells, busy = _freed(evidence, playout, prbs, end)
    end_seen_ns = None if over_ns is None else _end_seen(evidence, wanted, over_ns, round(SOON_NS / playout.pace))
    works = end_seen_ns is not None or (cells >= FREE_CELLS and busy <= FREE_SHARE * cells)
    # An interferer hides the cells under it, and the twin reports its end with a delay: at the end of a run neither
    # can be observed.
    unseen = over_ns is None or int(playout.played_ns[-1]) - over_ns < LONG_NS / playout.pace
    effect_seen = works or (None if unseen else False)
    latest_ns = int(late[first : end + AFTER_RECORDS].max())
    closed = installed_ns is not None and applied is not None and effect_seen is not False
    machine_late = latest_ns > LIMIT_NS and not closed
    return Episode(
        prbs=prbs,
        first_record=first,
        end_record=end,
        on_ns=on_ns,
        at_ns=on_ns - int(playout.played_ns[0]),
        duration_ns=last_ns - on_ns,
        late_ns=latest_ns,
        inr_db=inr_db,
        waived=_waived(inr_db, (end - first) * playout.period_ns * playout.pace, machine_late),
        proposed_ns=proposed_ns,
        installed_ns=installed_ns,
        applied_record=applied,
        freed_cells=cells,
        freed_busy=busy,
        end_seen_ns=end_seen_ns,
        effect_seen=effect_seen,
        closed=closed,
    )


def _waived(inr_db: float | None, duration_ns: float, machine_late: bool) -> str | None:
    if inr_db is not None and inr_db < STRONG_DB:
        return WEAK
    return SHORT if duration_ns < LONG_NS else STALLED if machine_late else None


def _first(events: list[dict[str, Any]], key: str, begin_ns: int, end_ns: int) -> int | None:
    times = [int(event[key]) for event in events if begin_ns <= event[key] <= end_ns]
    return min(times, default=None)


def _inr_db(playout: Playout, power: NDArray[np.float32], prbs: tuple[int, ...], first: int, end: int) -> float | None:
    """Mean power over the floor, in dB; the floor is the mean power of cells without UE and interferer."""
    alone = np.zeros_like(playout.ue)
    alone[first:end, list(prbs)] = True
    alone &= playout.interferer & ~playout.ue
    empty = ~playout.ue & ~playout.interferer
    if not alone.any() or not empty.any():
        return None
    floor = max(float(power[empty].mean()), 1e-9)
    return round(float(10 * np.log10(max(float(power[alone].mean()), 1e-9) / floor)), 2)


def _freed(evidence: Evidence, playout: Playout, prbs: tuple[int, ...], end: int) -> tuple[int, int]:
    """Cells freed by the block after the interferer's end, and those in which the twin saw energy."""
    rebuilt = evidence.rebuilt
    if rebuilt is None:
        return 0, 0
    n_records = len(playout.freed)
    rows, index = slice(end, end + AFTER_RECORDS), list(prbs)
    came = on_air(np.ones(len(rebuilt.record), bool), rebuilt, n_records, False)[rows]
    free = playout.freed[rows, index] & ~playout.interferer[rows, index] & came[:, None]
    seen = on_air(rebuilt.occupied, rebuilt, n_records, False)[rows, index]
    return int(free.sum()), int((free & seen).sum())


def _end_seen(evidence: Evidence, wanted: set[int], over_ns: int, soon_ns: int) -> int | None:
    """When the twin first reported, soon after the end, no interference on these PRBs."""
    for event in evidence.named("replay", "interference", "interference-ended"):
        if over_ns <= event["time_ns"] <= over_ns + soon_ns and not wanted & set(event.get("prbs", ())):
            return int(event["time_ns"])
    return None
