"""The command `replay`, as a user runs it."""

import time
from pathlib import Path

import pytest

import twinlink
from tests.cli.calling import call
from tests.cli.running import Start
from tests.recording.recordings import pair, rows
from twinlink.testing import free_endpoint, patience, wait_until


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a twin has received in a fifth of a second, and what it has answered."""
    path = tmp_path_factory.mktemp("recorded") / "run.mcap"
    with pair("zeromq", free_endpoint()) as (twin, gnb):
        got: list[twinlink.Message] = []
        twin.receiver("x", handler=got.append)
        with twin.record(path):
            sender = gnb.sender("x")
            for number in range(40):
                if number == 30:
                    sender.skip(5)
                sender.send(f"x {number}")
                time.sleep(0.005)
            twin.sender("y").send("answer")
            wait_until(lambda: len(got) == 40)
    return path


def test_replay_into_a_recorder(recorded: Path, endpoint: str, start: Start, tmp_path: Path) -> None:
    out = tmp_path / "again.mcap"
    recorder = start("record", "--listen", endpoint, "--out", str(out))
    recorder.wait_for("records to")
    run = start("replay", str(recorded), "--connect", endpoint, "--speed", "4", "--loop", "2", "--json")
    assert run.code() == 0, run.err
    assert "(--direction sent has y, which that side sent)" in run.err
    (summary,) = run.records()
    found = {key: summary[key] for key in ("messages", "missing", "lost", "passes", "directions", "problems")}
    assert found == {
        "messages": 80, "missing": 10, "lost": 0, "passes": 2, "directions": ["received"], "problems": [],
    }  # fmt: skip
    recorder.wait_for("did not arrive: 30 to 34")
    recorder.wait_for("is gone")
    recorder.interrupt()
    assert recorder.code() == 1  # of what is missing
    assert [row.payload.decode() for row in rows(out, "received")] == 2 * [f"x {number}" for number in range(40)]


def test_ctrl_c_ends_it_with_a_summary(recorded: Path, endpoint: str, start: Start) -> None:
    with twinlink.open("zeromq", listen=endpoint) as twin:
        got: list[twinlink.Message] = []
        twin.receiver("x", handler=got.append)
        endless = start("replay", str(recorded), "--connect", endpoint, "--loop", "forever", "--speed", "max")
        wait_until(lambda: len(got) > 80)
        endless.interrupt()
        assert endless.code() == 0, endless.err
        assert "0 lost" in endless.out[0]
        slow = start("replay", str(recorded), "--connect", endpoint, "--speed", "1e-3")
        slow.wait_for("is up")
        slow.interrupt()
        assert slow.code() == 1


def test_without_a_peer_it_says_so_and_waits(recorded: Path, endpoint: str, start: Start) -> None:
    waiting = start("replay", str(recorded), "--connect", endpoint, "--timeout", "0.5")
    assert waiting.code() == 1
    assert "no peer within 0.5 s" in waiting.err


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ((), 3, "FILE"),
        (("absent.mcap",), 2, "absent.mcap: No such file"),
        (("10.0.0.5",), 3, "--connect 10.0.0.5"),
        (("RUN", "--speed", "0"), 3, "4 or 1/2, or max"),
        (("RUN", "--loop", "0"), 3, "--loop"),
        (("RUN", "--from", "3", "--to", "2"), 3, "not after"),
        (("RUN", "--from", "3600"), 3, "begin earlier"),
        (("RUN", "--flows", "z*"), 3, "it has received: x; sent: y"),
        (("RUN", "RUN"), 2, "same part"),
    ],
)
def test_what_cannot_be_replayed(recorded: Path, arguments: tuple[str, ...], code: int, said: str) -> None:
    run = call("replay", *(str(recorded) if one == "RUN" else one for one in arguments))
    assert run.code() == code
    assert said in run.err


def test_a_file_that_was_cut_is_replayed_and_named(recorded: Path, endpoint: str, start: Start, tmp_path: Path) -> None:
    cut = tmp_path / "cut.mcap"
    octets = recorded.read_bytes()
    cut.write_bytes(octets[: octets.rindex(b"twinlink.manifest") - 200])
    with twinlink.open("zeromq", listen=endpoint) as twin:
        twin.receiver("x", handler=lambda message: None)
        run = start("replay", str(cut), "--connect", endpoint, "--speed", "max", "--timeout", str(patience()))
        assert run.code() == 1
    assert f"{cut}: octet" in run.err
    assert "`twinlink verify` names what is missing" in run.err


def test_its_options_have_a_table_of_their_own(recorded: Path, start: Start, tmp_path: Path, endpoint: str) -> None:
    """[replay] is that of the program twinlink-replay."""
    file = tmp_path / "twinlink.toml"
    file.write_text('[replay]\nprotect-prbs = "0-3"\n[replay-file]\nspeed = "max"\ntimeout = 0.1\n')
    run = start("replay", str(recorded), "--connect", endpoint, "--config", str(file), env={"TWINLINK_TIMEOUT": "0.2"})
    assert run.code() == 1
    assert "flat out" in run.err
