"""Everything that a demo derives from its raw files: results.json and table as of a sweep, summary, figures, page."""

import json
from pathlib import Path
from typing import Any

from twinlink.measure import results

from . import demo, evidence, figures, outcome, page
from .folder import Folder


def write(path: Path, out: Path | None = None) -> dict[str, Any]:
    """Derive everything; returns the summary.

    Args:
        path: of the demo.
        out: where the files go; the demo's folder when None.

    Raises ConfigurationError where there was no demo, DamagedRun, OSError.
    """
    facts, ue = demo.load(path)
    measured, _ = results.tabulate(path, out)
    found = {name: evidence.load(Folder(path).transport(name), ue) for name in facts["transports"]}
    summary = outcome.summarise(facts, found)
    derived = Folder(out or path)
    results.write(derived.summary, json.dumps(summary, indent=2) + "\n")
    drawn = figures.draw(derived, found, summary)
    results.write(derived.report, page.html(summary, measured, drawn))
    return summary
