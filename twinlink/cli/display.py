"""Writes to a terminal on a thread of its own: one that is slow, or stopped by Ctrl-S, holds up nothing else.

What it does not take in time is dropped here, and counted; the link goes on.  Ctrl-Z stops the whole process: a command
that only looks leaves the link before (`Suspension`), as its peers would wait for a process that is stopped.
"""

import os
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from types import FrameType
from typing import Any, Generic, Self, TypeVar

from twinlink.process.guarded_thread import GuardedThread
from twinlink.process.text import printable

MAX_ITEMS = 1000  # that wait for the terminal
MAX_OCTETS = 64 * 1024 * 1024
CLOSE_S = 0.2  # for what waits at the end
TELL_S = 1.0  # between two lines that tell how much was not shown

T = TypeVar("T")


def is_terminal() -> bool:
    """Whether stdout is a terminal."""
    return sys.stdout is not None and sys.stdout.isatty()


class Display(Generic[T]):
    """Writes items to stdout, which is a terminal.  One thread puts them in.

    Attributes:
        dropped: items that were not shown.
        failed: why nothing more can be written, or None.
    """

    def __init__(self, text_of: Callable[[T], str], max_items: int = MAX_ITEMS) -> None:
        """``text_of`` makes the text of an item, on the display's thread."""
        self.dropped = 0
        self.failed: OSError | None = None
        self._text_of, self._max_items = text_of, max_items
        self._told, self._told_s = 0, 0.0
        self._items: deque[tuple[T, int]] = deque()
        self._octets = 0
        self._changed = threading.Condition()
        self._closing = False
        self._thread = GuardedThread(self._run, "display", again=lambda: not self._closing)
        self._thread.start()

    def put(self, item: T, octets: int = 0) -> None:
        """Have an item shown that holds so many octets; where too many wait it is dropped."""
        with self._changed:
            if len(self._items) >= self._max_items or (self._items and self._octets + octets > MAX_OCTETS):
                self.dropped += 1
                return
            self._items.append((item, octets))
            self._octets += octets
            self._changed.notify()

    def close(self) -> None:
        """Show what waits, as far as the terminal takes it within `CLOSE_S`; the rest counts as dropped."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join(CLOSE_S)
        with self._changed:
            self.dropped += len(self._items)
            self._items.clear()

    def _run(self) -> None:
        while self.failed is None:
            with self._changed:
                self._changed.wait_for(lambda: self._items or self._closing)
                if not self._items:
                    return
                item, octets = self._items.popleft()
                self._octets -= octets
                note, dropped = self._note(), self.dropped
            began_s = time.monotonic()
            text = self._text_of(item)
            took_s = time.monotonic() - began_s
            try:
                self._write(note + text)
            except OSError as error:  # the terminal is gone
                self.failed = error
            if self.dropped > dropped:  # more lines would only take time from the thread that receives
                time.sleep(took_s)

    def _note(self) -> str:
        """A line that tells what was dropped since the last one, at most once in `TELL_S`; empty without any."""
        count, now_s = self.dropped - self._told, time.monotonic()
        if self._max_items == 1 or not count or now_s - self._told_s < TELL_S:
            return ""
        self._told, self._told_s = self.dropped, now_s
        return f"... {count:,} messages not shown: they came faster than this terminal takes them\n"

    @staticmethod
    def _write(text: str) -> None:
        """Past Python's buffer, whose lock a thread that a terminal holds up would keep to the end of the process."""
        octets = printable(text).encode()
        while octets:
            octets = octets[os.write(sys.stdout.fileno(), octets) :]


class Suspension:
    """Ctrl-Z as a request, so that the link can be left before the process stops.  For the main thread.

    Attributes:
        requested: whether the process is to stop; reset by `stop`.
    """

    def __init__(self, active: bool = True) -> None:
        """If it is not ``active``, Ctrl-Z does what it does elsewhere."""
        self.requested = False
        self._active = active
        self._before: Any = None

    def __enter__(self) -> Self:
        if self._active:
            self._before = signal.signal(signal.SIGTSTP, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        if self._active:
            signal.signal(signal.SIGTSTP, self._before)

    def _handle(self, _number: int, _frame: FrameType | None) -> None:
        self.requested = True

    def stop(self) -> None:
        """Stop, as Ctrl-Z does without a handler; returns when the shell has the process go on (`fg`, `bg`)."""
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTSTP)
        self.requested = False
        signal.signal(signal.SIGTSTP, self._handle)
