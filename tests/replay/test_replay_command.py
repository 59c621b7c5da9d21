"""``twinlink-replay`` as a process; this process is the gNB's side of the link."""

import argparse
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from twinlink_replay.__main__ import _wait, main

import twinlink
from tests.cli.calling import call
from tests.replay.evaluate import scores
from tests.replay.uplink_scenes import Heard, Interferer, Scene, hear
from twinlink.appkit.pulse import Pulse
from twinlink.control import PrbBlock, PrbBlockResult
from twinlink.recording import verify
from twinlink.spectrum import Spectrum
from twinlink.testing import patience, wait_until
from twinlink.transport_options import TransportName

HEARD = hear(Scene(n_prbs=51, n_records=400, interferers=(Interferer(100, 250, 30, 36, 15),)), 31)
WHOLE = tuple(range(30, 36))


class Replay:
    def __init__(self, folder: Path, *arguments: str) -> None:
        self.out, self.log = folder / "out", folder / "replay.jsonl"
        command = [sys.executable, "-m", "twinlink_replay", "--out", str(self.out), "--log", str(self.log), *arguments]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)

    def events(self, name: str) -> list[dict[str, Any]]:
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return [event for event in map(json.loads, lines) if event["event"] == name]

    def wait_for(self, name: str, count: int = 1) -> None:
        wait_until(lambda: len(self.events(name)) >= count)

    def end(self) -> tuple[int, str]:
        text = self.process.communicate(timeout=patience())[1]
        assert "Traceback" not in text
        return self.process.returncode, text

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def replay(tmp_path: Path) -> Iterator[Any]:
    started: list[Replay] = []

    def start(*arguments: str) -> Replay:
        started.append(Replay(tmp_path, *arguments))
        return started[-1]

    yield start
    for one in started:
        one.close()


def play(
    link: twinlink.Link, heard: Heard, slow: Callable[[int], bool] = lambda record: False, count: int | None = None
) -> None:
    """Send all records, or ``count``; a record for which ``slow`` is true follows 0.2 s after the previous one."""
    sender = link.sender("spectrum")
    for k, samples in enumerate(heard.samples[:count]):
        time.sleep(0.2 if slow(k) else 0.002)
        spectrum = Spectrum(samples, 51, 30_000, 3.6192e9, time.time_ns(), e3={"timestamp": k + 1})
        sender.send(spectrum.encode())
    sender.flush(patience())


def test_rebuilds_detects_and_closes_the_loop(transport: TransportName, endpoint: str, replay: Any) -> None:
    twin = replay("--transport", transport, "--listen", endpoint, "--count", "400", "--validity-ms", "600")
    asked: list[PrbBlock] = []
    with twinlink.open(transport, connect=endpoint, node="gnb-1") as gnb:
        results = gnb.sender("control-result")

        def answer(message: twinlink.Message) -> None:
            block = PrbBlock.decode(message.payload)
            asked.append(block)
            status = "installed" if block.prbs else "cleared"
            results.send(PrbBlockResult(block.id, status, block.prbs, time.time_ns()).encode())  # type: ignore[arg-type]

        gnb.receiver("control", handler=answer)
        gnb.wait_ready(patience())

        def slow(record: int) -> bool:
            """Blocks are renewed and withdrawn by the clock, so this leaves time on fast and slow machines."""
            if 150 <= record < 200:
                return WHOLE not in [block.prbs for block in asked]
            if 200 <= record < 240:
                return len(asked) == len({block.id for block in asked})
            return record > 350 and asked[-1].prbs != ()

        play(gnb, HEARD, slow)
        assert twin.end()[0] == 0

    rebuilt = np.fromfile(twin.out / "rebuilt.sigmf-data", "<i2")
    np.testing.assert_array_equal(rebuilt, HEARD.samples.ravel())
    meta = json.loads((twin.out / "rebuilt.sigmf-meta").read_text())
    assert meta["global"]["dapp:n_prbs"] == 51
    assert meta["captures"][0]["core:frequency"] == 3.6192e9

    found = np.load(twin.out / "observations.npz")
    np.testing.assert_array_equal(found["sequence"], np.arange(400))
    np.testing.assert_array_equal(found["e3_timestamp"], np.arange(1, 401))
    for early, late in (("observed_ns", "sent_ns"), ("sent_ns", "received_ns"), ("received_ns", "analysed_ns")):
        assert (found[early] <= found[late]).all()
    assert found["power_dbfs"].shape == found["occupied"].shape == (400, 51)
    score = scores(HEARD, found["interfered"])
    assert score.precision >= 0.95
    assert score.recall >= 0.95

    assert set(asked[0].prbs) <= set(range(30, 36))
    assert WHOLE in [block.prbs for block in asked]
    assert asked[-1].prbs == ()
    assert len(asked) > len({block.id for block in asked})  # renewed with the same id
    assert [event["id"] for event in twin.events("proposed")] == [block.id for block in asked]
    assert {event["status"] for event in twin.events("block-result")} == {"installed", "cleared"}
    assert twin.events("interference")[0]["first_record"] >= 100
    assert twin.events("interference-ended")
    assert twin.events("summary")[0]["records"] == 400


def test_no_control_only_observes(endpoint: str, replay: Any, tmp_path: Path) -> None:
    recording = tmp_path / "twin.mcap"
    twin = replay("--listen", endpoint, "--no-control", "--count", "400", "--record", str(recording))
    with twinlink.open("zeromq", connect=endpoint) as gnb:
        gnb.receiver("control")
        gnb.wait_ready(patience())
        play(gnb, HEARD)
        assert twin.end()[0] == 0
        assert gnb.receiver("control").receive(0) is None
    assert twin.events("interference")
    assert not twin.events("proposed")
    report = verify(recording)
    assert report.complete
    assert [(stream["flow"], stream["messages"]) for stream in report.streams] == [("spectrum", 400)]
    assert twin.events("recorded")[0]["messages"] == 400


def test_a_user_without_a_home(endpoint: str, replay: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/proc/none")  # not even root can make a folder there
    monkeypatch.setenv("TMP", str(tmp_path))
    twin = replay("--listen", endpoint, "--count", "1")
    with twinlink.open("zeromq", connect=endpoint) as gnb:
        gnb.wait_ready(patience())
        play(gnb, HEARD, count=1)
        assert twin.end()[0] == 0
    assert [event["reason"] for event in twin.events("no-home")] == ["/proc/none/.gnuradio: No such file or directory"]


def test_without_a_folder_for_gnu_radio_the_error_says_what_to_do(
    endpoint: str, replay: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/proc/none")
    monkeypatch.setenv("TMP", "/proc/none/either")
    code, said = replay("--listen", endpoint).end()
    assert code == 2
    assert "set HOME or TMP to one that is" in said


def test_what_cannot_be_decoded_is_logged_and_counted(
    endpoint: str, replay: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The source block logs by GNU Radio's logger, which twinlink-replay directs to stderr."""
    monkeypatch.delenv("GR_CONF_LOG_LOG_FILE")
    twin = replay("--listen", endpoint, "--count", "2")
    with twinlink.open("zeromq", connect=endpoint) as gnb:
        gnb.wait_ready(patience())
        gnb.sender("spectrum").send(b"junk")
        play(gnb, HEARD, count=1)
        code, text = twin.end()
    assert code == 1
    assert "1 records, 0 missing, 0 of them dropped here, 1 that cannot be decoded: have their sender send" in text
    assert "Twinlink Source :warning: flow 'spectrum': a message of 4 octets cannot be decoded" in text


@pytest.mark.parametrize("end", [("--count", "100"), ("--idle", "0.3"), ()], ids=lambda end: "".join(end) or "signal")
def test_a_sender_of_another_format_is_a_failure(endpoint: str, replay: Any, end: tuple[str, ...]) -> None:
    twin = replay("--listen", endpoint, *end)
    with twinlink.open("zeromq", connect=endpoint) as gnb:
        gnb.wait_ready(patience())
        sender = gnb.sender("spectrum")
        for samples in HEARD.samples[:100]:
            sender.send(samples)
        sender.flush(patience())
        if not end:
            twin.process.send_signal(signal.SIGINT)
        code, text = twin.end()
    assert code == 1
    assert "0 records, 0 missing, 0 of them dropped here, 100 that cannot be decoded: have their sender send" in text
    assert text.count("or give the block the payload format that is sent") == 1
    assert twin.events("summary")[0]["malformed"] == 100


def test_it_ends_when_no_record_arrives(endpoint: str, replay: Any) -> None:
    """One record, so that a pause between two on a busy machine cannot be taken for the end."""
    twin = replay("--listen", endpoint, "--idle", "0.3")
    with twinlink.open("zeromq", connect=endpoint) as gnb:
        gnb.wait_ready(patience())
        time.sleep(0.6)
        assert twin.process.poll() is None  # no record has arrived yet
        play(gnb, HEARD, count=1)
        assert twin.end()[0] == 0
    assert [(event["reason"], event["records"]) for event in twin.events("summary")] == [("idle", 1)]


def test_records_that_wait_to_be_analysed_are_no_silence() -> None:
    """On a busy machine, analysing what has arrived takes longer than --idle."""
    counted = {"waiting": 0, "malformed": 0}
    twin: Any = SimpleNamespace(last_ns=1, records=1, analysing=True, done=threading.Event(), look=lambda: None)
    source, observer = SimpleNamespace(stats=lambda: counted), SimpleNamespace(error=None)
    flowgraph: Any = SimpleNamespace(source=source, observer=observer)
    given = argparse.Namespace(idle=0.05, count=None)
    ended: list[str] = []
    waiting = threading.Thread(target=lambda: ended.append(_wait(given, threading.Event(), twin, flowgraph, Pulse())))
    waiting.start()
    waiting.join(0.3)
    assert ended == []
    counted["waiting"], twin.analysing = 1, False
    waiting.join(0.3)
    assert ended == []
    counted["waiting"] = 0
    waiting.join(patience())
    assert ended == ["idle"]


def test_a_replay_that_is_ended_amid_a_backlog_leaves_whole_files_and_says_what_it_left_out(
    endpoint: str, replay: Any
) -> None:
    heard = hear(Scene(n_prbs=273, n_records=100), 31)
    payloads = [
        Spectrum(samples, 273, 30_000, 3.6192e9, time.time_ns(), e3={"timestamp": k + 1}).encode()
        for k, samples in enumerate(heard.samples)
    ]
    twin = replay("--listen", endpoint)
    with twinlink.open("zeromq", connect=endpoint) as gnb:
        gnb.wait_ready(patience())
        sender = gnb.sender("spectrum")
        for k in range(1500):  # seconds of analysis, more than there is time for at the end
            sender.send(payloads[k % 100])
        sender.flush(patience())
        twin.process.send_signal(signal.SIGINT)
        code, text = twin.end()
    assert code == 0
    (summary,) = twin.events("summary")
    rows = {len(array) for array in np.load(twin.out / "observations.npz").values()}
    assert rows == {summary["records"]}
    assert (twin.out / "rebuilt.sigmf-data").stat().st_size == summary["records"] * heard.samples[0].nbytes
    assert summary["waiting"] <= 1500 - summary["records"]
    assert ("not analysed" in text) == (summary["waiting"] > 0)


def test_a_killed_peer_and_its_return_are_logged(endpoint: str, replay: Any) -> None:
    twin = replay("--listen", endpoint, "--count", "400")
    script = (
        "import twinlink, sys, time\n"
        f"link = twinlink.open('zeromq', connect={endpoint!r}, node='gnb-7')\n"
        "link.wait_ready(60)\nprint('up', flush=True)\ntime.sleep(600)\n"
    )
    peer = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE)
    assert peer.stdout
    assert peer.stdout.readline() == b"up\n"
    twin.wait_for("peer-up")
    os.kill(peer.pid, signal.SIGKILL)
    peer.communicate()
    twin.wait_for("peer-down")
    assert twin.events("peer-down")[0]["node"] == "gnb-7"
    assert twin.process.poll() is None
    with twinlink.open("zeromq", connect=endpoint, node="gnb-7") as gnb:
        gnb.wait_ready(patience())
        play(gnb, HEARD)
        twin.wait_for("peer-up", 2)
        code, text = twin.end()
    assert code == 0
    assert "gnb-7 is gone" in text
    assert len(np.load(twin.out / "observations.npz")["sequence"]) == 400


def test_one_gnb_is_followed_and_another_one_after_it_has_ended(endpoint: str, replay: Any) -> None:
    twin = replay("--listen", endpoint, "--count", "20")
    with twinlink.open("zeromq", connect=endpoint, node="gnb-b") as second:
        with twinlink.open("zeromq", connect=endpoint, node="gnb-a") as first:
            first.wait_ready(patience())
            second.wait_ready(patience())
            play(first, HEARD, count=10)
            play(second, HEARD, count=10)
            twin.wait_for("foreign")
        twin.wait_for("peer-down")
        play(second, HEARD, count=10)
        assert twin.end()[0] == 0
    (foreign,), (following,) = twin.events("foreign"), twin.events("following")
    assert (foreign["node"], foreign["n_prbs"], following["node"]) == ("gnb-b", 51, "gnb-b")
    found = np.load(twin.out / "observations.npz")
    begun = int(found["sequence"][10])  # records still in the queue when the first gNB ended are followed, too
    assert begun > 0
    assert found["sequence"].tolist() == [*range(10), *range(begun, begun + 10)]
    assert [len(set(part.tolist())) for part in (found["epoch"][:10], found["epoch"][10:], found["epoch"])] == [1, 1, 2]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_end_it_before_the_first_record(endpoint: str, replay: Any, number: signal.Signals) -> None:
    twin = replay("--listen", endpoint)
    twin.wait_for("started")
    twin.process.send_signal(number)
    assert twin.end()[0] == 0
    assert len(np.load(twin.out / "observations.npz")["sequence"]) == 0


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["--transport", "pigeon"], 3, "pigeon"),
        (["--listen", "7447"], 3, "host:port"),
        (["--validity-ms", "soon"], 3, "whole number from 100"),
        (["--protect-prbs", "x"], 3, "0-3,50"),
        (
            ["--protect-prbs", "62-43"],
            3,
            "'62-43' is neither a PRB nor a range",
        ),  # an empty range would protect nothing
        (["--idle", "nan"], 3, "nan is out of range"),
        (["--out", "/proc/none"], 2, "/proc/none: No such file or directory; check the path"),
    ],
)
def test_errors_say_what_is_wrong(arguments: list[str], code: int, text: str) -> None:
    replay = call(*arguments, program=main)
    assert replay.code() == code, replay.err
    assert text in replay.err


def test_missing_gnu_radio_is_explained(tmp_path: Path) -> None:
    (tmp_path / "gnuradio").mkdir()
    (tmp_path / "gnuradio" / "__init__.py").write_text("raise ImportError('no GNU Radio here')\n")
    done = subprocess.run(
        [sys.executable, "-m", "twinlink_replay"],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=patience(),
        check=False,
    )
    assert done.returncode == 2
    assert "apt install gnuradio" in done.stderr
    assert "Traceback" not in done.stderr


def test_what_was_recorded_until_a_kill_can_be_read(endpoint: str, replay: Any) -> None:
    twin = replay("--listen", endpoint, "--no-control")
    with twinlink.open("zeromq", connect=endpoint, node="gnb-1") as gnb:
        gnb.wait_ready(patience())
        play(gnb, HEARD, count=50)
        data = twin.out / "rebuilt.sigmf-data"
        octets = HEARD.samples[0].size * 2
        wait_until(lambda: data.exists() and data.stat().st_size >= 10 * octets)
        twin.process.kill()
        twin.process.wait(patience())
    meta = json.loads((twin.out / "rebuilt.sigmf-meta").read_text())
    assert (meta["global"]["dapp:n_prbs"], len(meta["captures"])) == (51, 1)
    recorded = np.fromfile(data, "<i2")
    assert len(recorded) % HEARD.samples[0].size == 0
    expected = HEARD.samples[:50].reshape(-1)[: len(recorded)]
    assert np.array_equal(recorded, expected)
