"""What the exporter says: one line to a person on stderr, one JSON object a line to ``--log``."""

import contextlib
import json
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TextIO

from twinlink.cli.console import on_one_line, writing

REPEAT_NS = 5_000_000_000  # a complaint that comes again and again is made this often


class Journal:
    """Events as they happen.  A context manager; ``path`` is overwritten."""

    def __init__(self, path: Path | None = None, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._file = path.open("w", encoding="utf-8", buffering=1) if path else None
        self._complaints: dict[str, tuple[int, int]] = {}  # name -> when last made, how many since

    def event(self, name: str, text: str, **fields: Any) -> None:
        """Something happened: ``text`` for a person, ``fields`` for a program."""
        time_ns = time.time_ns()
        clock = time.strftime("%H:%M:%S", time.localtime(time_ns // 1_000_000_000))
        line = f"{clock}.{time_ns // 1_000_000 % 1000:03d} twinlink-exporter: {on_one_line(text)}"
        with contextlib.suppress(OSError, ValueError):  # whoever read stderr may be gone; the exporter goes on
            print(line, file=self._stream, flush=True)
        if self._file:
            with writing(Path(self._file.name)):
                self._file.write(json.dumps({"time_ns": time_ns, "event": name, **fields}) + "\n")

    def complaint(self, name: str, text: str, **fields: Any) -> None:
        """As `event`, but at most once in `REPEAT_NS` for each name, with the number of those held back."""
        now = time.monotonic_ns()
        last, held = self._complaints.get(name, (now - REPEAT_NS, 0))
        if now - last < REPEAT_NS:
            self._complaints[name] = (last, held + 1)
            return
        self._complaints[name] = (now, 0)
        self.event(name, f"{text} ({held} more like this)" if held else text, **fields, held_back=held)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file:
            with writing(Path(self._file.name)):
                self._file.close()
