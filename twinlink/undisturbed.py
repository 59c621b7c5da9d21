"""Steps that Ctrl-C must not come between: a handler of signals that raises runs after the last of them."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

# Those whose handlers raise in practice: Ctrl-C, a supervisor that ends a program, a time limit.
SIGNALS = tuple(
    getattr(signal, name)
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGALRM", "SIGUSR1", "SIGUSR2")
    if hasattr(signal, name)
)

Handler = Callable[[int, FrameType | None], Any]


class _Held:
    """Stands in for the handlers of an application; passes on what comes when nothing is held up any more."""

    holds = False  # of all: only the main thread runs handlers

    def __init__(self) -> None:
        self._came: list[tuple[int, FrameType | None]] = []
        self._before: dict[int, Handler] = {}

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if _Held.holds:
            self._came.append((number, frame))
        else:
            self._before[number](number, frame)

    def begin(self) -> None:
        """Hold up, from now on, every signal that has a handler in Python."""
        _Held.holds = True
        for number in SIGNALS:
            handler = signal.getsignal(number)
            if isinstance(handler, _Held):  # it was to be given back, and another one raised then
                handler = handler._before[number]
            if callable(handler):
                self._before[number] = handler
                signal.signal(number, self)

    def end(self) -> None:
        """Give the handlers back; then those run that are due, whatever they raise."""
        _Held.holds = False
        try:
            for number, handler in self._before.items():
                signal.signal(number, handler)
        finally:
            self._pass_on(self._came)

    def _pass_on(self, came: list[tuple[int, FrameType | None]]) -> None:
        if came:
            (number, frame), *others = came
            try:
                self._before[number](number, frame)
            finally:
                self._pass_on(others)


@contextmanager
def undisturbed() -> Iterator[None]:
    """Hold up handlers of signals for the time of a block, or of a function, which must not call the application's.

    They run on the main thread, so elsewhere there is nothing to do.  It takes some 10 us there: too long for what
    every message goes through.
    """
    if _Held.holds or threading.current_thread() is not threading.main_thread():
        yield
        return
    held = _Held()
    try:
        held.begin()
        yield
    finally:
        held.end()
