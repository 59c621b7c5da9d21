"""A process of an experiment: a module of this package that prints lines of JSON, and ends when its stdin does."""

import contextlib
import json
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Self

from twinlink.errors import TwinlinkError
from twinlink.process.guarded_thread import GuardedThread

from ..end_process import end_process

LOOK_S = 0.2
END_S = 5.0
INSTALL = "pip install 'twinlink[measure,industrial,websocket]'"
START_S = 60.0  # on an emulated or busy processor, an OPC UA server takes several seconds


class ProgramFailed(TwinlinkError):
    """A process of an experiment ended, or did not answer; the message says how."""


class Program:
    """A context manager.

    Args:
        module: its name in this package.
        arguments: as JSON in its first argument.
        prefix: of the command, such as ``nsenter ...``.

    Attributes:
        pid: of the process; ``nsenter`` becomes the program.
    """

    def __init__(self, module: str, arguments: dict[str, Any], prefix: Sequence[str] = ()) -> None:
        self._name = module
        self._process = subprocess.Popen(
            [*prefix, sys.executable, "-m", f"{__package__}.{module}", json.dumps(arguments)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip
        self.pid = self._process.pid
        self._lines: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self._errors: list[bytes] = []
        self._threads = [GuardedThread(body, "program") for body in (self._read, self._read_errors)]
        for thread in self._threads:
            thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """End it."""
        end_process(self._process, self._threads, END_S)

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with contextlib.suppress(ValueError):  # output of a library
                told = json.loads(line)
                if isinstance(told, dict):
                    self._lines.put(told)
        self._lines.put(None)

    def _read_errors(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._errors = [*self._errors[-20:], line]

    def next(self, within_s: float, stopped: Callable[[], bool] = lambda: False) -> dict[str, Any]:
        """The next line.

        Raises:
            ProgramFailed: it ended, did not write a line in time, or ``stopped()`` became true first.
        """
        deadline = time.monotonic() + within_s
        while True:
            if stopped():  # also where lines come all the time
                self._process.kill()  # it may not end by itself, and nothing waits for it
                raise ProgramFailed("the end was requested")
            try:
                told = self._lines.get(timeout=LOOK_S)
            except queue.Empty:
                if time.monotonic() > deadline:
                    raise ProgramFailed(f"{self._name} said nothing within {within_s:g} s") from None
                continue
            if told is None:
                self._lines.put(None)
                self._threads[1].join(1)
                last = b"".join(self._errors[-1:]).decode(errors="replace").strip()
                install = f"; install it with: {INSTALL}" if last.startswith("ModuleNotFoundError") else ""
                raise ProgramFailed(f"{self._name} ended{': ' + last if last else ''}{install}")
            if "error" in told:
                raise ProgramFailed(f"{self._name}: {told['error']}")
            return told

    def until_done(self, within_s: float, stopped: Callable[[], bool]) -> tuple[list[dict[str, Any]], str | None]:
        """The lines before ``{"done": true}``, each within ``within_s``, and why the last of them did not come."""
        lines: list[dict[str, Any]] = []
        try:
            while "done" not in (told := self.next(within_s, stopped)):
                lines.append(told)
        except ProgramFailed as error:
            return lines, str(error)
        return lines, None

    def ready(self, stopped: Callable[[], bool] = lambda: False) -> Self:
        """Return when its first line has come."""
        self.next(START_S, stopped)
        return self

    def tell(self, line: dict[str, Any]) -> None:
        """Write a line to its stdin.  Raises ProgramFailed."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(line).encode() + b"\n")
            self._process.stdin.flush()
        except OSError as error:
            raise ProgramFailed(f"{self._name} cannot be reached: {error}") from error


def arguments() -> dict[str, Any]:
    """The arguments of this process."""
    return dict(json.loads(sys.argv[1]))


def say(**told: Any) -> None:
    """Write a line."""
    sys.stdout.write(json.dumps(told) + "\n")
    sys.stdout.flush()


def ended() -> threading.Event:
    """An event that is set when stdin ends."""
    event = threading.Event()

    def wait() -> None:
        sys.stdin.read()
        event.set()

    GuardedThread(wait, "end-with-stdin").start()
    return event
