"""Everything that a demo derives from its raw files: results.json and table as of a sweep, summary, figures, page."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from twinlink_results import results

from twinlink import ConfigurationError
from twinlink.appkit.arrays import read_arrays

from . import evidence, figures, page, verdict
from .flows import cell_id
from .folder import Folder
from .pace import RECORDED


def rebuild(folder: Path, out: Path | None) -> tuple[dict[str, Any], str]:
    """As `write`; the summary, and what it says in Markdown."""
    summary = write(folder, out)
    return summary, verdict.text(summary)


def write(path: Path, out: Path | None = None) -> dict[str, Any]:
    """Derive everything; returns the summary.

    Args:
        path: of the demo.
        out: where the files go; the demo's folder when None.

    Raises ConfigurationError without a demo, DamagedRun, OSError.
    """
    facts, ue = _facts(path)
    measured, rows = results.tabulate(path, out)
    found = {
        name: evidence.load(Folder(path).transport(name), ue, fact.get("pace", RECORDED))
        for name, fact in facts["transports"].items()
    }
    sent = {name: rows[cell_id(name, "spectrum")].sent for name in found}
    summary = verdict.summarise(facts, found, sent)
    derived = Folder(out or path)
    results.write(derived.summary, json.dumps(summary, indent=2) + "\n")
    drawn = figures.draw(derived, found, summary)
    results.write(derived.report, page.html(summary, measured, drawn))
    return summary


def _facts(path: Path) -> tuple[dict[str, Any], NDArray[np.bool_]]:
    """run.json, and the UEs of the recording.  Raises ConfigurationError without them, DamagedRun."""
    run = results.load(path)
    if "demo" not in run:
        raise ConfigurationError(f"{path} is no result of `twinlink demo`")
    truth = Folder(path).truth
    try:
        ue = read_arrays(truth, flags=("ue",))["ue"]
        if not ue.size:
            raise ValueError("it has no PRBs")
    except (OSError, ValueError) as error:
        raise results.DamagedRun(f"{truth} cannot be read: {getattr(error, 'strerror', None) or error}") from error
    facts = {**run["demo"], "configuration": run["configuration"]["used"]}
    return {**facts, "started_ns": run["started_ns"], "ended_ns": run["ended_ns"]}, ue
