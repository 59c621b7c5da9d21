"""Late peers, peers over a slow path, and stopped peers beside others: real nodes in network namespaces."""

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from twinlink.testing import base

from . import faults
from .ledger import Row
from .marks import needs_namespaces
from .measuring import rss
from .schedule import Flow
from .test_lab_short import TRANSPORTS, rows
from .trial import PORT, Trial

STOPPED_S = 3.0  # PeerDown, the end of the connection, and what goes out in between


@needs_namespaces
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_bulk_sent_without_a_peer_does_not_delay_a_late_peer(tmp_path: Path, transport: str) -> None:
    """The path takes over a second for a millisecond's worth of bulk."""
    bulk, urgent = Flow("bulk", "rw", 1000.0, (3_000_000,)), Flow("urgent", "rw", 100.0, (100,), "high")
    with Trial(tmp_path, transport, (urgent, bulk), options={"retention": 4 * 2**20}, late="dt") as trial:
        faults.RateLimit(20).begin(trial)
        base.wait_until(lambda: len(rows(trial.nodes["rw"].ledger, Row.SENT)) > 50)
        before = rss(trial, "rw")
        trial.restart("dt")
        base.wait_until(lambda: len(rows(trial.nodes["dt"].ledger, Row.GOT)) > 50)
        assert rss(trial, "rw") < before + 64 * 2**20
        outcome = trial.finish()
    assert not outcome.broken
    assert outcome.verdict.findings == []


@needs_namespaces
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_peer_over_a_slow_path_is_not_sent_the_backlog_of_others(tmp_path: Path, transport: str) -> None:
    """And stays up: the data in flight to the quick peer take the path half a second."""
    bulk = Flow("bulk", "dt", 1000.0, (1_000_000,))
    with Trial(tmp_path, transport, (bulk,), options={"retention": 8 * 2**20}, late="rw") as trial:
        faults.RateLimit(80).begin(trial)
        with quick_receiver(trial, "bulk") as ledger:
            base.wait_until(lambda: len(rows(ledger, Row.GOT)) > 100)
            before = rss(trial, "dt")
            trial.restart("rw")
            base.wait_until(lambda: len(rows(trial.nodes["rw"].ledger, Row.GOT)) > 8)
            assert rss(trial, "dt") < before + 32 * 2**20
            outcome = trial.finish()
    assert not outcome.broken
    (session,) = (session for session in outcome.sessions if session.node == "rw")
    # It may report a gap of what was sent before it was up, and not owed to it (docs/reliability.md).
    told = [event.fields.get("reason") for event in session.events if event.name in {"PeerUp", "PeerDown"}]
    assert told in ([None], [None, "closed"])


@needs_namespaces
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_messages_for_a_stopped_peer_are_held_once(tmp_path: Path, transport: str) -> None:
    """Also while they are sent to other peers and the stopped peer's connection still exists."""
    bulk = Flow("bulk", "dt", 60.0, (1_000_000,))
    with Trial(tmp_path, transport, (bulk,)) as trial, quick_receiver(trial, "bulk") as ledger:
        base.wait_until(lambda: len(rows(ledger, Row.GOT)) > 100)
        before = most = rss(trial, "dt")
        stop = faults.Stop("rw")
        stop.begin(trial)
        until = time.monotonic() + STOPPED_S
        while time.monotonic() < until:
            most = max(most, rss(trial, "dt"))
            time.sleep(0.005)
        stop.end(trial)
        outcome = trial.finish()
    assert most < before + 80 * 2**20
    assert not outcome.broken


@contextlib.contextmanager
def quick_receiver(trial: Trial, flow: str) -> Iterator[Path]:
    """A third node, beside the listener; its ledger."""
    ledger = trial.folder / "quick.ledger"
    node = trial.world.start(
        trial.world.dt, "tests.faults.node", "--ledger", str(ledger), "--transport", trial.transport, "--node", "quick",
        "--connect", f"tcp/127.0.0.1:{PORT}", "--receive", flow,
    )  # fmt: skip
    try:
        base.wait_until(ledger.exists)
        yield ledger
    finally:
        node.kill()
        node.communicate()
