"""A process of the demo, with its output and the events that it logs."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections import deque
from pathlib import Path
from typing import Any

from twinlink.errors import TwinlinkError

KILL_AFTER_S = 30.0  # a process must end within 2 s of SIGTERM; this allows for a busy machine
LAST_LINES = 8


class ChildFailed(TwinlinkError):
    """A process could not be started, died, or hangs; ``part`` is its name, ``last_lines`` the end of its output."""

    def __init__(self, part: str, reason: str, last_lines: list[str]) -> None:
        said = "".join(f"\n    {line}" for line in last_lines) or " nothing"
        super().__init__(f"the {part} {reason}; it said last:{said}")
        self.part = part
        self.reason = reason
        self.last_lines = last_lines


class ChildProcess:
    """A process of the demo, started at once.  Raises ChildFailed.

    Args:
        name: for messages.
        module: run as ``python -m module``.
        arguments: of the command.
        log: where it logs events (``--log`` is added).
        said: file for its stderr.
    """

    def __init__(self, name: str, module: str, arguments: list[str], log: Path, said: Path) -> None:
        self.name = name
        self.log, self.said = log, said
        self._taken = 0
        command = [sys.executable, "-m", module, *arguments, "--log", str(log)]
        # Variables for the demo's options have the names of those for its processes.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("TWINLINK_")}
        wrapper = [sys.executable, "-m", "twinlink_demo.parent_death", str(os.getpid())]
        try:
            with said.open("wb") as stderr:
                # In a process group of its own: on Ctrl-C the runner stops the processes in order.
                self._process = subprocess.Popen(
                    [*wrapper, *command],
                    stdin=subprocess.DEVNULL,
                    stdout=stderr,
                    stderr=stderr,
                    process_group=0,
                    env=environment,
                )
        except OSError as error:
            raise ChildFailed(name, f"could not be started ({error})", []) from error

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs; minus the signal's number if one ended it."""
        return self._process.poll()

    def events(self) -> list[dict[str, Any]]:
        """The events logged since the last call."""
        if not self.log.exists():
            return []
        with self.log.open("rb") as file:
            file.seek(self._taken)
            whole, newline, _ = file.read().rpartition(b"\n")
        self._taken += len(whole) + len(newline)
        return parse_events(whole)

    def failed(self, reason: str) -> ChildFailed:
        """The error for this reason, with the end of the output."""
        return ChildFailed(self.name, reason, last_lines(self.said))

    def check(self) -> None:
        """Raise ChildFailed if it has ended."""
        if (code := self.exit_code) is not None:
            raise self.failed(f"ended ({how_it_ended(code)}) while it was needed")

    def wait(self, seconds: float) -> bool:
        """Whether it has ended, after that long at most."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(max(0.0, seconds))
        return self.exit_code is not None

    def stop(self, patience_s: float = KILL_AFTER_S) -> int:
        """End it with SIGTERM, kill it if necessary; returns its exit code."""
        if self.exit_code is None:
            self._process.send_signal(signal.SIGTERM)
            if not self.wait(patience_s):
                self.kill()
        return self._process.wait()

    def kill(self) -> None:
        """End it at once."""
        if self.exit_code is None:
            self._process.kill()
            self._process.wait()


def parse_events(octets: bytes) -> list[dict[str, Any]]:
    """The events in JSON Lines, without a truncated last line."""
    found = []
    for line in octets.splitlines():
        with contextlib.suppress(ValueError, RecursionError):
            event = json.loads(line)
            if isinstance(event, dict) and "event" in event and "time_ns" in event:
                found.append(event)
    return found


def last_lines(path: Path) -> list[str]:
    """The end of a text file; empty without one."""
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return [line.rstrip() for line in deque(file, LAST_LINES)]
    except OSError:
        return []


def how_it_ended(code: int) -> str:
    """An exit code in words."""
    if code >= 0:
        return f"exit code {code}"
    with contextlib.suppress(ValueError):
        return f"killed by {signal.Signals(-code).name}"
    return f"killed by signal {-code}"
