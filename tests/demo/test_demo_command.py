"""The command as a user runs it, with real parts."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.cli.running import PATIENCE_S, Run, Start

PARTS = {"emulator": "gNB: RAN emulator", "exporter": "gNB: exporter", "replay": "twin: GNU Radio replay"}
PNG = b"\x89PNG\r\n\x1a\n"


def test_a_demo_passes_and_says_so_in_its_summary(played: tuple[Path, dict[str, Any]]) -> None:
    out, summary = played
    assert summary == json.loads((out / "summary.json").read_text())
    assert (summary["verdict"], summary["failed"], summary["exit_code"]) == ("passed", [], 0)
    found = summary["transports"]["zeromq"]
    assert found["sent"] == found["received"] == found["acknowledged"] == found["played"] == 550
    assert (found["lost"], found["duplicated"], found["bit_identical"]) == (0, 0, True)
    assert found["samples"]["compared"] == 550 * 106 * 12
    assert found["detection_precision"] > 0.95
    assert found["detection_recall"] > 0.95
    assert found["loop_closed"] is True
    assert found["interferer_on_to_block_ns"] > 0
    assert 0 < found["rtt_p50_ns"] <= found["rtt_p99_ns"]
    assert found["age_ns"]["mean"] > 0
    assert found["sync"]["completeness"] == 1
    assert found["sync"]["mean_age_ns"] > 0
    assert {"twinlink", "python", "numpy", "gnuradio", "pyzmq"} <= summary["versions"].keys()


def test_the_report_is_one_file_with_its_figures(played: tuple[Path, dict[str, Any]]) -> None:
    out, _ = played
    page = (out / "report.html").read_text()
    assert page.count("data:image/png;base64,") == 5
    assert not re.findall(r'(?:src|href)="(?!data:)', page)
    for name in ("age.png", "delay.png", "zeromq/spectrogram.png", "zeromq/prbs.png", "zeromq/block.png"):
        assert (out / name).read_bytes().startswith(PNG)


def test_everything_derived_can_be_made_again(played: tuple[Path, dict[str, Any]]) -> None:
    out, summary = played
    for name in ("summary.json", "report.html", "age.png", "zeromq/prbs.png"):
        (out / name).unlink()
    done = subprocess.run(
        [sys.executable, "-m", "twinlink_demo.report", str(out)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "passed" in done.stdout
    assert json.loads((out / "summary.json").read_text()) == summary
    assert (out / "report.html").stat().st_size > 100_000
    assert (out / "zeromq/prbs.png").exists()


def begun(start: Start, out: Path) -> tuple[Run, dict[str, int]]:
    """A demo that has the interferer on the air, and the process ids of its parts."""
    run = start("demo", "--out", str(out), "--transports", "zeromq", "--seconds", "60")
    run.wait_for("interferer on PRBs")
    pids = {name: int(re.findall(rf"{title} is process (\d+)", run.err)[0]) for name, title in PARTS.items()}
    return run, pids


def gone(pid: int) -> bool:
    """Whether a process has ended; one that nobody has waited for yet counts."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def wait_until_gone(pids: dict[str, int]) -> None:
    end = time.monotonic() + PATIENCE_S
    while left := [name for name, pid in pids.items() if not gone(pid)]:
        assert time.monotonic() < end, f"still there: {left}"
        time.sleep(0.02)


@pytest.mark.parametrize("victim", PARTS)
def test_a_part_that_is_killed_is_named_and_ends_the_demo(victim: str, start: Start, tmp_path: Path) -> None:
    run, pids = begun(start, tmp_path / "out")
    os.kill(pids[victim], signal.SIGKILL)
    assert run.code() == 2  # and no traceback
    assert f"the {victim} ended (killed by SIGKILL)" in run.err
    assert "\x1b" not in run.err  # plain lines where there is no terminal
    wait_until_gone(pids)
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary["exit_code"] == 2
    failure = summary["transports"]["zeromq"]["parts"]["failure"]
    assert failure["part"] == victim
    assert failure["last_lines"]
    assert "broken off" in (tmp_path / "out" / "report.html").read_text()
    for part in PARTS.keys() - {victim}:
        assert "Traceback" not in (tmp_path / "out" / "zeromq" / f"{part}.txt").read_text()


def test_ctrl_c_ends_every_part_and_keeps_what_there_is(start: Start, tmp_path: Path) -> None:
    run, pids = begun(start, tmp_path / "out")
    run.interrupt()
    assert run.code() == 1
    wait_until_gone(pids)
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary["failed"][-1] == "interrupted before the end"
    found = summary["transports"]["zeromq"]
    assert found["bit_identical"] is True
    assert found["played"] == found["received"] > 0
    assert any("messages received" in line for line in run.out)


def test_parts_do_not_outlive_a_demo_that_is_killed(start: Start, tmp_path: Path) -> None:
    run, pids = begun(start, tmp_path / "out")
    run.process.kill()
    run.code()
    wait_until_gone(pids)
    listening = json.loads((tmp_path / "out" / "zeromq" / "emulator.jsonl").read_text().splitlines()[0])
    shutil.rmtree(Path(listening["setup"].removeprefix("ipc://")).parent)  # a killed runner cannot


@pytest.mark.parametrize(
    "arguments",
    [["--seconds", "0"], ["--seconds", "x"], ["--transports", ""], ["--transports", "zeromq,zeromq"],
     ["--transports", "carrier-pigeon"], ["--transports", "memory"]],
)  # fmt: skip
def test_bad_arguments(arguments: list[str], start: Start, tmp_path: Path) -> None:
    run = start("demo", "--out", str(tmp_path / "out"), *arguments)
    assert run.code() == 3
    assert run.err
    assert not (tmp_path / "out").exists()


def test_a_recording_that_is_none_is_named(start: Start, tmp_path: Path) -> None:
    run = start("demo", "--out", str(tmp_path / "out"), "--recording", str(tmp_path / "none.sigmf-meta"))
    assert run.code() == 2
    assert "none.sigmf-meta" in run.err
