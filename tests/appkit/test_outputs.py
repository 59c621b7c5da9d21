"""What an earlier run has left is refused or replaced, and a log goes on."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from twinlink_ran_emulator import make_recording

from twinlink.appkit import outputs
from twinlink.appkit.journal import Journal
from twinlink.testing import patience

LINK = ("--connect", "tcp/127.0.0.1:1")
ADVICE = "or replace it with --overwrite"


def program(module: str, *arguments: object) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", module, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=patience(), check=False)


@pytest.fixture
def earlier(tmp_path: Path) -> Path:
    (tmp_path / "sub").mkdir()
    return tmp_path / "sub"


@pytest.mark.parametrize(
    ("module", "option", "name", "is_folder"),
    [
        ("twinlink_replay", "--out", "rebuilt.sigmf-data", True),
        ("twinlink_replay", "--out", "observations.npz", True),
        ("twinlink_replay", "--record", "replay.mcap", False),
        ("twinlink_exporter", "--record", "exporter.mcap", False),
        ("twinlink_exporter", "--summary", "summary.json", False),
        ("twinlink_ran_emulator", "--heard", "heard.sigmf-data", True),
    ],
)
@pytest.mark.parametrize("check", [True, False])
def test_a_program_refuses_what_an_earlier_run_has_left(
    module: str, option: str, name: str, is_folder: bool, check: bool, earlier: Path
) -> None:
    file = earlier / name
    file.write_bytes(b"of an earlier run")
    link = () if module == "twinlink_ran_emulator" else LINK
    given = (*link, option, earlier if is_folder else file)
    run = program(module, *given, *(["--check"] if check else []))
    assert (run.returncode, f"{file} exists: name another {option}, {ADVICE}" in run.stderr) == (3, True), run.stderr
    assert file.read_bytes() == b"of an earlier run"
    if check:
        assert program(module, *given, "--check", "--overwrite").returncode == 0


@pytest.mark.parametrize("module", ["make_recording", "import_recording"])
def test_a_made_recording_is_not_replaced(module: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--out", str(tmp_path / "made"), "--seconds", "0.1", "--n-prbs", "24"]
    assert make_recording.main(arguments) == 0
    before = (tmp_path / "made.sigmf-data").read_bytes()
    if module == "import_recording":
        run = program(f"twinlink_ran_emulator.{module}", tmp_path / "made.sigmf-meta", "--out", tmp_path / "made")
        assert (run.returncode, ADVICE in run.stderr) == (3, True)
    else:
        assert make_recording.main([*arguments, "--seed", "7"]) == 3
        assert ADVICE in capsys.readouterr().err
        assert (tmp_path / "made.sigmf-data").read_bytes() == before
        assert make_recording.main([*arguments, "--seed", "7", "--overwrite"]) == 0


def test_records_of_a_bridge_are_kept(tmp_path: Path) -> None:
    file = tmp_path / "rw.csv"
    file.write_text("of an earlier run")
    run = program("twinlink", "mgen", "in", "--udp", "5001", "--records", file)
    assert (run.returncode, ADVICE in run.stderr, file.read_text()) == (3, True, "of an earlier run")


def test_a_bridge_that_could_not_start_leaves_nothing_to_refuse(tmp_path: Path) -> None:
    for _ in range(2):
        for name in ("rw.csv", "rw.csv.gz"):
            given = ("mgen", "in", "--udp", "203.0.113.1:5001", "--records", tmp_path / name)
            run = program("twinlink", *given, *LINK)
            assert (run.returncode, "--overwrite" in run.stderr) == (2, False), run.stderr


@pytest.mark.parametrize("holds", [b"", None])
def test_what_holds_nothing_is_not_refused(holds: bytes | None, tmp_path: Path) -> None:
    if holds is not None:
        (tmp_path / "file").write_bytes(holds)
    outputs.refuse_existing("--out", [tmp_path / "file", tmp_path, Path(os.devnull)], overwrite=False)


@pytest.mark.parametrize("end", ["", '{"time_ns": 1, "ev'])
def test_a_log_goes_on_behind_an_earlier_run(end: str, tmp_path: Path) -> None:
    path = tmp_path / "log"
    with Journal("test", path) as journal:
        journal.event("first", "")
    with path.open("a") as file:
        file.write(end)  # of a program that was killed
    with Journal("test", path) as journal:
        journal.event("second", "")
    lines = [line for line in path.read_text().splitlines() if line != end]
    assert [json.loads(line)["event"] for line in lines] == ["first", "second"]
