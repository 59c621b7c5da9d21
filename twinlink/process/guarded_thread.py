"""The threads of twinlink itself: none ends in silence."""

import threading
import time
from collections.abc import Callable

from .internal_errors import InternalErrors, of_process

PAUSE_S = 0.05  # before a function that raised is called again


def _never() -> bool:
    return False


class GuardedThread(threading.Thread):
    """Calls a function; what that raises is counted, logged and reported as `twinlink.events.InternalError`.

    Args:
        function: called on this thread, without arguments.
        name: one that begins with ``twinlink-`` is waited for at the end of the process.
        errors: takes what ``function`` raises: those of its link, or else of the process.
        again: called after an exception; whether to call ``function`` again, after `PAUSE_S`.  Loops go on so.
        daemon: as of `threading.Thread`.
    """

    def __init__(
        self,
        function: Callable[[], object],
        name: str,
        errors: InternalErrors = of_process,
        *,
        again: Callable[[], bool] = _never,
        daemon: bool = True,
    ) -> None:
        super().__init__(name=name, daemon=daemon)
        self._function, self._errors, self._goes_on = function, errors, again

    def run(self) -> None:
        """Called on the thread."""
        while True:
            try:
                self._function()
                return
            except BaseException as error:  # sys.exit as well, which a thread would end with in silence
                goes_on = self._goes_on()
                self._errors.add(f"thread {self.name}", error, "it goes on" if goes_on else "it has ended")
            if not goes_on:
                return
            time.sleep(PAUSE_S)
