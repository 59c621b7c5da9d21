"""The folder that an experiment leaves: results.json, table.md, figures and report.html, beside the raw records."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from twinlink_results import results

from . import figure, page, report
from .description import Experiment
from .outcome import Row

RESULTS, TABLE, REPORT = "results.json", "table.md", "report.html"


def write(path: Path, experiment: Experiment, rows: Sequence[Row], found: Mapping[str, Any]) -> None:
    """Write everything that is made of ``found``, the content of results.json (`report.content`).  Raises OSError."""
    path.mkdir(parents=True, exist_ok=True)
    results.write(path / RESULTS, json.dumps(found, indent=1, allow_nan=False) + "\n")
    results.write(path / TABLE, report.text(experiment, rows, found))
    figure.draw(path, experiment, rows, found["setting"])
    results.write(path / REPORT, page.html(path, experiment, rows, found))
