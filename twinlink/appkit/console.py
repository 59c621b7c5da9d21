"""A command at the terminal: exit codes, errors, output, tables, Ctrl-C.

Results go to stdout, logs to stderr.  A command never shows a traceback unless ``TWINLINK_TRACEBACK`` is set.
"""

import contextlib
import errno
import io
import os
import shutil
import signal
import sys
import textwrap
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from twinlink.errors import AckTimeout, ConfigurationError, PeerTimeout, SendTimeout, TwinlinkError
from twinlink.process.readiness import is_readable
from twinlink.process.text import printable, to_json

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

DONE = 0  # done, and every requirement met
NOT_MET = 1  # a peer is missing, something was lost, or a requirement was not met
FAILED = 2  # the operation failed
BAD_ARGUMENTS = 3

_ONE_REQUEST_S = 0.3  # signals this close together are one request: `timeout -s INT` signals the process and its group
_UNBOUNDED = 10_000  # columns of a table that is not shown on a terminal: no line is wrapped
_LEAST_WORDS = 8  # characters of a column of words, which is folded; in less a name cannot be read
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_ADVICE = {
    **dict.fromkeys(_FULL, "make room there, or write elsewhere"),
    **dict.fromkeys((errno.ENOENT, errno.ENOTDIR, errno.EISDIR), "check the path"),
    **dict.fromkeys((errno.EACCES, errno.EPERM, errno.EROFS), "run as a permitted user, or name another path"),
    errno.EEXIST: "name another path",
    errno.EMFILE: "`ulimit -n` shows how many files this process may open, and sets a higher limit",
}


def log(name: str, text: str) -> None:
    """Write one line to stderr."""
    tell(f"{name}: {text}\n")


def tell(text: str) -> None:
    """Write to stderr; a command does not fail because stderr is closed or full."""
    with contextlib.suppress(OSError, AttributeError):  # AttributeError: closed by the shell, sys.stderr is None
        sys.stderr.write(printable(text))
        sys.stderr.flush()


@contextlib.contextmanager
def writing(place: Path) -> Iterator[None]:
    """Add ``place`` to the error of a full disk: the system names no file once it is open."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL and error.filename is None:
            error.filename = str(place)
        raise


def explain(error: OSError) -> str:
    """The message of a system error: which file, why, and what to do."""
    # a file that gets its name when it is whole (`process.files`) is called as the user has
    place = f"{str(error.filename).removesuffix(f'.{os.getpid()}.part')}: " if error.filename else ""
    advice = f"; {_ADVICE[error.errno]}" if error.errno in _ADVICE else ""
    return f"{place}{error.strerror or error}{advice}"


def wrapped(text: str) -> str:
    """Break long lines between words if stdout is a terminal; programs that read stdout get whole lines."""
    if sys.stdout is None or not sys.stdout.isatty():
        return text
    width = min(shutil.get_terminal_size().columns, 100)
    return "\n".join(textwrap.fill(line, width, subsequent_indent="    ") for line in text.splitlines())


def markdown(text: str) -> str:
    """Markdown laid out in the width of the terminal; elsewhere as it is."""
    from rich.markdown import Markdown

    return rendered(Markdown(text)) if sys.stdout is not None and sys.stdout.isatty() else text


def rendered(table: "RenderableType") -> str:
    """The text of a table: on a terminal in its width, with colours unless NO_COLOR is set; elsewhere plain lines.

    Where a terminal is too narrow for the columns, each row is a paragraph: rich would leave out whole columns.
    """
    from rich.console import Console
    from rich.table import Table

    terminal = sys.stdout is not None and sys.stdout.isatty()
    text = io.StringIO()  # rich would write to stdout even where there is nothing to write, and fail on a full disk
    console = Console(
        file=text,
        force_terminal=terminal,
        width=None if terminal else _UNBOUNDED,
        markup=False,
        emoji=False,
        highlight=False,
    )
    if terminal and isinstance(table, Table) and table.show_header and _least_width(table) > console.width:
        return _paragraphs(table, console.width)
    console.print(table)
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines())


def _least_width(table: "Table") -> int:
    """Columns of the terminal that a table of text needs so that figures are whole, and words can be read."""
    from rich.cells import cell_len

    _, right, _, left = table.padding
    width = (len(table.columns) - 1) * (left + right)
    for column in table.columns:
        widest = max(map(cell_len, map(str, [column.header, *column.cells])))
        width += widest if column.no_wrap else min(widest, _LEAST_WORDS)
    return width


def _paragraphs(table: "Table", width: int) -> str:
    """Each row as a paragraph, which begins with its first cell; each further cell follows its title."""
    titles = [str(column.header) for column in table.columns]
    paragraphs = []
    for first, *others in zip(*(map(str, column.cells) for column in table.columns), strict=True):
        cells = [f"{title} {cell}".strip() for title, cell in zip(titles[1:], others, strict=True) if cell]
        paragraphs.append(textwrap.fill(f"{first}: {', '.join(cells)}", width, subsequent_indent="    "))
    return "\n".join(paragraphs)


class Output:
    """Results on stdout: JSON Lines if ``as_json``, else text."""

    def __init__(self, as_json: bool) -> None:
        self.as_json = as_json

    def emit(self, record: dict[str, Any], text: str | None = None) -> None:
        """Print ``record`` as one line of JSON, or else ``text``; None prints nothing.

        A record without a ``type`` is a summary.
        """
        if self.as_json:
            self.line(to_json({"type": "summary"} | record))
        elif text is not None:
            self.line(text)

    def line(self, text: str) -> None:
        """Write a line, `printable`, and flush.  Raises as `write` does."""
        self.write(f"{printable(text)}\n".encode())

    def write(self, data: bytes) -> None:
        """Write octets and flush.

        Raises:
            BrokenPipeError: the reader of a pipe has left.
            TwinlinkError: standard output is closed, or the disk is full.
        """
        if sys.stdout is None:
            raise TwinlinkError("standard output is closed")
        try:
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            raise TwinlinkError(f"standard output cannot be written: {explain(error)}") from error


def ending_signals() -> list[int]:
    """The signals that ask a program to end: SIGINT, SIGTERM, and SIGHUP unless it is ignored, as by `nohup`."""
    numbers = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]
    return [each for each in numbers if each != signal.SIGHUP or signal.getsignal(each) != signal.SIG_IGN]


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Raise KeyboardInterrupt at each of the `ending_signals`, as at Ctrl-C: for work that can be done again."""
    before = {number: signal.signal(number, signal.default_int_handler) for number in ending_signals()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Stop:
    """The `ending_signals` as a request instead of an exception, so that no call of the library is interrupted.

    The second Ctrl-C raises KeyboardInterrupt as usual, so that a command that hangs can be ended.  Signals within
    `_ONE_REQUEST_S` of the first one count as the same request.

    Attributes:
        requested: whether the end was requested.
        fd: becomes readable at that moment.
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
        """Sleep up to ``seconds``; returns True at once when the end is requested."""
        is_readable(self.fd, max(0.0, seconds))
        return self.requested

    def _handle(self, number: int, _frame: object) -> None:
        now_s = time.monotonic()
        if not self.requested:
            self.requested, self._requested_s = True, now_s
            os.write(self._wake, b"\0")
        elif now_s - self._requested_s > _ONE_REQUEST_S:
            raise KeyboardInterrupt


def take_any_text() -> None:
    """Have stdout and stderr escape what they cannot encode: the names of files are any octets."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def guarded(name: str, body: Callable[[], int]) -> int:
    """Run the body of a command; an exception becomes one line on stderr and an exit code."""
    take_any_text()
    try:
        return body()
    except BrokenPipeError:
        return DONE  # the reader of the output has left, as `head` does
    except (PeerTimeout, AckTimeout, SendTimeout) as error:
        return _fail(name, str(error), NOT_MET)
    except ConfigurationError as error:
        return _fail(name, str(error), BAD_ARGUMENTS)
    except TwinlinkError as error:
        return _fail(name, str(error), FAILED)
    except OSError as error:
        return _fail(name, explain(error), FAILED)
    except ModuleNotFoundError as error:
        return _fail(name, missing_module(error), FAILED)
    except KeyboardInterrupt:
        return _fail(name, "interrupted", FAILED)
    except SystemExit as end:  # of argparse: --help, or bad arguments
        return end.code if isinstance(end.code, int) else FAILED
    except MemoryError:
        text = "there is not enough memory: end what is not needed, or raise the limit (`ulimit -v`, its container's)"
        return _fail(name, text, FAILED)
    except Exception as error:
        text = f"{type(error).__name__}: {error}; this is a bug in twinlink"
        if not os.environ.get("TWINLINK_TRACEBACK"):
            text += " (TWINLINK_TRACEBACK=1 shows where; please report it with that output)"
        return _fail(name, text, FAILED)
    finally:
        _discard_unwritten()


def missing_module(error: ModuleNotFoundError, requirement: str = "twinlink[demo]") -> str:
    """The message for a module that is not installed; pip installs it with ``requirement``."""
    return f"{error.name} is not installed; `pip install '{requirement}'` installs it"


def _fail(name: str, text: str, code: int) -> int:
    if os.environ.get("TWINLINK_TRACEBACK"):
        traceback.print_exc()
    log(name, text)
    return code


def _discard_unwritten() -> None:
    """Drop buffered output that cannot be written; the interpreter would report it and exit with code 120."""
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except OSError:
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, stream.fileno())
            os.close(null)
