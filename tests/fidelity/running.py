"""The emulator, an exporter that distorts, and the twin, as processes on private endpoints."""

import json
import math
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from twinlink.digest import WINDOW_NS
from twinlink.testing import free_endpoint, patience, wait_until


class Running:
    """All of them, from when the twin has compared its first window; ended by the end of the ``with`` block.

    Args:
        folder: for logs and the recordings ``twin.mcap`` and ``gnb.mcap``.
        transport: of the link.
        seed: of the distortion.
        exporter, emulator: more of their arguments.
        emulator_module: in place of the emulator.
    """

    def __init__(
        self,
        folder: Path,
        transport: str,
        seed: int,
        exporter: Sequence[str] = (),
        emulator: Sequence[str] = (),
        emulator_module: str = "twinlink_ran_emulator",
    ) -> None:
        self.folder = folder
        self._private = Path(tempfile.mkdtemp(prefix="fid-", dir="/tmp"))  # a socket's path has at most 107 octets
        endpoint = free_endpoint()
        e3 = [f"--{name}=ipc://{self._private}/{name}" for name in ("setup", "to-dapp", "from-dapp")]
        link = ["--transport", transport]
        self._processes: dict[str, subprocess.Popen[str]] = {}
        self._start("twin", "twinlink_replay", *link, "--listen", endpoint, f"--record={folder}/twin.mcap")
        options = ["--insecure-control", *link, "--connect", endpoint, *e3, f"--record={folder}/gnb.mcap", *exporter]
        self.exporter = self._start("gnb", "tests.fidelity.distorted_exporter", str(seed), *options)
        wait_until(lambda: self.events("peer-up") and self.events("peer-up", "gnb"))
        self._start("emulator", emulator_module, "--loop", "0", *e3, *emulator)
        wait_until(lambda: self.events("fidelity"))

    def distort(self, line: str) -> None:
        """Distort from now on; see `distorted_exporter`."""
        assert self.exporter.stdin
        self.exporter.stdin.write(f"{line}\n")
        self.exporter.stdin.flush()

    def events(self, name: str, process: str = "twin") -> list[dict[str, Any]]:
        """What a process has logged."""
        log = self.folder / f"{process}.jsonl"
        lines = log.read_text().split("\n")[:-1] if log.exists() else []
        return [event for event in map(json.loads, lines) if event["event"] == name]

    def windows_of(self, line: str, windows: int) -> list[dict[str, Any]]:
        """The scores of so many whole windows with a distortion, which goes on."""
        self.distort(line)
        return self.next_windows(windows)

    def next_windows(self, windows: int) -> list[dict[str, Any]]:
        """The scores of the next whole windows."""
        now_ns = time.time_ns() + WINDOW_NS // 20  # the line is on its way
        first_ns = now_ns - now_ns % WINDOW_NS + WINDOW_NS

        def found() -> list[dict[str, Any]]:
            return [event for event in self.events("fidelity") if event["window_ns"] >= first_ns]

        wait_until(lambda: len(found()) >= windows)
        return found()[:windows]

    def end(self) -> None:
        """End the emulator, the exporter and the twin, one after the other."""
        for process in reversed(self._processes.values()):
            process.send_signal(signal.SIGTERM)
            process.wait(patience())

    def _start(self, name: str, module: str, *arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", module, *arguments, "--log", str(self.folder / f"{name}.jsonl")]
        errors = (self.folder / f"{name}.txt").open("w")
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=errors, text=True)
        self._processes[name] = process
        return process

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._processes.values():
            if process.poll() is None:
                os.kill(process.pid, signal.SIGCONT)
                process.kill()
            process.wait()
        shutil.rmtree(self._private, ignore_errors=True)


def mean(scores: list[dict[str, Any]], name: str) -> float:
    """The mean of a part of some windows."""
    return math.fsum(score["parts"][name] for score in scores) / len(scores)
