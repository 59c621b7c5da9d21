"""Tables of Parquet, read with pandas and pyarrow."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas
import pyarrow.parquet
import pytest
from twinlink_export import parquet_export
from twinlink_export.decisions import Label
from twinlink_export.parquet_export import MESSAGES, PRBS, export
from twinlink_export.request import Request

import twinlink
from tests.export import scene
from tests.export.scene import BLOCKED, DECIDED, EPOCH, N_PRBS, ROUNDS, T0_NS, Scene
from tests.recording.recordings import json_records, rows
from twinlink.errors import ConfigurationError
from twinlink.protocol.rangeset import RangeSet
from twinlink.recording import verify
from twinlink.recording.writer import RecordingWriter
from twinlink.slots import Content, SlotSpectrum, db_octets, power_per_prb
from twinlink.testing import free_endpoint, patience, wait_until


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    return scene.record(tmp_path_factory.mktemp("recorded") / "twin.mcap")


def table(recording: Path, out: Path, kind: str = "messages", flows: tuple[str, ...] = ("*",)) -> pandas.DataFrame:
    outcome = export(Request([recording], out, flows, kind))
    found = pandas.read_parquet(out)
    assert outcome.written == {out: len(found)}
    assert outcome.problems == []
    return found


def ns(times: pandas.Series) -> list[int]:
    return [int(one) for one in times.astype("int64")]


def test_a_row_a_message(recorded: Scene, tmp_path: Path) -> None:
    found = table(recorded.path, tmp_path / "x.parquet")
    assert list(found.columns) == list(MESSAGES)
    for direction in ("received", "sent"):
        sent = rows(recorded.path, direction)
        of = found[found.direction == direction]
        assert len(sent) == len(of)
        assert list(of.flow) == [one.flow for one in sent]
        assert list(of.sequence) == [one.sequence for one in sent]
        assert list(of.octets) == [len(one.payload) for one in sent]
        assert ns(of.sent_ns) == [one.sent_ns for one in sent]
        assert list(of.epoch) == [f"{one.epoch:016x}" for one in sent]
        if direction == "received":
            assert ns(of.received_ns) == [one.log_ns for one in sent]
            assert list(of.delay_ns) == [one.log_ns - one.sent_ns for one in sent]
        else:
            assert of.received_ns.isna().all()
            assert of.delay_ns.isna().all()
    assert set(found.node) == {"gnb", "twin"}
    assert not found.lost.any()
    (clock,) = json_records(recorded.path, "_clock")
    from_gnb = found[found.node == "gnb"]
    assert set(from_gnb.clock_offset_ns) == {clock["offset_ns"]}
    assert set(from_gnb.clock_bound_ns) == {clock["bound_ns"]}
    assert found[found.node == "twin"].clock_bound_ns.isna().all()

    flows = table(recorded.path, tmp_path / "y.parquet", flows=("control*",)).flow
    assert list(flows) == ["control", "control-result"]


def test_what_is_missing_has_a_row(tmp_path: Path) -> None:
    path = scene.write(tmp_path / "x.mcap", [(1, b"one"), (4, b"four")], RangeSet([(2, 4)]), flow="x")
    found = table(path, tmp_path / "x.parquet")
    assert list(found.sequence) == [1, 4, 2, 3]
    assert list(found.lost) == [False, False, True, True]
    assert list(found.reason.astype(object).where(found.lost, None)) == [None, None, "source", "source"]
    assert found.received_ns.isna().tolist() == found.octets.isna().tolist() == [False, False, True, True]
    assert ns(found.received_ns[:2]) == [T0_NS, T0_NS + 1_000_000]


def test_what_no_peer_got_is_lost(tmp_path: Path) -> None:
    endpoint = free_endpoint()
    with twinlink.open("memory", listen=endpoint, node="twin") as twin, twin.record(tmp_path / "x.mcap"):
        for number in range(3):
            twin.sender("x").send(str(number))
        with twinlink.open("memory", connect=endpoint, node="gnb") as gnb:
            gnb.receiver("x", handler=lambda message: None)
            gnb.wait_ready(patience())
            wait_until(lambda: twin.peers() == ["gnb"])
            twin.sender("x").send("to the peer")
            with pytest.raises(twinlink.AckTimeout, match="3 messages"):
                twin.sender("x").flush(patience())
    found = table(tmp_path / "x.mcap", tmp_path / "x.parquet")
    (stream,) = verify(tmp_path / "x.mcap").streams
    lost = {number: one["reason"] for one in stream["lost"] for number in range(one["first"], one["end"])}
    assert set(lost) == {0, 1, 2}
    assert {row.sequence: row.reason for row in found[found.lost].itertuples()} == lost


def test_a_manifest_cannot_claim_rows_without_end(tmp_path: Path) -> None:
    path = scene.write(tmp_path / "x.mcap", [(1, b"one")], RangeSet([(2, 2**60)]), flow="x")
    with pytest.raises(ConfigurationError, match=r"x\.mcap: its manifest names 1,152,921,504,606,846,974 missing"):
        export(Request([path], tmp_path / "x.parquet"))
    assert not list(tmp_path.glob("x.parquet*"))
    assert export(Request([path], tmp_path / "x.parquet", ["y"])).written == {tmp_path / "x.parquet": 0}


def test_a_row_a_prb(recorded: Scene, tmp_path: Path) -> None:
    found = table(recorded.path, tmp_path / "x.parquet", "prbs")
    assert list(found.columns) == list(PRBS)
    symbols = found[found.flow == "spectrum"]
    assert len(symbols) == ROUNDS * N_PRBS
    power = np.stack([power_per_prb(one.samples.astype(np.float32)[None, None])[0, 0] for one in recorded.spectra])
    np.testing.assert_array_equal(symbols.power.to_numpy().reshape(ROUNDS, N_PRBS), power)
    assert ns(symbols.time_ns) == [one.observed_ns for one in recorded.spectra for _ in range(N_PRBS)]
    assert list(symbols.prb[:N_PRBS]) == list(range(N_PRBS))
    assert symbols.symbol.isna().all()
    for column in (symbols.detected, symbols.blocked):
        for number, marks in enumerate(column.to_numpy().reshape(ROUNDS, N_PRBS)):
            if number <= DECIDED:
                assert all(mark is None for mark in marks)
            else:
                assert tuple(np.flatnonzero(marks)) == BLOCKED

    whole = found[found.flow == "slots"]
    expected = []
    for message in recorded.slots:
        for one in message.slots:
            numbers = [symbol for symbol in range(14) if one.symbols >> symbol & 1]
            values = message.power(one)
            for antenna in (0, 1):
                for place, symbol in enumerate(numbers):
                    for prb in range(N_PRBS):
                        expected.append((one.sfn, one.slot, antenna, symbol, 20 + prb, values[antenna, place, prb]))
    got = whole[["sfn", "slot", "antenna", "symbol", "prb", "power"]].to_numpy()
    np.testing.assert_array_equal(got, np.array(expected))


@pytest.mark.parametrize("content", [Content.POWER, Content.POWER_DB])
def test_power_as_it_was_sent(content: Content, tmp_path: Path) -> None:
    power = np.linspace(1, 5000, N_PRBS, dtype=np.float32).reshape(1, 1, N_PRBS)
    data = power if content is Content.POWER else db_octets(power)
    one = scene.slot(0)
    sent = SlotSpectrum(
        24, 0, 24, (3,), 30_000, 0.0, 1.0, content, True, slots=(type(one)(data, 5, 6, one.symbols, T0_NS),)
    )
    path = scene.write(tmp_path / "x.mcap", [(0, sent.encode())])
    found = table(path, tmp_path / "x.parquet", "prbs")
    np.testing.assert_array_equal(found.power.to_numpy(), sent.power(sent.slots[0]).reshape(-1))
    assert found.symbol.isna().all()
    assert (set(found.antenna), set(found.sfn), set(found.slot)) == ({3}, {5}, {6})


def test_labels_are_the_truth(tmp_path: Path) -> None:
    with RecordingWriter(tmp_path / "x.mcap", {}, "00000000000000aa", {EPOCH: "gnb"}) as writer:
        spans = ("ue", 0, 1, 2, 4), ("interferer", 1, 2, 3, 5), ("ue", 3, 9, 0, 1)
        for number, (name, first, last, low, high) in enumerate(spans):
            times = (T0_NS + first * 10_000_000, T0_NS + last * 10_000_000)
            writer.add("labels", EPOCH, number, T0_NS, T0_NS, Label(name, *times, low, high).encode())
        writer.add("labels", EPOCH, 3, T0_NS, T0_NS, b"no label")
        for number in range(3):
            writer.add("spectrum", EPOCH, number, T0_NS, T0_NS, scene.spectrum(number).encode())
    found = table(tmp_path / "x.mcap", tmp_path / "x.parquet", "prbs").truth.astype(object).to_numpy()
    truth = [{prb: name for prb, name in enumerate(row) if isinstance(name, str)} for row in found.reshape(3, N_PRBS)]
    assert truth == [
        {2: "ue", 3: "ue"},
        {2: "ue", 3: "interferer,ue", 4: "interferer"},
        {3: "interferer", 4: "interferer"},
    ]


def test_rows_are_written_in_batches(recorded: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_export, "BATCH_ROWS", 1000)
    whole, parts = tmp_path / "whole.parquet", tmp_path / "parts.parquet"
    found = table(recorded.path, parts, "prbs")
    monkeypatch.undo()
    pandas.testing.assert_frame_equal(found, table(recorded.path, whole, "prbs"), check_categorical=False)
    assert pyarrow.parquet.ParquetFile(parts).num_row_groups >= 10
    assert pyarrow.parquet.ParquetFile(whole).num_row_groups == 1


def test_without_pyarrow_the_error_names_the_extra(recorded: Scene, tmp_path: Path) -> None:
    command = ["export", str(recorded.path), "--out", str(tmp_path / "x.parquet")]
    code = f"import sys; sys.modules['pyarrow'] = None\nfrom twinlink.cli import main; sys.exit(main({command}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "pip install 'twinlink[parquet]'" in done.stderr
    assert "Traceback" not in done.stderr
