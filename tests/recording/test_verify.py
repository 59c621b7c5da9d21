"""What is wrong with a file is found and placed; what is sound of it is saved; nothing that a file says is believed."""

import re
import struct
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import twinlink
from tests.recording.recordings import numbers, only, pair, rows
from twinlink.recording import RecordingError, Report, repair, verify
from twinlink.recording.mcap_file import MAGIC
from twinlink.testing import free_endpoint, patience

MESSAGES = 40
PLACE = re.compile(r"octets? (\d+)(?: to (\d+))?")


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the twin received: forty messages in four chunks or more."""
    path = tmp_path_factory.mktemp("recording") / "twin.mcap"
    with pair("memory", free_endpoint()) as (twin, gnb), twin.record(path) as recorder:
        twin.receiver("x", handler=lambda message: None)
        sender = gnb.sender("x")
        for number in range(MESSAGES):
            sender.send(number.to_bytes(4) + bytes(50))
            if number % 10 == 9:
                sender.flush(patience())
                recorder._wake.wait(0.2)  # a second for each chunk would be long
                recorder._series._chunk_due_s = 0
                recorder._wake.wait(0.2)
    report = verify(path)
    assert report.complete
    assert report.chunks >= 4
    return path


def places(report: Report, size: int) -> list[tuple[int, int]]:
    """Where the problems are said to be, to the octet or a range of them."""
    found = []
    for problem in report.problems:
        match = PLACE.search(problem)
        assert match, problem
        first = int(match[1])
        found.append((first, size if match[2] is None else int(match[2])))
    return found


def test_one_flipped_octet_is_found_and_placed(recording: Path, tmp_path: Path) -> None:
    whole, changed = recording.read_bytes(), tmp_path / "changed.mcap"
    for at in range(0, len(whole), 41):
        octets = bytearray(whole)
        octets[at] ^= 0x10
        changed.write_bytes(octets)
        if at < len(MAGIC):
            with pytest.raises(RecordingError):
                verify(changed)
            continue
        report = verify(changed)
        assert not report.sound
        assert any(first <= at <= last for first, last in places(report, len(whole))), (at, report.problems)
        damaged = [stream["missing"].get("damaged", []) for stream in report.streams if stream["flow"] == "x"]
        recorded = [stream["recorded"] for stream in report.streams if stream["flow"] == "x"]
        if report.cut_at is None:
            assert numbers(damaged[0]) | numbers(recorded[0]) == set(range(MESSAGES))


def test_a_damaged_chunk_costs_its_messages_alone(recording: Path, tmp_path: Path) -> None:
    octets = bytearray(recording.read_bytes())
    at = octets.index((17).to_bytes(4) + bytes(50)) + 20  # within message 17
    octets[at] ^= 1
    damaged, made = tmp_path / "damaged.mcap", tmp_path / "made.mcap"
    damaged.write_bytes(octets)
    lacking = repair(damaged, made)
    assert damaged.read_bytes() == octets
    missing = numbers(only(lacking.streams, "received", "x")["missing"]["damaged"])
    assert 17 in missing
    report = verify(made)
    assert (report.sound, report.complete, report.repaired) == (True, False, True)
    stream = only(report.streams, "received", "x")
    assert numbers(stream["missing"]["damaged"]) == missing
    held = {row.sequence: row.payload for row in rows(made, "received")}
    assert held == {n: n.to_bytes(4) + bytes(50) for n in set(range(MESSAGES)) - missing}
    with pytest.raises(RecordingError, match="nothing to repair"):
        repair(made, tmp_path / "again.mcap")
    with pytest.raises(FileExistsError):
        repair(damaged, made)
    assert not (tmp_path / "again.mcap").exists()


def test_a_file_that_is_cut_anywhere_keeps_its_whole_chunks(recording: Path, tmp_path: Path) -> None:
    whole = recording.read_bytes()
    cut, made = tmp_path / "cut.mcap", tmp_path / "made.mcap"
    most = 0
    for size in range(len(MAGIC), len(whole) - 1, 61):
        cut.write_bytes(whole[:size])
        try:
            lacking = repair(cut, made, overwrite=True)
        except RecordingError:
            assert not most
            continue
        assert any(first <= size for first, _ in places(lacking, size))
        report = verify(made)
        assert (report.sound, report.complete, report.repaired) == (True, lacking.cut_at is None, True)
        held = [row.sequence for row in rows(made, "received")]
        assert held == list(range(len(held)))
        assert len(held) >= most
        most = len(held)
        for stream in report.streams:
            assert stream["end"] is None or lacking.cut_at is None
    assert most == MESSAGES


def test_what_is_no_recording_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.mcap"
    for octets in (b"", b"PK\x03\x04", MAGIC, MAGIC + bytes(100), MAGIC + b"\x01" + bytes(8) + MAGIC):
        path.write_bytes(octets)
        try:
            report = verify(path)
        except RecordingError:
            continue
        assert not report.sound
        with pytest.raises(RecordingError):
            repair(path, tmp_path / "made.mcap")
    assert [each.name for each in tmp_path.iterdir()] == ["x.mcap"]


def test_no_length_of_a_file_takes_memory(recording: Path, tmp_path: Path) -> None:
    whole, path = recording.read_bytes(), tmp_path / "x.mcap"
    for length in (2**31, 2**40, 2**63, 2**64 - 1):
        for opcode in (1, 5, 6, 8, 12, 2):
            path.write_bytes(MAGIC + struct.pack("<BQ", opcode, length) + whole[8:])
            tracemalloc.start()
            try:
                assert not verify(path).sound
            except RecordingError:
                pass
            finally:
                peak = tracemalloc.get_traced_memory()[1]
                tracemalloc.stop()
            assert peak < 20 * len(whole) + 2**20


@settings(max_examples=80)
@given(data=st.data())
def test_hostile_files_are_judged(
    recording: Path, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    octets = bytearray(recording.read_bytes())
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.integers(8, len(octets) - 1))
        new = data.draw(st.binary(min_size=0, max_size=12))
        octets[at : at + data.draw(st.integers(0, 12))] = new
    folder = tmp_path_factory.mktemp("hostile")
    path = folder / "x.mcap"
    path.write_bytes(octets)
    try:
        report = verify(path)
        assert report.sound or report.problems
        if not report.sound:
            repair(path, folder / "made.mcap")
            assert verify(folder / "made.mcap").sound
    except RecordingError:
        pass
    assert {each.name for each in folder.iterdir()} <= {"x.mcap", "made.mcap"}


def test_a_manifest_that_says_what_the_file_does_not_hold_is_found(recording: Path, tmp_path: Path) -> None:
    """As its writer would: every CRC and hash of this one is right."""
    import json

    from twinlink.recording.mcap_file import McapFile
    from twinlink.recording.reader import RecordingFile

    file = RecordingFile(recording)
    found = file.manifest()
    file.close()
    assert found is not None
    manifest = found[0] | {"chunks": []}
    forged = McapFile(tmp_path / "forged.mcap", "forged", overwrite=False)
    forged.finish(json.dumps(manifest).encode())
    report = verify(tmp_path / "forged.mcap")
    assert not report.sound
    assert only(report.streams, "received", "x")["missing"]["damaged"] == [[0, MESSAGES]]


def test_a_recording_of_a_later_format_is_refused(recording: Path, tmp_path: Path) -> None:
    from twinlink.recording.mcap_file import McapFile

    later = McapFile(tmp_path / "later.mcap", "later", overwrite=False)
    later.finish(b'{"format": 2, "chunks": [], "streams": [], "others_left_out": 0}')
    with pytest.raises(RecordingError, match="format"):
        verify(tmp_path / "later.mcap")


def test_verify_reads_without_a_link(recording: Path) -> None:
    assert twinlink.open_links() == []
    assert verify(recording).messages > MESSAGES
