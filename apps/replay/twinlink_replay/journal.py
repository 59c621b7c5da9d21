"""What the replay says: one line to a person on stderr, one JSON object a line to ``--log``."""

import contextlib
import json
import sys
import threading
import time
from pathlib import Path
from typing import Any, TextIO

from twinlink.cli.console import on_one_line, writing


class Journal:
    """Events as they happen, from any thread; ``path`` is overwritten.  Raises OSError when it cannot be opened."""

    def __init__(self, path: Path | None = None, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._lock = threading.Lock()
        self._file = path.open("w", encoding="utf-8", buffering=1) if path else None

    def event(self, name: str, text: str, *, time_ns: int | None = None, **fields: Any) -> None:
        """Something happened: ``text`` for a person, ``fields`` for a program; ``time_ns`` (Unix) is now."""
        time_ns = time.time_ns() if time_ns is None else time_ns
        clock = time.strftime("%H:%M:%S", time.localtime(time_ns // 1_000_000_000))
        line = f"{clock}.{time_ns // 1_000_000 % 1000:03d} twinlink-replay: {on_one_line(text)}"
        with self._lock:
            with contextlib.suppress(OSError, ValueError):  # whoever read stderr may be gone; the twin goes on
                print(line, file=self._stream, flush=True)
            if self._file:
                with writing(Path(self._file.name)):
                    self._file.write(json.dumps({"time_ns": time_ns, "event": name, **fields}) + "\n")

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            if self._file:
                self._file.close()
                self._file = None
