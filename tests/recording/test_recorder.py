"""A recording of real links holds what was sent, and names what it does not hold."""

import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import twinlink
from tests.recording.recordings import json_records, numbers, only, pair, rows
from twinlink.appkit import recorded_link
from twinlink.opening import open_attached
from twinlink.recording import verify
from twinlink.testing import free_endpoint, patience, wait_until

SIZES = (0, 1, 100, 71_232, 3_000_000)  # the last one travels in fragments
SEND_TIMEOUT_S = patience()


def send(sender: twinlink.Sender, count: int, size: int = 100) -> None:
    for number in range(count):
        sender.send(number.to_bytes(4) + bytes(size))
    sender.flush(patience())


@pytest.mark.parametrize("transport", ["zeromq", "zenoh", "websocket"])
def test_both_sides_record_what_was_sent(transport: str, endpoint: str, tmp_path: Path) -> None:
    got: list[twinlink.Message] = []
    with (
        pair(transport, endpoint, send_timeout=SEND_TIMEOUT_S) as (twin, gnb),
        gnb.record(tmp_path / "gnb.mcap"),
        twin.record(tmp_path / "twin.mcap"),
    ):
        twin.receiver("spectrum", handler=got.append)
        twin.receiver("small", handler=lambda message: None)
        spectrum, small = gnb.sender("spectrum"), gnb.sender("small")
        payloads = [bytes([number]) * size for number, size in enumerate(SIZES)]
        for payload in payloads:
            spectrum.send(payload)
        send(small, 3000)  # leave in bundles
        spectrum.flush(patience())
        wait_until(lambda: len(got) == len(SIZES))
    for name, direction in (("gnb", "sent"), ("twin", "received")):
        recorded = rows(tmp_path / f"{name}.mcap", direction)
        assert [row.payload for row in recorded if row.flow == "spectrum"] == payloads
        assert [int.from_bytes(row.payload[:4]) for row in recorded if row.flow == "small"] == list(range(3000))
        assert {row.epoch for row in recorded} == {gnb.epoch}
        report = verify(tmp_path / f"{name}.mcap")
        assert report.complete, report
    times = [(row.sent_ns, row.log_ns) for row in rows(tmp_path / "twin.mcap", "received", "spectrum")]
    assert times == [(message.sent_ns, message.received_ns) for message in got]
    (peer,) = only(verify(tmp_path / "gnb.mcap").streams, "sent", "small")["peers"]
    assert peer == {"epoch": f"{twin.epoch:016x}", "node": "twin", "acked": [[0, 3000]], "rejected": []}
    assert json_records(tmp_path / "gnb.mcap", "_clock")[0]["node"] == "twin"


def test_a_recording_begins_where_the_flows_stand(endpoint: str, tmp_path: Path) -> None:
    with pair("memory", endpoint) as (twin, gnb):
        twin.receiver("x", handler=lambda message: None)
        sender = gnb.sender("x")
        send(sender, 10)
        with gnb.record(tmp_path / "gnb.mcap"), twin.record(tmp_path / "twin.mcap"):
            send(sender, 5)
        send(sender, 5)
    for name, direction in (("gnb", "sent"), ("twin", "received")):
        report = verify(tmp_path / f"{name}.mcap")
        assert report.complete
        stream = only(report.streams, direction, "x")
        assert (stream["first"], stream["end"], stream["recorded"]) == (10, 15, [[10, 15]])


@pytest.mark.parametrize("transport", ["memory", "zeromq"])
def test_a_program_that_is_slow_to_begin_records_the_first_message_all_the_same(
    transport: Any, endpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a busy machine: between the link and its recorder, a peer has the time to come up and send."""
    record = twinlink.Link.record

    def record_late(link: twinlink.Link, *arguments: Any, **options: Any) -> Any:
        meeting.wait(0.3)
        return record(link, *arguments, **options)

    monkeypatch.setattr(twinlink.Link, "record", record_late)
    path, meeting = tmp_path / "twin.mcap", threading.Event()
    given = SimpleNamespace(
        transport=transport, listen=endpoint, connect=None, node="twin", identity=None, option=[], record=path,
        overwrite=False, require_identity=False,
    )  # fmt: skip
    with twinlink.open(transport, connect=endpoint, node="gnb") as gnb:

        def on_event(event: twinlink.Event) -> None:
            if isinstance(event, twinlink.PeerUp):
                gnb.sender("x").send(b"first")
                meeting.set()

        gnb.events(handler=on_event)
        with recorded_link.open_link(given, lambda *_, **__: None) as twin:  # type: ignore[arg-type]
            assert twin.receiver("x").receive(patience()) is not None
    assert only(verify(path).streams, "received", "x")["recorded"] == [[0, 1]]


def test_a_link_whose_recording_cannot_begin_is_given_back(endpoint: str, tmp_path: Path) -> None:
    def attach(link: twinlink.Link) -> None:
        link.record(tmp_path / "none" / "twin.mcap")

    for _ in range(2):
        with pytest.raises(FileNotFoundError):
            open_attached(attach, lambda: twinlink.open("zeromq", listen=endpoint))
    assert twinlink.open_links() == []
    twinlink.open("zeromq", listen=endpoint).close()


def test_a_mirror_that_cannot_be_opened_leaves_no_recording(endpoint: str, tmp_path: Path) -> None:
    """A program that is started again would be refused for it."""
    path, at = tmp_path / "twin.mcap", free_endpoint()
    given = SimpleNamespace(
        transport="zeromq", listen=endpoint, connect=None, node="twin", identity=None, option=[], record=path,
        overwrite=False, require_identity=False, mirror=at,
    )  # fmt: skip
    with (
        twinlink.open("zeromq", listen=at),
        pytest.raises(twinlink.TransportError, match="in use"),
        recorded_link.open_link(given, lambda *_, **__: None),  # type: ignore[arg-type]
    ):
        pass
    assert not path.exists()
    with recorded_link.open_link(given, lambda *_, **__: None) as link:  # type: ignore[arg-type]
        assert twinlink.open_links()[:1] == [link]
    assert verify(path).sound
    assert twinlink.open_links() == []


def test_only_the_named_flows_are_recorded(endpoint: str, tmp_path: Path) -> None:
    with pair("memory", endpoint) as (twin, gnb), gnb.record(tmp_path / "gnb.mcap", flows=["a*", "c"]):
        for flow in ("a1", "b", "c"):
            twin.receiver(flow, handler=lambda message: None)
            send(gnb.sender(flow), 3)
    assert {row.flow for row in rows(tmp_path / "gnb.mcap", "sent")} == {"a1", "c"}
    assert verify(tmp_path / "gnb.mcap").complete


def test_events_and_losses_are_recorded(endpoint: str, tmp_path: Path) -> None:
    with twinlink.open("memory", listen=endpoint, node="twin") as twin, twin.record(tmp_path / "twin.mcap"):
        sender = twin.sender("x")
        sender.send(b"no peer is there")
        with pytest.raises(twinlink.AckTimeout):
            sender.flush(0)
        with twinlink.open("memory", connect=endpoint, node="gnb") as gnb:
            gnb.wait_ready(patience())
            wait_until(lambda: twin.peers() == ["gnb"])
            gnb.receiver("x", handler=lambda message: None)
            send(sender, 2)
        wait_until(lambda: not twin.peers())
    types = [event["type"] for event in json_records(tmp_path / "twin.mcap", "_events")]
    assert {"Lost", "PeerUp", "PeerDown"} <= set(types)
    report = verify(tmp_path / "twin.mcap")
    assert report.complete  # it has the message that was lost
    (lost,) = only(report.streams, "sent", "x")["lost"]
    assert (lost["first"], lost["end"]) == (0, 1)


@pytest.mark.parametrize("how", [{"rotate_octets": 300_000}, {"rotate_s": 0.01}], ids=["size", "time"])
def test_no_message_is_lost_between_files(how: dict[str, Any], endpoint: str, tmp_path: Path) -> None:
    with (
        pair("zeromq", endpoint, send_timeout=SEND_TIMEOUT_S) as (twin, gnb),
        gnb.record(tmp_path / "gnb.mcap", **how),
        twin.record(tmp_path / "twin.mcap", **how),
    ):
        twin.receiver("x", handler=lambda message: None)
        sender = gnb.sender("x")
        send(sender, 400, 10_000)
        send(sender, 400, 10_000)
    for name, direction in (("gnb", "sent"), ("twin", "received")):
        files = sorted(tmp_path.glob(f"{name}*.mcap"), key=lambda path: verify(path).file or 0)
        reports = [verify(path) for path in files]
        assert len(files) >= 3
        assert all(report.complete for report in reports), reports
        assert [report.next_file for report in reports] == [path.name for path in files[1:]] + [None]
        assert len({report.series for report in reports}) == 1
        recorded = [row.sequence for path in files for row in rows(path, direction)]
        assert sorted(recorded) == list(range(800))


def test_what_a_slow_recorder_leaves_out_is_named(endpoint: str, tmp_path: Path) -> None:
    got: list[int] = []
    with (
        pair("memory", endpoint, send_timeout=SEND_TIMEOUT_S) as (twin, gnb),
        gnb.record(tmp_path / "gnb.mcap", queue_octets=2000) as recorder,
    ):
        twin.receiver("x", handler=lambda message: got.append(message.sequence))
        send(gnb.sender("x"), 20_000)
    assert got == list(range(20_000))
    counts = recorder.stats()
    assert 0 < counts["left_out"] < 20_000
    report = verify(tmp_path / "gnb.mcap")
    assert report.sound
    assert not report.complete
    stream = only(report.streams, "sent", "x")
    recorded, left_out = numbers(stream["recorded"]), numbers(stream["left_out"]["queue"])
    assert recorded == {row.sequence for row in rows(tmp_path / "gnb.mcap", "sent")}
    assert not recorded & left_out
    assert recorded | left_out == set(range(20_000))
    assert len(left_out) == counts["left_out"]


def test_while_too_little_is_free_nothing_is_written(endpoint: str, tmp_path: Path) -> None:
    with (
        pair("memory", endpoint) as (twin, gnb),
        gnb.record(tmp_path / "gnb.mcap", min_free_octets=2**62) as recorder,
    ):
        twin.receiver("x", handler=lambda message: None)
        send(gnb.sender("x"), 50)
    assert recorder.problem is not None
    assert not recorder.failed
    report = verify(tmp_path / "gnb.mcap")
    assert (report.sound, report.complete) == (True, False)
    assert only(report.streams, "sent", "x")["left_out"] == {"disk": [[0, 50]]}


def test_a_link_that_is_closed_ends_its_recording(endpoint: str, tmp_path: Path) -> None:
    with pair("memory", endpoint) as (twin, gnb):
        recorder = gnb.record(tmp_path / "gnb.mcap")
        twin.receiver("x", handler=lambda message: None)
        send(gnb.sender("x"), 3)
    assert recorder.closed
    recorder.close()
    assert verify(tmp_path / "gnb.mcap").complete


def refused(call: Callable[[], object], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        call()


def test_what_cannot_be_recorded_is_refused(endpoint: str, tmp_path: Path) -> None:
    there = tmp_path / "there.mcap"
    there.write_bytes(b"of another program")
    with twinlink.open("memory", listen=endpoint) as link:
        refused(lambda: link.record(there), FileExistsError, "there.mcap")
        refused(lambda: link.record(tmp_path / "x.mcap", rotate_s=0), twinlink.ConfigurationError, "rotate_s")
        refused(lambda: link.record(tmp_path / "x.mcap", flows="x"), twinlink.ConfigurationError, "flows")
        refused(lambda: link.record(tmp_path / "x.mcap", flow=["x"]), twinlink.ConfigurationError, "mean flows")  # type: ignore[call-arg]
        assert not (tmp_path / "x.mcap").exists()
        with link.record(tmp_path / "x.mcap"):
            refused(lambda: link.record(tmp_path / "y.mcap"), twinlink.ConfigurationError, "close that first")
        link.record(tmp_path / "y.mcap")
        link.close()
        refused(lambda: link.record(tmp_path / "z.mcap"), twinlink.LinkClosed, "closed")
    assert there.read_bytes() == b"of another program"


def test_a_next_file_that_exists_stays(endpoint: str, tmp_path: Path) -> None:
    other = tmp_path / "gnb.0001.mcap"
    other.write_bytes(b"of another recording")
    with pair("memory", endpoint) as (twin, gnb), gnb.record(tmp_path / "gnb.mcap", rotate_octets=1) as recorder:
        twin.receiver("x", handler=lambda message: None)
        send(gnb.sender("x"), 20, 1_000_000)
    assert len(recorder.files) > 1
    assert other not in recorder.files
    assert other.read_bytes() == b"of another recording"
