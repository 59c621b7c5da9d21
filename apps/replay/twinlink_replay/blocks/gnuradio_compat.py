"""GNU Radio, imported in one place so that its absence is explained once."""

import os
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
        if int(np.__version__.split(".")[0]) >= 2:
            numpy = f"GNU Radio 3.10 is usually built for numpy 1, and {np.__version__} is here: pip install 'numpy<2'"
            hint = f"{hint}; {numpy}" if isinstance(error, ModuleNotFoundError) else numpy
        raise GnuRadioMissing(f"GNU Radio cannot be imported ({error}): {hint}") from error
    return gr, pmt


gr, pmt = _load()


def do_without_home() -> str | None:
    """Call before the first flowgraph starts: where GNU Radio could not keep its settings, this removes ``$HOME``.

    They belong in ``$HOME/.gnuradio``, and where that cannot be made no flowgraph starts; the user of a container often
    has no home.  Without the variable, GNU Radio 3.10 keeps them in ``$TMP``, or /tmp.  Returns why, or None.

    Raises TwinlinkError where that is no place either.
    """
    why = None
    if home := os.environ.get("HOME"):
        why = _cannot_be_kept(home)
        if why is None:
            return None
        del os.environ["HOME"]
    if nowhere := _cannot_be_kept(os.environ.get("TMP", "/tmp")):
        raise TwinlinkError(
            f"GNU Radio has no folder for its settings ({nowhere}): make that one writable (in Kubernetes with an "
            "emptyDir at /tmp), or set HOME or TMP to one that is"
        )
    return why


def _cannot_be_kept(place: str) -> str | None:
    try:
        for folder in (".gnuradio", ".gnuradio/prefs"):
            Path(place, folder).mkdir(exist_ok=True)
    except OSError as error:
        return f"{error.filename}: {error.strerror}"
    return None


def keep(block: Any) -> None:
    """Hold a Python block for the life of the process; every block of ours does so when it is made.

    GNU Radio 3.10's C++ side refers to a Python block without holding it: in ``tb.connect(Source(...), sink)`` the
    block is collected before the flowgraph starts, and starting it is a segmentation fault.
    """
    _kept.append(block)


_kept: list[Any] = []


def wake(block: Any) -> None:
    """Make the scheduler call ``block.work()`` now, from any thread.

    A source that returns 0 is called again after up to 250 ms.  A ``done`` message on the system port with value 0
    ends that wait and has no other effect.  `_post` is not public API; tests/replay/test_replay_source.py holds it in
    place.
    """
    block.to_basic_block()._post(_SYSTEM, _NOT_DONE)


_SYSTEM = pmt.intern("system")
_NOT_DONE = pmt.cons(pmt.intern("done"), pmt.from_long(0))  # pmt.from_bool would abort the process


def time_tag(time_ns: int) -> Any:
    """``rx_time`` as UHD writes it: whole seconds (uint64) and the fraction (double)."""
    seconds, rest = divmod(time_ns, 1_000_000_000)
    return pmt.make_tuple(pmt.from_uint64(seconds), pmt.from_double(rest / 1e9))


def time_of(tag: Any) -> int:
    """The inverse of `time_tag`, exact to the ns."""
    seconds, fraction = pmt.to_uint64(pmt.tuple_ref(tag, 0)), pmt.to_double(pmt.tuple_ref(tag, 1))
    return int(seconds * 1_000_000_000 + round(fraction * 1e9))
