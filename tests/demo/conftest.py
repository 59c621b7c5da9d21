import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from twinlink_demo import pace

from tests.cli.running import Start, runs_ended_by


@pytest.fixture(scope="session")
def start() -> Iterator[Start]:
    """Starts the command with these arguments; what still runs at the end is interrupted, so that its parts end too."""
    with runs_ended_by(signal.SIGINT) as start:
        yield start


@pytest.fixture(scope="session")
def played(start: Start, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A demo over ZeroMQ, with identities, that has not failed: its folder, and the summary as it was printed.

    Where the machine is too busy to judge it, it is played again at half the pace, twice at most, as the demo advises.
    """
    slower: list[str] = []
    for _ in range(3):
        out = tmp_path_factory.mktemp("demo") / "out"
        demo = "demo", "--secure", "--out", str(out), "--transports", "zeromq", "--seconds", "5", "--json"
        run = start(*demo, *slower)
        assert run.code() == 0, run.err
        summary = json.loads(run.out[-1])
        if summary["verdict"] != "not judged":
            break
        slower = [f"--pace={max(summary['transports']['zeromq']['pace'] / 2, pace.LEAST):g}"]
    return out, summary
