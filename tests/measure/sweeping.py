"""A sweep without its command, with injected errors."""

import contextlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from twinlink_measure.cells import Plan
from twinlink_measure.setting import Loopback, Pair, Setting
from twinlink_measure.sweep import Sweep
from twinlink_results.run import Run

from twinlink.appkit import records


class Watched(Loopback):
    """Loopback that remembers the workers it started."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.pairs: list[Pair] = []

    def start(self) -> Pair:
        pair = super().start()
        self.pairs.append(pair)
        return pair


def measure(
    folder: Path,
    plan: Plan,
    setting: Setting | None = None,
    step: Callable[..., None] = lambda *_: None,
    stopped: Callable[[], bool] = lambda: False,
    say: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """Sweep; returns the run.json that it wrote."""
    content: dict[str, Any] = {
        "started_ns": 0,
        "ended_ns": None,
        "complete": False,
        "configuration": {"given": {}, "used": {}},
        "system": {},
        "idle_rtt_ns": {},
        "mgen": None,
    }
    with setting or Loopback() as entered:
        Sweep(plan, entered, Run(folder, content), step, stopped, say).execute()
    return dict(json.loads((folder / "run.json").read_text()))


def table(folder: Path, cell: dict[str, Any], side: str) -> records.Table:
    """The records of a cell; ``side`` is ``sent`` or ``received``."""
    return records.read(folder / "records" / f"{cell['id']}.{side}.csv.gz")


def processes() -> dict[int, int]:
    """Process id and parent of every running process, without ps, which a bare machine lacks."""
    found = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            state, parent = stat.read_text().rpartition(")")[2].split()[:2]
            if state != "Z":
                found[int(stat.parent.name)] = int(parent)
    return found


def children(pid: int) -> list[int]:
    """The running children of a process."""
    return [child for child, parent in processes().items() if parent == pid]
