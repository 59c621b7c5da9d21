import signal
from collections.abc import Iterator

import pytest

pytest.register_assert_rewrite("twinlink.testing")

from tests.cli.running import Run, Start  # noqa: E402  (it imports what is to be rewritten)

# A shell has what it starts in the background ignore Ctrl-C, and so would all that tests start and interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)


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
