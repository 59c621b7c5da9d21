"""Deferred signals: a handler that raises, as for Ctrl-C, runs after steps that it must not come between."""

import functools
import os
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, ClassVar, ParamSpec, TypeVar

# Those that a program may want to hear of, and whose handlers may raise.
SIGNALS = tuple(
    getattr(signal, name)
    for name in (
        "SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGALRM", "SIGUSR1", "SIGUSR2", "SIGVTALRM", "SIGPROF", "SIGXCPU",
        "SIGCHLD", "SIGWINCH",
    )
    if hasattr(signal, name)
)  # fmt: skip

P = ParamSpec("P")
R = TypeVar("R")


class DeferSignals:
    """Holds up handlers of signals for the time of a ``with`` block, which must be short, and must not call what an
    application gave us: handlers, nor logging.  (The end of the process is one such block all the same.)

    They run on the main thread, so elsewhere there is nothing to do.  It takes some 10 us there: too long for what
    every message goes through.  No generator makes it: an exception could come between its halves.
    """

    _active: ClassVar["DeferSignals | None"] = None  # only the main thread runs handlers

    def __init__(self) -> None:
        self._before: dict[int, Callable[[int, FrameType | None], Any]] = {}
        self._deferred: dict[int, FrameType | None] = {}

    def __enter__(self) -> None:
        if DeferSignals._active is not None or threading.current_thread() is not threading.main_thread():
            return
        DeferSignals._active = self
        try:
            for number in SIGNALS:
                self._replace_handler(number)
        except ValueError:  # not Python's own main thread: a subinterpreter, or `threading` came late to a program in C
            pass
        except BaseException:
            self.__exit__()
            raise

    def _replace_handler(self, number: int) -> None:
        handler = signal.getsignal(number)
        if not callable(handler):
            return
        # First what stands behind us: that of an earlier one where another handler raised while it was given back.
        self._before[number] = handler._before[number] if isinstance(handler, DeferSignals) else handler
        replaced = signal.signal(number, self)
        if replaced is not handler:  # set just now
            if callable(replaced):
                self._before[number] = replaced
            else:
                signal.signal(number, replaced)

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Stand in for a handler; several signals of a kind are one, as they are to the system."""
        if DeferSignals._active is self:
            self._deferred[number] = frame
        else:
            self._before[number](number, frame)

    def __exit__(self, *_: object) -> None:
        """Give the handlers back; then those run that are due, whatever they raise."""
        if DeferSignals._active is not self:
            return
        DeferSignals._active = None
        try:
            self._restore()
        finally:
            self._run_deferred()

    def _restore(self) -> None:
        for number, handler in self._before.items():
            now = signal.signal(number, handler)
            if now is not self and now is not None:  # set just now
                signal.signal(number, now)

    def _run_deferred(self) -> None:
        if self._deferred:
            number = next(iter(self._deferred))
            try:
                self._before[number](number, self._deferred.pop(number))
            finally:
                self._run_deferred()

    @classmethod
    def is_due(cls) -> bool:
        """Whether a signal is held up."""
        return (holding := cls._active) is not None and bool(holding._deferred)

    @classmethod
    def after_fork_in_child(cls) -> None:
        """The thread that held them up has stayed with the parent, and so have the signals."""
        if (holding := cls._active) is not None:
            cls._active = None
            holding._deferred.clear()
            holding._restore()


os.register_at_fork(after_in_child=DeferSignals.after_fork_in_child)


def defer_signals(function: Callable[P, R]) -> Callable[P, R]:
    """The function as a `DeferSignals` block."""

    @functools.wraps(function)
    def in_block(*arguments: P.args, **named: P.kwargs) -> R:
        with DeferSignals():
            return function(*arguments, **named)

    return in_block
