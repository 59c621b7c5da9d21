"""MGEN's delay of a cell, from MGEN's logs, and the link's part of it."""

import datetime
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from twinlink.appkit import records

from .metrics import spread
from .mgen import log, log_join
from .mgen import records as bridge
from .run import MGEN, RUN

PARTS = {
    "mgen_delay_ns": "MGEN's delay",
    "before_link_ns": "before the link",
    "link_delay_ns": "of it the link",
    "behind_link_ns": "behind the link",
}
COUNTS = ("sent", "received", "duplicates", "incomplete", "strangers", "errors", "unreadable")


def figures(
    folder: Path, cell: Mapping[str, Any], started_ns: int, sent: records.Table, received: records.Table
) -> dict[str, Any]:
    """Counts and delays of a cell, ready for JSON.

    The delays assume equal clocks, as MGEN does; ``offset_ns`` +- ``offset_bound_ns`` is the offset of the receiver's.

    Args:
        folder: of the run.
        cell: its entry in run.json.
        started_ns: when the run began: MGEN 5.02b logs the time of day only.
        sent, received: the records of the cell.

    Raises:
        OSError, ValueError: a log, or the bridge's records, is missing, cannot be read, or is cut.
    """
    tx, rx, notes = (folder / MGEN / f"{cell['id']}.{end}" for end in ("tx.drc", "rx.drc", "bridge.csv"))
    for path in (tx, rx, notes):
        if not path.exists():
            raise ValueError(
                f"{path} is missing, which {RUN} names; copy the run's folder again, with all that is in it"
            )
    date = datetime.datetime.fromtimestamp(started_ns / 1e9, datetime.UTC).date()
    sender, listener, rows = log.read(tx, date), log.read(rx, date), bridge.read(notes)
    if cell["status"] == "done":
        answered = sum(row.end == "in" and row.received_ns is not None for row in rows)
        _compare(tx, len(sender.of("SEND")), len(sent), "sent")
        _compare(notes, answered, int(sent["acknowledged"].sum()), "acknowledged")
        _compare(notes, sum(row.end == "out" for row in rows), len(received), "received")
    found = log_join.join_logs(sender, listener, rows)
    delays = {
        name: spread([value for trace in found.traces if (value := getattr(trace, name)) is not None]) for name in PARTS
    }
    counts = {name: getattr(found, name) for name in COUNTS}
    return {**counts, **delays, "offset_ns": found.offset_ns, "offset_bound_ns": found.offset_bound_ns}


def _compare(path: Path, there: int, known: int, what: str) -> None:
    if there < known:
        raise ValueError(f"{path} holds {there} of the {known} messages that were {what}: it is cut, or of another run")
