"""Runs the lab inside a virtual machine: `python -m tests.faults.guest [--folder F] -- <options of tests.faults.lab>`.

Its kernel has netem, and a clock to step (`twinlink_measure.guest`).
"""

import argparse
import shlex
import sys
import tempfile
import time
from pathlib import Path

from twinlink_measure.guest import machine
from twinlink_measure.guest.packages import GuestError

from .faults import MARK

LEDGERS = "/tmp/ledgers"  # in the machine's memory: its way to our disk is slow


def main() -> int:
    """Boot, and end with the lab's exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.guest", description=__doc__)
    parser.add_argument("--folder", type=Path, help="where the lab keeps the ledgers (a temporary folder)")
    parser.add_argument("--command", help="run this in the machine instead of the lab")
    parser.add_argument("--timeout", type=float, default=3600.0, help="seconds (3600)")
    parser.add_argument("lab", nargs="*", help="options of the lab, after --")
    given = parser.parse_args()
    folder = given.folder or Path(tempfile.mkdtemp(prefix="twinlab-guest-"))
    folder.mkdir(parents=True, exist_ok=True)
    lab = [sys.executable, "-m", "tests.faults.lab", "--out", LEDGERS, *given.lab]
    command = given.command or f"{shlex.join(lab)} || {{ code=$?; cp -r {LEDGERS} {machine.OUT}; exit $code; }}"
    began = time.monotonic()
    try:
        ended = machine.run(f"export {MARK}=1\n{command}", folder, timeout_s=given.timeout, memory="3G")
    except machine.GuestTimeout as error:
        print(error, file=sys.stderr)
        return 3
    except (OSError, GuestError) as error:
        print(error, file=sys.stderr)
        return 2
    print(f"{time.monotonic() - began:.0f} s; {ended.accelerator}; {folder}")
    return 3 if ended.code is None else ended.code


if __name__ == "__main__":
    sys.exit(main())
