"""`twinlink report` of recordings: the figures are those of the messages, from either side or from both."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from twinlink_results import results

import twinlink
from tests.cli.calling import call
from tests.recording.recordings import pair
from twinlink.appkit import records
from twinlink.testing import patience, wait_until

COUNT = 200


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[twinlink.Ack], list[twinlink.Message]]:
    """gnb.mcap and twin.mcap of a link, with the acks of one side and the messages of the other."""
    folder = tmp_path_factory.mktemp("recorded")
    acks: list[twinlink.Ack] = []
    got: list[twinlink.Message] = []
    with (
        pair("zeromq", twinlink.testing.free_endpoint()) as (twin, gnb),
        gnb.record(folder / "gnb.mcap"),
        twin.record(folder / "twin.mcap"),
    ):
        twin.receiver("spectrum", handler=got.append)
        gnb.receiver("control", handler=lambda message: None)
        spectrum = gnb.sender("spectrum", on_ack=acks.append)
        for number in range(COUNT):
            spectrum.send(bytes(100 + number))
        spectrum.flush(patience())
        control = twin.sender("control")
        for _ in range(10):
            control.send(b"block")
        control.flush(patience())
        wait_until(lambda: len(acks) == len(got) == COUNT)
    return folder, acks, got


def cells(out: Path) -> dict[str, dict[str, Any]]:
    found = json.loads((out / results.RESULTS).read_text())
    return {cell["id"]: cell for cell in found["cells"]}


@pytest.mark.parametrize("sides", [("gnb",), ("twin",), ("gnb", "twin"), ("twin", "gnb")])
def test_a_report_of_recordings_counts_every_message(sides: tuple[str, ...], recorded: Any, tmp_path: Path) -> None:
    folder, acks, got = recorded
    run = call("report", *(str(folder / f"{side}.mcap") for side in sides), "--out", str(tmp_path / "report"))
    assert run.code() == 0, run.err
    found = cells(tmp_path / "report")
    assert {name: cell["direction"] for name, cell in found.items()} == {
        "gnb-spectrum": "rw-dt",
        "twin-control": "dt-rw",
    }
    spectrum = found["gnb-spectrum"]["statistics"]
    assert (spectrum["n_sent"], spectrum["n_received"], spectrum["loss_ratio"]) == (COUNT, COUNT, 0)
    assert (tmp_path / "report" / results.REPORT).stat().st_size > 10_000
    sent = records.read(records.file(tmp_path / "report" / "records", "gnb-spectrum", "sent"))
    came = records.read(records.file(tmp_path / "report" / "records", "gnb-spectrum", "received"))
    assert came["received_ns"].tolist() == [message.received_ns for message in got]
    assert came["octets"].tolist() == [len(message.payload) for message in got]
    if "gnb" in sides:
        by_number = sorted(acks)
        assert sent["sent_ns"].tolist() == [ack.sent_ns for ack in by_number]
        assert sent["peer_received_ns"].tolist() == [ack.peer_received_ns for ack in by_number]
        # T4 of the ack is when its frame was taken in, before the application had it
        assert np.all(sent["received_ns"] <= [ack.received_ns for ack in by_number])
        assert np.all(sent["rtt_ns"] > 0)


def test_the_default_place_is_beside_the_recording_and_nothing_is_replaced(recorded: Any, tmp_path: Path) -> None:
    copy = tmp_path / "run.mcap"
    copy.write_bytes((recorded[0] / "gnb.mcap").read_bytes())
    assert call("report", str(copy)).code() == 0
    assert (tmp_path / "run-report" / results.REPORT).exists()
    again = call("report", str(copy))
    assert again.code() == 3
    assert "--overwrite" in again.err
    assert call("report", str(copy), "--overwrite").code() == 0


def test_a_cut_recording_is_reported_as_far_as_it_goes(recorded: Any, tmp_path: Path) -> None:
    whole = (recorded[0] / "twin.mcap").read_bytes()
    (tmp_path / "cut.mcap").write_bytes(whole[:-100])
    run = call("report", str(tmp_path / "cut.mcap"), "--json")
    assert run.code() == 0, run.err
    assert run.records()[-1]["complete"] is False


def test_what_is_no_recording_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("no recording")
    run = call("report", str(tmp_path / "notes.txt"))
    assert run.code() == 2
    assert "no MCAP file" in run.err
    assert not (tmp_path / "notes-report").exists()
