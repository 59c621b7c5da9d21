"""How busy a host is with other work, sampled while the sweep itself does nothing.

Delays of a host whose processors are taken are those of its scheduler.  The load average alone would not show it: it
lags by a minute, and after a round it contains the sweep's own processes.
"""

import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

SAMPLE_S = 0.3
BUSY = 0.25  # share of the processors from which on a host counts as busy: half of one of two
ONE_HOST = "both"  # the side of a sample where both sides run on one host
_NAMES = {"real_world": "Real World", "digital_twin": "Digital Twin"}
_IDLE, _IOWAIT = 3, 4  # columns of /proc/stat, proc(5)


def sample() -> dict[str, Any]:
    """The share of this process's processors that others use, and the load average; takes `SAMPLE_S`.

    Returns ``at_ns`` (Unix time), ``busy`` (0 to 1; None where it is not known), ``load_1min`` and ``cpus``.
    """
    before = _ticks()
    time.sleep(SAMPLE_S)
    after = _ticks()
    busy = None
    if before and after and (total := after[1] - before[1]) > 0:
        busy = round(min(max((after[0] - before[0]) / total, 0.0), 1.0), 3)
    return {
        "at_ns": time.time_ns(),
        "busy": busy,
        "load_1min": round(os.getloadavg()[0], 2),
        "cpus": len(os.sched_getaffinity(0)),
    }


def _ticks() -> tuple[int, int] | None:
    """Busy and all clock ticks of the processors that this process may use."""
    names = {f"cpu{number}" for number in os.sched_getaffinity(0)}
    busy = total = 0
    try:
        for line in Path("/proc/stat").read_text().splitlines():
            name, *fields = line.split()
            if name in names:
                ticks = [int(field) for field in fields[:8]]  # guests are in the user's already
                total += sum(ticks)
                busy += sum(ticks) - ticks[_IDLE] - ticks[_IOWAIT]
    except (OSError, ValueError, IndexError):
        return None
    return busy, total


def is_busy(taken: dict[str, Any], first: bool) -> bool:
    """Whether a sample shows other work.  Only a run's ``first`` one has a load average without the sweep's own."""
    return (taken["busy"] or 0.0) >= BUSY or (first and taken["load_1min"] > taken["cpus"])


def warning(samples: Iterable[dict[str, Any]]) -> str:
    """A sentence about each host that was busy, from the samples of a run (``load`` of run.json); empty if none was."""
    by_side: dict[str, list[dict[str, Any]]] = {}
    for each in samples:
        by_side.setdefault(each["side"], []).append(each)
    told = []
    for side, taken in by_side.items():
        if not any(is_busy(each, number == 0) for number, each in enumerate(taken)):
            continue
        host = "The machine" if side == ONE_HOST else f"The host of the {_NAMES[side]}"
        text = f"{host} was busy with other work: load average {taken[0]['load_1min']:g} before the first round"
        shares = [f"{100 * each['busy']:.0f} %" for each in taken if each["busy"] is not None]
        if shares:
            most = max(each["busy"] or 0.0 for each in taken)
            after = f", {shares[-1]} after the last" if len(shares) > 1 else ""
            text += f", {shares[0]} of its {taken[0]['cpus']} processors taken{after}, at most {100 * most:.0f} %"
        told.append(f"{text}.")
    if told:
        told.append("The figures hold for that load only. Measure again when the machine is idle.")
    return " ".join(told)
