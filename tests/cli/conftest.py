import socket
from collections.abc import Iterator

import pytest

from tests.cli.running import Run, Start


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts the command with these arguments; what still runs at the end is killed."""
    runs: list[Run] = []

    def _start(*arguments: str, **kwargs: object) -> Run:
        run = Run(list(arguments), **kwargs)
        runs.append(run)
        return run

    yield _start
    for run in runs:
        if run.process.poll() is None:
            run.process.kill()
        run.code()


@pytest.fixture
def endpoint() -> str:
    """A free port on loopback; the one behind it is free too, for transports that take two."""
    while True:
        with socket.socket() as first, socket.socket() as second:
            first.bind(("127.0.0.1", 0))
            port = first.getsockname()[1]
            try:
                second.bind(("127.0.0.1", port + 1))
            except (OSError, OverflowError):
                continue
            return f"tcp/127.0.0.1:{port}"
