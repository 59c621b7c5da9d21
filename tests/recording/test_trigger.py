"""A triggered recording has what came before the trigger, as far as it was kept, and what follows."""

import signal
import time
from pathlib import Path
from typing import Any

import pytest

import twinlink
from tests.cli.running import Start
from tests.recording.recordings import json_records, numbers, only, pair, rows
from twinlink.control import PrbBlock, PrbBlockResult
from twinlink.events import Gap, PeerDown
from twinlink.mirror import MIRROR_FLOW
from twinlink.protocol.frames import AbandonReason, Kind, abandoned_body, frame
from twinlink.protocol.wire import RECEIVED
from twinlink.recording import Recorder, RecorderOptions, verify
from twinlink.recording.conditions import Conditions
from twinlink.recording.series import Series
from twinlink.recording.trigger import Trigger
from twinlink.runtime.capture import EventItem, FrameItem
from twinlink.state.record import HEAD, Record, Slot, Stamp
from twinlink.testing import free_endpoint, patience, wait_until

OWN, PEER = 1, 2


def send(sender: twinlink.Sender, count: int, recorder: Recorder, size: int = 100) -> None:
    """Send, and have all of it taken from the queue."""
    for _ in range(count):
        sender.send(bytes(size))
    sender.flush(patience())
    wait_until(lambda: not recorder._capture.items)


def triggers(path: Path) -> list[dict[str, Any]]:
    return [record for record in json_records(path, "_recorder") if record["type"] == "trigger"]


def test_what_came_before_is_written_and_what_follows(endpoint: str, tmp_path: Path) -> None:
    path = tmp_path / "run.mcap"
    with pair("memory", endpoint) as (twin, gnb), gnb.record(path, before_s=3600) as recorder:
        twin.receiver("x", handler=lambda message: None)
        sender = gnb.sender("x")
        send(sender, 10, recorder)
        assert not path.exists()
        assert recorder.stats()["messages"] == 0
        before_ns = time.time_ns()
        recorder.trigger("seen by a person")
        wait_until(path.exists)
        send(sender, 5, recorder)
    report = verify(path)
    assert report.complete
    assert only(report.streams, "sent", "x")["recorded"] == [[0, 15]]
    (trigger,) = triggers(path)
    assert trigger["reason"] == recorder.triggered == "seen by a person"
    assert before_ns <= trigger["time_ns"] <= time.time_ns()
    assert trigger["before_s"] > 0
    assert recorder.stats()["messages"] == 15


@pytest.mark.parametrize("how", [{"before_s": 0}, {"before_s": 3600, "queue_octets": 50_000}], ids=["time", "octets"])
def test_the_ranges_begin_with_the_oldest_message_kept(how: dict[str, Any], endpoint: str, tmp_path: Path) -> None:
    path = tmp_path / "run.mcap"
    with pair("memory", endpoint) as (twin, gnb), gnb.record(path, **how) as recorder:
        twin.receiver("x", handler=lambda message: None)
        sender = gnb.sender("x")
        for _ in range(20):
            send(sender, 1, recorder, 10_000)
        recorder.trigger()
        wait_until(path.exists)
        send(sender, 1, recorder)
    report = verify(path)
    assert report.complete
    stream = only(report.streams, "sent", "x")
    assert stream["recorded"] == [[stream["first"], 21]]
    assert stream["left_out"] == {}
    assert stream["first"] >= 15
    assert [row.sequence for row in rows(path, "sent")] == list(range(stream["first"], 21))


def test_a_file_ends_after_its_trigger_and_the_next_one_begins_the_next(endpoint: str, tmp_path: Path) -> None:
    files = [tmp_path / "run.mcap", tmp_path / "run.0001.mcap"]
    with pair("memory", endpoint) as (twin, gnb), gnb.record(files[0], before_s=0, after_s=0) as recorder:
        twin.receiver("x", handler=lambda message: None)
        sender = gnb.sender("x")
        for number, path in enumerate(files):
            send(sender, 10, recorder)
            recorder.trigger(f"number {number}")
            wait_until(path.exists)
            wait_until(lambda: not recorder._series.is_open)
        send(sender, 10, recorder)
    assert recorder.files == files
    reports = [verify(path) for path in files]
    assert [(report.complete, report.file, report.next_file) for report in reports] == [
        (True, 0, None),
        (True, 1, None),
    ]
    assert len({report.series for report in reports}) == 1
    assert [triggers(path)[0]["reason"] for path in files] == ["number 0", "number 1"]
    assert only(reports[1].streams, "sent", "x")["first"] == 20


def test_a_recording_that_is_not_triggered_leaves_no_file(endpoint: str, tmp_path: Path) -> None:
    with pair("memory", endpoint) as (twin, gnb), gnb.record(tmp_path / "run.mcap", before_s=10) as recorder:
        twin.receiver("x", handler=lambda message: None)
        send(gnb.sender("x"), 3, recorder)
    assert recorder.files == []
    assert list(tmp_path.iterdir()) == []


def test_in_a_recording_that_runs_a_trigger_is_a_mark(endpoint: str, tmp_path: Path) -> None:
    with twinlink.open("memory", listen=endpoint) as link, link.record(tmp_path / "run.mcap") as recorder:
        recorder.trigger("here")
    (mark,) = triggers(tmp_path / "run.mcap")
    assert mark["reason"] == "here"
    assert "before_s" not in mark


def test_at_a_mirror_a_message_of_the_observed_node_triggers(endpoint: str, tmp_path: Path) -> None:
    at, path = free_endpoint(), tmp_path / "run.mcap"
    with (
        pair("zeromq", endpoint) as (twin, gnb),
        twin.mirror(at) as mirror,
        twinlink.open("zeromq", connect=at, node="looker") as looker,
        looker.record(path, before_s=3600, on=["flow:alarm"]) as recorder,
    ):
        for flow in ("x", "alarm"):
            twin.receiver(flow, handler=lambda message: None)
        looker.receiver(MIRROR_FLOW, handler=lambda message: None)
        wait_until(lambda: mirror.stats()["frames"] > 0)
        for _ in range(10):
            gnb.sender("x").send(bytes(100))
        gnb.sender("x").flush(patience())
        gnb.sender("alarm").send(b"look")
        wait_until(lambda: recorder.triggered == "flow:alarm")
        gnb.sender("x").send(b"last")
        wait_until(lambda: recorder.stats()["messages"] == 12)
    report = verify(path)
    assert report.complete
    assert only(report.streams, "received", "x")["recorded"] == [[0, 11]]
    assert [row.payload for row in rows(path, "received", "alarm")] == [b"look"]


def received(sequence: int, flow: str = "x", payload: bytes = b"", kind: Kind = Kind.DATA) -> FrameItem:
    return FrameItem(RECEIVED, f"traffic/{flow}".encode(), frame(kind, PEER, sequence, 7, payload), 8)


@pytest.fixture
def series(tmp_path: Path) -> Series:
    options = RecorderOptions(before_s=3600, min_free_octets=0)
    return Series(tmp_path / "run.mcap", options, {"node": "twin"}, OWN, stats=dict, pause=lambda: None)


def test_what_was_missing_before_and_comes_after_is_expected(series: Series, tmp_path: Path) -> None:
    trigger = Trigger(series, (), 3600, None, 0)  # keeps nothing
    for sequence in (0, 2, 5):
        trigger.take(received(sequence))
    trigger.take(EventItem(Gap(1, "x", PEER, 1, 2)))
    trigger.trigger("now", 9)
    for sequence in (3, 6):
        trigger.take(received(sequence))
    series.end()
    stream = only(verify(tmp_path / "run.mcap").streams, "received", "x")
    assert (stream["first"], stream["carried"], stream["recorded"]) == (6, [[3, 5]], [[3, 4], [6, 7]])
    assert stream["missing"] == {"open": [[4, 5]]}  # 1 was given up before the recording


def test_what_its_sender_gave_up_before_is_not_missing(series: Series, tmp_path: Path) -> None:
    trigger = Trigger(series, (), 3600, None, 0)
    for sequence in (0, 3):
        trigger.take(received(sequence))
    trigger.take(received(4, payload=abandoned_body(AbandonReason.EVICTED, [(1, 3)]), kind=Kind.ABANDONED))
    trigger.trigger("now", 9)
    trigger.take(received(4))
    series.end()
    assert verify(tmp_path / "run.mcap").complete


def test_a_condition_that_is_met_again_begins_the_next_file_and_marks_the_open_one_seldom(series: Series) -> None:
    for after_s, files in ((0.0, 3), (3600.0, 1)):
        trigger, before = Trigger(series, ["flow:x"], 3600, after_s, 2**20), len(series.files)
        for sequence in range(3):
            trigger.take(received(sequence))
            trigger.look()
        series.end()
        assert len(series.files) - before == files
    assert [len(triggers(path)) for path in series.files] == [1] * 4


def desired(payload: bytes, column: str = "desired") -> bytes:
    """A message of a state."""
    return HEAD + Record(Slot("gnb-1", column), Stamp(1, "twin-1", 7), 1, 0, 1000, payload).encode()


def test_events_messages_and_interferers_are_conditions() -> None:
    conditions = Conditions(["gap", "peer-down", "flow:alarm", "interferer"])
    assert conditions.met(EventItem(Gap(1, "x", PEER, 0, 1))) == "gap"
    assert conditions.met(EventItem(PeerDown(1, "gnb", PEER, "silent"))) == "peer-down"
    assert conditions.met(EventItem(twinlink.events.PeerUp(1, "gnb", PEER))) is None
    assert conditions.met(received(0, "alarm")) == "flow:alarm"
    assert conditions.met(received(0, "alarms")) is None
    assert conditions.met(received(0, "alarm", kind=Kind.NAK)) is None
    for flow, payload, condition in (
        ("control", PrbBlock("b", (3, 4), 1, 10).encode(), "interferer"),
        ("control", b"tS" + bytes(113) + PrbBlock("b", (3, 4), 1, 10).encode(), "interferer"),
        ("control", PrbBlock("b", (), 1, 10).encode(), None),
        ("control", b"no block", None),
        ("state.prb-block", desired(PrbBlock("b", (3, 4), 1, 10).encode()), "interferer"),
        ("state.prb-block", desired(b"tS" + bytes(113) + PrbBlock("b", (3, 4), 1, 10).encode()), "interferer"),
        ("state.prb-block", desired(PrbBlock("b", (), 1, 10).encode()), None),
        ("state.prb-block", desired(PrbBlock("b", (3, 4), 1, 10).encode(), "installed"), None),
        ("state.prb-block", b"no state", None),
        ("control-result", PrbBlockResult("b", "installed", (3,), 1).encode(), "interferer"),
        ("control-result", PrbBlockResult("b", "cleared", (), 1).encode(), None),
        ("control-result", PrbBlockResult("b", "rejected", (3,), 1).encode(), None),
    ):
        assert conditions.met(received(0, flow, payload)) == condition


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"before_s": 1, "on": ["gaps"]}, "mean gap"),
        ({"before_s": 1, "on": ["flow:a/b"]}, "flow"),
        ({"before_s": 1, "on": "gap"}, "list"),
        ({"before_s": -1}, "before_s"),
        ({"on": ["gap"]}, "before_s"),
        ({"after_s": 3}, "before_s"),
    ],
)
def test_what_is_no_condition_is_refused(options: dict[str, Any], text: str, endpoint: str, tmp_path: Path) -> None:
    with twinlink.open("memory", listen=endpoint) as link:
        with pytest.raises(twinlink.ConfigurationError, match=text):
            link.record(tmp_path / "x.mcap", **options)
        (tmp_path / "there.mcap").write_bytes(b"of another program")
        with pytest.raises(FileExistsError):
            link.record(tmp_path / "there.mcap", before_s=1)
    assert [path.name for path in tmp_path.iterdir()] == ["there.mcap"]


def test_a_command_a_signal_and_a_message(endpoint: str, start: Start, tmp_path: Path) -> None:
    out = tmp_path / "run.mcap"
    arguments = ("--flows", "x", "--before", "3600", "--after", "0.2", "--on", "flow:alarm", "--json")
    run = start("record", "--listen", endpoint, "--out", str(out), *arguments)
    run.wait_for("waits for a trigger")
    with twinlink.open("zeromq", connect=endpoint, node="gnb") as gnb:
        gnb.wait_ready(patience())
        sender = gnb.sender("x")
        for number in range(10):
            sender.send(str(number))
        sender.flush(patience())
        run.process.send_signal(signal.SIGUSR1)
        run.wait_for("triggered by SIGUSR1: records to")
        wait_until(lambda: verify(out).sound)  # it has ended
        sender.send("10")
        sender.flush(patience())
        gnb.sender("alarm").send("look")
        run.wait_for("triggered by flow:alarm")
    run.wait_for("peer gnb is gone")
    run.interrupt()
    code, (summary,) = run.code(), run.records()
    assert code == 0, (summary, run.err)
    assert (summary["messages"], summary["files"]) == (11, 2)
    first, second = (verify(Path(path)) for path in summary["paths"])
    assert first.complete
    assert second.complete
    assert numbers(only(first.streams, "received", "x")["recorded"]) == set(range(10))
    assert numbers(only(second.streams, "received", "x")["recorded"]) == {10}


def test_a_command_that_nothing_triggers_says_so(endpoint: str, start: Start, tmp_path: Path) -> None:
    run = start("record", "--listen", endpoint, "--out", str(tmp_path / "x.mcap"), "--before", "5", "--time", "0.3")
    assert run.code() == 0
    assert "nothing has triggered" in run.out[0]
    wrong = start("record", "--listen", endpoint, "--out", str(tmp_path / "x.mcap"), "--before", "5", "--on", "gone")
    assert wrong.code() == 3
    assert "peer-down" in wrong.err
