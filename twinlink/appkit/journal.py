"""The log of a long-running program: for each event a JSON object in the file of ``--log``, and a line on stderr.

A thread of its own writes both: neither a disk that hangs nor a full pipe at stderr may block the program.
"""

import contextlib
import logging
import os
import queue
import select
import sys
import time
import traceback
from logging.handlers import QueueHandler, QueueListener
from pathlib import Path
from typing import Any, Self, TextIO

from twinlink.process import internal_errors
from twinlink.process.guarded_thread import GuardedThread
from twinlink.process.readiness import is_writable

from ..process.text import on_one_line, to_json
from .console import explain

WAITING = 10_000  # events that may wait to be written; further ones are dropped and counted
_REPEAT_NS = 5_000_000_000  # shortest time between two complaints of one name
_ROUTINE_NS = 60_000_000_000  # time between two lines about routine events of one name
_UNREAD_S = 1.0  # a line that stderr does not take within this time is not shown
_AT_THE_END_S = 3.0  # time to write what is left when the program ends


class Journal:
    """Logs events from any thread.  Appends to ``path``; raises OSError if it cannot be opened.

    When the file can no longer be written, stderr says so and the program goes on without it.  Inside a ``with``
    statement the library's warnings are logged, too; its end writes what is left.
    """

    def __init__(self, program: str, path: Path | None = None, stream: TextIO | None = None) -> None:
        self._complaints: dict[str, tuple[int, int]] = {}  # name -> when last logged, number held back since
        self._routine: dict[str, tuple[int, int]] = {}  # name -> when last shown, number since
        self._intake = _Intake()
        self._writer = _Writer(self._intake, program, path, stream or sys.stderr)
        self._writer.start()

    def event(self, name: str, text: str, /, *, time_ns: int | None = None, **fields: Any) -> None:
        """Log ``text`` for a person and ``fields`` for a program; ``time_ns`` is Unix time, now if None."""
        self._intake.handle(_record(name, text, time_ns, fields))

    def complaint(self, name: str, text: str, /, **fields: Any) -> None:
        """As `event`, but at most once in `_REPEAT_NS` for each name, with the number of complaints held back."""
        now = time.monotonic_ns()
        last, held = self._complaints.get(name, (now - _REPEAT_NS, 0))
        if now - last < _REPEAT_NS:
            self._complaints[name] = (last, held + 1)
            return
        self._complaints[name] = (now, 0)
        self.event(name, f"{text} ({held} more like this)" if held else text, **fields, held_back=held)

    def routine(self, name: str, text: str, /, *, time_ns: int | None = None, **fields: Any) -> None:
        """As `event`, of what goes on as before: stderr has a line a minute for each name, with their number."""
        now = time.monotonic_ns()
        since, count = self._routine.get(name, (now, 0))
        shown = now - since >= _ROUTINE_NS
        self._routine[name] = (now, 0) if shown else (since, count + 1)
        text = f"{text} ({count + 1} times in {(now - since) / 1e9:.0f} s)"
        self._intake.handle(_record(name, text, time_ns, fields, shown=shown))

    def __enter__(self) -> Self:
        logging.getLogger("twinlink").addHandler(self._intake)
        return self

    def __exit__(self, *_: object) -> None:
        logging.getLogger("twinlink").removeHandler(self._intake)
        # stop() waits for the writer without a limit
        stopper = GuardedThread(self._writer.stop, "journal-stop")
        stopper.start()
        stopper.join(_AT_THE_END_S)


def _record(
    name: str, text: str, time_ns: int | None, fields: dict[str, Any], *, shown: bool = True
) -> logging.LogRecord:
    time_ns = time.time_ns() if time_ns is None else time_ns
    line = to_json({"time_ns": time_ns, "event": name, **fields})  # now: the caller may change what it passed
    return logging.makeLogRecord(
        {"name": "twinlink.journal", "msg": text, "time_ns": time_ns, "line": line, "shown": shown}
    )


def _append(path: Path) -> TextIO:
    """Open the log behind the events of earlier runs.  Raises OSError."""
    file = path.open("a", encoding="utf-8", buffering=1)
    try:
        if not _ends_a_line(path):
            file.write("\n")
    except OSError:
        file.close()
        raise
    return file


def _ends_a_line(path: Path) -> bool:
    """Whether the next event begins a line: a program that is killed, or a full disk, leaves a part of one."""
    if not path.is_file():  # a terminal or a pipe, as /dev/stdout
        return True
    with path.open("rb") as file:
        end = file.seek(0, os.SEEK_END)
        file.seek(max(0, end - 1))
        return file.read(1) in (b"", b"\n")


class _Intake(QueueHandler):
    """Queues the journal's own events and the library's warnings; drops and counts them while the queue is full."""

    def __init__(self) -> None:
        self.waiting: queue.Queue[Any] = queue.Queue(WAITING)
        super().__init__(self.waiting)
        self.setLevel(logging.WARNING)
        self._dropped = 0

    def prepare(self, record: logging.LogRecord) -> logging.LogRecord:
        """A warning becomes an event."""
        if hasattr(record, "line"):
            return record
        text, error = record.getMessage(), record.exc_info and record.exc_info[1]
        if error is None:
            return _record("warning", text, None, {})
        lines = traceback.format_exception(error)
        return _record("warning", f"{text}: {error!r}", None, {"traceback": "".join(lines)})

    def enqueue(self, record: logging.LogRecord) -> None:
        """Called with the handler's lock held."""
        try:
            self.waiting.put_nowait(record)
        except queue.Full:
            self._dropped += 1

    def take_dropped(self) -> int:
        """The number of events dropped since the last call; 0 until the queue is half empty."""
        if not self._dropped or self.waiting.qsize() >= WAITING // 2:
            return 0
        self.acquire()
        try:
            dropped, self._dropped = self._dropped, 0
        finally:
            self.release()
        return dropped


class _Writer(QueueListener):
    """Takes records from the queue, on its thread, and writes them to stderr and the file.

    It writes without a `logging.Handler`: while a disk hangs, `logging.shutdown` would wait at exit for the lock of the
    handler.
    """

    def __init__(self, intake: _Intake, program: str, path: Path | None, stream: TextIO) -> None:
        super().__init__(intake.waiting)
        self._intake = intake
        self._program = program
        self._path = path
        self._stream = stream
        self._file = _append(path) if path else None
        self._unshown = 0  # lines since the last one that stderr took

    def handle(self, record: logging.LogRecord) -> None:
        """Write one event, and how many were dropped before; an exception would end the thread of `QueueListener`."""
        try:
            self._handle(record)
        except Exception as error:
            internal_errors.of_process.add("the journal", error, "the event is not written")

    def _handle(self, record: logging.LogRecord) -> None:
        self._write(record)
        if dropped := self._intake.take_dropped():
            text = f"{dropped} events were dropped: they came faster than they could be written"
            self._write(_record("dropped", text, None, {"count": dropped}))

    def enqueue_sentinel(self) -> None:
        """Wait for room in the queue."""
        self._intake.waiting.put(None)

    def stop(self) -> None:
        """Write what is left, then close the file; a second call does nothing."""
        if self._thread is not None:
            super().stop()
            self._close()

    def _write(self, record: Any) -> None:
        if record.shown:
            self._show(record.time_ns, record.getMessage())
        if self._file:
            try:
                self._file.write(record.line + "\n")
            except OSError as error:
                self._close()
                self._show(record.time_ns, f"no more events are written to {self._path}: {explain(error)}")

    def _show(self, time_ns: int, text: str) -> None:
        clock = time.strftime("%H:%M:%S", time.localtime(time_ns // 1_000_000_000))
        line = f"{clock}.{time_ns // 1_000_000 % 1000:03d} {self._program}: {on_one_line(text)}\n"
        # the reader has left, or the stream is closed, or stderr is None
        with contextlib.suppress(OSError, ValueError, AttributeError):
            self._to_stream(line)

    def _to_stream(self, line: str) -> None:
        """Write to the descriptor: a thread blocked in the stream holds a lock that the interpreter needs at exit."""
        try:
            descriptor = self._stream.fileno()
        except OSError:  # in memory
            self._stream.write(line)
            return
        if self._unshown and is_writable(descriptor):
            line = f"{self._program}: {self._unshown} lines were not shown: stderr was not read\n{line}"
            self._unshown = 0
        octets = line.encode(errors="backslashreplace")
        for at in range(0, len(octets), select.PIPE_BUF):  # a writable pipe takes this many octets without blocking
            if not is_writable(descriptor, 0.0 if self._unshown else _UNREAD_S):
                self._unshown += 1
                return
            os.write(descriptor, octets[at : at + select.PIPE_BUF])

    def _close(self) -> None:
        if self._file:
            with contextlib.suppress(OSError):  # of octets that are buffered and cannot be written
                self._file.close()
            self._file = None
