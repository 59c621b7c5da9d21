"""What a program that runs for long says: one line to a person on stderr, one JSON object a line to ``--log``.

A thread of its own writes, as a disk may hang, and who reads stderr may stop reading: what the program is there for
must not wait for that.
"""

import contextlib
import json
import logging
import os
import queue
import select
import sys
import threading
import time
import traceback
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TextIO

from .console import explain, on_one_line

REPEAT_NS = 5_000_000_000  # a complaint that comes again and again is made this often
WAITING = 10_000  # events that have not been written; beyond that they are dropped, and counted
UNREAD_MS = 1000  # a line that stderr does not take for so long is not shown; the file goes on
AT_THE_END_S = 3.0  # the writer has so long for what is left, the wait for stderr included

_Event = tuple[int, str, str]  # Unix ns, text, a line of JSON


class Journal:
    """Events as they happen, from any thread.  ``path`` is overwritten; raises OSError when it cannot be opened.

    A file that cannot be written any more is given up, and that is said: what the program does matters more.  Inside a
    ``with`` statement the library's warnings are events, too; at its end what is left is written.
    """

    def __init__(self, program: str, path: Path | None = None, stream: TextIO | None = None) -> None:
        self._program = program
        self._path = path
        self._stream = stream or sys.stderr
        self._unshown = 0  # lines, since the last that was
        self._file = path.open("w", encoding="utf-8", buffering=1) if path else None
        self._complaints: dict[str, tuple[int, int]] = {}  # name -> when last made, how many since
        self._waiting: queue.Queue[_Event | None] = queue.Queue(WAITING)
        self._dropped = 0  # and not told yet
        self._counting = threading.Lock()
        self._warnings = _Warnings(self)
        self._writer = threading.Thread(target=self._write, name="journal", daemon=True)
        self._writer.start()

    def event(self, name: str, text: str, /, *, time_ns: int | None = None, **fields: Any) -> None:
        """Something happened: ``text`` for a person, ``fields`` for a program; ``time_ns`` (Unix) is now."""
        time_ns = time.time_ns() if time_ns is None else time_ns
        record = json.dumps({"time_ns": time_ns, "event": name, **fields})  # here: the caller may change what it gave
        try:
            self._waiting.put_nowait((time_ns, text, record))
        except queue.Full:
            with self._counting:
                self._dropped += 1

    def complaint(self, name: str, text: str, /, **fields: Any) -> None:
        """As `event`, but at most once in `REPEAT_NS` for each name, with the number of those held back."""
        now = time.monotonic_ns()
        last, held = self._complaints.get(name, (now - REPEAT_NS, 0))
        if now - last < REPEAT_NS:
            self._complaints[name] = (last, held + 1)
            return
        self._complaints[name] = (now, 0)
        self.event(name, f"{text} ({held} more like this)" if held else text, **fields, held_back=held)

    # The thread that writes

    def _write(self) -> None:
        while (event := self._waiting.get()) is not None:
            self._put_down(*event)
            if self._dropped and self._waiting.qsize() < WAITING // 2:
                with self._counting:
                    dropped, self._dropped = self._dropped, 0
                now_ns, text = time.time_ns(), f"{dropped} events were not written: nobody took them for too long"
                self._put_down(now_ns, text, json.dumps({"time_ns": now_ns, "event": "dropped", "count": dropped}))
        self._close()

    def _put_down(self, time_ns: int, text: str, record: str) -> None:
        self._tell(time_ns, text)
        if self._file:
            try:
                self._file.write(record + "\n")
            except OSError as error:
                self._close()
                self._tell(time_ns, f"no more events are written to {self._path}: {explain(error)}")

    def _tell(self, time_ns: int, text: str) -> None:
        clock = time.strftime("%H:%M:%S", time.localtime(time_ns // 1_000_000_000))
        line = f"{clock}.{time_ns // 1_000_000 % 1000:03d} {self._program}: {on_one_line(text)}\n"
        with contextlib.suppress(OSError, ValueError, AttributeError):  # its reader is gone, or it is closed, or None
            self._show(line)

    def _show(self, line: str) -> None:
        """Not through the stream: whoever is held in it holds a lock that the interpreter wants at its end."""
        try:
            descriptor = self._stream.fileno()
        except OSError:  # in memory
            self._stream.write(line)
            return
        if self._unshown and _takes(descriptor, 0):
            line = f"{self._program}: {self._unshown} lines were not shown: nobody read them\n{line}"
            self._unshown = 0
        octets = line.encode(errors="backslashreplace")
        for at in range(0, len(octets), select.PIPE_BUF):  # so much a pipe takes whole when it takes anything
            if not _takes(descriptor, 0 if self._unshown else UNREAD_MS):
                self._unshown += 1
                return
            os.write(descriptor, octets[at : at + select.PIPE_BUF])

    def _close(self) -> None:
        if self._file:
            with contextlib.suppress(OSError):  # what is buffered and cannot be written
                self._file.close()
            self._file = None

    def __enter__(self) -> Self:
        logging.getLogger("twinlink").addHandler(self._warnings)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        logging.getLogger("twinlink").removeHandler(self._warnings)
        until = time.monotonic() + AT_THE_END_S
        with contextlib.suppress(queue.Full):
            self._waiting.put(None, timeout=AT_THE_END_S)
        self._writer.join(max(0.0, until - time.monotonic()))


class _Warnings(logging.Handler):
    def __init__(self, journal: Journal) -> None:
        super().__init__(logging.WARNING)
        self._journal = journal

    def emit(self, record: logging.LogRecord) -> None:
        text, error = record.getMessage(), record.exc_info and record.exc_info[1]
        if error is None:
            self._journal.event("warning", text)
        else:
            self._journal.event("warning", f"{text}: {error!r}", traceback="".join(traceback.format_exception(error)))


def _takes(descriptor: int, timeout_ms: int) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLOUT)
    return bool(poll.poll(timeout_ms))
