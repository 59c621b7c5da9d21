"""What wakes a waiting thread."""

import threading
from collections import deque
from contextlib import suppress


class Bell:
    """One thread waits for it, any may ring.

    A lock of the interpreter's own, which Ctrl-C takes and gives back whole.  `threading.Event` and `Condition` are
    written in Python: an interrupt within them can leave their lock taken, and whoever rings or waits next hangs.
    """

    def __init__(self) -> None:
        self._silent = threading.Lock()
        self._silent.acquire()

    def ring(self) -> None:
        """Wake who waits, or who waits next.  Never waits."""
        if self._silent.locked():
            try:  # noqa: SIM105  (this is on the path of a message)
                self._silent.release()
            except RuntimeError:  # another thread was quicker
                pass

    def wait(self, timeout_s: float | None = None) -> bool:
        """Return True when it has been rung since the last wait, or False after ``timeout_s``."""
        return self._silent.acquire(timeout=-1 if timeout_s is None else timeout_s)

    @property
    def rung(self) -> bool:
        """Whether the next wait returns at once."""
        return not self._silent.locked()


class Bells:
    """Of all who wait for the same."""

    def __init__(self) -> None:
        self._bells: deque[Bell] = deque()

    def add(self) -> Bell:
        """One more waits: at the bell that this returns, once."""
        bell = Bell()
        self._bells.append(bell)
        return bell

    def remove(self, bell: Bell) -> None:
        """It is not waited at any more."""
        with suppress(ValueError):  # it has been rung
            self._bells.remove(bell)

    def ring(self) -> None:
        """Ring those that have been added, and not rung yet."""
        with suppress(IndexError):
            while True:
                self._bells.popleft().ring()
