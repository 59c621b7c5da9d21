"""What is injected into a sweep, and what its figures show: delay, scan cycle and polls of every raw subject.

`python -m benchmarks.truths` sweeps 100 B over a path of 40 ms each way, then with servers whose sweep takes 100 ms,
then with polls each 50 ms.  Each figure should be what the subject states, within `WITHIN`: what is beyond it is
processor time, and so depends on the load of the machine.  It needs root and the extras industrial, mqtt and websocket,
takes five minutes, and ends with code 1 if a figure is off.
"""

import argparse
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from twinlink_measure.channels import SUBJECTS
from twinlink_results import results
from twinlink_results.text_columns import aligned

WITHIN = 0.02
DELAY_MS, SWEEP_MS, POLL_MS = 40, 100, 50
RAW = tuple(name for name, subject in SUBJECTS.items() if name.startswith("raw-") and not subject.cable)
Cell = dict[str, Any]


@dataclass(frozen=True)
class Truth:
    """What is injected.

    Attributes:
        name: of the folder of its sweep.
        what: for the table.
        arguments: of the sweep.
        expected_ms: what a cell's figure should be; None if the truth does not show there.
        figure: of a cell's statistics, in ns.
    """

    name: str
    what: str
    arguments: tuple[str, ...]
    expected_ms: Callable[[Cell], float | None]
    figure: Callable[[Any], float]


def main() -> int:
    """Sweep, print the table, and judge."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("truths-out"), help="new folder for the sweeps")
    out = parser.parse_args().out
    found = [row for truth in _truths() for row in _rows(truth, out / truth.name)]
    for line in aligned(["injected", "subject", "", "stated", "measured", "off %"], [row for row, _ in found], 3):
        print(line)
    return 0 if all(good for _, good in found) else 1


def _truths() -> Iterator[Truth]:
    yield Truth(
        "delay",
        f"{DELAY_MS} ms each way",
        ("--subjects", ",".join(RAW), "--delay", str(DELAY_MS), "--count", "40"),
        lambda cell: float(cell["round_trips"] * 2 * DELAY_MS),
        _rtt,
    )
    yield Truth(
        "sweep",
        f"sweep of {SWEEP_MS} ms",
        (*_with_options({"sweep_ms": SWEEP_MS}), "--count", "40"),
        # To connect takes a round trip of the path, and no sweep.
        lambda cell: cell["round_trips"] / (2 if cell["subject"] == "raw-http-new" else 1) * SWEEP_MS,
        _rtt,
    )
    yield Truth(
        "polls",
        f"polls each {POLL_MS} ms",
        (*_with_options({"poll_ms": POLL_MS, "publishing_ms": POLL_MS}), "--count", "200"),
        lambda cell: POLL_MS / 2 if cell["direction"] == "dt-rw" else None,
        lambda statistics: statistics["one_way_delay_ns"]["mean"],
    )


def _rtt(statistics: Any) -> float:
    return float(statistics["rtt_ns"]["p50"])


def _with_options(options: dict[str, int]) -> Iterator[str]:
    """Every subject that has one of the options, with its value."""
    given = {name: [each for each in options if each in SUBJECTS[name].settable] for name in RAW}
    yield from ("--subjects", ",".join(name for name, each in given.items() if each))
    for name, each in given.items():
        for option in each:
            yield from ("--option", f"{name}.{option}={options[option]}")


def _rows(truth: Truth, folder: Path) -> Iterator[tuple[list[str], bool]]:
    """The rows of a sweep, and whether each is as it should be."""
    command = ["sweep", *truth.arguments, "--payloads", "100", "--rounds", "1", "--warm-up", "3", "--out", str(folder)]
    code = subprocess.run(
        [sys.executable, "-m", "twinlink", *command], stdout=subprocess.DEVNULL, check=False
    ).returncode
    if code > 1:  # 1: a cell is not finished, which its row says
        raise SystemExit(code)
    found, _ = results.compute(folder, results.load(folder))
    for cell in found["cells"]:
        expected_ms = truth.expected_ms(cell)
        if expected_ms is None:
            continue
        row = [truth.what, cell["subject"], cell["direction"], f"{expected_ms:.1f}"]
        if cell["status"] != "done":
            yield [*row, cell["status"], ""], False
            continue
        measured_ms = truth.figure(cell["statistics"]) / 1e6
        off = measured_ms / expected_ms - 1
        yield [*row, f"{measured_ms:.1f}", f"{100 * off:+.1f}"], abs(off) <= WITHIN


if __name__ == "__main__":
    sys.exit(main())
