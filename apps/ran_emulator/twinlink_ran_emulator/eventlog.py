"""What happens, for two readers: a line on stderr for a person, a JSON object in a file for a program."""

import contextlib
import json
import sys
import time
from pathlib import Path
from typing import IO, Any

from twinlink.cli.console import on_one_line, writing


class EventLog:
    """Writes events; raises OSError when the file cannot be opened."""

    def __init__(self, path: Path | None = None) -> None:
        self._file: IO[str] | None = path.open("w", encoding="utf-8") if path else None

    def __call__(self, event: str, text: str, *, time_ns: int | None = None, **fields: Any) -> None:
        """Record an event; ``text`` goes to stderr, ``fields`` to the file, at once. ``time_ns`` (Unix) is now."""
        with contextlib.suppress(OSError):  # whoever read stderr may be gone; the gNB goes on
            print(f"twinlink-ran-emulator: {on_one_line(text)}", file=sys.stderr, flush=True)
        if self._file:
            record = {"time_ns": time.time_ns() if time_ns is None else time_ns, "event": event, **fields}
            with writing(Path(self._file.name)):
                self._file.write(json.dumps(record) + "\n")
                self._file.flush()

    def close(self) -> None:
        """Close the file."""
        if self._file:
            with writing(Path(self._file.name)):
                self._file.close()
            self._file = None
