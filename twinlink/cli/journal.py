"""What a program that runs for long says: one line to a person on stderr, one JSON object a line to ``--log``."""

import contextlib
import json
import sys
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TextIO

from .console import explain, on_one_line

REPEAT_NS = 5_000_000_000  # a complaint that comes again and again is made this often


class Journal:
    """Events as they happen, from any thread.  ``path`` is overwritten; raises OSError when it cannot be opened.

    A file that cannot be written any more is given up, and that is said: what the program does matters more.
    """

    def __init__(self, program: str, path: Path | None = None, stream: TextIO | None = None) -> None:
        self._program = program
        self._path = path
        self._stream = stream or sys.stderr
        self._lock = threading.Lock()
        self._file = path.open("w", encoding="utf-8", buffering=1) if path else None
        self._complaints: dict[str, tuple[int, int]] = {}  # name -> when last made, how many since

    def event(self, name: str, text: str, /, *, time_ns: int | None = None, **fields: Any) -> None:
        """Something happened: ``text`` for a person, ``fields`` for a program; ``time_ns`` (Unix) is now."""
        time_ns = time.time_ns() if time_ns is None else time_ns
        with self._lock:
            self._tell(time_ns, text)
            if self._file:
                try:
                    self._file.write(json.dumps({"time_ns": time_ns, "event": name, **fields}) + "\n")
                except OSError as error:
                    self._close()
                    self._tell(time_ns, f"no more events are written to {self._path}: {explain(error)}")

    def complaint(self, name: str, text: str, /, **fields: Any) -> None:
        """As `event`, but at most once in `REPEAT_NS` for each name, with the number of those held back."""
        now = time.monotonic_ns()
        last, held = self._complaints.get(name, (now - REPEAT_NS, 0))
        if now - last < REPEAT_NS:
            self._complaints[name] = (last, held + 1)
            return
        self._complaints[name] = (now, 0)
        self.event(name, f"{text} ({held} more like this)" if held else text, **fields, held_back=held)

    def _tell(self, time_ns: int, text: str) -> None:
        clock = time.strftime("%H:%M:%S", time.localtime(time_ns // 1_000_000_000))
        line = f"{clock}.{time_ns // 1_000_000 % 1000:03d} {self._program}: {on_one_line(text)}"
        with contextlib.suppress(OSError, ValueError):  # whoever read stderr may be gone; the program goes on
            print(line, file=self._stream, flush=True)

    def _close(self) -> None:
        if self._file:
            with contextlib.suppress(OSError):  # what is buffered and cannot be written
                self._file.close()
            self._file = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            self._close()
