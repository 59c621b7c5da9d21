"""The real command, as a user starts it: in a process of its own, over real transports on free ports."""

import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from twinlink.testing import patience

PATIENCE_S = patience()
LONG_S = patience(500)  # for what starts many processes


class Run:
    """One run of the command, with stdout and stderr collected as they come."""

    def __init__(self, arguments: list[str], **kwargs: Any) -> None:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("TWINLINK_")}
        environment["TWINLINK_TIMEOUT"] = str(PATIENCE_S)  # where a test does not say, a busy machine may take its time
        environment |= kwargs.pop("env", {})
        command = [str(Path(sys.executable).with_name("twinlink")), *arguments]
        kwargs = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | kwargs
        self.process = subprocess.Popen(command, env=environment, **kwargs)
        self._arrived = threading.Condition()
        self._lines: dict[str, list[str]] = {"out": [], "err": []}
        self._threads = [
            threading.Thread(target=self._collect, args=(name, pipe), daemon=True)
            for name, pipe in (("out", self.process.stdout), ("err", self.process.stderr))
            if pipe is not None
        ]
        for thread in self._threads:
            thread.start()

    def _collect(self, name: str, pipe: Any) -> None:
        with pipe:
            for line in pipe:
                with self._arrived:
                    self._lines[name].append(line.decode(errors="replace").rstrip("\n"))
                    self._arrived.notify_all()

    @property
    def out(self) -> list[str]:
        return self._lines["out"]

    @property
    def err(self) -> str:
        return "\n".join(self._lines["err"])

    def wait_for(self, text: str, name: str = "err") -> None:
        """Return when a line with this text has come."""
        with self._arrived:
            found = self._arrived.wait_for(lambda: any(text in line for line in self._lines[name]), PATIENCE_S)
        assert found, f"{text!r} did not come; stdout {self.out}, stderr {self.err}"

    def interrupt(self) -> None:
        self.process.send_signal(signal.SIGINT)

    def code(self) -> int:
        """Wait for the end; no end may come with a traceback."""
        code = self.process.wait(LONG_S)
        for thread in self._threads:
            thread.join(PATIENCE_S)
        assert "Traceback" not in self.err
        return code

    def records(self) -> list[dict[str, Any]]:
        """Stdout as JSON Lines."""
        return [json.loads(line) for line in self.out]


Start = Callable[..., Run]


@contextlib.contextmanager
def runs_ended_by(number: signal.Signals) -> Iterator[Start]:
    """Gives what starts the command; what still runs at the end gets this signal, and is waited for."""
    runs: list[Run] = []

    def start(*arguments: str, **kwargs: Any) -> Run:
        runs.append(Run(list(arguments), **kwargs))
        return runs[-1]

    yield start
    for run in runs:
        if run.process.poll() is None:
            run.process.send_signal(number)
        run.code()


def no_more_than_1000_octets() -> None:
    """In a child: its files get no longer, as on a disk that is full."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
