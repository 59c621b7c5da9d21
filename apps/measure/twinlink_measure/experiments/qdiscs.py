"""Cyclic OPC UA PubSub over queueing disciplines, in a guest with Debian's kernel (twinlink_measure.guest).

Keys of a part beside those of `pubsub`: ``qdisc`` of both hosts, and ``bridge``, that of a bridge's ports (names of
`qdisc`); ``rate_mbit`` of each device, ``cross_mbit`` of the traffic beside the publisher's (Mbit/s); ``idleslope`` of
CBS, as a multiple of the need; ``window_ms`` of TAPRIO, from ``offset_ms`` on.
"""

import json
import math
import shlex
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from twinlink_results.run import RECORDS

from ..guest import machine, packages
from .measuring import Run
from .outcome import Row, failed
from .pubsub import SPACING, Floats, chosen, draw_spacing, row_of
from .qdisc import TAPRIO
from .qdisc_program import FACTS

TIMEOUT_S = 870.0
NICENESS = -20  # in place of the paper's isolated processors: other work of this machine stops the guest less
HARDWARE = "PTP and LaunchTime: no hardware here. Both hosts have the same clock, and ETF releases in software"
_PLAN = "plan.json"
_STANDSTILL_S = 0.2  # which a row must not hide: it adds whole cycles to round trips
_LEAST_CROSS = 0.9  # share of the cross traffic that is as good as all of it
_LAST_LINES = 3  # of the console, in an error


def measure(run: Run) -> list[Row]:
    """Measure each part.  Raises GuestError or OSError."""
    parts = chosen(run)
    with tempfile.TemporaryDirectory(prefix="twinlink-guest-") as name:
        folder = Path(name)
        why_not = _run_guest(run, parts, folder)
        rows: list[Row] = []
        spacings: dict[str, Floats] = {}
        for number, part in enumerate(parts):
            path = folder / f"{number}.json"
            found = json.loads(path.read_text()) if path.exists() else {"error": why_not}
            if "error" not in found:
                row, spacing_ms = row_by_place(run, part, found)
                rows.append(row)
                if part["case"]["table"] == parts[0]["case"]["table"]:
                    spacings[run.experiment.case(part["case"])] = spacing_ms - part["cycle_ms"]
            elif not run.stopped():
                rows.append(failed(dict(part["case"]), found["error"]))
        facts = json.loads((folder / FACTS).read_text()) if (folder / FACTS).exists() else None
    if any(map(len, spacings.values())):
        draw_spacing(run.folder / SPACING, spacings)
        run.figures[SPACING] = "Time between arrivals at the loopback host, less the cycle, as ECDF"
    if facts:
        run.notes.extend([f"The guest has Linux {facts['kernel']}", facts["latency"]])
    run.notes.append(HARDWARE)
    return rows


def _run_guest(run: Run, parts: Sequence[Any], folder: Path) -> str:
    """Measure in the guest; returns why a part has no result."""
    try:
        cyclictest = packages.cyclictest()
    except packages.GuestError as error:
        cyclictest = None
        run.say(str(error))
    plan = {"parts": parts, "cycles": run.counts["cycles"], "cyclictest": cyclictest}
    (folder / _PLAN).write_text(json.dumps({**plan, "bridged": "bridge" in parts[0]}))
    given = json.dumps({"plan": f"{machine.OUT}/{_PLAN}", "out": machine.OUT})
    command = shlex.join([sys.executable, "-m", f"{__package__}.qdisc_program", given])
    console: list[str] = []

    def on_line(line: str) -> None:
        if line.startswith('{"part"'):
            number = json.loads(line)["part"]
            run.step(run.experiment.case(parts[number]["case"]), number / len(parts), None)
        else:
            console.append(line)

    run.step("the guest starts", 0, None)
    try:
        ended = machine.run(
            command, folder, timeout_s=TIMEOUT_S, niceness=NICENESS, on_line=on_line, stopped=run.stopped
        )
    except machine.GuestTimeout as error:
        run.notes.append(f"{error}: what was measured until then is shown")
        return str(error)
    if (folder / FACTS).exists():
        how = "run by KVM" if ended.accelerator == machine.KVM else "emulated by qemu (TCG), as KVM runs no guest here"
        run.notes.append(f"The guest's two processors are {how}")
    last = " | ".join(console[-_LAST_LINES:])
    return f"the guest ended with code {ended.code} before this part; its last lines: {last}"


def row_by_place(run: Run, part: Any, found: dict[str, Any]) -> tuple[Row, Floats]:
    """As `row_of`, with drops by place and times of arrival at the loopback host.

    What is lost between two places is dropped by the queueing discipline of the first: cables lose nothing.
    """
    told, heard = found["publisher"], found["loopback"]
    row, spacing_ms = row_of(run, part, told, heard)
    sent, back = dict(told["sent"]), dict(heard["sent"])
    reached = [len(heard["received"]), len(told["received"])]  # the other host
    through = found["at_bridge"] or reached
    share = 100 / run.counts["cycles"]
    row.figures |= {
        "drop_publisher": share * (told["late"] + len(sent) - through[0]),
        "drop_bridge": share * (sum(through) - sum(reached)) if found["at_bridge"] else None,
        "drop_loopback": share * (heard["late"] + len(back) - through[1]),
    }
    del row.figures["drop_path"]
    row.figures["cross_mbit"] = sent_mbit = found.get("sent_mbit")
    asked_mbit = min(part.get("cross_mbit", 0), part.get("rate_mbit", math.inf))  # a device takes no more than its rate
    if sent_mbit is not None and sent_mbit < _LEAST_CROSS * asked_mbit:
        told_mbit = f"{sent_mbit:.1f} in place of {asked_mbit} Mbit/s"
        run.notes.append(f"{run.experiment.case(part['case'])}: the cross traffic had {told_mbit}")
    cycle_ms = part["cycle_ms"]
    stood_s = max(*told["wake_ns"], *heard["wake_ns"], 0) / 1e9
    if stood_s > _STANDSTILL_S:
        run.notes.append(f"{run.experiment.case(part['case'])}: the guest stood still for up to {stood_s:.1f} s")
    arrivals = [(value, (at - found["start_ns"]) / 1e6 - value * cycle_ms) for value, at in heard["received"]]
    phases = np.asarray([phase for _, phase in arrivals], np.float64)
    one_way = np.asarray([(at - sent[value]) / 1e6 for value, at in heard["received"] if value in sent], np.float64)
    if len(phases) and len(one_way):
        row.figures |= {
            "one_way_p50": float(np.percentile(one_way, 50)),
            "one_way_p99": float(np.percentile(one_way, 99)),
            "phase": float(np.median(phases)),
            "phase_sd": float(phases.std()),
            "in_window": 100 * _in_window(part, phases) if part["qdisc"] == TAPRIO else None,
        }
    (run.folder / RECORDS / f"{Path(row.records or '').name.removesuffix('.csv.gz')}-tc.txt").write_text(
        found["statistics"]
    )
    return row, spacing_ms


def _in_window(part: Any, phases_ms: Floats) -> float:
    """The share that arrived within the window of a cycle, its own or a later one."""
    after_opening = (phases_ms - part["offset_ms"]) % part["cycle_ms"]
    return float((after_opening <= part["window_ms"]).mean())
