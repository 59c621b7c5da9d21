import os
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from twinlink.testing import patience

# GNU Radio reads it when it is imported.  twinlink-replay sets it, too; in a flowgraph it is the user's choice.
os.environ["GR_CONF_LOG_LOG_FILE"] = "stderr"

TRANSPORTS = ("zeromq", "zenoh")
_running: list[Any] = []  # flowgraphs that cannot be stopped, and so must not be deleted


@pytest.fixture(params=TRANSPORTS)
def transport(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(autouse=True)
def flowgraphs_are_stopped(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Also when a test fails: the deletion of a running flowgraph and the flowgraph wait for each other."""
    gr = sys.modules.get("gnuradio.gr")
    if gr is None:
        yield
        return
    started: list[Any] = []
    start = gr.top_block.start

    def start_and_note(top: Any, *arguments: Any) -> None:
        started.append(top)
        start(top, *arguments)

    monkeypatch.setattr(gr.top_block, "start", start_and_note)
    yield
    for top in started:
        top.stop()
        end = threading.Thread(target=top.wait, daemon=True)
        end.start()
        end.join(patience())
        if end.is_alive():
            _running.append(top)
            pytest.fail("a flowgraph was stopped and does not end: a block of it does not return")
