"""A PLC as the client of one or two others, by HTTP or Modbus: times of exchanges, and of its own cycles.

Keys of a part: ``protocol`` (``none``: no communication), ``firmware`` (`words_client`), ``servers`` (for each the
list of words of its requests), ``sweep_ms`` of the servers and ``processing_ms`` of the client, both lists; ``setup``:
a name for the case, ``cycles``: the times of the client's cycles are the values.
Counts: ``exchanges``; ``sweep_ms`` selects some.
"""

from contextlib import ExitStack
from itertools import product
from typing import Any

import numpy as np

from .description import Case
from .measuring import Run, address, port, prefix
from .outcome import Row, failed, of_values
from .program import Program, ProgramFailed

EXCHANGE_S = 30.0


def measure(run: Run) -> list[Row]:
    """Measure each part, with each sweep and processing time."""
    chosen = run.counts.get("sweep_ms")
    cases = [
        (part, sweep_ms, processing_ms)
        for part in run.experiment.parts
        for sweep_ms, processing_ms in product(part["sweep_ms"], part["processing_ms"])
        if chosen is None or sweep_ms in chosen
    ]
    rows: list[Row] = []
    with run.place() as setting:
        for number, (part, sweep_ms, processing_ms) in enumerate(cases):
            if run.stopped():
                break
            case: Case = {
                "setup": part.get("setup", "one server"), "words": sum(map(sum, part["servers"])),
                "sweep_ms": sweep_ms, "processing_ms": processing_ms, "protocol": part["protocol"],
            }  # fmt: skip
            run.step(run.experiment.case(case), number / len(cases), None)
            try:
                rows += _measure(run, setting, part, case)
            except ProgramFailed as error:
                rows.append(failed({**case, "server": "-"}, str(error)))
    return rows


def _measure(run: Run, setting: Any, part: Any, case: Case) -> list[Row]:
    protocol, servers = part["protocol"], part["servers"] if part["protocol"] != "none" else []
    # The servers are at the Digital Twin, the client at the Real World.
    ports = [port(setting) for _ in servers]
    given = {
        "protocol": protocol, "host": address(setting), "cycles_ms": case["processing_ms"],
        "firmware": part.get("firmware", False), "exchanges": run.counts["exchanges"],
        "servers": [{"port": at, "reads": reads} for at, reads in zip(ports, servers, strict=True)],
        **({"cycles": run.counts["exchanges"]} if part.get("cycles") else {}),
    }  # fmt: skip
    with ExitStack() as stack:
        for at, reads in zip(ports, servers, strict=True):
            plc = {
                "protocol": protocol, "host": address(setting), "port": at, "words": sum(reads),
                "sweep_ms": case["sweep_ms"],
            }  # fmt: skip
            stack.enter_context(Program("words_server", plc, prefix(setting, 1))).ready(run.stopped)
        client = stack.enter_context(Program("words_client", given, prefix(setting, 0)))
        lines, failure = client.until_done(EXCHANGE_S, run.stopped)
    times: dict[Any, list[float]] = {}
    for told in lines:
        if "cycle" in told:
            times.setdefault("cycle", []).append(told["cycle"])
        elif not part.get("cycles"):
            times.setdefault(told["server"], []).append(told["ms"])
    if failure and not times:
        raise ProgramFailed(failure)
    rows = []
    for which, values in sorted(times.items(), key=str):  # the servers in their order, whichever answered first
        name = "client's cycle" if which == "cycle" else f"PLC{which + 1}"
        late = {f"late_{limit}": 100 * float(np.mean(np.asarray(values) > limit)) for limit in (250, 700, 1000)}
        rows.append(of_values(run.folder, {**case, "server": name}, values, 0, late, failure))
    return rows
