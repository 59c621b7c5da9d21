"""What an experiment leaves: results.json, table.md, figures and report.html, beside the raw records."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .. import results
from . import analysis, sentences, verdicts
from .description import Experiment
from .outcome import Row

FORMAT, VERSION = "twinlink-experiment", 1
RESULTS, TABLE, REPORT = "results.json", "table.md", "report.html"


def content(experiment: Experiment, rows: Sequence[Row], about: Mapping[str, Any]) -> dict[str, Any]:
    """The content of results.json.

    Args:
        experiment: what was measured.
        rows: the cases.
        about: ``started_ns``, ``ended_ns``, ``complete``, ``quick``, ``setting``, ``hub``, ``counts``, ``system``,
            ``load`` (samples of `load.sample`), ``notes``, ``figures`` (those of its kind: file -> what it shows).
    """
    from .figure import drawings  # matplotlib takes a second to import

    published = experiment.published
    return {
        "format": FORMAT,
        "version": VERSION,
        "experiment": experiment.name,
        "title": experiment.title,
        "source": experiment.source,
        **about,
        "figures": {**drawings(experiment, rows), **about["figures"]},
        "published_counts": experiment.counts.published,
        "rows": [{**row.as_json(), "published": published.of(row.case)} for row in rows],
        "orderings": verdicts.judge(experiment, rows),
        "analysis": analysis.analyse(experiment, rows),
        "remarks": list(published.remarks),
        "not_the_same": list(experiment.not_the_same),
    }


def write(folder: Path, experiment: Experiment, rows: Sequence[Row], found: Mapping[str, Any]) -> None:
    """Write everything that is made of the content of results.json.  Raises OSError."""
    from . import figure, page

    folder.mkdir(parents=True, exist_ok=True)
    results.write(folder / RESULTS, json.dumps(found, indent=1, allow_nan=False) + "\n")
    results.write(folder / TABLE, sentences.text(experiment, rows, found))
    figure.draw(folder, experiment, rows, found["setting"])
    results.write(folder / REPORT, page.html(folder, experiment, rows, found))
