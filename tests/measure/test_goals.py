"""`make bench`: the quickest rows, as a user starts them, and the verdicts; no figure is judged here."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.bench import DIRECT
from benchmarks.machine import Machine
from benchmarks.round_trips import Comparison
from benchmarks.verdict import Part, Row, median_interval, ratio
from tests.cli.running import LONG_S

ROOT = Path(__file__).parents[2]


def start(*arguments: str, out: Path) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "benchmarks.goals", "--out", str(out), *arguments],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def goals(out: Path) -> dict[str, dict[str, Any]]:
    content = json.loads((out / "goals.json").read_text())
    assert content["format"] == "twinlink-goals"
    assert content["system"]["cpus"] >= 1
    return {row["goal"]: row for row in content["rows"]}


def test_rows_are_measured_judged_and_written(tmp_path: Path) -> None:
    run = start("--quick", "--only", "l1,L5,L6,L7,L9,G13,G16", out=tmp_path)
    out, err = run.communicate(timeout=LONG_S)
    rows = goals(tmp_path)
    assert list(rows) == ["L1", "L5", "L6", "L7", "L9", "G13", "G16"]
    for name, row in rows.items():
        assert row["metric"] in out
        assert f"| {name} |" in (tmp_path / "goals.md").read_text()
    assert run.returncode == (0 if os.geteuid() == 0 else 1), err  # L5 and G13 in part need root

    kind = json.loads((tmp_path / "goals.json").read_text())["machine"]["wake_ups"]
    assert f"wake-ups are {kind}" in out.partition("L1")[0]
    parts = {part["name"]: part for part in rows["L1"]["parts"]}
    p50 = parts["zeromq / raw-zeromq 100 B p50"]
    assert p50["value"] > 0
    assert p50["most"] == {"dear": 0.7, "cheap": 1.0}[kind]
    assert p50["met"] == (p50["value"] <= p50["most"])
    assert parts["zeromq / raw-zeromq 100 B send + flush"]["met"] is None
    assert rows["L1"]["met"] == all(part["met"] for part in parts.values() if part["met"] is not None)

    assert [part["name"] for part in rows["L6"]["parts"]][-3:] == [
        "zeromq, batches", "zenoh, batches", f"{DIRECT}, batches",
    ]  # fmt: skip
    assert all(part["value"] > 0 for name in ("L5", "L6", "L7") for part in rows[name]["parts"])
    assert rows["L9"]["parts"][-1]["value"] == 0, "a loss of which nothing is known"
    header, *wire = rows["G13"]["parts"]
    assert (header["value"], header["met"]) == (32, True)
    if os.geteuid() == 0:
        assert all(part["value"] > 100 for part in wire if part["name"].endswith("ping-pong, there"))
        assert len(wire) == 20
    else:
        assert "needs root" in rows["G13"]["verdict"]
    assert [part["unit"] for part in rows["G16"]["parts"]] == [" %"] * 3


def test_ctrl_c_keeps_what_is_there(tmp_path: Path) -> None:
    run = start("--only", "G16,G14", "--rounds", "1000", out=tmp_path)
    assert run.stderr is not None
    run.stderr.readline()  # the first round has begun
    run.send_signal(signal.SIGINT)
    _, err = run.communicate(timeout=LONG_S)
    assert run.returncode == 1
    assert "interrupted" in err
    rows = goals(tmp_path)
    assert "interrupted" in rows["G14"]["reasons"]
    assert rows["G16"]["verdict"] == "not measured: interrupted"


@pytest.mark.parametrize(("arguments", "told"), [(["--only", "G17"], "L1, L2"), (["--rounds", "0"], "from 1")])
def test_what_cannot_be_is_said_at_once(arguments: list[str], told: str, tmp_path: Path) -> None:
    run = start(*arguments, out=tmp_path)
    _, err = run.communicate(timeout=LONG_S)
    assert run.returncode not in (0, 1)
    assert told in err
    assert not any(tmp_path.iterdir())


def test_a_limit_may_depend_on_what_waking_takes() -> None:
    dear, cheap = (Machine(50.0, wake_up_us, 200.0, 30.0) for wake_up_us in (40.0, 16.0))
    one = Comparison("L1", "zeromq", "raw-zeromq", (100,), "p50", len, most=0.7, cheap=1.0)
    assert [one.most_on(machine) for machine in (dear, cheap)] == [0.7, 1.0]
    other = Comparison("L1", "zeromq", "raw-zeromq", (100,), "p99", len, most=1.1)
    assert [other.most_on(machine) for machine in (dear, cheap)] == [1.1, 1.1]
    assert "wake-ups are dear" in str(dear)
    assert "wake-ups are cheap" in str(cheap)


def test_a_ratio_is_the_median_of_its_rounds_and_lies_in_its_interval() -> None:
    pairs = [(110.0, 100.0), (90.0, 100.0), (120.0, 100.0), (100.0, 100.0), (105.0, 100.0), (1000.0, 100.0)]
    found = ratio("L1", "here", pairs, most=1.03)
    assert found is not None
    assert found.value == pytest.approx(1.075)
    assert found.interval == pytest.approx((0.9, 10.0))
    assert found.level == pytest.approx(1 - 2 / 2**6)
    assert found.met is False
    assert not found.sure
    assert ratio("L1", "here", []) is None


def test_the_more_rounds_the_narrower_the_interval() -> None:
    low, high, level = median_interval([float(value) for value in range(101)])
    assert (low, high) == (40, 60)
    assert 0.95 <= level < 0.97
    assert median_interval([1.0, 2.0])[:2] == (1.0, 2.0)


@pytest.mark.parametrize(
    ("values", "met", "verdict"),
    [
        ([(1.0, None), (2.0, None)], False, "missed"),
        ([(1.0, (0.9, 1.1)), (1.01, None)], True, "met, not sure"),
        ([(2.0, (1.0, 3.0)), (2.0, (1.9, 2.1))], False, "missed"),  # one is sure, which is enough
    ],
)
def test_verdicts(values: list[tuple[float, Any]], met: bool, verdict: str) -> None:
    parts = tuple(Part("L1", "here", value, most=1.03, interval=interval) for value, interval in values)
    row = Row("L1", parts, ())
    assert (row.met, row.verdict) == (met, verdict)
    assert Row("L1", parts, ("no root",)).verdict == f"{verdict}; not measured: no root"


@pytest.mark.parametrize(
    ("value", "interval", "met", "verdict"),
    [
        (95.0, (94.0, 96.0), True, "met"),
        (95.0, (92.0, 98.0), True, "met, not sure"),
        (98.0, (91.0, 100.0), False, "missed, not sure"),  # the goal lies within it
        (98.0, (96.0, 99.0), False, "missed, not sure"),
        (99.0, (98.0, 100.0), False, "missed"),
        (90.0, (88.0, 92.0), False, "missed"),
    ],
)
def test_verdicts_between_two_limits(value: float, interval: tuple[float, float], met: bool, verdict: str) -> None:
    row = Row("G16", (Part("G16", "here", value, 93, 97, interval),), ())
    assert (row.met, row.verdict) == (met, verdict)


def test_a_row_of_which_nothing_is_known_says_why() -> None:
    assert Row("L5", (), ("no root",)).verdict == "not measured: no root"
    assert Row("L8", (), ()).complete  # nothing kept it from being measured
    assert not Row("L5", (), ("no root",)).complete
