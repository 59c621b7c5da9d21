"""From seen to on air in a demo, and how much of it the twin's trial was: ``python -m benchmarks.on_air demo-out``.

Seen is when the exporter took the record from E3 that led to the decision; on air, when the block arrived at the RAN
emulator, whose next record has it.  Both are processes of one machine, with one clock.  Renewals are decisions, too;
ends of blocks are not tried, and are left out.
"""

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

MS = 1_000_000


def events(path: Path, name: str) -> Iterator[dict[str, Any]]:
    """Of a log, in order."""
    for line in path.read_text(encoding="utf-8").splitlines():
        event = json.loads(line)
        if event["event"] == name:
            yield event


def spans_ms(folder: Path) -> list[tuple[float, float]]:
    """Of each block: from seen to on air, and of that the trial."""
    log = folder / "replay.jsonl"
    with np.load(folder / "twin" / "observations.npz") as recorded:
        observed_ns, analysed_ns = recorded["observed_ns"], recorded["analysed_ns"]
    trials = list(events(log, "block-tried"))
    arrivals = list(events(folder / "emulator.jsonl", "control"))
    spans = []
    for block in events(log, "proposed"):
        if not block["prbs"]:
            continue
        issued_ns = block["time_ns"]
        tried = next((one for one in trials if one["id"] == block["id"] and one["time_ns"] >= issued_ns), None)
        arrived = next((one for one in arrivals if one["prbs"] == block["prbs"] and one["time_ns"] >= issued_ns), None)
        seen = int(np.searchsorted(analysed_ns, issued_ns, side="right")) - 1
        if tried is None or arrived is None or seen < 0:
            continue
        spans.append(((arrived["time_ns"] - int(observed_ns[seen])) / MS, tried["length_ns"] / MS))
    return spans


def main(argv: list[str] | None = None) -> int:
    """Print a line a transport; 1 if a run has no block."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.on_air", description=__doc__)
    parser.add_argument("folder", type=Path, help="of `twinlink demo`")
    given = parser.parse_args(argv)
    folders = sorted(path.parent for path in given.folder.glob("*/replay.jsonl"))
    if not folders:
        parser.error(
            f"{given.folder} holds no run of a demo (zeromq/replay.jsonl): make one by `twinlink demo --out DIR`"
        )
    complete = True
    for folder in folders:
        spans = np.array(spans_ms(folder)).reshape(-1, 2)
        complete &= len(spans) > 0
        if not len(spans):
            print(f"{folder.name}: no block was tried and came on air")
            continue
        said = [
            f"{name} p50 {np.median(column):.1f} ms, p99 {np.percentile(column, 99):.1f} ms, most {column.max():.1f} ms"
            for name, column in zip(("seen to on air", "the trial"), spans.T, strict=True)
        ]
        share = spans[:, 1].sum() / spans[:, 0].sum()
        print(f"{folder.name}: {len(spans)} blocks; {'; '.join(said)}; {share:.0%} of the time")
    return 0 if complete else 1


if __name__ == "__main__":
    sys.exit(main())
