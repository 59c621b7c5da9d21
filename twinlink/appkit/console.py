"""What every command shares at the terminal: exit codes, errors, output, Ctrl-C.

Results go to stdout, logs to stderr.  A command never shows a traceback unless ``TWINLINK_TRACEBACK`` is set.
"""

import contextlib
import errno
import json
import os
import select
import shutil
import signal
import sys
import textwrap
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self

from twinlink.errors import AckTimeout, ConfigurationError, PeerTimeout, SendTimeout, TwinlinkError

DONE = 0  # done, and every requirement met
NOT_MET = 1  # a peer is missing, something was lost, a requirement was not met
FAILED = 2  # the operation failed
BAD_ARGUMENTS = 3

TWICE_S = 0.3  # `timeout -s INT` signals the process and its group: one wish to end it

_MEASURE = ("scipy", "matplotlib", "rich", "jsonschema")  # what the extra `measure` brings; `demo` brings these too
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_ADVICE = {
    **dict.fromkeys(_FULL, "make room there, or write elsewhere"),
    **dict.fromkeys((errno.ENOENT, errno.ENOTDIR, errno.EISDIR), "check the path"),
    **dict.fromkeys((errno.EACCES, errno.EPERM, errno.EROFS), "run as a user who may do that, or name another path"),
    errno.EEXIST: "name another path",
    errno.EMFILE: "`ulimit -n` shows how many this process may have, and takes a higher number",
}


def log(name: str, text: str) -> None:
    """One line on stderr, for the person who watches."""
    tell(f"{name}: {text}\n")


def tell(text: str) -> None:
    """Write to stderr; where nobody can read it, it is not worth failing for."""
    with contextlib.suppress(OSError, AttributeError):  # AttributeError: closed by the shell, sys.stderr is None
        sys.stderr.write(text)
        sys.stderr.flush()


def on_one_line(text: str) -> str:
    """For a log: what others chose (names, reasons) must neither look like further lines nor steer a terminal."""
    return text if text.isprintable() else "".join(one if one.isprintable() else ascii(one)[1:-1] for one in text)


@contextlib.contextmanager
def writing(place: Path) -> Iterator[None]:
    """A disk that is full is said with ``place``: the system names no file once one is open."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL and error.filename is None:
            error.filename = str(place)
        raise


def explain(error: OSError) -> str:
    """What the system refused, for a person: which file, why, and what to do."""
    place = f"{error.filename}: " if error.filename else ""
    advice = f"; {_ADVICE[error.errno]}" if error.errno in _ADVICE else ""
    return f"{place}{error.strerror or error}{advice}"


def wrapped(text: str) -> str:
    """Long lines broken between words where stdout is a terminal; as it is elsewhere, where programs read it."""
    if sys.stdout is None or not sys.stdout.isatty():
        return text
    width = min(shutil.get_terminal_size().columns, 100)
    return "\n".join(textwrap.fill(line, width, subsequent_indent="    ") for line in text.splitlines())


class OutputError(TwinlinkError):
    """Standard output cannot be written: the disk is full, for example."""


class Output:
    """Results on stdout: JSON Lines when ``as_json``, else text."""

    def __init__(self, as_json: bool) -> None:
        self.as_json = as_json

    def emit(self, record: dict[str, Any], text: str | None = None) -> None:
        """Print ``record`` as one line of JSON, or ``text`` in its place; None prints nothing.

        A record that has no ``type`` is a summary.
        """
        if self.as_json:
            self.write(json.dumps({"type": "summary"} | record).encode() + b"\n")
        elif text is not None:
            self.write(text.encode() + b"\n")

    def write(self, data: bytes) -> None:
        """Write octets as they are, at once.  Raises OutputError, or BrokenPipeError when the reader has left."""
        if sys.stdout is None:
            raise OutputError("standard output is closed")
        try:
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            raise OutputError(f"standard output cannot be written: {explain(error)}") from error


def ending_signals() -> list[int]:
    """Those that ask a program to end: Ctrl-C, SIGTERM, and the end of its terminal unless `nohup` has it ignored."""
    numbers = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]
    return [each for each in numbers if each != signal.SIGHUP or signal.getsignal(each) != signal.SIG_IGN]


class Stop:
    """The `ending_signals` as a request instead of an exception, so that no call of the library is torn in the middle.

    The second Ctrl-C is a KeyboardInterrupt as usual: a command that hangs can still be ended by hand.  What comes
    within `TWICE_S` of the first one belongs to it.
    """

    def __init__(self) -> None:
        self.requested = False
        self._requested_s = 0.0
        self.fd, self._wake = os.pipe()
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        for number in ending_signals():
            self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        os.close(self.fd)
        os.close(self._wake)

    def wait(self, seconds: float) -> bool:
        """Sleep up to ``seconds``; returns at once, and True, when the end is asked for."""
        select.select([self.fd], [], [], max(0.0, seconds))
        return self.requested

    def _handle(self, number: int, _frame: object) -> None:
        now_s = time.monotonic()
        if not self.requested:
            self.requested, self._requested_s = True, now_s
            os.write(self._wake, b"\0")
        elif now_s - self._requested_s > TWICE_S:
            raise KeyboardInterrupt


def guarded(name: str, body: Callable[[], int]) -> int:
    """Run a command's body; whatever it raises becomes one line on stderr and an exit code."""
    try:
        return body()
    except BrokenPipeError:
        return DONE  # the reader of our output has seen enough (`... | head`)
    except (PeerTimeout, AckTimeout, SendTimeout) as error:
        return _fail(name, str(error), NOT_MET)
    except ConfigurationError as error:
        return _fail(name, str(error), BAD_ARGUMENTS)
    except TwinlinkError as error:
        return _fail(name, str(error), FAILED)
    except OSError as error:
        return _fail(name, explain(error), FAILED)
    except ModuleNotFoundError as error:
        measures = name.startswith("twinlink ") and name != "twinlink demo"
        extra = "measure" if measures and error.name in _MEASURE else "demo"
        return _fail(name, f"{error.name} is not installed; `pip install 'twinlink[{extra}]'` brings it", FAILED)
    except KeyboardInterrupt:
        return _fail(name, "interrupted", FAILED)
    except SystemExit as end:  # argparse: --help, or bad arguments
        return end.code if isinstance(end.code, int) else FAILED
    except Exception as error:
        text = f"{type(error).__name__}: {error}; this is a bug in twinlink"
        if not os.environ.get("TWINLINK_TRACEBACK"):
            text += " (TWINLINK_TRACEBACK=1 shows where; please report it with that output)"
        return _fail(name, text, FAILED)
    finally:
        _discard_the_rest()


def _fail(name: str, text: str, code: int) -> int:
    if os.environ.get("TWINLINK_TRACEBACK"):
        traceback.print_exc()
    log(name, text)
    return code


def _discard_the_rest() -> None:
    """What is still buffered and cannot be written; else the interpreter would say so, and exit with 120."""
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except OSError:
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, stream.fileno())
            os.close(null)
