"""Runs: scenes that the RAN emulator plays to the exporter, recorded at the twin's side of the link."""

import shutil
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from twinlink_demo.child_process import ChildProcess

import twinlink
from twinlink.process.ports import free_ports

from . import scenes

PACE = 20  # times the recorded pace: 2000 records a second
PATIENCE_S = 120.0  # for the first start of the processes on a busy machine
STILL_S = 10.0  # without a further record after the emulator has played all
LOOK_S = 0.02
UNUSED = "digest", "state.prb-block"  # what an exporter sends besides


@dataclass(frozen=True, slots=True)
class Session:
    """A recording of several scenes, which the emulator played one behind the other; each is a run.

    Attributes:
        seeds: of the scenes.
        n_records: of each scene.
        recording: MCAP file of flow ``spectrum``.
        scenes: SigMF metadata that the emulator played: the truth of each record by its number.
    """

    seeds: tuple[int, ...]
    n_records: int
    recording: Path
    scenes: Path


def record(folder: Path, seeds: Sequence[int], seconds: float) -> Session:
    """Make the scenes of the seeds, play them, and record them.  Raises ChildFailed, TwinlinkError, OSError."""
    made = [scenes.make(seed, seconds) for seed in seeds]
    name = f"runs-{seeds[0]}-{seeds[-1]}"
    meta = scenes.write(folder / name, made)
    session = Session(tuple(seeds), len(made[0].samples), folder / f"{name}.mcap", meta)
    private = Path(tempfile.mkdtemp(prefix="twinlink-", dir="/tmp"))  # a UNIX socket's path has 107 octets at most
    try:
        _record(session, private)
    finally:
        shutil.rmtree(private, ignore_errors=True)
    return session


def _record(session: Session, private: Path) -> None:
    endpoint = f"tcp/127.0.0.1:{free_ports(2)}"
    sockets = [f"--{name}=ipc://{private}/{name}" for name in ("setup", "to-dapp", "from-dapp")]
    n_records, count, arrived = session.n_records * len(session.seeds), [0], threading.Event()

    def received(message: twinlink.Message) -> None:
        count[0] += 1
        if count[0] >= n_records:
            arrived.set()

    with (
        twinlink.open("zeromq", listen=endpoint, node="twin-1", identity="") as link,
        link.record(session.recording, flows=["spectrum"]),
    ):
        link.receiver("spectrum", handler=received)
        for flow in UNUSED:
            link.receiver(flow, handler=lambda message: None)
        of_emulator = ["--recording", str(session.scenes), f"--pace={PACE}", *sockets]
        parts = [start("exporter", "twinlink_exporter", ["--connect", endpoint, *sockets], private)]
        try:
            parts.append(start("emulator", "twinlink_ran_emulator", of_emulator, private))
            _wait(parts, arrived, count)
        finally:
            for part in reversed(parts):
                part.stop()


def start(name: str, module: str, arguments: list[str], folder: Path) -> ChildProcess:
    """Start a program, whose log and output go to a folder.  Raises ChildFailed."""
    return ChildProcess(name, module, arguments, folder / f"{name}.jsonl", folder / f"{name}.txt")


def _wait(parts: list[ChildProcess], arrived: threading.Event, count: list[int]) -> None:
    """Wait for all records, or until none comes any more: what is missing is found, and said, in the recording."""
    emulator, played = parts[1], False
    before, since = -1, time.monotonic()
    while not arrived.wait(LOOK_S):
        for part in parts:
            part.check()
        played = played or any(event["event"] == "done" for event in emulator.events())
        if count[0] != before:
            before, since = count[0], time.monotonic()
        if time.monotonic() - since > (STILL_S if played else PATIENCE_S):
            if not played:
                raise emulator.failed(f"played nothing for {PATIENCE_S:.0f} s")
            return
