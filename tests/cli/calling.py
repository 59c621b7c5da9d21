"""The real command in the process of the test: for what ends at once and reaches no peer, and starts in no time."""

import io
import json
import os
import signal
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from typing import Any

import pytest

from tests.cli.running import PATIENCE_S
from twinlink.cli import main


class Called:
    """One call of the command that has ended, with what it wrote; it reads like `running.Run`."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self._code = code
        self.out = out.splitlines()
        self.err = err.removesuffix("\n")

    def code(self) -> int:
        """The exit code; no end may come with a traceback."""
        assert "Traceback" not in self.err
        return self._code

    def records(self) -> list[dict[str, Any]]:
        """Stdout as JSON Lines."""
        return [json.loads(line) for line in self.out]


def call(*arguments: str, program: Callable[[list[str]], int] = main) -> Called:
    """Call the command, or another program, with these arguments and the environment of `running.Run`.

    Signals have their handlers again afterwards.
    """
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    said, warned = io.BytesIO(), io.BytesIO()
    out, err = (io.TextIOWrapper(octets, "utf-8", write_through=True) for octets in (said, warned))
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        for name in [name for name in os.environ if name.startswith("TWINLINK_")]:
            patch.delenv(name)
        patch.setenv("TWINLINK_TIMEOUT", str(PATIENCE_S))
        try:
            code = program(list(arguments))
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)
    return Called(code, said.getvalue().decode(), warned.getvalue().decode())
