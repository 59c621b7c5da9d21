"""Compares the twin's rebuilt records and detections with the gNB's playout.

The E3 timestamp of a message is its record's index as played + 1.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .evidence import Cells, Playout, Rebuilt


@dataclass(frozen=True, slots=True)
class Score:
    """Counts of cells (a PRB of a record) by truth and answer."""

    hits: int
    false: int
    missed: int

    @property
    def precision(self) -> float | None:
        """``hits / (hits + false)``; None if nothing was found."""
        return self.hits / (self.hits + self.false) if self.hits + self.false else None

    @property
    def recall(self) -> float | None:
        """``hits / (hits + missed)``; None if there was nothing to find."""
        return self.hits / (self.hits + self.missed) if self.hits + self.missed else None

    def as_dict(self) -> dict[str, Any]:
        """As a dictionary for the summary."""
        return {"precision": self.precision, "recall": self.recall,
                "hits": self.hits, "false": self.false, "missed": self.missed}  # fmt: skip


def score(truth: Cells, found: Cells) -> Score:
    """Compare two arrays of shape ``(records, n_prbs)``."""
    return Score(int((truth & found).sum()), int((~truth & found).sum()), int((truth & ~found).sum()))


def on_air(values: NDArray[Any], rebuilt: Rebuilt, n_records: int, missing: Any = 0) -> NDArray[Any]:
    """Rows of messages at the positions of their records; lost records get ``missing``.

    Of a duplicate the first arrival counts.
    """
    placed = np.full((n_records, *values.shape[1:]), missing, values.dtype)
    valid = (rebuilt.record >= 0) & (rebuilt.record < n_records)
    rows = np.flatnonzero(valid)[::-1]
    placed[rebuilt.record[rows]] = values[rows]
    return placed


def detection(playout: Playout, rebuilt: Rebuilt, found: Cells) -> Score:
    """Score of the interferer's detection; nothing is found in a lost record."""
    return score(playout.interferer, on_air(found, rebuilt, len(playout.interferer), False))


def occupancy(playout: Playout, rebuilt: Rebuilt) -> Score:
    """Score of the occupancy: any transmission, UE or interferer."""
    return score(playout.ue | playout.interferer, on_air(rebuilt.occupied, rebuilt, len(playout.ue), False))


def samples(playout: Playout, rebuilt: Rebuilt) -> dict[str, Any]:
    """Number of samples compared, and of those that differ in I or Q; ``bit_identical`` is None without any."""
    rows = min(len(rebuilt.samples), len(rebuilt.record))
    record = rebuilt.record[:rows]
    valid = (record >= 0) & (record < len(playout.samples))
    foreign = int(rows - valid.sum())
    different = compared = 0
    if valid.any():
        unequal = (playout.samples[record[valid]] != rebuilt.samples[:rows][valid]).any(axis=-1)
        different, compared = int(unequal.sum()), unequal.size
    identical = None if not rows else bool(compared and not different and not foreign)
    return {"compared": compared, "different": different, "records_not_played": foreign, "bit_identical": identical}


def counts(playout: Playout | None, rebuilt: Rebuilt | None, exporter: dict[str, Any]) -> dict[str, int | None]:
    """Messages of flow ``spectrum``.

    ``lost``: sent and not received by the twin, or played and not exported; None without a record of either side.
    ``without_twin``: not exported, as no twin was up.
    """
    sent = exporter.get("spectrum", {}).get("sent")
    unique = received = None
    if rebuilt is not None:
        received = len(rebuilt.sequence)
        unique = len(set(zip(rebuilt.epoch.tolist(), rebuilt.sequence.tolist(), strict=True)))
    played = None if playout is None else len(playout.samples)
    ends = [number for number in (played, sent) if number is not None]
    return {
        "played": played,
        "sent": sent,
        "received": received,
        "lost": max(ends) - unique if ends and unique is not None else None,
        "duplicated": None if received is None or unique is None else received - unique,
        "acknowledged": exporter.get("spectrum", {}).get("acknowledged"),
        "without_twin": exporter.get("without_twin"),
    }
