"""What a recorder costs its link: ``python -m benchmarks.recorder [--rounds 30] [--whole 60]``.

A gNB sends on a schedule to a twin in another process.  In turns, neither, the gNB or the twin records to ``--folder``.
The order within a round is drawn by lot.  Printed are, for each rate, percentiles of the one-way delay and of the round
trip, each the median over the runs of a kind, and the ratio of the 99th to that without a recorder.  On a machine that
others use, ``chrt -f 10`` in front keeps their work out.  ``--whole`` then records slots of 71 KB at 2000 a second for
so many seconds, on one side after the other, and says what was left out.
"""

import argparse
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import twinlink
from twinlink.recording import Recorder, verify
from twinlink.testing import free_endpoint

SIDES = ("neither", "gnb", "twin")  # of which one records
TIMES = {"one_way": "twin", "rtt": "gnb"}  # and the side that sees them
PERCENTILES = (50, 90, 99)
PATIENCE_S = 30.0


class Load(NamedTuple):
    """What is sent."""

    rate: int
    octets: int

    def __str__(self) -> str:
        return f"{self.rate}/s of {self.octets:,} B"


LOADS = (Load(100, 10_000), Load(2000, 1_000), Load(2000, 71_232))
QUEUE_OCTETS = 256 * 1024 * 1024


class Side:
    """One end: records or not, and collects times."""

    def __init__(self, link: twinlink.Link) -> None:
        self.link, self.times_ns = link, list[int]()
        self._recorder: Recorder | None = None
        self._cpu_s = 0.0

    def begin(self, path: str | None) -> None:
        """A run begins; ``path``: record to it."""
        if path is not None:
            self._recorder = self.link.record(path, queue_octets=QUEUE_OCTETS, overwrite=True)
        self.times_ns.clear()
        self._cpu_s = time.process_time()

    def end(self) -> dict[str, Any]:
        """What was seen in it."""
        found: dict[str, Any] = {"cpu_s": time.process_time() - self._cpu_s, "times_ns": self.times_ns[:]}
        if self._recorder is not None:
            self._recorder.close()
            found |= {"recorded": self._recorder.stats(), "files": [str(path) for path in self._recorder.files]}
            self._recorder = None
        return found


def twin(endpoint: str) -> None:
    """The other process: obeys lines of stdin."""
    with twinlink.open("zeromq", listen=endpoint, node="twin") as link:
        side = Side(link)
        link.receiver("spectrum", handler=lambda message: side.times_ns.append(message.received_ns - message.sent_ns))
        print(flush=True)
        for line in sys.stdin:
            command = json.loads(line)
            if "begin" in command:
                side.begin(command["begin"])
                print(flush=True)
            else:
                print(json.dumps(side.end()), flush=True)


class Bench:
    """Both ends."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        endpoint = free_endpoint()
        command = [sys.executable, "-m", "benchmarks.recorder", "--twin", endpoint]
        self._twin = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._answer()
        self.link = twinlink.open("zeromq", connect=endpoint, node="gnb", send_timeout=PATIENCE_S)
        self._gnb = Side(self.link)
        self._sender = self.link.sender("spectrum", on_ack=lambda ack: self._gnb.times_ns.append(ack.rtt_ns))
        self.link.wait_ready(PATIENCE_S)

    def close(self) -> None:
        """End both."""
        self.link.close()
        assert self._twin.stdin
        self._twin.stdin.close()
        self._twin.wait()

    def _answer(self) -> Any:
        assert self._twin.stdout
        line = self._twin.stdout.readline()
        return json.loads(line) if line.strip() else None

    def _ask(self, **command: Any) -> Any:
        assert self._twin.stdin
        print(json.dumps(command), file=self._twin.stdin, flush=True)
        return self._answer()

    def run(self, load: Load, seconds: float, recording: str) -> dict[str, Any]:
        """One run: percentiles in ms, and what the recorder did."""
        paths = {side: str(self.folder / f"{side}.mcap") if side == recording else None for side in SIDES}
        self._ask(begin=paths["twin"])
        self._gnb.begin(paths["gnb"])
        payload, begun = os.urandom(load.octets), time.monotonic()
        for number in range(int(load.rate * seconds)):
            wait_s = begun + number / load.rate - time.monotonic()
            if wait_s > 0:
                time.sleep(wait_s)
            self._sender.send(payload)
        took_s = time.monotonic() - begun
        self._sender.flush(PATIENCE_S)
        of = {"gnb": self._gnb.end(), "twin": self._ask(end=True)}
        found: dict[str, Any] = {"took_s": took_s}
        for name, side in TIMES.items():
            found[name] = of[side]["times_ns"]
        found["cores"] = {side: round(one["cpu_s"] / took_s, 2) for side, one in of.items()}
        if recording in of:
            found |= {key: of[recording][key] for key in ("recorded", "files")}
        return found

    def clear(self) -> None:
        """Remove the recordings."""
        for path in self.folder.glob("*.mcap"):
            path.unlink()


def percentile_ms(times_ns: list[int], percent: int) -> float:
    """By nearest rank."""
    ordered = sorted(times_ns)
    return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)] / 1e6


def compare(bench: Bench, load: Load, rounds: int, seconds: float) -> None:
    """Print the figures of one load."""
    runs: dict[tuple[str, str], list[list[float]]] = {}
    left_out, cores = 0, dict[str, list[float]]()
    for _ in range(rounds):
        for side in random.sample(SIDES, len(SIDES)):
            found = bench.run(load, seconds, side)
            for name in TIMES:
                runs.setdefault((name, side), []).append([percentile_ms(found[name], of) for of in PERCENTILES])
            left_out += found.get("recorded", {}).get("left_out", 0)
            cores.setdefault(side, []).append(sum(found["cores"].values()))
            bench.clear()
    print(f"{load}, {rounds} runs of {seconds:g} s of each kind; {left_out} left out")
    for name in TIMES:
        medians = {side: [statistics.median(of) for of in zip(*runs[name, side], strict=True)] for side in SIDES}
        for side, found_ms in medians.items():
            text = "  ".join(f"p{of} {ms:7.3f}" for of, ms in zip(PERCENTILES, found_ms, strict=True))
            print(f"  {name:8} {side:8} {text} ms  x {found_ms[-1] / medians[SIDES[0]][-1]:.2f}")
    print("  cores, both processes:", {side: round(statistics.median(of), 2) for side, of in cores.items()}, flush=True)


def whole(bench: Bench, seconds: float) -> int:
    """Record every slot; returns how many were not."""
    missing = 0
    for side in SIDES[1:]:
        found = bench.run(LOADS[-1], seconds, side)
        counts = found["recorded"]
        reports = [verify(Path(path)) for path in found["files"]]
        missing += counts["left_out"] + counts["missing"] + sum(not report.complete for report in reports)
        print(
            f"{LOADS[-1]}, {seconds:g} s ({found['took_s']:.1f} s), {side} records: {counts}, "
            f"{'complete' if all(report.complete for report in reports) else 'not complete'}, "
            f"one-way p99 {percentile_ms(found['one_way'], 99):.2f} ms, cores {found['cores']}",
            flush=True,
        )
        bench.clear()
    return missing


def main() -> int:
    """Run the command; returns the exit code: 1 if something was not recorded."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=30, help="each of one run of every kind")
    parser.add_argument("--seconds", type=float, default=1.0, help="of each run")
    parser.add_argument("--whole", type=float, metavar="S", help="then record every slot for so long")
    parser.add_argument("--loads", type=int, nargs="*", default=range(len(LOADS)), help="which of the rates")
    parser.add_argument("--folder", type=Path, help="on the disk that is meant")
    parser.add_argument("--twin", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.twin:
        twin(given.twin)
        return 0
    folder = Path(tempfile.mkdtemp(prefix="recorder-", dir=given.folder))
    bench = Bench(folder)
    try:
        for number in given.loads if given.rounds else ():
            bench.run(LOADS[number], 1.0, "neither")
            compare(bench, LOADS[number], given.rounds, given.seconds)
        return int(given.whole is not None and whole(bench, given.whole) > 0)
    finally:
        bench.close()
        shutil.rmtree(folder)


if __name__ == "__main__":
    sys.exit(main())
