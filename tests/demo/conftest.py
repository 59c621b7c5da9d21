import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.running import Start, runs_ended_by


@pytest.fixture(scope="session")
def start() -> Iterator[Start]:
    """Starts the command with these arguments; what still runs at the end is interrupted, so that its parts end too."""
    with runs_ended_by(signal.SIGINT) as start:
        yield start


@pytest.fixture(scope="session")
def played(start: Start, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A demo over ZeroMQ, with identities, that has passed: its folder, and the summary as it was printed."""
    out = tmp_path_factory.mktemp("demo") / "out"
    run = start("demo", "--secure", "--out", str(out), "--transports", "zeromq", "--seconds", "5", "--json")
    assert run.code() == 0, run.err
    return out, json.loads(run.out[-1])
