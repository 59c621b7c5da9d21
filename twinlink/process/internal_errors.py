"""Exceptions in threads and callbacks of twinlink itself: counted, logged, and kept for the events of a link.

Those of the last minute are also reasons of ``/readyz`` (`recent`), as are those of an application's handlers.
"""

import logging
import threading
import time
from collections import deque
from typing import NamedTuple

INTERVAL_S = 1.0  # between two reports of the same thread or callback
MAX_KEPT = 64
RECENT_S = 60.0
MAX_RECENT = 16
MAX_TEXT = 300  # characters of an exception: its text may contain what a peer has sent

logger = logging.getLogger("twinlink")


class Raised(NamedTuple):
    """An exception that is to be reported.

    Attributes:
        number: of this exception, counted from 1.
        at_s: when it was raised, monotonic.
        where: the thread or callback.
        error: the exception.
    """

    number: int
    at_s: float
    where: str
    error: str


class InternalErrors:
    """The internal errors of one link; `of_process` has those that belong to no link.  Any thread may use it.

    Attributes:
        count: how many there were.
    """

    def __init__(self) -> None:
        self.count = 0
        self._kept: deque[Raised] = deque(maxlen=MAX_KEPT)
        self._reported: dict[str, float] = {}  # by thread or callback, monotonic s
        self._lock = threading.Lock()

    def add(self, where: str, error: BaseException, then: str) -> None:
        """Count an exception; log and keep it unless ``where`` has been reported within a second.

        Args:
            where: the thread or callback, for a person.
            error: what it raised.
            then: what happens next, for a person.
        """
        text, now = note(where, error), time.monotonic()
        with self._lock:
            self.count += 1
            if now - self._reported.get(where, -INTERVAL_S) < INTERVAL_S:
                return
            self._reported.pop(where, None)
            self._reported[where] = now
            if len(self._reported) > MAX_KEPT:
                del self._reported[next(iter(self._reported))]
            self._kept.append(Raised(self.count, now, where, text))
        logger.error("%s raised an exception; %s", where, then, exc_info=error)

    def since(self, number: int) -> list[Raised]:
        """Those to be reported that came after the one with this number."""
        with self._lock:
            return [one for one in self._kept if one.number > number]


of_process = InternalErrors()
_recent: dict[str, tuple[float, str]] = {}  # by thread or callback: monotonic s, and the last exception


def note(where: str, error: BaseException) -> str:
    """Have `recent` tell of an exception for a minute; returns its text."""
    text = repr(error)[:MAX_TEXT]
    _recent[where] = time.monotonic(), text
    if len(_recent) > MAX_RECENT:
        _recent.pop(min(list(_recent.items()), key=lambda item: item[1][0])[0], None)
    return text


def recent() -> list[str]:
    """What has raised in this process within the last minute, each once, for a person."""
    now = time.monotonic()
    return [
        f"{where} raised {text} {now - at:.0f} s ago; the log has its traceback"
        for where, (at, text) in sorted(_recent.items())
        if now - at < RECENT_S
    ]
