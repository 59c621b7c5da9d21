"""The fault lab.

python -m tests.faults.lab --seeds 1-200 --transport zeromq,zenoh    schedules of faults, a row for each
python -m tests.faults.lab --measure heal --count 50 --length 8      figures: heal, beyond, restart, down, ...
"""

import argparse
import os
import shutil
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from .faults import MARK
from .measures import MEASURES, Job
from .schedule import Schedule, draw, netem
from .trial import Broken, Outcome, run_seed
from .world import CannotBuild, why_not

EXIT_CANNOT = 2
SHOWN = 6  # findings of a run that are printed


def seeds(text: str) -> list[int]:
    """``1-200`` or ``3,7,20-25``."""
    found: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.faults.lab", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=seeds, default=seeds("1-20"), help="schedules to run (1-20)")
    parser.add_argument("--transport", default="zeromq,zenoh", help="on which (zeromq,zenoh)")
    parser.add_argument("--minutes", type=float, default=0.0, help="begin no run after so long (no limit)")
    parser.add_argument("--seconds", type=float, default=12.0, help="of faults in each run (12)")
    parser.add_argument("--netem", action="store_true", help="seeds are cells of the netem matrix (tests/faults/guest)")
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
    deadline = time.monotonic() + given.minutes * 60 if given.minutes else float("inf")
    jobs = [(seed, transport) for seed in given.seeds for transport in given.transport.split(",")]
    folders = [out / f"{transport}-{seed}-{number}" for number, (seed, transport) in enumerate(jobs)]
    print(f"{'seed':>5} {'transport':9} {'verdict':8} {'sent':>8} {'reported':>8} {'in doubt':>8}  faults", flush=True)
    totals = {"runs": 0, "failed": 0, "sent": 0, "reported": 0}

    def one(folder: Path, seed: int, transport: str) -> Outcome | None:
        if time.monotonic() > deadline:
            return None
        return run_seed(folder, transport, _schedule(seed, given), given.reliability)

    with ThreadPoolExecutor(given.jobs) as pool:
        running = {pool.submit(one, folder, *job): (folder, *job) for folder, job in zip(folders, jobs, strict=True)}
        for future in as_completed(running):
            folder, seed, transport = running[future]
            try:
                outcome = future.result()
            except (CannotBuild, Broken) as error:
                print(f"{seed:5} {transport:9} could not be run: {error}", flush=True)
                totals["failed"] += 1
                continue
            if outcome is not None:
                _row(seed, transport, outcome, given)
                if outcome.clean:
                    shutil.rmtree(folder)
                totals["runs"] += 1
                totals["failed"] += not outcome.clean
                totals["sent"] += outcome.verdict.sent
                totals["reported"] += outcome.verdict.reported
    print(
        f"{totals['runs']} of {len(jobs)} runs, {totals['failed']} failed; {totals['sent']} messages sent, "
        f"{totals['reported']} reported as gaps; ledgers of failed runs in {out}"
    )
    return 1 if totals["failed"] else 0


def measure(given: argparse.Namespace, out: Path) -> int:
    """Print the figures; they are judged by whoever reads them, the ledgers by the checker."""
    failed = False
    for name in given.measure:
        for transport in given.transport.split(","):
            job = Job(out / f"{name}-{transport}", transport, given.count, given.length, given.rate, given.reliability)
            for line in MEASURES[name](job):
                print(f"{transport:7} {line}", flush=True)
                failed = failed or "FINDINGS" in line or "BROKEN" in line
    return 1 if failed else 0


def _schedule(seed: int, given: argparse.Namespace) -> Schedule:
    return (netem if given.netem else draw)(seed, given.seconds)


def _row(seed: int, transport: str, outcome: Outcome, given: argparse.Namespace) -> None:
    verdict = outcome.verdict
    where = "guest --" if MARK in os.environ else "lab"
    doubt = verdict.died_with_sender + verdict.died_with_receiver
    said = "clean" if outcome.clean else "FAILED"
    lines = [
        f"{seed:5} {transport:9} {said:8} {verdict.sent:8} {verdict.reported:8} {doubt:8}  {_schedule(seed, given)}"
    ]
    if not outcome.clean:
        lines += [f"      {line}" for line in [outcome.broken, *map(str, verdict.findings[:SHOWN])] if line]
        if len(verdict.findings) > SHOWN:
            lines.append(f"      and {len(verdict.findings) - SHOWN} more")
        lines.append(
            f"      replay: .venv/bin/python -m tests.faults.{where} --seeds {seed} --transport {transport} "
            f"--seconds {given.seconds:g} --reliability {given.reliability}{' --netem' if given.netem else ''}"
        )
    print("\n".join(lines), flush=True)


if __name__ == "__main__":
    sys.exit(main())
