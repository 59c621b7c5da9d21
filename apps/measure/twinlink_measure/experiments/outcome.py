"""What an experiment has measured: a row for each case, with figures, and the raw values behind them."""

import gzip
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from twinlink_results import statistics
from twinlink_results.run import RECORDS

from .description import Case

DONE, FAILED, LEFT_OUT = "done", "failed", "left out"
MEAN = "mean"
_KEPT_OUT = ("values", "series", "sizes")  # of results.json
LEAST_P999 = 1000  # values, below which there is no p99.9


@dataclass
class Row:
    """A case.

    Attributes:
        case: what distinguishes it.
        n: of values.
        figures: by name; None where there is none.
        ci95: of the mean (moving-block bootstrap), in the unit of the figures.
        intervals: CI95 of further figures; the upper end may be infinite, which is null in results.json.
        status: `DONE`; `LEFT_OUT` on purpose, or what went wrong, with the ``reason``.
        missing: values that did not come, such as lost messages.
        records: the file with the raw values, in the folder of the experiment.
        values: the raw values behind the mean, in the order of time; not in results.json.
        series: by name and unit, what was measured each second; not in results.json.
        sizes: number of packets by their octets; not in results.json.
    """

    case: Case
    n: int = 0
    figures: dict[str, float | None] = field(default_factory=dict)
    ci95: tuple[float, float] | None = None
    status: str = DONE
    reason: str | None = None
    missing: int = 0
    records: str | None = None
    values: Sequence[float] = ()
    intervals: dict[str, tuple[float, float]] = field(default_factory=dict)
    series: Mapping[str, Sequence[float]] = field(default_factory=dict)
    sizes: Mapping[int, int] = field(default_factory=dict)

    def interval(self, figure: str) -> tuple[float, float] | None:
        """The CI95 of a figure; None if it has none."""
        return self.ci95 if figure == MEAN else self.intervals.get(figure)

    def as_json(self) -> dict[str, Any]:
        """For results.json."""
        found = {name: value for name, value in vars(self).items() if name not in _KEPT_OUT}
        finite = {name: [low, high if math.isfinite(high) else None] for name, (low, high) in self.intervals.items()}
        return found | {"intervals": finite}


def spread(values: ArrayLike) -> tuple[dict[str, float | None], tuple[float, float] | None]:
    """The figures of values in the order of time, and CI95 of their mean.

    They are mean, median, sd, min, max, p90, p95, p99 and, of at least `LEAST_P999` values, p999.
    """
    x = np.asarray(values, np.float64)
    if not len(x):
        return {}, None
    ordered, interval = np.sort(x), statistics.mean_interval(x)
    figures: dict[str, float | None] = {
        MEAN: float(x.mean()),
        "median": float(np.median(x)),
        "sd": float(x.std(ddof=1)) if len(x) > 1 else None,
        "min": float(ordered[0]),
        "max": float(ordered[-1]),
        "p90": statistics.percentile(ordered, 0.90),
        "p95": statistics.percentile(ordered, 0.95),
        "p99": statistics.percentile(ordered, 0.99),
        "p999": statistics.percentile(ordered, 0.999) if len(x) >= LEAST_P999 else None,
    }
    return figures, (interval.low, interval.high) if interval else None


def of_values(
    folder: Path,
    case: Case,
    values_ms: Sequence[float],
    missing: int = 0,
    more: Mapping[str, float | None] | None = None,
    failure: str | None = None,
) -> Row:
    """A row with the `spread` of times in ms, which are written as raw records; ``failure``: why there are no more."""
    figures, ci95 = spread(values_ms)
    name = "-".join(str(value) for value in case.values())
    row = Row(case, len(values_ms), {**figures, **(more or {})}, ci95, missing=missing, values=values_ms)
    row.records = write_records(folder, name, ("number", "ms"), list(enumerate(values_ms)))
    if failure or not len(values_ms):
        row.status, row.reason = FAILED, failure or "no value was measured"
    return row


def write_records(folder: Path, name: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Write raw values as gzip-compressed CSV; returns the path in the folder of the experiment.  Raises OSError."""
    (folder / RECORDS).mkdir(parents=True, exist_ok=True)
    path = folder / RECORDS / f"{name}.csv.gz"
    lines = [",".join(columns), *(",".join(map(_text, row)) for row in rows)]
    path.write_bytes(gzip.compress(("\n".join(lines) + "\n").encode(), mtime=0))
    return f"{RECORDS}/{path.name}"


def _text(value: Any) -> str:
    return f"{value:.6f}" if isinstance(value, float) else str(value)


def failed(case: Case, reason: str) -> Row:
    """A case that could not be measured."""
    return Row(case, status=FAILED, reason=reason)
