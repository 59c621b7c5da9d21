import signal
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

pytest.register_assert_rewrite("twinlink.testing")

from tests.cli.running import Run, Start  # noqa: E402  (it imports what is to be rewritten)

# How long an example takes is up to the machine.
settings.register_profile("whatever the machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("whatever the machine")

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
