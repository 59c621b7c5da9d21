"""The model over the link: emulator, exporter, and the dApp with the model as its policy, at the recorded pace."""

import shutil
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from twinlink_demo.child_process import ChildProcess, parse_events
from twinlink_ran_emulator import recording as played

from twinlink.process.ports import free_ports

from . import runs, scenes

PATIENCE_S = 120.0
AFTER_S = 0.5  # for what is under way
LOOK_S = 0.05


@dataclass(frozen=True, slots=True)
class Sides:
    """The folders of the identities of both sides, which trust each other."""

    twin: Path
    gnb: Path


def run(
    folder: Path, model: Path, sides: Sides, seed: int, seconds: float, options: Sequence[str] = ()
) -> dict[str, Any]:
    """Play the scene of a seed; returns what the dApp says of its model, and what was blocked, by the truth.

    Args:
        folder: is made; gets the logs, and what the emulator played.
        model: signed, for the dApp.
        sides: identities.
        seed, seconds: of the scene.
        options: further ones of the dApp.

    Raises ChildFailed, OSError.
    """
    folder.mkdir(parents=True)
    scene = scenes.write(folder / "scene", [scenes.make(seed, seconds)])
    private = Path(tempfile.mkdtemp(prefix="twinlink-", dir="/tmp"))  # a UNIX socket's path has 107 octets at most
    try:
        _play(folder, scene, private, model, sides, options)
    finally:
        shutil.rmtree(private, ignore_errors=True)
    return _described(folder, scene)


def _play(folder: Path, scene: Path, private: Path, model: Path, sides: Sides, options: Sequence[str]) -> None:
    endpoint = f"tcp/127.0.0.1:{free_ports(2)}"
    sockets = [f"--{name}=ipc://{private}/{name}" for name in ("setup", "to-dapp", "from-dapp")]
    of_dapp = ["--listen", endpoint, "--identity", str(sides.twin), "--model", str(model), *options]
    of_exporter = ["--connect", endpoint, "--identity", str(sides.gnb), *sockets]
    parts: dict[str, ChildProcess] = {}
    try:
        parts["dapp"] = runs.start("dapp", "examples.train.dapp", of_dapp, folder)
        parts["exporter"] = runs.start("exporter", "twinlink_exporter", of_exporter, folder)
        _wait(parts, "exporter", "peer-up")
        of_emulator = ["--recording", str(scene), "--heard", str(folder / "heard"), *sockets]
        parts["emulator"] = runs.start("emulator", "twinlink_ran_emulator", of_emulator, folder)
        _wait(parts, "emulator", "done")
        time.sleep(AFTER_S)
    finally:
        for name in ("dapp", "exporter", "emulator"):  # in the direction of the data, so that no side is missed
            if name in parts:
                parts[name].stop()


def _wait(parts: dict[str, ChildProcess], name: str, event: str) -> None:
    """Until a process has logged an event.  Raises ChildFailed if one ends, or nothing is logged for long."""
    until = time.monotonic() + PATIENCE_S
    while True:
        for part in parts.values():
            part.check()
        seen = parts[name].events()
        if any(one["event"] == event for one in seen):
            return
        until = time.monotonic() + PATIENCE_S if seen else until
        if time.monotonic() > until:
            raise parts[name].failed(f"did not log {event} within {PATIENCE_S:.0f} s")
        time.sleep(LOOK_S)


def _taken_back_ms(events: Sequence[dict[str, Any]]) -> float | None:
    """From the roll-back of a live model until the end of its block had left; None where none stood."""
    rolled_back = [event["time_ns"] for event in events if event["event"] == "policy-rolled-back"]
    ends = [event for event in events if event["event"] == "taken-back" and "the model is" in event["reason"]]
    return round((ends[0]["time_ns"] - rolled_back[0]) / 1e6, 3) if rolled_back and ends else None


def _described(folder: Path, scene: Path) -> dict[str, Any]:
    events = parse_events((folder / "dapp.jsonl").read_bytes())
    truth = played.read(scene)
    with np.load(folder / "heard" / "heard.npz") as heard:
        blocked = heard["blocked"]
    interfered, ue = truth.interferer[: len(blocked)] > 0, truth.ue[: len(blocked)]
    last = {event["event"]: event for event in events}
    said = {key: value for key, value in last.get("policy", {}).items() if key not in ("event", "time_ns")}
    changes = [event for event in events if event["event"] in ("policy-live", "policy-rolled-back")]
    return {
        "policy": said,
        "changes": [
            {"event": one["event"], "reason": one.get("reason", ""), "why": one.get("why", "")} for one in changes
        ],
        "records": len(blocked),
        "interfered_with_ue": int((interfered & ue & ~blocked).sum()),
        "blocked_interfered": int((blocked & interfered).sum()),
        "blocked_clean": int((blocked & ~interfered).sum()),
        "refused_in_the_twin": sum(event["event"] == "block-refused" for event in events),
        "taken_back_ms": _taken_back_ms(events),
        "proposed": last.get("summary", {}).get("proposed"),
        "installed": last.get("summary", {}).get("installed"),
    }
