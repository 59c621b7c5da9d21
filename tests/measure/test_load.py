"""Other work on the machine: sampled, said, and what a sweep concludes from few rounds."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from twinlink_results import compare, load, page, results, summary

from tests.cli.running import Run
from tests.measure import synthetic_run
from tests.measure.test_sweep_command import content, sweep
from twinlink.appkit import formatting

SMALL: dict[str, Any] = {"subjects": ("zeromq", "raw-zeromq"), "payloads": (100,), "directions": ("rw-dt",)}
IDLE = {"side": "both", "at_ns": 1, "busy": 0.03, "load_1min": 0.4, "cpus": 2}


@pytest.fixture
def busy_machine() -> Iterator[None]:
    """A busy loop for each processor that this process may use, at a low priority so that the test takes no longer."""
    loops = [
        subprocess.Popen(["nice", "-n", "19", sys.executable, "-c", "while True: pass"], stdin=subprocess.DEVNULL)
        for _ in os.sched_getaffinity(0)
    ]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


@pytest.mark.usefixtures("busy_machine")
def test_a_sweep_on_a_busy_machine_says_so_before_and_after(tmp_path: Path) -> None:
    run: Run = sweep(
        *("--subjects", "zeromq,raw-zeromq", "--payloads", "100", "--directions", "rw-dt"),
        *("--rounds", "2", "--count", "6", "--warm-up", "2"),
        out=tmp_path / "run",
    )
    told, end = "The machine was busy with other work", "making the report"
    assert run.err.index(told) < run.err.index(end)
    assert any(line.startswith(f"Load: {told}") for line in run.out)
    samples = content(tmp_path / "run")["load"]
    assert [each["side"] for each in samples] == ["both"] * 3  # before each of two rounds, and after the last
    assert all(each["busy"] > load.BUSY for each in samples)
    report = (tmp_path / "run" / "report.html").read_text()
    assert '<span class="verdict doubtful">complete, on a busy machine</span>' in report
    (pair,) = results.rebuild(tmp_path / "run")["comparisons"]["paired"]
    assert (pair["n_rounds"], pair["ci95"], pair["p"], pair["bootstrap_ci95"]) == (2, None, None, None)
    assert "inconclusive: 2 rounds are too few for an interval" in " ".join(run.out)


def told_of(folder: Path, samples: list[dict[str, Any]], **run: Any) -> tuple[dict[str, str], str]:
    """What a synthetic run with these samples says, and its page."""
    synthetic_run.write(folder, **SMALL | run)
    loaded = results.load(folder) | {"load": samples}
    found, _ = results.compute(folder, loaded)
    return dict(summary.statements(found)), page.html(found, [])


def test_an_idle_machine_needs_no_words(tmp_path: Path) -> None:
    statements, shown = told_of(tmp_path, [IDLE, IDLE | {"load_1min": 5.0}])  # the second has the sweep's own load
    assert "Load" not in statements
    assert '<span class="verdict passed">complete</span>' in shown


@pytest.mark.parametrize(
    ("samples", "words"),
    [
        ([IDLE | {"load_1min": 24.0}, IDLE], "load average 24 before the first round, 3 % of its 2 processors"),
        ([IDLE, IDLE | {"busy": 0.97}, IDLE], "3 % of its 2 processors taken, 3 % after the last, at most 97 %"),
        ([IDLE, IDLE | {"busy": 1.0}], "100 % after the last"),
        ([IDLE | {"busy": None, "load_1min": 3.0}], "load average 3 before the first round."),
    ],
)
def test_what_shows_that_a_machine_is_busy(tmp_path: Path, samples: list[dict[str, Any]], words: str) -> None:
    statements, shown = told_of(tmp_path, samples)
    assert statements["Load"].startswith("The machine was busy with other work")
    assert words in statements["Load"]
    assert "complete, on a busy machine" in shown


def test_of_two_hosts_the_busy_one_is_named(tmp_path: Path) -> None:
    here, there = IDLE | {"side": "real_world"}, IDLE | {"side": "digital_twin", "busy": 0.5}
    statements, _ = told_of(tmp_path, [here, there, here, there])
    assert statements["Load"].startswith("The host of the Digital Twin was busy")
    assert "Real World" not in statements["Load"]


@pytest.mark.parametrize(
    ("rounds", "words"),
    [
        (1, "(inconclusive: 1 round is too few for an interval)"),
        (2, "(inconclusive: 2 rounds are too few for an interval)"),
        (3, ": inconclusive, as the interval contains 1)"),
    ],
)
def test_few_rounds_carry_no_interval(tmp_path: Path, rounds: int, words: str) -> None:
    statements, _ = told_of(tmp_path, [IDLE], rounds=rounds, round_noise=0.5)
    assert words in statements["twinlink and the bare library"]
    few = statements.get("Rounds", "")
    assert few.startswith(f"{rounds} {'is' if rounds == 1 else 'are'} too few") if rounds < 3 else not few


def test_prose_and_tables_have_the_same_statistic(tmp_path: Path) -> None:
    """The mean, as the paper's table has it, although an outlier moves it away from the median."""
    synthetic_run.write(
        tmp_path, **SMALL | {"rounds": 3, "count": 20}, slower=lambda subject, _: 3.0 if subject == "zeromq" else 1.0
    )
    found, rows = results.compute(tmp_path, results.load(tmp_path))
    cells = {cell["subject"]: cell["statistics"]["rtt_ns"] for cell in found["cells"]}
    (pair,) = found["comparisons"]["paired"]
    ratios = []
    for number in range(3):
        means = [
            float(sent["rtt_ns"][sent["round"] == number].mean())
            for sent in (rows[f"{subject}-100-rw-dt-closed"].sent for subject in ("zeromq", "raw-zeromq"))
        ]
        ratios.append(means[0] / means[1])
    assert pair["ratios"] == pytest.approx(ratios)
    prose = dict(summary.statements(found))[summary.ROUND_TRIP]
    assert prose.startswith("Mean time")
    for name, spread in cells.items():
        assert formatting.time(spread["mean"]) in prose, name


def test_a_comparison_names_the_run_of_a_busy_machine(tmp_path: Path) -> None:
    for name, busy in (("a", 0.0), ("b", 0.9)):
        run = synthetic_run.write(tmp_path / name, **SMALL)
        (tmp_path / name / "run.json").write_text(json.dumps(run | {"load": [IDLE | {"busy": busy}]}))
    found = compare.compare(tmp_path / "a", tmp_path / "b")
    assert (found["a"]["busy"], found["b"]["busy"]) == (False, True)
    assert "- B was measured on a busy machine" in compare.text(found)
    assert "- A was measured" not in compare.text(found)
