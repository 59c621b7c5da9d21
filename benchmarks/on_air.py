"""From seen to on air in a demo, stage by stage: ``python -m benchmarks.on_air demo-out``.

The decisions are those of the twin's log (event `decision`, docs/decisions.md) that came on air; renewals, and ends of
blocks, are none.  Exporter, twin and RAN emulator are processes of one machine, with one clock.

| stage       | until                                                                                          |
|-------------|------------------------------------------------------------------------------------------------|
| `analysed`  | the twin's detector has answered of the record in which the interference was first found       |
| `due`       | the list of PRBs may change (`controller.SPACING_NS`), and a record leads to it                |
| `tried`     | the twin's model has answered: the trial                                                       |
| `sent`      | it is signed, if it is, and handed to the link                                                 |
| `installed` | the exporter has sent it to the RAN                                                            |
| `on air`    | the RAN has acknowledged it                                                                    |
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

MS = 1_000_000
STAGES = "analysed", "due", "tried", "sent", "installed", "on air"


def stories_ms(folder: Path) -> NDArray[np.float64]:
    """The length of each stage, of each decision: shape ``(decisions, stages)``."""
    with np.load(folder / "twin" / "observations.npz") as recorded:
        analysed_ns = dict(zip(recorded["observed_ns"].tolist(), recorded["analysed_ns"].tolist(), strict=True))
    decided_ns: dict[tuple[Any, ...], int] = {}
    rows: dict[str, NDArray[np.float64]] = {}  # by id: what is renewed in another part has come on air before
    for line in (folder / "replay.jsonl").read_text(encoding="utf-8").splitlines():
        event = json.loads(line)
        if event["event"] == "proposed":
            decided_ns.setdefault((event["id"], *event["prbs"]), event["time_ns"])
        elif event["event"] == "decision":
            times = {name: stage["time_ns"] for name, stage in event["stages"].items()}
            seen_ns, due_ns = times.get("seen"), decided_ns.get((event["id"], *event["prbs"]))
            passed = [analysed_ns.get(seen_ns), due_ns, *(times.get(name) for name in STAGES[2:])]
            if seen_ns is not None and None not in passed:
                rows.setdefault(event["id"], np.diff([seen_ns, *passed]) / MS)
    return np.array(list(rows.values()), np.float64).reshape(-1, len(STAGES))


def spread(values_ms: NDArray[np.float64]) -> str:
    """For a person."""
    p50_ms, p99_ms = np.percentile(values_ms, (50, 99), method="inverted_cdf")  # as the twin says it
    return f"p50 {p50_ms:5.1f}, p99 {p99_ms:5.1f}, most {values_ms.max():5.1f} ms"


def main(argv: list[str] | None = None) -> int:
    """Print the stages of each transport; 1 if in a run no decision came on air."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.on_air", description=__doc__)
    parser.add_argument("folders", type=Path, nargs="+", metavar="folder", help="of `twinlink demo`")
    given = parser.parse_args(argv)
    runs: dict[str, list[NDArray[np.float64]]] = {}
    for folder in given.folders:
        found = sorted(path.parent for path in folder.glob("*/replay.jsonl"))
        if not found:
            text = "holds no run of a demo (zeromq/replay.jsonl): make one by `twinlink demo --out DIR`"
            parser.error(f"{folder} {text}")
        for run in found:
            runs.setdefault(run.name, []).append(stories_ms(run))
    for name, found_ms in runs.items():
        stories = np.concatenate(found_ms)
        if not len(stories):
            print(f"{name}: no decision came on air")
            continue
        print(f"{name}: {len(stories)} decisions; seen to on air {spread(stories.sum(axis=1))}")
        for stage, column in zip(STAGES, stories.T, strict=True):
            print(f"  {stage:9}  {spread(column)}")
    return 0 if all(len(one) for found_ms in runs.values() for one in found_ms) else 1


if __name__ == "__main__":
    sys.exit(main())
