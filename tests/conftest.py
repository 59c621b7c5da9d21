import signal
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

pytest.register_assert_rewrite("twinlink.testing")

from tests.cli.running import Start, runs_ended_by  # noqa: E402  (it imports what is to be rewritten)
from twinlink.testing import free_endpoint  # noqa: E402

# How long an example takes is up to the machine.
settings.register_profile("whatever the machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("whatever the machine")

# A shell has what it starts in the background ignore Ctrl-C, and so would all that tests start and interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def ctrl_c() -> None:
    """A test before may have run a command in this process, which has a handler of its own."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def endpoint() -> str:
    """A free port on loopback; the one behind it is free too, for transports that take two."""
    return free_endpoint()


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts the command with these arguments; what still runs at the end is killed."""
    with runs_ended_by(signal.SIGKILL) as start:
        yield start
