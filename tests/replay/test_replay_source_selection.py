import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
from twinlink_replay.blocks.observer import Record
from twinlink_replay.twin.decision_path import DecisionPath
from twinlink_replay.twin.decisions import Decisions
from twinlink_replay.twin.fidelity import Fidelity
from twinlink_replay.twin.source_selection import ABANDON_AFTER_NS, SourceSelection
from twinlink_replay.twin.trials import Trials
from twinlink_replay.twin.twin import Twin

import twinlink
from twinlink import digest
from twinlink.appkit.journal import Journal
from twinlink.testing import free_endpoint


def record(epoch: int, n_prbs: int = 1, scs_hz: int = 30_000, centre_hz: float = 3.6e9) -> Record:
    return Record(np.zeros((12 * n_prbs, 2), np.int16), 0, epoch, 0, 0, 0, -1, scs_hz, centre_hz)


def two_up() -> SourceSelection:
    source_selection = SourceSelection()
    source_selection.up("gnb-a", 1)
    source_selection.up("gnb-b", 2)
    assert source_selection.accepts(record(1), 0)
    return source_selection


def test_another_session_is_skipped_while_the_first_is_up() -> None:
    source_selection = two_up()
    assert not source_selection.accepts(record(2), 2 * ABANDON_AFTER_NS)
    assert source_selection.accepts(record(1), 2 * ABANDON_AFTER_NS)
    assert (source_selection.epoch, source_selection.node(1), source_selection.node(2)) == (1, "gnb-a", "gnb-b")


def test_prbs_spacing_and_centre_identify_the_carrier() -> None:
    source_selection = two_up()
    assert not source_selection.accepts(record(1, n_prbs=2), 0)
    assert not source_selection.accepts(record(1, scs_hz=15_000), 0)
    assert not source_selection.accepts(record(1, centre_hz=3.7e9), 0)
    source_selection.down(1, "closed", 0)
    assert not source_selection.accepts(record(2, centre_hz=3.7e9), 0)
    assert source_selection.accepts(record(2), 0)


def test_an_ended_session_is_abandoned_for_good() -> None:
    source_selection = two_up()
    source_selection.down(1, "closed", 0)
    assert source_selection.accepts(record(1), 0)  # a record that was still in the queue
    assert source_selection.accepts(record(2), 0)
    source_selection.down(2, "closed", 1)
    assert not source_selection.accepts(record(1), 1)
    source_selection.up("gnb-a", 1)
    assert source_selection.accepts(record(1), 1)


def test_a_silent_session_is_kept_unless_its_node_has_a_new_one() -> None:
    source_selection = two_up()
    source_selection.down(1, "silent", 0)
    assert not source_selection.accepts(record(2), ABANDON_AFTER_NS - 1)
    source_selection.up("gnb-a", 3)
    assert source_selection.accepts(record(3), 1)
    source_selection.down(3, "silent", 0)
    assert source_selection.accepts(record(2), ABANDON_AFTER_NS)


def test_a_session_that_returns_is_followed_again() -> None:
    source_selection = two_up()
    source_selection.down(1, "silent", 0)
    source_selection.up("gnb-a", 1)
    assert not source_selection.accepts(record(2), 2 * ABANDON_AFTER_NS)


@contextmanager
def running(log: Path) -> Iterator[Twin]:
    """A twin that observes only."""
    with Journal("test", log) as journal, twinlink.open("memory", listen=free_endpoint(1)) as link:
        fidelity = Fidelity(journal, lambda octets: None, lambda octets: None)
        decisions = Decisions(
            journal, DecisionPath(link), link.sync("spectrum"), fidelity, node="twin-1", session="0", validity_ms=1000,
            protected=frozenset(), control=False, trials=Trials(journal, False),
        )  # fmt: skip
        yield Twin(journal, decisions, None, None, fidelity)


def test_of_records_that_come_at_once_the_first_one_is_named(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    with running(log) as twin:
        twin.add([replace(record(1), sequence=k) for k in range(3, 20)])
    (first,) = [event for event in map(json.loads, log.read_text().splitlines()) if event["event"] == "first-record"]
    assert first["sequence"] == 3


def test_records_of_two_sessions_that_come_at_once_are_each_of_their_own(tmp_path: Path) -> None:
    """Or the first second of the new one would be compared as if all of it had been heard."""
    begin_ns = digest.begin_of(time.time_ns())
    with running(tmp_path / "log.jsonl") as twin:
        twin.add([replace(record(1), observed_ns=begin_ns)])
        twin.link_event(twinlink.PeerDown(time.time_ns(), "gnb-1", 1, "closed"))
        old = replace(record(1), observed_ns=begin_ns + 1)
        new = [replace(record(2), observed_ns=begin_ns + 2 * digest.WINDOW_NS + k) for k in range(3)]
        twin.add([old, *new])
        assert twin.records == 5
        for k in range(2):
            window = digest.Window(begin_ns + (2 + k) * digest.WINDOW_NS)
            window.count(window.begin_ns, 100)
            payload = window.digest(digest.Settings(1, 0, 1, 30_000, 3.6e9)).encode()
            twin.digest(twinlink.Message(payload, "digest", k, 2, "gnb-1", 0, time.time_ns()))
            twin.add([replace(record(2), observed_ns=window.begin_ns + digest.WINDOW_NS)])
        assert twin.fidelity.windows == 1
