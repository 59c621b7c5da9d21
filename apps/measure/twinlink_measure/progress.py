"""Progress of a sweep on stderr: a bar with the time left on a terminal, occasional lines elsewhere."""

import contextlib
import importlib.util
import sys
import time
from typing import Any, Self

from twinlink.appkit.console import log

LINE_S = 5.0  # between two lines without a terminal
WIDE = 90  # columns from which on a long bar leaves room for text
DRAW_S = 0.2  # between two updates, which take processor time from the measurement


class Progress:
    """Progress on stderr, updated between cells only.

    Args:
        name: of the command.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._bar: Any = None
        self._task: Any = None
        self._next = 0.0

    def __enter__(self) -> Self:
        if sys.stderr is not None and sys.stderr.isatty() and importlib.util.find_spec("rich"):
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn

            told = TextColumn("{task.percentage:3.0f} %  {task.fields[left]:<15}{task.description}")
            console = Console(stderr=True, highlight=False)
            self._bar = Progress(
                BarColumn(30 if console.width >= WIDE else 5), told, console=console, auto_refresh=False, transient=True
            )
            self._bar.start()
            self._task = self._bar.add_task("starting", total=1.0, left="")
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            with contextlib.suppress(OSError):
                self._bar.stop()

    def step(self, what: str, share: float, left_s: float | None) -> None:
        """Show that ``what`` is being measured, ``share`` (0 to 1) is done and ``left_s`` seconds are left."""
        now = time.monotonic()
        if now < self._next:
            return
        left = "" if left_s is None else f"{duration(left_s)} left"
        if self._bar is None:
            log(self._name, f"{share:4.0%}  {what}" + (f", {left}" if left else ""))
        else:
            with contextlib.suppress(OSError):
                self._bar.update(self._task, completed=share, description=what, left=left, refresh=True)
        self._next = now + (LINE_S if self._bar is None else DRAW_S)

    def say(self, text: str) -> None:
        """Print a line that stays."""
        if self._bar is None:
            log(self._name, text)
        else:
            with contextlib.suppress(OSError):
                self._bar.console.print(f"{self._name}: {text}", markup=False)


def duration(seconds: float) -> str:
    """A duration in words: ``42 s``, ``3 min 20 s``."""
    whole = round(seconds)
    return f"{whole} s" if whole < 100 else f"{whole // 60} min {whole % 60:02d} s"
