"""A program in a container, whatever holds it: its events, its signals, its end."""

import contextlib
import json
import os
import signal
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

from twinlink.testing import patience

UID = 1000680000  # as OpenShift gives one; no passwd entry knows it
DIE_WITH_US = ("setpriv", "--pdeathsig", "KILL")


class Program:
    """Runs from the start; its stdout holds events as JSON Lines (``--log /dev/stdout``).

    Args:
        command: becomes the parent of the container's first process, and ends with its exit code.
    """

    def __init__(self, command: Sequence[str]) -> None:
        read, write = os.pipe()
        os.fchown(write, UID, 0)  # as container runtimes do: else that user may not open /dev/stdout
        self.process = subprocess.Popen(
            [*DIE_WITH_US, *command], stdin=subprocess.DEVNULL, stdout=write, stderr=subprocess.PIPE
        )
        os.close(write)
        self._arrived = threading.Condition()
        self._open = 2  # of its pipes
        self.out: list[str] = []
        self._err: list[str] = []
        assert self.process.stderr
        pipes = ((os.fdopen(read, "rb"), self.out), (self.process.stderr, self._err))
        self._threads = [threading.Thread(target=self._collect, args=pipe, daemon=True) for pipe in pipes]
        for thread in self._threads:
            thread.start()

    def _collect(self, pipe: BinaryIO, lines: list[str]) -> None:
        with pipe:
            for line in pipe:
                with self._arrived:
                    lines.append(line.decode(errors="replace").rstrip("\n"))
                    self._arrived.notify_all()
        with self._arrived:
            self._open -= 1
            self._arrived.notify_all()

    @property
    def err(self) -> str:
        """What it has said to a person so far."""
        return "\n".join(self._err)

    def events(self, name: str) -> list[dict[str, Any]]:
        """Those of this name so far."""
        return [event for event in map(json.loads, list(self.out)) if event["event"] == name]

    def wait_for(self, name: str) -> dict[str, Any]:
        """The first event of this name, as soon as it has come."""
        with self._arrived:
            self._arrived.wait_for(lambda: self.events(name) or not self._open, patience())
        assert self.events(name), f"no event {name!r}; stderr: {self.err}"
        return self.events(name)[0]

    @property
    def first_pid(self) -> int:
        """Of the container's first process, as the host sees it."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        assert len(children) == 1, f"{len(children)} processes instead of one; stderr: {self.err}"
        return int(children[0])

    def send(self, number: signal.Signals) -> None:
        """To the container's first process, from outside, as a container runtime does."""
        os.kill(self.first_pid, number)

    def code(self) -> int:
        """Its exit code, once it ends."""
        try:
            code = self.process.wait(patience())
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it does not end; stderr: {self.err}") from None
        for thread in self._threads:
            thread.join(patience())
        return code

    def kill(self) -> None:
        """Whatever still runs."""
        if self.process.poll() is None:
            with contextlib.suppress(OSError, AssertionError):
                self.send(signal.SIGKILL)
            self.process.kill()
        self.code()
