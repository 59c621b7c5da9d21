"""Ctrl-C at a moment of one's choice."""

import itertools
import signal
import sys
from collections.abc import Callable
from types import FrameType


def interrupted(moment: int, do: Callable[[], object], *files: str) -> bool:
    """Press Ctrl-C at the ``moment``-th call or return in these files; False where `do` had ended before.

    What is built in is called in any case: Ctrl-C comes when it has returned.

    By a signal, as in life: what is ``undisturbed`` is.
    """
    events, watched = itertools.count(1), frozenset(files)

    def interrupt(frame: FrameType, event: str, _: object) -> None:
        if event != "c_call" and frame.f_code.co_filename in watched and next(events) == moment:
            sys.setprofile(None)
            signal.raise_signal(signal.SIGINT)

    sys.setprofile(interrupt)
    try:
        do()
    except KeyboardInterrupt:
        return True
    finally:
        sys.setprofile(None)
    return False
