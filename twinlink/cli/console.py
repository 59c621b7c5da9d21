"""What every command shares at the terminal: exit codes, errors, output, Ctrl-C.

Results go to stdout, logs to stderr.  A command never shows a traceback unless ``TWINLINK_TRACEBACK`` is set.
"""

import contextlib
import json
import os
import select
import signal
import sys
import traceback
from collections.abc import Callable
from typing import Any, Self

from twinlink.errors import AckTimeout, ConfigurationError, PeerTimeout, SendTimeout, TwinlinkError

DONE = 0  # done, and every requirement met
NOT_MET = 1  # a peer is missing, something was lost, a requirement was not met
FAILED = 2  # the operation failed
BAD_ARGUMENTS = 3


def log(name: str, text: str) -> None:
    """One line on stderr, for the person who watches; where nobody can, it is not worth failing for."""
    with contextlib.suppress(OSError, AttributeError):  # AttributeError: closed by the shell, sys.stderr is None
        sys.stderr.write(f"{name}: {text}\n")
        sys.stderr.flush()


class OutputError(TwinlinkError):
    """Standard output cannot be written: the disk is full, for example."""


class Output:
    """Results on stdout: JSON Lines when ``as_json``, else text."""

    def __init__(self, as_json: bool) -> None:
        self.as_json = as_json

    def emit(self, record: dict[str, Any], text: str | None = None) -> None:
        """Print ``record`` as one line of JSON, or ``text`` in its place; None prints nothing."""
        if self.as_json:
            self.write(json.dumps(record).encode() + b"\n")
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
            raise OutputError(f"standard output cannot be written: {error.strerror}") from error


class Stop:
    """Ctrl-C and SIGTERM as a request instead of an exception, so that no call of the library is torn in the middle.

    The second Ctrl-C is a KeyboardInterrupt as usual: a command that hangs can still be ended by hand.
    """

    def __init__(self) -> None:
        self.requested = False
        self.fd, self._wake = os.pipe()
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        for number in (signal.SIGINT, signal.SIGTERM):
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
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True
        os.write(self._wake, b"\0")


def guarded(name: str, body: Callable[[], int]) -> int:
    """Run a command's body; whatever it raises becomes one line on stderr and an exit code."""
    try:
        return body()
    except BrokenPipeError:
        _discard_stdout()  # the reader of our output has seen enough (`... | head`)
        return DONE
    except (PeerTimeout, AckTimeout, SendTimeout) as error:
        return _fail(name, str(error), NOT_MET)
    except ConfigurationError as error:
        return _fail(name, str(error), BAD_ARGUMENTS)
    except OutputError as error:
        _discard_stdout()
        return _fail(name, str(error), FAILED)
    except (TwinlinkError, OSError) as error:
        return _fail(name, str(error), FAILED)
    except ModuleNotFoundError as error:
        return _fail(name, f"{error.name} is not installed; `pip install 'twinlink[demo]'` brings it", FAILED)
    except KeyboardInterrupt:
        return _fail(name, "interrupted", FAILED)
    except SystemExit as end:  # argparse: --help, or bad arguments
        return end.code if isinstance(end.code, int) else FAILED
    except Exception as error:
        text = f"{type(error).__name__}: {error}; this is a bug in twinlink"
        if not os.environ.get("TWINLINK_TRACEBACK"):
            text += " (TWINLINK_TRACEBACK=1 shows where; please report it with that output)"
        return _fail(name, text, FAILED)


def _fail(name: str, text: str, code: int) -> int:
    if os.environ.get("TWINLINK_TRACEBACK"):
        traceback.print_exc()
    log(name, text)
    return code


def _discard_stdout() -> None:
    """Nothing that is still buffered can be written; without this the interpreter complains about it as it exits."""
    if sys.stdout is None:
        return
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)
