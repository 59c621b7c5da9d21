"""What wakes a waiting thread."""

import threading
from collections import deque
from contextlib import suppress


class Wakeup:
    """One thread waits for it, any may wake it.

    A lock of the interpreter's own, which Ctrl-C takes and gives back whole.  `threading.Event` and `Condition` are
    written in Python: an interrupt within them can leave their lock taken, and the next thread to wake or wait hangs.
    """

    def __init__(self) -> None:
        self._unset = threading.Lock()
        self._unset.acquire()

    def wake(self) -> None:
        """Wake the thread that waits, or the next that will.  Never waits."""
        if self._unset.locked():
            try:  # noqa: SIM105  (this is on the path of a message)
                self._unset.release()
            except RuntimeError:  # another thread was quicker
                pass

    def wait(self, timeout_s: float | None = None) -> bool:
        """Return True when it has been woken since the last wait, or False after ``timeout_s``."""
        return self._unset.acquire(timeout=-1 if timeout_s is None else timeout_s)

    @property
    def is_set(self) -> bool:
        """Whether the next wait returns at once."""
        return not self._unset.locked()


class WaiterList:
    """The threads that wait for the same."""

    def __init__(self) -> None:
        self._wakeups: deque[Wakeup] = deque()

    def add(self) -> Wakeup:
        """One more waits: on what this returns, once."""
        wakeup = Wakeup()
        self._wakeups.append(wakeup)
        return wakeup

    def remove(self, wakeup: Wakeup) -> None:
        """It is not waited at any more."""
        with suppress(ValueError):  # it has been woken
            self._wakeups.remove(wakeup)

    def wake_all(self) -> None:
        """Wake those that have been added, and not woken yet."""
        with suppress(IndexError):
            while True:
                self._wakeups.popleft().wake()
