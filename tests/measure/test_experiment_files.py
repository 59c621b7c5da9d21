"""The data files of experiments, their verdicts and tables."""

import importlib.util
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pytest
from twinlink_measure.experiments import NAMES, description, figure, folder, measuring, outcome, report, verdicts
from twinlink_measure.experiments.outcome import FAILED, Row
from twinlink_results import plot_style

from tests import reports
from twinlink.errors import ConfigurationError, TwinlinkError


@pytest.mark.parametrize("name", NAMES)
def test_a_data_file_is_consistent(name: str) -> None:
    found = description.load(name)
    assert found.title
    assert found.source
    assert all(map(importlib.util.find_spec, found.modules))
    assert found.not_the_same
    assert {found.table.x, *found.table.line} <= {*found.table.case}
    assert {*found.published.case} <= {*found.table.case}
    assert {*found.published.figures} <= {*found.table.figures}
    for row in found.published.rows:
        assert len(row) == len(found.published.case) + len(found.published.figures), row
    keys = [row[: len(found.published.case)] for row in found.published.rows]
    assert len(set(keys)) == len(keys)
    for ordering in found.orderings:
        assert {*ordering.where, ordering.by} <= {*found.table.case}, ordering
        assert len(ordering.order) > 1
        assert ordering.figure in found.table.figures
        assert ordering.reason


def test_a_misspelt_key_is_an_error() -> None:
    with pytest.raises(ConfigurationError, match=r"octets.toml: unknown tilte; known: analysis"):
        description.parse("octets", 'tilte = "x"\nsource = "y"\nwhat = "z"')
    with pytest.raises(ConfigurationError, match=r"\[counts\]: .*missing.*quick"):
        description.parse("octets", 'title = "x"\nsource = "y"\nwhat = "z"\n[counts]\npublished = "1"\nfull = {}')
    with pytest.raises(ConfigurationError, match="no experiment is called 'octet'"):
        description.load("octet")


EXAMPLE = """
title = "An example"
source = "A paper"
what = "Times."
kind = "none"
not_the_same = ["The machine."]
[counts]
published = "1000"
full = {count = 100}
quick = {count = 10}
[table]
case = ["system"]
figures = {mean = "mean (ms)"}
x = "system"
line = ["system"]
[published]
where = "Table I"
setting = "two hosts"
case = ["system"]
figures = ["mean"]
rows = [["a", 1.0], ["b", 2.5]]
[[orderings]]
says = "a is quicker than b"
by = "system"
order = ["a", "b"]
figure = "mean"
reason = "Another library."
"""


def row(system: str, mean: float, half: float | None = None) -> Row:
    return Row({"system": system}, 10, {"mean": mean}, None if half is None else (mean - half, mean + half))


@pytest.mark.parametrize(
    ("rows", "verdict", "reason"),
    [
        ([row("a", 1), row("b", 2)], verdicts.FOUND, ""),
        ([row("a", 1, 0.4), row("b", 2, 0.4)], verdicts.FOUND, ""),
        ([row("a", 2, 0.1), row("b", 1, 0.1)], verdicts.NOT_FOUND, "Another library."),
        ([row("a", 1, 0.6), row("b", 2, 0.6)], verdicts.OPEN, "Another library."),
        ([row("a", 2, 0.6), row("b", 1, 0.6)], verdicts.OPEN, "Another library."),
        ([row("a", 1)], verdicts.NOT_MEASURED, ""),
        ([row("a", 1), outcome.failed({"system": "b"}, "it broke")], verdicts.NOT_MEASURED, ""),
    ],
)
def test_an_ordering_is_found_or_not_or_left_open(rows: list[Row], verdict: str, reason: str) -> None:
    (found,) = verdicts.judge(description.parse("example", EXAMPLE), rows)
    assert (found["verdict"], found["reason"]) == (verdict, reason)
    assert verdict != verdicts.FOUND or found["figures"] == "a: 1.00 ms < b: 2.00 ms"


@pytest.mark.parametrize(("below", "verdict"), [(2.5, verdicts.FOUND), (2.0, verdicts.NOT_FOUND)])
def test_a_limit_holds_for_all(below: float, verdict: str) -> None:
    text = EXAMPLE.replace('order = ["a", "b"]', f'order = ["b", "a"]\nbelow = {below}')
    (found,) = verdicts.judge(description.parse("example", text), [row("a", 1), row("b", 2)])
    assert (found["verdict"], found["figures"]) == (verdict, f"b: 2.00 ms, a: 1.00 ms; the limit is {below:g} ms")


def test_a_case_names_its_numbers() -> None:
    case = {"words": 164, "sweep_ms": 100, "processing_ms": 5, "protocol": "http", "setup": "not in the table"}
    assert description.load("plc-cycles").case(case) == "164 words, sweep 100 ms, processing 5 ms, HTTP"


@pytest.mark.parametrize(
    ("needs", "told"),
    [
        ('modules = ["no_such_module"]', r"needs no_such_module, not installed here; install with: pip install"),
        ('programs = ["no-such-program"]', r"needs no-such-program, not installed here; .*apt install no-such-program"),
    ],
)
def test_what_is_not_installed_is_said_before_anything_is_measured(needs: str, told: str) -> None:
    with pytest.raises(TwinlinkError, match=told):
        measuring.check(description.parse("example", f"{needs}\n{EXAMPLE}"), "loopback")


def test_what_is_left_behind(tmp_path: Path) -> None:
    experiment = description.parse("example", EXAMPLE)
    values = [1.0, 1.5, 2.0]
    rows = [outcome.of_values(tmp_path, {"system": "a"}, values), outcome.of_values(tmp_path, {"system": "b"}, [])]
    about = {
        "started_ns": 1, "ended_ns": 2, "complete": True, "quick": True, "setting": "loopback", "counts": {"count": 10},
        "system": {"cpus": 2, "cpu_model": "one", "kernel": "6", "python": "3"}, "load": [], "notes": [],
        "figures": {"more.png": "More"},
    }  # fmt: skip
    (tmp_path / "more.png").write_bytes(b"a picture of this kind")
    folder.write(tmp_path, experiment, rows, report.content(experiment, rows, about))
    text = (tmp_path / "table.md").read_text()
    assert "| a | 3 | 1.50 ±1.24 (1) |" in text
    assert f"| b | 0 ({FAILED}) | - (2.5) |" in text
    assert "- b: failed, no value was measured" in text
    assert "published 1000; here count 10 (--quick: too few for conclusions)." in text
    assert "- The machine." in text
    page = (tmp_path / "report.html").read_text()
    reports.check(page)
    assert page.count("data:image/png;base64,") == 2
    assert "<td>1.50 <small>±1.24</small><small class=below>paper 1</small></td>" in page
    assert "1 of 2 cases missing, few values (--quick)" in page
    assert "What was not the same" in page
    records = np.genfromtxt(tmp_path / (rows[0].records or ""), delimiter=",", names=True)
    assert outcome.spread(records["ms"]) == (rows[0].figures, rows[0].ci95)


def drawn(rows: list[Row], experiment: description.Experiment, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The figures of an experiment, as matplotlib has them, by file."""
    kept: dict[str, Any] = {}
    monkeypatch.setattr(plot_style, "write", lambda figure, path: kept.update({path.name: figure}))
    figure.draw(Path(), experiment, rows, "loopback")
    assert {*kept} == {*figure.drawings(experiment, rows)}
    for each in kept.values():
        plt.close(each)
    return kept


def test_numbers_are_a_scale_and_bars_are_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cases of one payload stand at it, whatever their number."""
    experiment = description.load("table-1")
    rows = []
    for octets in (100, 1024, 102400):
        for subject in ("zenoh", "zeromq"):
            case = {"direction": "rw-dt", "octets": octets, "subject": subject}
            rows.append(Row(case, 20, {"latency": 2.0}, values=[1.0, 2.0, 3.0] * 7, intervals={"latency": (1.5, 2.75)}))
    found = drawn(rows, experiment, monkeypatch)
    (axis,) = found[figure.MEANS].axes
    assert {float(x) for line in axis.get_lines() for x in line.get_xdata()} == {100, 1024, 102400}
    (bars,) = axis.containers[0][2]
    assert [segment[:, 1].tolist() for segment in bars.get_segments()] == [[1.5, 2.75]] * 3
    names = [text.get_text() for text in found[figure.MEANS].legends[0].get_texts()]
    assert names == ["Zenoh, RW→DT", "ZeroMQ, RW→DT"]
    assert [text.get_text() for text in found[figure.BOXES].legends[0].get_texts()] == names


def test_a_figure_over_time_has_a_panel_for_each_series(monkeypatch: pytest.MonkeyPatch) -> None:
    experiment = description.load("hub-resources")
    rows = [
        Row({"protocol": protocol, "process": process}, 3, {"cpu_mean": 2.0}, values=[1.0, 2.0, 3.0],
            series={"CPU (%)": [1.0, 2.0, 3.0], "memory (MiB)": [9.0, 9.0, 9.0]})
        for protocol in ("mqtt", "modbus") for process in ("twin", "plc")
    ]  # fmt: skip
    found = drawn(rows, experiment, monkeypatch)
    assert {*found} == {figure.MEANS, figure.TREND}, "a box of three values"
    panels = [(axis.get_title(loc="left"), axis.get_ylabel()) for axis in found[figure.TREND].axes]
    assert panels == [(process, what) for process in ("twin (Unity)", "PLC (PLCSIM)")
                      for what in ("CPU (%)", "memory (MiB)")]  # fmt: skip
    assert [text.get_text() for text in found[figure.TREND].legends[0].get_texts()] == ["MQTT", "Modbus"]


def test_a_high_percentile_needs_its_values() -> None:
    few, many = (outcome.spread(np.arange(number, dtype=float))[0] for number in (999, 1000))
    assert few["p90"] == pytest.approx(0.9 * 998, rel=0.01)
    assert few["p999"] is None
    assert many["p999"] == pytest.approx(998, abs=1)
