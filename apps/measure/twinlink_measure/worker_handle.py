"""The sweep's handle of a worker (worker.py), local or remote: commands and answers are lines of JSON."""

import json
import subprocess
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from twinlink.process.guarded_thread import GuardedThread

from .end_process import end_process
from .row_buffer import decode

LOOK_S = 0.1
START_S = 30.0  # to start a worker and open a subject: on an emulated processor Python alone takes 10 s
END_S = 3.0  # to end, after the request
WHY_S = 1.0  # until the reading thread has the exit code of a lost worker
Stopped = Callable[[], bool]


class WorkerLost(Exception):
    """The worker ended or cannot be reached; the message says how."""


class WorkerFailed(Exception):
    """The worker could not execute a command.

    Attributes:
        kind: ``peer lost``, ``unusable`` (this subject cannot be measured here) or ``failed``.
    """

    def __init__(self, text: str, kind: str) -> None:
        super().__init__(text)
        self.kind = kind


class Interrupted(Exception):
    """The end was requested while a worker was busy."""


class WorkerHandle(ABC):
    """Base of the handles: numbered commands, with answers in any order.

    Attributes:
        name: ``Real World`` or ``Digital Twin``.
        pid: of its process, if that is on this host.
        most_octets: of rows that are taken for one command; None: no limit.
    """

    pid: int | None = None
    most_octets: int | None = None

    def __init__(self, name: str) -> None:
        self.name = name
        self._number = 0
        self._answers: dict[int, dict[str, Any]] = {}
        self._asked = {0}  # commands that are not answered; 0: the worker says that it has started
        self._parts: dict[int, dict[str, bytearray]] = {}
        self._arrived = threading.Condition()
        self._end: str | None = None  # why the worker is lost

    @abstractmethod
    def _write(self, line: bytes) -> None:
        """Send a line.  Raises OSError."""

    @abstractmethod
    def end(self) -> None:
        """End the worker, even if it is busy."""

    def begin(self, what: str, /, **arguments: Any) -> int:
        """Send a command; returns the number for `answer`.  Raises WorkerLost."""
        self._number += 1
        with self._arrived:
            self._asked.add(self._number)
        try:
            self._write(json.dumps({"id": self._number, "do": what, **arguments}).encode() + b"\n")
        except OSError as error:
            with self._arrived:  # the reading thread learns why
                self._arrived.wait_for(lambda: self._end, WHY_S)
            raise WorkerLost(self._end or f"the worker at the {self.name} cannot be reached: {error}") from error
        return self._number

    def answer(self, number: int, within_s: float, stopped: Stopped | None = None) -> dict[str, Any]:
        """The answer to a command, with rows as octets.

        Raises:
            WorkerLost: the worker ended, or did not answer in time.
            WorkerFailed: it could not execute the command.
            Interrupted: ``stopped()`` became true first.
        """
        deadline = time.monotonic() + within_s
        with self._arrived:
            while number not in self._answers:
                if (reason := self.lost) is not None:
                    raise WorkerLost(reason)
                if time.monotonic() > deadline:
                    raise WorkerLost(f"the worker at the {self.name} did not answer within {within_s:g} s")
                if stopped is not None and stopped():
                    raise Interrupted
                self._arrived.wait(LOOK_S)
            answer = self._answers.pop(number)
            answer.update({name: bytes(octets) for name, octets in self._parts.pop(number, {}).items()})
        if "error" in answer:
            raise WorkerFailed(answer["error"], answer.get("kind", "failed"))
        return answer

    def ask(
        self, what: str, within_s: float = 15.0, stopped: Stopped | None = None, /, **arguments: Any
    ) -> dict[str, Any]:
        """Send a command and wait for the answer."""
        return self.answer(self.begin(what, **arguments), within_s, stopped)

    @property
    def lost(self) -> str | None:
        """Why the worker is lost; None while it runs."""
        return self._end

    def _take(self, line: bytes | str) -> None:
        try:
            answer = json.loads(line)
            number = answer.pop("id")
            part = decode(answer["rows"]) if "part" in answer else b""
        except (ValueError, KeyError, AttributeError, TypeError, RecursionError):
            return  # not an answer: output of a library, or of a peer that is no worker
        with self._arrived:
            if number not in self._asked:
                return
            if "part" in answer:
                parts = self._parts.setdefault(number, {})
                if self.most_octets is None or sum(map(len, parts.values())) + len(part) <= self.most_octets:
                    parts.setdefault(answer["part"], bytearray()).extend(part)
                    return
                answer = {"error": f"it answered with more than {self.most_octets} octets", "kind": "failed"}
            self._asked.remove(number)
            self._answers[number] = answer
            self._arrived.notify_all()

    def _ended(self, reason: str) -> None:
        with self._arrived:
            self._end = self._end or reason
            self._arrived.notify_all()


def watching(other: WorkerHandle, stopped: Stopped) -> Stopped:
    """``stopped`` that also raises WorkerLost if the ``other`` worker is lost meanwhile."""

    def look() -> bool:
        if other.lost is not None:
            raise WorkerLost(other.lost)
        return stopped()

    return look


class LocalWorker(WorkerHandle):
    """A worker on this host.

    Args:
        name: of its side.
        prefix: of its command, such as ``nsenter ...``.
        clock: (offset in ns, drift in ppm) of an injected clock error.
    """

    def __init__(self, name: str, prefix: Sequence[str] = (), clock: tuple[int, float] | None = None) -> None:
        super().__init__(name)
        command = [sys.executable, "-m", "twinlink_measure.worker"]
        if clock is not None:
            program = Path(__file__).with_name("shifted_clock.py")
            command = [sys.executable, "-P", str(program), str(clock[0]), str(clock[1])]
        self._process = subprocess.Popen(
            [*prefix, *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            start_new_session=True,
        )  # fmt: skip
        self.pid = self._process.pid
        self._said = b""  # the last of stderr
        self._threads = [GuardedThread(body, f"worker-{name}") for body in (self._read, self._read_errors)]
        for thread in reversed(self._threads):  # the first waits for the second when the process has ended
            thread.start()

    def _write(self, line: bytes) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line)
        self._process.stdin.flush()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._take(line)
        code = self._process.wait()
        self._threads[1].join(1)
        how = f"was ended by signal {-code}" if code < 0 else f"ended with code {code}"
        told = self._said.decode(errors="replace").strip().splitlines()
        self._ended(f"the worker at the {self.name} {how}" + (f": {told[-1]}" if told else ""))

    def _read_errors(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._said = (self._said + line)[-4000:]

    def end(self) -> None:
        """Close its stdin, which ends it; kill it if it does not end in time."""
        end_process(self._process, self._threads, END_S)
