"""Programs in processes of their own, with their lines as they come."""

import signal
import subprocess
import sys
import threading
from pathlib import Path

from tests.c.building import ROOT
from twinlink.testing import patience

PATIENCE_S = patience(30)


class Program:
    """One program that runs.

    Attributes:
        lines: of its standard output so far.
    """

    def __init__(self, *command: object) -> None:
        self.process = subprocess.Popen(
            [str(one) for one in command],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        self.lines: list[str] = []
        self._arrived = threading.Condition()
        self._thread = threading.Thread(target=self._collect, daemon=True)
        self._thread.start()

    def _collect(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._arrived:
                self.lines.append(line.rstrip("\n"))
                self._arrived.notify_all()

    def wait_for(self, text: str, after: int = 0) -> None:
        """Return when a line that contains this has come, behind so many."""
        with self._arrived:
            found = self._arrived.wait_for(lambda: any(text in line for line in self.lines[after:]), PATIENCE_S)
        assert found, f"{text!r} did not come: {self.lines[-5:]}"

    def tell(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def send_signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Have it end; returns its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.wait()

    def wait(self) -> int:
        code = self.process.wait(PATIENCE_S)
        self._thread.join(PATIENCE_S)
        return code


def start_module(name: str, *arguments: object) -> Program:
    return Program(sys.executable, "-m", name, *arguments)


def start_slots(program: Path, host: str, port: int, seconds: float, pace: float) -> Program:
    return Program(program, host, port, seconds, pace)
