"""kill -9, and disks that are full, cost a recording its open chunk and nothing else."""

import contextlib
import os
import random
import resource
import signal
import struct
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from mcap.exceptions import EndOfFile
from mcap.records import Message
from mcap.stream_reader import StreamReader

import twinlink
from tests.cli.running import Run, Start
from tests.recording.recordings import WIRE, json_records, numbers, only, rows
from twinlink.recording import RecordingError, Report, repair, verify
from twinlink.testing import patience, wait_until

KILLS = int(os.environ.get("TWINLINK_TEST_KILLS", "5"))  # 50 take a minute
AT_ONCE = 5
MIB = 1024 * 1024
LATEST_S = 2.5


def payload(number: int) -> bytes:
    return number.to_bytes(4) + random.Random(number).randbytes(200)


class Source:
    """Sends numbered messages on flow x until it is stopped."""

    def __init__(self, link: twinlink.Link) -> None:
        self._sender = link.sender("x", overflow="drop-oldest")
        self.sent = 0
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._ends.wait(0.001):
            self._sender.send(payload(self.sent))
            self.sent += 1

    def stop(self) -> None:
        self._ends.set()
        self._thread.join()


@pytest.fixture
def source(endpoint: str) -> Iterator[Source]:
    with twinlink.open("zeromq", listen=endpoint, node="gnb") as link:
        made = Source(link)
        yield made
        made.stop()


def in_whole_chunks(path: Path) -> set[int]:
    """The messages that mcap's own reader finds before the file is cut off."""
    found = set()
    with contextlib.suppress(EndOfFile, struct.error):  # which of them depends on where it was cut
        for record in StreamReader(str(path), validate_crcs=True).records:
            if isinstance(record, Message) and record.data[:2] == b"TL" and record.data[3] in (1, 5):
                found.add(WIRE.unpack_from(record.data)[3])
    return found


def missing_in(report: Report) -> set[int]:
    """The messages of flow x that are named as missing: some may be lost on their way, as the source drops them."""
    named = [one["missing"] | one["left_out"] for one in report.streams if one["flow"] == "x"]
    return {number for sides in named for ranges in sides.values() for number in numbers(ranges)}


def held(path: Path) -> set[int]:
    """The messages of a whole file, each as it was sent."""
    found = {row.sequence: row.payload for row in rows(path, "received", "x")}
    assert all(found[number] == payload(number) for number in found)
    return set(found)


@pytest.mark.parametrize("batch", range(-(-KILLS // AT_ONCE)))
@pytest.mark.parametrize("rotation", [[], ["--rotate-size", "60KB"]], ids=["one-file", "rotation"])
def test_a_recording_that_was_killed_can_be_made_whole(
    batch: int, rotation: list[str], endpoint: str, source: Source, start: Start, tmp_path: Path
) -> None:
    runs: list[Run] = []
    count = AT_ONCE if not rotation else 2
    for number in range(count):
        out = str(tmp_path / f"run{number}.mcap")
        runs.append(start("record", endpoint, "--out", out, *rotation))
    for run in runs:
        run.wait_for("peer gnb is up")
    moments = sorted((random.uniform(0, LATEST_S), number) for number in range(count))
    began = time.monotonic()
    for moment, number in moments:
        time.sleep(max(0.0, began + moment - time.monotonic()))
        runs[number].process.send_signal(signal.SIGKILL)
        runs[number].process.wait(patience())
    source.stop()
    for number in range(count):
        files = sorted(tmp_path.glob(f"run{number}*.mcap"), key=lambda path: (len(path.name), path.name))
        *whole, last = files
        before = [verify(path) for path in whole]
        assert all(one.sound for one in before)
        assert not verify(last).sound
        made = tmp_path / f"made{number}.mcap"
        lacking = repair(last, made)
        report = verify(made)
        assert report.sound
        assert not report.complete
        recorded = held(made)
        assert recorded == in_whole_chunks(last)
        everything = recorded.union(*map(held, whole))
        if not everything:
            continue
        for one in report.streams:
            assert one["end"] is None
            if one["flow"] == "x":
                assert numbers(one["recorded"]) == recorded
        missing = set().union(*map(missing_in, [*before, report]))
        assert not recorded & missing_in(report)
        # What was sent before is there or named, and what came after is named as unknown.
        firsts = [one["first"] for one in [*before, report][0].streams if one["flow"] == "x"]
        assert everything | missing >= set(range(firsts[0] if firsts else 0, max(everything) + 1))
        assert max(everything) < source.sent
        assert lacking.problems


@pytest.mark.parametrize("batch", range(-(-KILLS // AT_ONCE)))
def test_a_triggered_recording_that_was_killed_can_be_made_whole(
    batch: int, endpoint: str, source: Source, start: Start, tmp_path: Path
) -> None:
    run = start("record", endpoint, "--out", str(tmp_path / "run.mcap"), "--before", "0.3", "--after", "0.2")
    run.wait_for("peer gnb is up")
    for _ in range(3):
        time.sleep(random.uniform(0, 0.6))
        run.process.send_signal(signal.SIGUSR1)
    time.sleep(random.uniform(0.1, 0.6))
    run.process.send_signal(signal.SIGKILL)
    run.process.wait(patience())
    source.stop()
    files = sorted(tmp_path.glob("run*.mcap"), key=lambda path: (len(path.name), path.name))
    assert files
    before = -1
    for path in files:
        report, found = verify(path), path
        if not report.sound:
            assert path == files[-1]
            found = tmp_path / "made.mcap"
            repair(path, found)
            report = verify(found)
            assert held(found) == in_whole_chunks(path)
        assert report.sound
        if recorded := held(found):
            stream = only(report.streams, "received", "x")
            missing = missing_in(report)
            assert stream["first"] > before
            assert recorded | missing == set(range(stream["first"], stream["end"] or max(recorded) + 1))
            before = max(recorded)


def test_a_file_size_limit_costs_what_comes_after(endpoint: str, source: Source, start: Start, tmp_path: Path) -> None:
    """EFBIG, which any user can have, in place of a full disk: the recorder goes on, and says so."""

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))

    out = tmp_path / "run.mcap"
    run = start("record", endpoint, "--out", str(out), preexec_fn=limited)
    run.wait_for("until there is room")
    source.stop()
    run.interrupt()
    code = run.code()
    assert out.stat().st_size <= 200_000
    if code == 2:  # there was no room for the manifest, either
        assert "--repair" in run.err
        whole = in_whole_chunks(out)
        repair(out, tmp_path / "made.mcap")
        assert held(tmp_path / "made.mcap") == whole
        return
    assert code == 1
    report = verify(out)
    assert report.sound
    stream = only(report.streams, "received", "x")
    recorded = numbers(stream["recorded"])
    assert held(out) == recorded
    assert stream["left_out"]["disk"]
    assert not recorded & missing_in(report)
    assert recorded | missing_in(report) == set(range(stream["first"], stream["end"]))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 4 MB."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(place)], capture_output=True, text=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"this machine allows no mount: {mounted.stderr.strip()}")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def fill(path: Path) -> None:
    """Leave no room on its disk."""
    with contextlib.suppress(OSError), path.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))


def test_a_full_disk_costs_what_there_is_no_room_for(endpoint: str, small_disk: Path) -> None:
    ballast = small_disk / "ballast"
    with (
        twinlink.open("memory", listen=endpoint, node="twin", send_timeout=patience()) as twin,
        twinlink.open("memory", connect=endpoint, node="gnb", send_timeout=patience()) as gnb,
    ):
        gnb.wait_ready(patience())
        twin.receiver("x", handler=lambda message: None)
        sender = gnb.sender("x")
        with gnb.record(small_disk / "run.mcap", min_free_octets=0) as recorder:
            for number in range(20):
                sender.send(payload(number))
            wait_until(lambda: recorder.stats()["messages"] == 20)
            fill(ballast)
            for number in range(20, 420):
                sender.send(payload(number))
            wait_until(lambda: recorder.stats()["left_out"] == 400)
            ballast.unlink()
            for number in range(420, 440):
                sender.send(payload(number))
        assert recorder.problem is not None
    report = verify(small_disk / "run.mcap")
    assert report.sound
    assert not report.complete
    stream = only(report.streams, "sent", "x")
    assert stream["recorded"] == [[0, 20], [420, 440]]
    assert stream["left_out"] == {"disk": [[20, 420]]}
    found = {row.sequence: row.payload for row in rows(small_disk / "run.mcap", "sent", "x")}
    assert found == {number: payload(number) for number in (*range(20), *range(420, 440))}


def test_a_trigger_on_a_full_disk_waits_for_the_next(endpoint: str, small_disk: Path) -> None:
    ballast, path = small_disk / "ballast", small_disk / "run.mcap"
    with (
        twinlink.open("memory", listen=endpoint, node="twin") as twin,
        twin.record(path, before_s=3600, min_free_octets=0) as recorder,
    ):
        fill(ballast)
        recorder.trigger("too early")
        wait_until(lambda: recorder.problem is not None)
        assert recorder.triggered is None
        ballast.unlink()
        recorder.trigger("again")
        wait_until(lambda: recorder.triggered == "again")
    assert verify(path).complete


def test_a_trigger_is_in_the_file_although_the_disk_refused_its_chunk(endpoint: str, small_disk: Path) -> None:
    ballast, path = small_disk / "ballast", small_disk / "run.mcap"
    ballast.write_bytes(bytes(2 * MIB))
    with (
        twinlink.open("memory", listen=endpoint, node="twin") as twin,
        twin.record(path, before_s=3600, min_free_octets=3 * MIB) as recorder,
    ):
        recorder.trigger("on a full disk")
        wait_until(lambda: recorder.problem is not None)
        ballast.unlink()
    triggers = [record for record in json_records(path, "_recorder") if record["type"] == "trigger"]
    assert [record["reason"] for record in triggers] == ["on a full disk"]
    assert verify(path).sound


def test_a_recording_that_is_killed_on_a_full_disk_can_be_made_whole(
    endpoint: str, source: Source, start: Start, small_disk: Path, tmp_path: Path
) -> None:
    out, made = small_disk / "run.mcap", tmp_path / "made.mcap"
    (small_disk / "ballast").write_bytes(bytes(3_900_000))
    run = start("record", endpoint, "--out", str(out), "--min-free", "0")
    run.wait_for("until there is room")
    run.process.send_signal(signal.SIGKILL)
    run.process.wait(patience())
    source.stop()
    repair(out, made)
    assert verify(made).sound
    assert held(made) == in_whole_chunks(out)


def test_a_file_without_a_chunk_is_made_whole_as_well(tmp_path: Path) -> None:
    from twinlink.recording.mcap_file import McapFile

    McapFile(tmp_path / "run.mcap", "begun", overwrite=False).close()
    repair(tmp_path / "run.mcap", tmp_path / "made.mcap")
    report = verify(tmp_path / "made.mcap")
    assert (report.sound, report.complete) == (True, False)
    (tmp_path / "run.mcap").write_bytes((tmp_path / "run.mcap").read_bytes()[:12])
    with pytest.raises(RecordingError):
        repair(tmp_path / "run.mcap", tmp_path / "again.mcap")
