"""A replay into ``twinlink-replay``: the same decisions, octet for octet, at every pace."""

import math
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from twinlink_replay.blocks.observer import Record
from twinlink_replay.twin.recorded_time import RecordedTime, is_replayed, session_of

import twinlink
from tests.recording.recordings import pair
from tests.replay.uplink_scenes import Interferer, Scene, hear
from twinlink.control import PrbBlock, PrbBlockResult
from twinlink.recording import Playback
from twinlink.spectrum import Spectrum
from twinlink.sync import Thresholds
from twinlink.testing import free_endpoint, patience, wait_until

MS, S = 1_000_000, 1_000_000_000
BEGAN_NS = 1_700_000_000 * S
RECORDS, SILENT_AT, GAP_AT = 400, 200, 250
HEARD = hear(Scene(n_prbs=51, n_records=RECORDS, interferers=(Interferer(100, 350, 30, 36, 20),)), 31)


def observed_ns(record: int) -> int:
    """A record every 10 ms, and a silence of three seconds."""
    return BEGAN_NS + record * 10 * MS + (3 * S if record >= SILENT_AT else 0)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a twin has received: records at another pace than they were observed at, and 40 are missing."""
    path = tmp_path_factory.mktemp("recorded") / "run.mcap"
    with pair("zeromq", free_endpoint()) as (twin, gnb):
        arrived: list[int] = []
        twin.receiver("spectrum", handler=lambda message: arrived.append(message.sequence))
        twin.receiver("control-result")
        with twin.record(path):
            sender = gnb.sender("spectrum")
            for number, samples in enumerate(HEARD.samples):
                if number == GAP_AT:
                    sender.skip(40)
                sender.send(Spectrum(samples, 51, 30_000, 3.6192e9, observed_ns(number)).encode())
                if number == SILENT_AT:
                    result = PrbBlockResult("prb-block-01234567-1", "installed", (30,), observed_ns(number))
                    gnb.sender("control-result").send(result.encode())
                time.sleep(0.005)
            sender.flush(patience())
            wait_until(lambda: len(arrived) == RECORDS)
    return path


def run(module: str, *arguments: str) -> "subprocess.Popen[bytes]":
    return subprocess.Popen([sys.executable, "-m", module, *arguments], stderr=subprocess.DEVNULL)


class Twin:
    """``twinlink-replay``, which listens."""

    def __init__(self, endpoint: str, folder: Path) -> None:
        folder.mkdir()
        self._endpoint, self._folder = endpoint, folder
        files = "--out", str(folder), "--log", str(folder / "log.jsonl")
        self._process = run("twinlink_replay", "--listen", endpoint, *files, "--buffer-mb", "1")
        self._octets = 0

    def decisions(self, recorded: Path, speed: float) -> list[bytes]:
        """What it sends while the recording is replayed."""
        sent: list[bytes] = []
        with twinlink.open("zeromq", connect=self._endpoint, node="player") as link:
            link.receiver("control", handler=lambda message: sent.append(bytes(message.payload)))
            link.wait_ready(patience())
            played = Playback([recorded])
            played.run(link, speed=speed)
            payloads = [one.payload for one in played.items() if one.payload and one.flow == "spectrum"]
            self._octets += sum(len(Spectrum.decode(payload).samples) * 4 for payload in payloads)
            rebuilt = self._folder / "rebuilt.sigmf-data"  # is written when the decisions have been sent
            wait_until(lambda: rebuilt.exists() and rebuilt.stat().st_size == self._octets)
            time.sleep(patience(1))
        return sent

    def events(self, name: str) -> int:
        return (self._folder / "log.jsonl").read_text().count(f'"event": "{name}"')

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(patience())


@pytest.fixture
def twin(endpoint: str, tmp_path: Path) -> Iterator[Twin]:
    made = Twin(endpoint, tmp_path / "out")
    yield made
    made.close()


def test_a_replay_has_the_same_decisions_at_every_pace(recorded: Path, twin: Twin) -> None:
    first, *others = (twin.decisions(recorded, speed) for speed in (1, 4, math.inf))
    assert others == [first, first]
    blocks = [PrbBlock.decode(payload) for payload in first]
    assert {block.reason for block in blocks} == {"interference", "the twin is out of sync"}
    assert blocks[0].issued_ns in {observed_ns(number) for number in range(100, 110)}
    silent = observed_ns(SILENT_AT - 1)
    assert silent + 2 * S in [block.issued_ns for block in blocks if "sync" in block.reason]
    assert (twin.events("replay"), twin.events("another-twin"), twin.events("block-result")) == (3, 0, 0)
    assert observed_ns(GAP_AT) in [block.issued_ns for block in blocks if "sync" in block.reason]


@pytest.mark.skipif(not os.environ.get("TWINLINK_TEST_DEMO"), reason="half a minute: TWINLINK_TEST_DEMO=1 runs it")
def test_the_demo_replayed_has_the_same_decisions_at_every_pace(twin: Twin, tmp_path: Path) -> None:
    """The RAN emulator's uplink by way of the exporter: five seconds with an interferer."""
    path, heard = tmp_path / "demo.mcap", free_endpoint()
    e3 = [f"--{name}=ipc://{tmp_path}/{name}" for name in ("setup", "to-dapp", "from-dapp")]
    carrier = ["--n-prbs=106", "--scs-khz=30", "--centre-hz=3619200000", "--insecure-control"]
    with twinlink.open("zeromq", listen=heard, node="twin") as link:
        arrived: list[int] = []
        link.receiver("spectrum", handler=lambda message: arrived.append(message.sequence))
        with link.record(path):
            exporter = run("twinlink_exporter", "--connect", heard, *e3, *carrier)
            emulator = run("twinlink_ran_emulator", *e3, "--hold", "0")
            assert emulator.wait(patience()) == 0
            exporter.terminate()
            exporter.wait(patience())
    assert len(arrived) == 550
    first, *others = (twin.decisions(path, speed) for speed in (1, 4, math.inf))
    assert len(first) > 5
    assert others == [first, first]


def record(observed: int, sequence: int, sent: int | None = None) -> Record:
    samples = np.zeros((12, 2), np.int16)
    return Record(samples, sequence, 1, observed, observed + MS if sent is None else sent, 0, -1, 30_000, 3.6e9)


def test_what_was_sent_long_after_it_was_observed_is_replayed() -> None:
    assert not is_replayed(record(BEGAN_NS, 0, BEGAN_NS + 500 * MS))
    assert is_replayed(record(BEGAN_NS, 0, BEGAN_NS + 5 * S))
    assert not is_replayed(record(BEGAN_NS, 0, BEGAN_NS - 5 * S))
    assert session_of("twin-1", record(BEGAN_NS, 0)) == session_of("twin-1", record(BEGAN_NS, 7))
    assert session_of("twin-1", record(BEGAN_NS, 0)) != session_of("twin-2", record(BEGAN_NS, 0))


def test_recorded_time_goes_on_where_the_recording_begins_anew() -> None:
    recorded = RecordedTime(Thresholds())
    for number in range(100):
        recorded.take(record(BEGAN_NS + number * 10 * MS, number))
    assert recorded.monotonic_ns == recorded.wall_ns == BEGAN_NS + 990 * MS
    recorded.take(record(BEGAN_NS + 900 * MS, 100))  # a step of the clock
    assert recorded.monotonic_ns == BEGAN_NS + 990 * MS
    recorded.take(record(BEGAN_NS - 9 * S, 101))
    recorded.take(record(BEGAN_NS - 9 * S + 10 * MS, 102))
    assert (recorded.wall_ns, recorded.monotonic_ns) == (BEGAN_NS - 9 * S + 10 * MS, BEGAN_NS + S)
    assert recorded.in_sync
    assert recorded.lapsed_ns is None
