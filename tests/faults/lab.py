"""The fault lab.

python -m tests.faults.lab --seeds 1-200 --transport zeromq,zenoh    schedules of faults, a row for each
python -m tests.faults.lab --seeds 301- --minutes 90                 from 301 on, until the time is over
python -m tests.faults.lab --tight --seeds 1-60                      small windows, slow handlers, late subscriptions
python -m tests.faults.lab --measure heal --count 50 --length 8      figures: heal, heal_one_way, beyond, restart, ...
"""

import argparse
import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor, wait
from itertools import chain, count
from pathlib import Path

from .faults import MARK
from .measures import MEASURES
from .measuring import Job
from .schedule import Schedule, draw, netem, tighten
from .tally import Tally
from .trial import Broken, Outcome, run_seed
from .verdict import Verdict
from .world import CannotBuild, why_not

EXIT_CANNOT = 2
SHOWN = 6  # findings of a run that are printed


def seeds(text: str) -> Iterable[int]:
    """``1-200`` or ``3,7,20-25``; ``301-`` never ends."""
    found: list[Iterable[int]] = []
    for part in text.split(","):
        first, dash, last = part.partition("-")
        found.append(count(int(first)) if dash and not last else range(int(first), int(last or first) + 1))
    return chain.from_iterable(found)


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.faults.lab", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=seeds, default="1-20", help="schedules to run; 301-: all from there (1-20)")
    parser.add_argument("--transport", default="zeromq,zenoh,websocket", help="on which (zeromq,zenoh,websocket,tcp)")
    parser.add_argument("--minutes", type=float, default=0.0, help="begin no run after so long (no limit)")
    parser.add_argument("--messages", type=int, default=0, help="begin no run when so many were sent (no limit)")
    parser.add_argument("--seconds", type=float, default=12.0, help="of faults in each run (12)")
    parser.add_argument("--connectors", type=int, default=1, help="nodes that connect to the one that listens (1)")
    parser.add_argument("--load", type=float, default=1.0, help="times the rates of the flows, up to 8 MB/s a run (1)")
    parser.add_argument("--tight", action="store_true", help="windows of 1 MiB, slow handlers, late subscriptions")
    parser.add_argument("--netem", action="store_true", help="seeds are cells of the netem matrix (tests.faults.guest)")
    parser.add_argument("--reliability", choices=["repair", "detect"], default="repair")
    parser.add_argument("--jobs", type=int, default=1, help="runs at the same time (1)")
    parser.add_argument("--out", type=Path, help="where ledgers of failed runs are kept (a temporary folder)")
    parser.add_argument("--measure", type=lambda text: text.split(","), metavar="NAME[,NAME]", help=", ".join(MEASURES))
    parser.add_argument("--count", type=int, default=10, help="repetitions in a measurement (10)")
    parser.add_argument("--length", type=float, default=4.0, help="seconds of each fault, or of the soak, in it (4)")
    parser.add_argument("--rate", type=float, default=200.0, help="messages/s of each flow in it (200)")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    """Run the schedules and print a row for each; 0 when all are clean."""
    given = parse(arguments)
    if reason := why_not():
        print(f"the fault lab cannot run: {reason}", file=sys.stderr)
        return EXIT_CANNOT
    if unknown := set(given.measure or ()) - set(MEASURES):
        print(f"no measurement {', '.join(sorted(unknown))}; there are {', '.join(MEASURES)}", file=sys.stderr)
        return EXIT_CANNOT
    out = given.out or Path(tempfile.mkdtemp(prefix="twinlab-"))
    if given.measure:
        return measure(given, out)
    print(f"{'seed':>5} {'transport':9} {'verdict':8} {'sent':>8} {'reported':>8} {'in doubt':>8}  faults", flush=True)
    tally = Tally()
    deadline = time.monotonic() + (given.minutes * 60 or float("inf"))
    jobs = ((seed, transport) for seed in given.seeds for transport in given.transport.split(","))
    turn = threading.Lock()
    interrupted = threading.Event()

    def work() -> None:
        while True:
            with turn:
                late = interrupted.is_set() or time.monotonic() > deadline
                enough = late or (given.messages and tally.sent >= given.messages)
                job = None if enough else next(jobs, None)
            if job is None:
                return
            seed, transport = job
            many = () if given.netem else (given.connectors,)
            schedule = (netem if given.netem else draw)(seed, given.seconds, given.load, *many)
            if given.tight:
                schedule = tighten(schedule)
            folder = _folder(out, f"{transport}-{seed}")
            try:
                outcome = run_seed(folder, transport, schedule, given.reliability)
            except (CannotBuild, Broken) as error:
                outcome = Outcome(Verdict(), [], [], f"could not be run: {error}")
            if interrupted.is_set():
                return  # so were its nodes, perhaps
            with turn:
                tally.add(schedule, transport, outcome)
                _row(schedule, transport, outcome, given)
            if outcome.clean:
                shutil.rmtree(folder)

    with ThreadPoolExecutor(given.jobs) as pool:
        workers = [pool.submit(work) for _ in range(given.jobs)]
        try:
            wait(workers)
        except KeyboardInterrupt:
            interrupted.set()
            print("interrupted: the runs under way are ended, and not counted", file=sys.stderr)
    print(tally)
    if tally.failed:
        print(f"ledgers of failed runs in {out}")
    for worker in workers:
        worker.result()  # raises the lab's own errors, which end a worker
    return 1 if tally.failed or not tally.seeds else 0


def measure(given: argparse.Namespace, out: Path) -> int:
    """Print the figures, for the reader to judge; the checker judges the ledgers."""
    failed = False
    for name in given.measure:
        for transport in given.transport.split(","):
            folder = _folder(out, f"{name}-{transport}")
            job = Job(folder, transport, given.count, given.length, given.rate, given.reliability)
            try:
                lines = MEASURES[name](job)
            except CannotBuild as error:
                print(f"{name} cannot be measured here: {error}", file=sys.stderr)
                return EXIT_CANNOT
            for line in lines:
                print(f"{transport:7} {line}", flush=True)
                failed = failed or "FINDINGS" in line or "BROKEN" in line
    return 1 if failed else 0


def _folder(out: Path, name: str) -> Path:
    """A new one, also for a run that was there before: ledgers are appended to."""
    out.mkdir(parents=True, exist_ok=True)
    return Path(tempfile.mkdtemp(prefix=f"{name}-", dir=out))


def _row(schedule: Schedule, transport: str, outcome: Outcome, given: argparse.Namespace) -> None:
    seed, verdict = schedule.seed, outcome.verdict
    where = "guest --" if MARK in os.environ else "lab"
    doubt = verdict.died_with_sender + verdict.died_with_receiver
    said = "clean" if outcome.clean else "FAILED"
    lines = [f"{seed:5} {transport:9} {said:8} {verdict.sent:8} {verdict.reported:8} {doubt:8}  {schedule}"]
    if not outcome.clean:
        lines += [f"      {line}" for line in [outcome.broken, *map(str, verdict.findings[:SHOWN])] if line]
        if len(verdict.findings) > SHOWN:
            lines.append(f"      and {len(verdict.findings) - SHOWN} more")
        lines.append(
            f"      replay: .venv/bin/python -m tests.faults.{where} --seeds {seed} --transport {transport} "
            f"--seconds {given.seconds:g} --load {given.load:g} --reliability {given.reliability}"
            f"{' --netem' if given.netem else f' --connectors {given.connectors}'}{' --tight' if given.tight else ''}"
        )
    print("\n".join(lines), flush=True)


if __name__ == "__main__":
    sys.exit(main())
