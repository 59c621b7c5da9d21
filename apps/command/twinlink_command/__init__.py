"""Where the commands begin: Ctrl-C ends them without a traceback also while they are being loaded.

Loading takes from a tenth of a second to some seconds on a busy machine.  Python answers a Ctrl-C there with a
traceback, and once `twinlink` is being imported it is too late to help that: so this is a package of its own, which
imports nothing but what it needs.
"""

import os
import signal
from importlib import import_module


def _begin(module: str) -> int:
    heeded = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # what a shell starts with & ignores it
    first = os.getpid() == 1  # of a container: there the kernel ignores what has no handler
    if heeded:
        signal.signal(signal.SIGINT, _end if first else signal.SIG_DFL)
    if first:
        signal.signal(signal.SIGTERM, _end)
    main = import_module(module).main
    if heeded:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    code: int = main()
    return code


def _end(number: int, _frame: object) -> None:
    os._exit(128 + number)


def twinlink() -> int:
    """The command of this name, like those below."""
    return _begin("twinlink.cli")


def exporter() -> int:
    """twinlink-exporter."""
    return _begin("twinlink_exporter.__main__")


def ran_emulator() -> int:
    """twinlink-ran-emulator."""
    return _begin("twinlink_ran_emulator.__main__")


def replay() -> int:
    """twinlink-replay."""
    return _begin("twinlink_replay.__main__")
