import os
import signal
import sys
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

# Hundreds of processes import twinlink.  Where bytecode is not kept, as in many containers, each would compile it: a
# third and more of what a start takes.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

pytest.register_assert_rewrite("twinlink.testing")

from tests.cli.running import Start, runs_ended_by  # noqa: E402  (it imports what is to be rewritten)
from twinlink.errors import TwinlinkError  # noqa: E402
from twinlink.process import internal_errors  # noqa: E402
from twinlink.process.internal_errors import InternalErrors  # noqa: E402
from twinlink.testing import free_endpoint  # noqa: E402

# How long an example takes is up to the machine.
settings.register_profile("whatever the machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("whatever the machine")

# Longest first, 20 s and more: a long file that begins last keeps one worker busy when the others have nothing left.
LONG_FILES = (
    "test_conformance.py",
    "test_sweep_settings.py",
    "test_lab_short.py",
    "test_goals.py",
    "test_replay_detector.py",
    "test_known_truths.py",
    "test_processes.py",
    "test_channels_exchange.py",
    "test_demo_command.py",
    "test_sweep_command.py",
    "test_fidelity_loop.py",
    "test_ping.py",
    "test_zenoh_client.py",
    "test_replay_source.py",
    "test_distributions.py",
    "test_newcomers.py",
    "test_mgen_command.py",
    "test_clock_command.py",
    "test_replay_command.py",
    "test_sweep_subjects.py",
    "test_report_command.py",
    "test_replay_sync.py",
    "test_figures.py",
    "test_pub_sub.py",
    "test_exporter_command.py",
    "test_replay_smoothing.py",
    "test_signals.py",
    "test_colosseum_radio_api.py",
    "test_programs.py",
    "test_flow_control.py",
    "test_emulator.py",
    "test_results.py",
    "test_host_names.py",
)

# A shell has what it starts in the background ignore Ctrl-C, and so would all that tests start and interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the files that take longest first."""
    order = {name: number for number, name in enumerate(LONG_FILES)}
    items.sort(key=lambda item: order.get(item.path.name, len(order)))


@pytest.fixture(autouse=True)
def ctrl_c() -> None:
    """A test before may have run a command in this process, which has a handler of its own."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def may_raise() -> None:
    """For a test that has threads or callbacks of twinlink raise."""


@pytest.fixture(autouse=True)
def none_raises(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No thread or callback of twinlink raises in a test of this process, but what a transport that fails does."""
    raised: list[str] = []
    add = InternalErrors.add

    def note(self: InternalErrors, where: str, error: BaseException, then: str) -> None:
        if isinstance(error, Exception) and not isinstance(error, TwinlinkError):  # the rest is Ctrl-C of a test
            raised.append(f"{where}: {error!r}")
        add(self, where, error, then)

    monkeypatch.setattr(InternalErrors, "add", note)
    internal_errors._recent.clear()
    yield
    assert raised == [] or "may_raise" in request.fixturenames


@pytest.fixture
def endpoint() -> str:
    """A free port on loopback; the one behind it is free too, for transports that take two."""
    return free_endpoint()


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts the command with these arguments; what still runs at the end is killed."""
    with runs_ended_by(signal.SIGKILL) as start:
        yield start
