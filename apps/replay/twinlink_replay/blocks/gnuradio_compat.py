"""GNU Radio, imported in one place, so that one message explains its absence."""

import ctypes
import os
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np

from twinlink.errors import TwinlinkError


class GnuRadioMissing(TwinlinkError, ImportError):
    """GNU Radio cannot be imported; the message says what to install."""


def _load() -> tuple[Any, Any]:
    try:
        import pmt
        from gnuradio import gr
    except (ImportError, AttributeError) as error:
        hint = "apt install gnuradio, and use a Python that sees it (/usr/bin/python3 -m venv --system-site-packages)"
        if sys.version_info < (3, 13) and int(np.__version__.split(".")[0]) >= 2:  # later distributions: for numpy 2
            numpy = f"GNU Radio 3.10 is usually built for numpy 1, and {np.__version__} is here: pip install 'numpy<2'"
            hint = f"{hint}; {numpy}" if isinstance(error, ModuleNotFoundError) else numpy
        raise GnuRadioMissing(f"GNU Radio cannot be imported ({error}): {hint}") from error
    return gr, pmt


gr, pmt = _load()


def do_without_home() -> str | None:
    """Remove ``$HOME`` if GNU Radio cannot keep its settings there; call this before the first flowgraph starts.

    GNU Radio 3.10 starts no flowgraph if it cannot create ``$HOME/.gnuradio``, and the user of a container often has no
    home.  Without the variable it keeps its settings in ``$TMP``, or /tmp.

    Returns:
        The reason, or None if ``$HOME`` can be used.

    Raises:
        TwinlinkError: that folder cannot be written either.
    """
    why = None
    if home := os.environ.get("HOME"):
        why = _settings_error(home)
        if why is None:
            return None
        del os.environ["HOME"]
    if error := _settings_error(os.environ.get("TMP", "/tmp")):
        raise TwinlinkError(
            f"GNU Radio has no folder for its settings ({error}): make that one writable (in Kubernetes with an "
            "emptyDir at /tmp), or set HOME or TMP to one that is"
        )
    return why


def _settings_error(place: str) -> str | None:
    try:
        for folder in (".gnuradio", ".gnuradio/prefs"):
            Path(place, folder).mkdir(exist_ok=True)
    except OSError as error:
        return f"{error.filename}: {error.strerror}"
    return None


def keep(block: Any) -> None:
    """Keep a reference to a Python block until the process ends; every block of this package calls this.

    The C++ side of GNU Radio 3.10 does not hold a reference to a Python block.  In ``tb.connect(Source(...), sink)``
    the block is garbage-collected before the flowgraph starts, and the start ends in a segmentation fault.
    """
    _kept.append(block)


_kept: list[Any] = []


def wake(block: Any) -> None:
    """Make the scheduler call ``block.work()`` now; callable from any thread.

    The scheduler calls a source that returned 0 again after up to 250 ms.  A ``done`` message with value 0 on the
    system port ends that wait and has no other effect.  `_post` is not public API; tests/replay/test_replay_source.py
    fails if GNU Radio changes it.
    """
    block.to_basic_block()._post(_SYSTEM, _NOT_DONE)


_SYSTEM = pmt.intern("system")
_NOT_DONE = pmt.cons(pmt.intern("done"), pmt.from_long(0))  # pmt.from_bool would abort the process


class ThreadState:
    """Python's state of the scheduler's thread of a block, kept from its `start` to its `stop`.

    pybind11 makes such a state for each call into Python and deletes it afterwards if nothing else holds it: with its
    stack that takes as long as a short call of ``work``.
    """

    def __init__(self) -> None:
        self._thread: int | None = None

    def hold(self) -> None:
        """Call it in `start`."""
        if self._thread is None:
            self._thread = threading.get_ident()
            ctypes.pythonapi.PyGILState_Ensure()

    def release(self) -> None:
        """Call it in `stop`; only the thread that called `hold` can release its state."""
        thread, self._thread = self._thread, None
        if thread == threading.get_ident():
            ctypes.pythonapi.PyGILState_Release(_LOCKED)


_LOCKED = 0  # PyGILState_LOCKED: this thread had the interpreter's lock when it called `hold`


def time_tag(time_ns: int) -> Any:
    """``rx_time`` in UHD's format, whole seconds (uint64) and the fraction (double), of a Unix time in ns."""
    seconds, rest = divmod(time_ns, 1_000_000_000)
    return pmt.make_tuple(pmt.from_uint64(seconds), pmt.from_double(rest / 1e9))


def time_of(tag: Any) -> int:
    """Unix time in ns of a tag; the inverse of `time_tag`, exact to the ns."""
    seconds, fraction = pmt.to_uint64(pmt.tuple_ref(tag, 0)), pmt.to_double(pmt.tuple_ref(tag, 1))
    return int(seconds * 1_000_000_000 + round(fraction * 1e9))
