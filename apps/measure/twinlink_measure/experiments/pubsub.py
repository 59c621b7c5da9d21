"""Cyclic OPC UA PubSub from a publisher to a loopback host and back.

Keys of a part: ``case``, ``cycle_ms``, ``offset_ms``, ``lead_ms``, ``variables`` (Int64 each).  Counts: ``cycles``;
``cases`` selects the parts with this place among those of their table, such as 0 and -1.
"""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..namespaces import ADDRESSES
from ..setting import Setting
from . import distribution
from .cyclictest import scheduling_latency
from .measuring import Run, address, port, prefix
from .outcome import Row, failed, spread, write_records
from .program import Program, ProgramFailed

Floats = NDArray[np.float64]
SPACING = "spacing.png"
FRAME_OCTETS = 22  # Ethernet with a VLAN tag and FCS, as the paper counts the link
PHYSICAL_OCTETS = 20  # preamble and gap between frames
START_S = 0.3  # from the moment when both nodes are ready to the first cycle


def measure(run: Run) -> list[Row]:
    """Measure each part."""
    parts = chosen(run)
    rows: list[Row] = []
    spacings: dict[str, Floats] = {}
    with run.place() as setting:
        for number, part in enumerate(parts):
            if run.stopped():
                break
            run.step(run.experiment.case(part["case"]), number / len(parts), None)
            try:
                row, spacing_ms = _measure(run, setting, part)
            except ProgramFailed as error:
                rows.append(failed(dict(part["case"]), str(error)))
                continue
            rows.append(row)
            spacings[run.experiment.case(part["case"])] = spacing_ms - part["cycle_ms"]
    if any(map(len, spacings.values())):
        draw_spacing(run.folder / SPACING, spacings)
        run.figures[SPACING] = "Time between arrivals at the loopback host, less the cycle, as ECDF"
    run.notes.append(scheduling_latency(run.counts["cycles"]))
    return rows


def draw_spacing(path: Path, spacings: Mapping[str, Floats]) -> None:
    """Draw the time between arrivals, less the cycle, in ms, as ECDF.  Raises OSError."""
    labels = "time between arrivals, less the cycle (ms)", "share of the messages"
    # On a linear axis, a single late message would leave no room for the others.
    distribution.draw(path, spacings, labels, {"value": "symlog", "linthresh": 0.1})


def chosen(run: Run) -> list[Any]:
    """The parts that this run measures."""
    tables: dict[Any, list[Any]] = {}
    for part in run.experiment.parts:
        tables.setdefault(part["case"].get("table"), []).append(part)
    places = run.counts.get("cases")
    return [part for parts in tables.values() for part in ([parts[at] for at in places] if places else parts)]


def _measure(run: Run, setting: Setting, part: Any) -> tuple[Row, Floats]:
    near = ADDRESSES[0] if setting.name == "netns" else "127.0.0.1"
    ends = {"publisher": (near, port(setting)), "loopback": (address(setting), port(setting))}
    cycles: int = run.counts["cycles"]
    common = {name: part[name] for name in ("cycle_ms", "offset_ms", "lead_ms", "variables")}
    common["cycles"] = cycles

    def given(role: str, other: str) -> dict[str, Any]:
        (host, own), (peer_host, peer) = ends[role], ends[other]
        return {"role": role, "host": host, "port": own, "peer_host": peer_host, "peer_port": peer, **common}

    within_s = START_S + part["cycle_ms"] * (cycles + 10) / 1000 + 30
    with (
        Program("pubsub_node", given("loopback", "publisher"), prefix(setting, 1)) as loopback,
        Program("pubsub_node", given("publisher", "loopback"), prefix(setting, 0)) as publisher,
    ):
        for node in (loopback, publisher):
            node.ready(run.stopped)
        start_ns = time.time_ns() + int(START_S * 1e9)
        for node in (loopback, publisher):
            node.tell({"start_ns": start_ns})
        told = publisher.next(within_s, run.stopped)
        heard = loopback.next(within_s, run.stopped)
    return row_of(run, part, told, heard)


def row_of(run: Run, part: Any, told: dict[str, Any], heard: dict[str, Any]) -> tuple[Row, Floats]:
    """The row, and the time between arrivals in ms.

    Drops by place, round trips from the publisher's send to the arrival there, and spacing at the loopback host.
    """
    cycles = run.counts["cycles"]
    sent = dict(told["sent"])
    round_trips = [(at - sent[value - 1]) / 1e6 for value, at in told["received"] if value - 1 in sent]
    figures, ci95 = spread(round_trips)
    arrivals = np.asarray([at for _, at in heard["received"]], np.float64)
    spacing_ms = np.diff(arrivals) / 1e6
    expected = len(heard["received"])
    lost = len(sent) - expected + len(heard["sent"]) - len(told["received"])
    wake_us = np.asarray([*told["wake_ns"], *heard["wake_ns"]], np.float64) / 1e3
    figures |= {
        "drop_publisher": 100 * told["late"] / cycles,
        "drop_loopback": 100 * heard["late"] / cycles,
        "drop_path": 100 * lost / cycles,
        "drop_sum": 100 * (cycles - len(told["received"])) / cycles,
        "cycles": figures["mean"] / part["cycle_ms"] if figures.get("mean") is not None else None,
        "jitter": 1000 * figures["sd"] if figures.get("sd") is not None else None,  # type: ignore[operator]
        "spacing_sd": float(spacing_ms.std()) if len(spacing_ms) else None,
        "wake_p99": float(np.percentile(wake_us, 99)),
        "octets": float(told["octets"]),
        "link": float(told["octets"] + FRAME_OCTETS),
        "physical": float(told["octets"] + FRAME_OCTETS + PHYSICAL_OCTETS),
    }
    case = dict(part["case"])
    name = "-".join(map(str, case.values())).replace(" ", "_")
    records = write_records(run.folder, name, ("counter", "sent_ns", "returned_ns"), _matched(told))
    write_records(run.folder, f"{name}-loopback", ("counter", "arrived_ns"), heard["received"])
    row = Row(case, len(round_trips), figures, ci95, records=records, values=round_trips)
    if not round_trips:
        row.status, row.reason = "failed", "no message came back"
    return row, spacing_ms


def _matched(told: dict[str, Any]) -> list[tuple[int, int, Any]]:
    """Each message that was sent, with the time of its return; empty if it did not."""
    returned = {value - 1: at for value, at in told["received"]}
    return [(counter, at, returned.get(counter, "")) for counter, at in told["sent"]]
