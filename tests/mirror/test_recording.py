"""A recording made at a mirror is one of the observed node, and names what the mirror did not show."""

from pathlib import Path

import twinlink
from tests.cli.running import Start
from tests.recording.recordings import json_records, numbers, only, pair, rows
from twinlink.mirror import MIRROR_FLOW
from twinlink.recording import verify
from twinlink.testing import free_endpoint, patience, wait_until


def test_a_recording_at_a_mirror_has_both_directions(endpoint: str, tmp_path: Path, start: Start) -> None:
    at, path = free_endpoint(), tmp_path / "run.mcap"
    with pair("zeromq", endpoint) as (twin, gnb), twin.mirror(at) as mirror:
        twin.receiver("spectrum", handler=lambda message: None)
        gnb.receiver("control", handler=lambda message: None)
        spectrum, control = gnb.sender("spectrum"), twin.sender("control")
        run = start("record", at, "--out", str(path))
        wait_until(lambda: mirror.stats()["frames"] > 0)
        sent = [bytes([number % 256]) * (10 + number) for number in range(500)]
        for number, payload in enumerate(sent):
            spectrum.send(payload)
            if number % 50 == 0:
                control.send(b"block")
        spectrum.flush(patience())
        control.flush(patience())
        # The acks have passed, too: the mirror has taken them, sends what it holds of them, and the recorder has it.
        wait_until(lambda: not mirror._capture.items)
        shown = mirror._sender.stats()["sent"]
        wait_until(lambda: mirror._sender.stats()["sent"] > shown)
        mirror._sender.flush(patience())
        run.interrupt()
        assert run.code() == 0
    assert [row.payload for row in rows(path, "received", "spectrum")] == sent
    assert [row.payload for row in rows(path, "sent", "control")] == [b"block"] * 10
    report = verify(path)
    assert report.complete, report
    (peer,) = only(report.streams, "sent", "control")["peers"]
    assert (peer["node"], peer["acked"]) == ("gnb", [[0, 10]])
    (begin,) = [one for one in json_records(path, "_recorder") if one["type"] == "begin"]
    assert (begin["node"], begin["epoch"]) == ("twin", f"{twin.epoch:016x}")
    assert begin["configuration"]["observed"] == {"node": "twin", "epoch": f"{twin.epoch:016x}"}


def test_what_the_mirror_did_not_show_is_left_out_by_it(endpoint: str, tmp_path: Path) -> None:
    at, path, count = free_endpoint(), tmp_path / "run.mcap", 3000
    with (
        pair("zeromq", endpoint, send_timeout=patience()) as (twin, gnb),
        twin.mirror(at, queue_octets=100_000) as mirror,
        twinlink.open("zeromq", connect=at, node="looker") as looker,
    ):
        twin.receiver("x", handler=lambda message: None)
        sender = gnb.sender("x")
        with looker.record(path) as recorder:
            looker.receiver(MIRROR_FLOW, handler=lambda message: None)
            wait_until(lambda: mirror.stats()["frames"] > 0)
            for _ in range(count):
                sender.send(bytes(10_000))
            sender.flush(patience())
            sender.send(b"last")
            sender.flush(patience())
            wait_until(lambda: mirror.stats()["left_out"] > 0)
            wait_until(lambda: recorder.stats()["messages"] + recorder.stats()["left_out"] == count + 1)
        assert recorder.problem is not None
        assert "mirror" in recorder.problem
    report = verify(path)
    stream = only(report.streams, "received", "x")
    assert set(stream["left_out"]) == {"mirror"}
    recorded, left_out = numbers(stream["recorded"]), numbers(stream["left_out"]["mirror"])
    assert recorded | left_out == set(range(count + 1))
    assert {row.sequence for row in rows(path, "received", "x")} == recorded - left_out
