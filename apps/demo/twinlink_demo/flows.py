"""The link's flows as cells of a run (docs/results-format.md)."""

from collections.abc import Callable, Iterable, Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import numpy as np
from twinlink_results.recorded import Recordings, table
from twinlink_results.run import Run

from twinlink.appkit import records
from twinlink.appkit.records import Table
from twinlink.recording import RecordingError
from twinlink.recording.reader import RecordingFile

FLOWS = {"spectrum": "rw-dt", "control": "dt-rw", "control-result": "rw-dt"}
SENDERS = {"rw-dt": "exporter", "dt-rw": "replay"}

Tables = Mapping[tuple[str, str], Table]  # by flow and side; some may be missing


def cell_id(transport: str, flow: str) -> str:
    """The cell id of a transport's flow, which names its files."""
    return f"{transport}-{flow}"


def cells(transports: Iterable[str]) -> list[dict[str, Any]]:
    """A cell for each flow over each transport, not measured yet."""
    return [
        {
            "id": cell_id(transport, flow),
            "subject": transport,
            "flow": flow,
            "octets": 0,
            "direction": direction,
            "mode": "open",
            "rate_hz": None,  # an application has no schedule
            "status": "skipped",
            "reason": "not reached",
            "rounds": [],
            "search": None,
        }
        for transport in transports
        for flow, direction in FLOWS.items()
    ]


def read(recording: Callable[[str], Path]) -> Tables:
    """The tables from the recordings of both sides; ``recording``: the path of that of a process.

    One is missing, or has no end, where its process was killed.
    """
    paths = {}
    for part in (*SENDERS.values(),):
        with suppress(OSError, RecordingError), closing(RecordingFile(recording(part))):
            paths[part] = recording(part)
    try:
        found = Recordings(paths.values())
    except (OSError, RecordingError):  # nothing of one can be read
        return {}
    tables: dict[tuple[str, str], Table] = {}
    for flow, direction in FLOWS.items():
        sides = {"sent": SENDERS[direction], "received": SENDERS["dt-rw" if direction == "rw-dt" else "rw-dt"]}
        streams = [stream for stream in found.streams.values() if stream.flow == flow]
        tables |= {(flow, side): table(streams, side) for side, part in sides.items() if part in paths}
    return tables


def add(run: Run, transport: str, tables: Tables, wrong: tuple[str, str] | None) -> None:
    """Add the result of one transport to its cells.

    Args:
        wrong: status and reason of an unfinished session.
    """
    for cell in run.content["cells"]:
        if cell["subject"] != transport:
            continue
        flow = cell["flow"]
        sent, received = (tables.get((flow, side)) for side in records.TABLES)
        cell["status"], cell["reason"] = wrong or ("done", None)
        if sent is None and wrong is None:
            cell["status"], cell["reason"] = "failed", f"the {SENDERS[cell['direction']]} left no record"
        sent = np.zeros(0, records.SENT) if sent is None else sent
        received = np.zeros(0, records.RECEIVED) if received is None else received
        run.add_round(cell, _round(sent) if len(sent) else None, sent, received)
        _note_size(run, flow, sent, received)


def _round(sent: Table) -> dict[str, Any]:
    """The round of a flow, from the first message to the last or its acknowledgement."""
    begin_ns = int(sent["sent_ns"].min())
    end_ns = int(np.maximum(sent["sent_ns"], sent["received_ns"]).max())
    return {"round": 0, "started_ns": begin_ns, "elapsed_ns": end_ns - begin_ns, "warm_up": 0, "sent": len(sent)}


def _note_size(run: Run, flow: str, *tables: Table) -> None:
    """Note the greatest message over all transports, so that the flow is one row of the table."""
    ours = [cell for cell in run.content["cells"] if cell["flow"] == flow]
    greatest = max(int(table["octets"].max(initial=0)) for table in tables)
    for cell in ours:
        cell["octets"] = max(greatest, cell["octets"])
