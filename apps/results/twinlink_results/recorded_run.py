"""Makes the folder of a run (docs/results-format.md) from recordings of a link.

Each flow of a node is a cell, and each of its sessions a round.  The side that listens is taken for
the Digital Twin.
"""

import json
import re
from collections.abc import Sequence
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import numpy as np

from twinlink.errors import ConfigurationError
from twinlink.transports import Endpoint

from .recorded import Recordings, Stream, table
from .recorded_fidelity import as_list
from .run import RECORDS, RUN, Run

_NOT_IN_ID = re.compile(r"[^A-Za-z0-9._-]")


def write(paths: Sequence[Path], folder: Path, overwrite: bool = False) -> None:
    """Write run.json and the records; ``overwrite``: a run that `write` made there gives way.

    Raises OSError; RecordingError where a file is no recording, ConfigurationError where none has a message, or the
    folder holds a run.
    """
    found = Recordings(paths)
    streams = [stream for stream in found.streams.values() if stream.sent]
    if not streams:
        raise ConfigurationError(f"{', '.join(map(str, paths))}: no message was recorded, of which a report could be")
    configurations = [manifest["configuration"] for manifest in found.manifests if manifest.get("configuration")]
    transports = {str(one["transport_name"]) for one in configurations}
    if len(transports) > 1:
        raise ConfigurationError(
            f"the recordings are of links over {', '.join(sorted(transports))}: give those of one link together"
        )
    if overwrite:
        _remove(folder)
    run = Run(folder, _content(paths, found, streams, configurations))
    transport, listeners = transports.pop() if transports else "unknown", _listeners(found)
    flows: dict[tuple[str, str], list[Stream]] = {}
    for stream in streams:
        flows.setdefault((stream.node or f"{stream.epoch:016x}", stream.flow), []).append(stream)
    for (node, flow), sessions in sorted(flows.items()):
        shared = sum(each == flow for _, each in flows) > 1
        cell = {
            "id": _NOT_IN_ID.sub("-", f"{node}-{flow}"),
            "subject": transport,
            "flow": f"{flow} of {node}" if shared else flow,
            "octets": max(octets for one in sessions for octets, _ in one.sent.values()),
            "direction": "dt-rw" if node in listeners else "rw-dt",
            "mode": "open",
            "rate_hz": None,
            "status": "done",
            "reason": None,
            "rounds": [],
            "search": None,
        }
        run.add_cell(cell)
        sessions.sort(key=lambda one: next(iter(one.sent.values()))[1])
        sent, received = table(sessions, "sent"), table(sessions, "received")
        for number in range(len(sessions)):
            went, came = sent[sent["round"] == number], received[received["round"] == number]
            begin_ns = int(went["sent_ns"].min())
            end_ns = int(np.maximum(went["sent_ns"], went["received_ns"]).max())
            entry = {"round": number, "started_ns": begin_ns, "elapsed_ns": max(0, end_ns - begin_ns), "warm_up": 0}
            run.add_round(cell, entry | {"sent": len(went)}, went, came)
    run.save()


def _remove(folder: Path) -> None:
    """Remove a run that was made of recordings; another one stays, and is refused."""
    try:
        if "recordings" not in json.loads((folder / RUN).read_text())["configuration"]["used"]:
            return
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return
    for path in (folder / RECORDS).glob("*.csv.gz"):
        path.unlink()
    (folder / RUN).unlink()


def _content(
    paths: Sequence[Path], found: Recordings, streams: list[Stream], configurations: list[dict[str, Any]]
) -> dict[str, Any]:
    """run.json without its cells."""
    times = [sent_ns for stream in streams for _, sent_ns in stream.sent.values() if sent_ns]
    sides = ("real_world", "digital_twin")
    fidelity = as_list(found.fidelity, {stream.epoch: stream.node for stream in streams})
    used = {"recordings": [path.name for path in paths], "links": configurations}
    return {
        "started_ns": min(times),
        "ended_ns": max(times),
        "complete": all(report.sound for report in found.reports),
        "configuration": {"given": {}, "used": used},
        "setting": "loopback" if any(map(_is_loopback, configurations)) else "hosts",
        "rate_limit": None,
        "source": "twinlink",
        "system": dict.fromkeys(sides),
        "ntp": dict.fromkeys(sides),
        "idle_rtt_ns": {},
        "mgen": None,
        **({"fidelity": fidelity} if fidelity else {}),
        **({"decisions": decisions} if (decisions := found.decisions.as_list()) else {}),
    }


def _listeners(found: Recordings) -> set[str]:
    """Names of the nodes that listen, as far as the recordings say."""
    names = set[str]()
    for manifest in found.manifests:
        configuration = manifest.get("configuration") or {}
        own = str(configuration.get("node"))
        others = {stream.node for stream in found.streams.values() if stream.node and stream.node != own}
        if (observed := configuration.get("observed")) is not None:
            names.add(str(observed["node"]))
        elif configuration.get("listening"):
            names.add(own)
        else:
            names |= others
    return names


def _is_loopback(configuration: dict[str, Any]) -> bool:
    try:
        host = Endpoint.parse(str(configuration["endpoint"]).partition(",")[0]).host.strip("[]")
        return host == "localhost" or ip_address(host).is_loopback
    except (KeyError, ValueError):
        return False
