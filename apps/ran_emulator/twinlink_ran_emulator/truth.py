"""Ground truth: the PRBs and records of UEs and interferer, as SigMF annotations.

An annotation is a rectangle: the records ``first_record <= k < end_record`` of PRBs ``first_prb <= p < end_prb``.
Its frequency edges are on PRB borders: PRB ``p`` begins at ``centre + (p - n_prbs / 2) * 12 * scs``.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twinlink.spectrum import SUBCARRIERS_PER_PRB


@dataclass(frozen=True, slots=True)
class Grid:
    """The layout of a recording: records of ``n_prbs`` PRBs around a carrier centre."""

    n_records: int
    n_prbs: int
    scs_hz: float
    centre_hz: float

    @property
    def bins(self) -> int:
        """Subcarriers, and so samples, in a record."""
        return self.n_prbs * SUBCARRIERS_PER_PRB

    def edge_hz(self, prb: int) -> float:
        """The lower edge of a PRB; ``edge_hz(n_prbs)`` is the upper edge of the carrier."""
        return self.centre_hz + (prb - self.n_prbs / 2) * SUBCARRIERS_PER_PRB * self.scs_hz


@dataclass(frozen=True, slots=True)
class Area:
    """A rectangle of records and PRBs with a label (``ue`` or ``interferer``)."""

    label: str
    first_record: int
    end_record: int
    first_prb: int
    end_prb: int
    comment: str = ""

    def annotation(self, grid: Grid) -> dict[str, Any]:
        """The SigMF annotation."""
        fields: dict[str, Any] = {
            "core:sample_start": self.first_record * grid.bins,
            "core:sample_count": (self.end_record - self.first_record) * grid.bins,
            "core:freq_lower_edge": grid.edge_hz(self.first_prb),
            "core:freq_upper_edge": grid.edge_hz(self.end_prb),
            "core:label": self.label,
        }
        if self.comment:
            fields["core:comment"] = self.comment
        return fields


def mark(areas: Iterable[Area], label: str, n_records: int, n_prbs: int) -> NDArray[np.int32]:
    """For each record and PRB the number (from 1) of its area with that label, or 0."""
    marks = np.zeros((n_records, n_prbs), np.int32)
    for number, area in enumerate((area for area in areas if area.label == label), 1):
        marks[area.first_record : area.end_record, area.first_prb : area.end_prb] = number
    return marks


def runs(row: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """The runs of True in a row, as half-open ranges."""
    edges = np.flatnonzero(np.diff(np.concatenate(([0], row.astype(np.int8), [0]))))
    return [(int(first), int(end)) for first, end in edges.reshape(-1, 2)]


def areas_of(label: str, rows: NDArray[np.bool_]) -> list[Area]:
    """Rectangles that cover exactly the True cells of ``rows``, shape ``(n_records, n_prbs)``, ordered by record.

    A rectangle continues while consecutive records have the same range of PRBs.
    """
    areas: list[Area] = []
    standing: dict[tuple[int, int], int] = {}
    previous: bytes | None = None
    for record in range(len(rows) + 1):
        now = rows[record].tobytes() if record < len(rows) else b""
        if now == previous:
            continue
        previous = now
        current = set(runs(rows[record])) if record < len(rows) else set()
        for run in sorted(standing.keys() - current):
            areas.append(Area(label, standing.pop(run), record, *run))
        for run in sorted(current - standing.keys()):
            standing[run] = record
    return sorted(areas, key=lambda area: (area.first_record, area.first_prb))
