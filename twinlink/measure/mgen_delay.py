"""What MGEN's own logs say of a cell, and how much of MGEN's delay was the link's."""

import datetime
from pathlib import Path
from typing import Any

from twinlink.mgen import joined, log
from twinlink.mgen import records as bridge

from .metrics import spread
from .run import MGEN

PARTS = {
    "mgen_delay_ns": "MGEN's delay",
    "before_link_ns": "before the link",
    "link_delay_ns": "of it the link",
    "behind_link_ns": "behind the link",
}
COUNTS = ("sent", "received", "duplicates", "incomplete", "strangers", "errors", "unreadable")


def figures(folder: Path, cell_id: str, started_ns: int) -> dict[str, Any] | None:
    """Counts and delays of a cell, ready for JSON; None where MGEN left no logs.

    The delays take both hosts' clocks for equal, as MGEN does; ``offset_ns`` +- ``offset_bound_ns`` is by how much the
    receiver's was ahead.

    Args:
        folder: of the run.
        cell_id: whose logs.
        started_ns: when the run began: MGEN 5.02b logs the time of day only.

    Raises:
        OSError, ValueError: a log, or the bridge's records, cannot be read.
    """
    tx, rx, notes = (folder / MGEN / f"{cell_id}.{end}" for end in ("tx.drc", "rx.drc", "bridge.csv"))
    if not tx.exists() and not rx.exists():
        return None
    date = datetime.datetime.fromtimestamp(started_ns / 1e9, datetime.UTC).date()
    found = joined.put_together(log.read(tx, date), log.read(rx, date), bridge.read(notes))
    delays = {
        name: spread([value for journey in found.journeys if (value := getattr(journey, name)) is not None])
        for name in PARTS
    }
    counts = {name: getattr(found, name) for name in COUNTS}
    return {**counts, **delays, "offset_ns": found.offset_ns, "offset_bound_ns": found.offset_bound_ns}
