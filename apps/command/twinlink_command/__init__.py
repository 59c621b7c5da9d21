"""Start of the commands: Ctrl-C also ends a command without a traceback while its modules load.

Loading takes from a tenth of a second to some seconds on a busy machine; a Ctrl-C in that time would end in a
traceback.  Code inside `twinlink` would be loaded too late to prevent that, so this is a package of its own that
imports only what it needs.
"""

import os
import signal
from importlib import import_module


def _begin(module: str) -> int:
    heeded = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # a shell's background jobs ignore SIGINT
    is_init = os.getpid() == 1  # in a container: the kernel ignores signals to process 1 that have no handler
    if heeded:
        signal.signal(signal.SIGINT, _end if is_init else signal.SIG_DFL)
    if is_init:
        signal.signal(signal.SIGTERM, _end)
    main = import_module(module).main
    if heeded:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    code: int = main()
    return code


def _end(number: int, _frame: object) -> None:
    os._exit(128 + number)


def twinlink() -> int:
    """twinlink."""
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
