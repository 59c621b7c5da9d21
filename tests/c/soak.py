"""Slots of C senders to Python twins through faults: ``python -m tests.c.soak SECONDS SLOTS_A_SECOND``, as root.

Two network namespaces, slots of 71 KB.  In turns: a partition, a twin and a sender that are killed and start anew.
Each slot must be delivered or named, by the sender's ledger or by the twin's gaps.  Prints the outcome as JSON:

- ``offered``: slots of the sender that ended by itself, and of those that were killed, up to the last that arrived.
- ``delivered``, ``named``; ``twice``: a session's slots that one twin got more than once, or out of order.
- ``unnamed``: neither; ``held``: so many of them may have been acknowledged by a twin that was killed before it wrote
  them down.
"""

import json
import signal
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.c.building import SOURCES, build
from tests.c.recorder import RECORD
from tests.c.running import Program
from tests.faults.faults import Partition
from tests.faults.world import World

PORT = 7447
STEADY_S, CUT_S = 2.0, 2.5
HELD_BY_A_KILL = 64  # slots at most that a killed twin had acknowledged and not recorded yet
HOUR_S = 3600  # senders end when they are told to


@dataclass
class Place:
    """Where faults act, as `tests.faults.faults` has it."""

    world: World


def ended(program: Program, number: signal.Signals) -> None:
    """End it.

    Raises RuntimeError where it had ended before, or fails: its slots would count as those of one that was killed.
    """
    before = program.process.poll()
    code = program.end(number)
    if before is not None or code not in (0, -signal.SIGKILL):
        text = f"{program.process.args!r} was to run until {number.name}"
        raise RuntimeError(f"{text}: exit code {code}, {program.lines[-5:]}")


@dataclass
class Soak:
    """One run."""

    world: World
    folder: Path
    program: Path
    pace: float
    senders: list[Program] = field(default_factory=list)
    kills: int = 0
    faults: int = 0

    def __post_init__(self) -> None:
        self.twins: list[Path] = []
        self.twin = self._start_twin()
        self._start_sender()

    def _inside(self, name: str, *command: object) -> Program:
        return Program("ip", "netns", "exec", name, *command)

    def _start_twin(self) -> Program:
        self.twins.append(self.folder / f"twin-{len(self.twins)}")
        endpoint = f"tcp/{self.world.listener}:{PORT}"
        twin = self._inside(self.world.dt, sys.executable, "-m", "tests.c.recorder", endpoint, self.twins[-1])
        twin.wait_for("listening")
        return twin

    def _start_sender(self) -> None:
        sender = self._inside(self.world.rw, self.program, self.world.listener, PORT, HOUR_S, self.pace)
        sender.wait_for("peer_up")
        self.senders.append(sender)

    def partition(self) -> None:
        place: Any = Place(self.world)
        Partition().begin(place)
        time.sleep(CUT_S)
        Partition().end(place)

    def kill_twin(self) -> None:
        ended(self.twin, signal.SIGKILL)
        self.kills += 1
        self.twin = self._start_twin()

    def kill_sender(self) -> None:
        ended(self.senders[-1], signal.SIGKILL)
        self._start_sender()

    def run(self, seconds: float) -> None:
        begin = time.monotonic()
        while time.monotonic() - begin < seconds:
            for fault in (self.partition, self.kill_twin, self.kill_sender):
                time.sleep(STEADY_S)
                fault()
                self.faults += 1
        time.sleep(STEADY_S)
        ended(self.senders[-1], signal.SIGTERM)
        ended(self.twin, signal.SIGTERM)

    def outcome(self) -> dict[str, Any]:
        """What the module says."""
        delivered: dict[int, set[int]] = {}
        gaps: dict[int, set[int]] = {}
        twice = 0
        for path in self.twins:
            last: dict[int, int] = {}
            records = path.read_bytes()
            for kind, epoch, first, end in RECORD.iter_unpack(records[: len(records) // RECORD.size * RECORD.size]):
                if kind == b"G":
                    gaps.setdefault(epoch, set()).update(range(first, end))
                    continue
                twice += first <= last.get(epoch, -1)
                last[epoch] = first
                delivered.setdefault(epoch, set()).add(first)
        found = {"offered": 0, "delivered": 0, "named": 0, "unnamed": 0}
        for (epoch, arrived), sender in zip(delivered.items(), self.senders, strict=True):
            lines = [json.loads(line) for line in sender.lines if line.endswith("}")]
            lost = {one for line in lines if line.get("event") == "lost" for one in range(line["first"], line["end"])}
            stats = lines[-1] if "sent" in lines[-1] else {"sent": max(arrived) + 1}
            named = (lost | gaps.get(epoch, set())) - arrived
            offered = set(range(stats["sent"]))
            found["offered"] += len(offered)
            found["delivered"] += len(arrived & offered)
            found["named"] += len(named & offered)
            found["unnamed"] += len(offered - arrived - named)
        return {**found, "twice": twice, "held": HELD_BY_A_KILL * self.kills, "faults": self.faults}


def soak(seconds: float, pace: float) -> dict[str, Any]:
    """The outcome of one run."""
    with tempfile.TemporaryDirectory() as name, World("soak") as world:
        sources = (SOURCES / one for one in ("example.c", "twinlink_websocket.c", "twinlink.c"))
        program = build(Path(name) / "twinlink-slots", *sources, options=("-O2", "-pthread"))
        one = Soak(world, Path(name), program, pace)
        begin = time.monotonic()
        try:
            one.run(seconds)
        finally:
            for running in (one.twin, one.senders[-1]):
                running.end(signal.SIGKILL)
        took = time.monotonic() - begin
        outcome = one.outcome()
        return {**outcome, "seconds": round(took, 1), "delivered_a_second": round(outcome["delivered"] / took)}


if __name__ == "__main__":
    print(json.dumps(soak(float(sys.argv[1]), float(sys.argv[2])), indent=1))
