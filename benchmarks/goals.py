"""The goals of this project, measured: `make bench`, or `python -m benchmarks.goals`.

Prints the figures and verdict of each goal, and writes goals.md and goals.json to --out.  docs/benchmarks.md explains
method and output.  Needs the extra `twinlink[measure]`, and root for the rows that need network namespaces.

Exit code: 0 when every row that can be measured was; 1 when one was not, or with --require when a goal was missed.
"""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from twinlink_measure.progress import Progress, duration
from twinlink_measure.worker_handle import Interrupted
from twinlink_results import system

from twinlink.appkit import convert
from twinlink.appkit.console import Stop, guarded, log

from .batches import BatchFloods
from .bench import Bench, Measurement
from .contest import FAILURES
from .coverage import Coverage
from .fanout import FanOut
from .floods import Goodput, SmallFloods
from .growth import Growth
from .machine import Machine, probe
from .offset import Offsets
from .recovery import Recoveries
from .repair import RepairCost
from .round_trips import RoundTrips
from .slots import Slots
from .stall import Stall
from .variation import Variation
from .verdict import GOALS, Part, Row, markdown, text
from .wire import WireOctets

NAME = "bench"
ROUNDS = 6  # the least number for a 95 % interval of a median
STALL_S = 10.0

MEASUREMENTS: tuple[type[Measurement], ...] = (
    RoundTrips, Goodput, SmallFloods, BatchFloods, FanOut, Growth, Slots, RepairCost, Recoveries, Stall, WireOctets,
    Offsets, Variation, Coverage,
)  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the selected goals, print and write the results."""
    parser = argparse.ArgumentParser(
        prog=NAME, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", type=_goals, default=tuple(GOALS), metavar="L1,G4", help="these goals; default all")
    parser.add_argument("--rounds", type=convert.whole(1), help=f"of fresh processes; default {ROUNDS}, quick 1")
    parser.add_argument("--quick", action="store_true", help="only to see that it works: the figures say nothing")
    parser.add_argument("--stall", type=convert.seconds, metavar="S", help=f"of G11; default {STALL_S:g}, quick 2")
    parser.add_argument("--out", type=Path, default=Path("bench-out"), metavar="DIR")
    parser.add_argument("--require", action="store_true", help="exit code 1 when a goal is missed, too")
    given = parser.parse_args(arguments)

    started, machine = time.time(), probe()
    with Stop() as stop, Progress(NAME) as progress:
        bench, parts = measure(given, machine, stop, progress)
    rows = [_row(bench, name, parts) for name in given.only]
    interrupted = stop.requested
    sys.stdout.write(f"{machine}\n{text(rows)}")
    _write(given, machine, rows, started, interrupted)
    met, judged = sum(row.met is True for row in rows), sum(row.met is not None for row in rows)
    log(NAME, f"{met} of {judged} goals that were measured are met; {duration(time.time() - started)}; {given.out}")
    incomplete = [row.name for row in rows if not row.complete]
    if interrupted:
        log(NAME, "interrupted")
    elif incomplete:
        log(NAME, f"not measured, or not all of it: {', '.join(incomplete)}")
    missed = given.require and any(row.met is False for row in rows)
    return 1 if incomplete or interrupted or missed else 0


def measure(given: argparse.Namespace, machine: Machine, stop: Stop, progress: Progress) -> tuple[Bench, list[Part]]:
    """Measure everything that the selected goals need, until the end is requested."""
    wanted = frozenset(given.only)
    needed = [made for made in (kind() for kind in MEASUREMENTS) if wanted & set(made.goals)]
    total, done = sum(one.seconds for one in needed), 0.0
    begun = time.monotonic()
    now = needed[0] if needed else None

    def step(what: str, share: float) -> None:
        at = (done + (now.seconds if now else 0.0) * share) / total
        left = (time.monotonic() - begun) * (1 - at) / at if at > 0.02 else None
        progress.step(what, at, left)

    rounds = given.rounds or (1 if given.quick else ROUNDS)
    stall_s = given.stall or (2.0 if given.quick else STALL_S)
    bench = Bench(wanted, rounds, given.quick, stall_s, machine, lambda: stop.requested, step)
    parts: list[Part] = []
    for now in needed:
        try:
            now.run(bench)
        except Interrupted:
            pass
        except FAILURES as error:
            for goal in wanted & set(now.goals):
                bench.missing(goal, str(error))
        found = [part for part in now.parts(bench) if part is not None and part.goal in wanted]
        parts += found
        done += now.seconds
        if stop.requested:
            break
    if stop.requested:
        for one in needed[needed.index(now) :] if now else ():
            for goal in wanted & set(one.goals):
                bench.missing(goal, "interrupted")
    return bench, parts


def _row(bench: Bench, name: str, parts: Sequence[Part]) -> Row:
    return Row(name, tuple(part for part in parts if part.goal == name), tuple(bench.reasons.get(name, ())))


def _write(given: argparse.Namespace, machine: Machine, rows: Sequence[Row], started: float, interrupted: bool) -> None:
    facts = system.facts()
    content: dict[str, Any] = {
        "format": "twinlink-goals",
        "version": 1,
        "started_ns": int(started * 1e9),
        "ended_ns": time.time_ns(),
        "interrupted": interrupted,
        "options": {name: str(value) if isinstance(value, Path) else value for name, value in vars(given).items()},
        "system": facts,
        "machine": machine.as_json(),
        "rows": [row.as_json() for row in rows],
    }
    versions = ", ".join(f"{name} {version}" for name, version in facts["versions"].items() if version)
    about = (
        f"{time.strftime('%Y-%m-%d %H:%M', time.localtime(started))}, {facts['cpus']} x {facts['cpu_model']}, "
        f"kernel {facts['kernel']}, Python {facts['python']}, load at the end {facts['load_1min']}; {versions}.  "
        f"On this machine, {machine}"
    )
    quick = " Quick: the figures say nothing." if given.quick else ""
    head = f"# Goals\n\n{about}.{quick} Ratios are medians over rounds, with their intervals (docs/benchmarks.md).\n\n"
    given.out.mkdir(parents=True, exist_ok=True)
    (given.out / "goals.json").write_text(json.dumps(content, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    (given.out / "goals.md").write_text(head + markdown(rows), encoding="utf-8")


def _goals(given: str) -> tuple[str, ...]:
    names = convert.parts(given.upper())
    unknown = [name for name in names if name not in GOALS]
    if unknown or not names:
        raise argparse.ArgumentTypeError(f"{given!r}: goals are {', '.join(GOALS)}, such as L1,G4")
    return tuple(name for name in GOALS if name in names)


if __name__ == "__main__":
    sys.exit(guarded(NAME, main))
