"""`twinlink report`, as a user starts it: one run made again, two runs compared."""

import json
from pathlib import Path
from typing import Any

import pytest
from twinlink_results import compare, results

from tests import reports
from tests.cli.calling import call
from tests.cli.running import Start, no_more_than_1000_octets
from tests.measure import synthetic_run
from twinlink.appkit import records
from twinlink.errors import ConfigurationError

SMALL: dict[str, Any] = {"subjects": ("zeromq", "raw-zeromq"), "payloads": (100, 1024), "rounds": 3}


def test_makes_everything_again(start: Start, tmp_path: Path) -> None:
    synthetic_run.write(tmp_path / "run", **SMALL)
    run = start("report", str(tmp_path / "run"))
    assert run.code() == 0, run.err
    assert "report.html" in run.err
    assert any(line.startswith("Round trip: Mean time") for line in run.out)
    assert (tmp_path / "run" / "report.html").is_file()

    before = sorted(path.name for path in (tmp_path / "run").rglob("*"))
    elsewhere = call("report", str(tmp_path / "run"), "--out", str(tmp_path / "elsewhere"), "--json")
    assert elsewhere.code() == 0, elsewhere.err
    (record,) = elsewhere.records()
    assert record == {"type": "summary"} | json.loads((tmp_path / "elsewhere" / "results.json").read_text())
    derived = [path.relative_to(tmp_path / "elsewhere") for path in (tmp_path / "elsewhere").rglob("*.*")]
    assert {str(path) for path in derived} >= {
        "results.json",
        "table.md",
        "table.csv",
        "report.html",
        "figures/rtt.png",
    }
    for path in derived:
        assert (tmp_path / "elsewhere" / path).read_bytes() == (tmp_path / "run" / path).read_bytes()
    assert sorted(path.name for path in (tmp_path / "run").rglob("*")) == before


def test_the_page_needs_no_other_file(tmp_path: Path) -> None:
    synthetic_run.write(tmp_path, broken_off=True, **SMALL)
    assert call("report", str(tmp_path)).code() == 0
    page = (tmp_path / "report.html").read_text()
    assert page.count("data:image/png;base64,") == len(list((tmp_path / "figures").glob("*.png"))) > 3
    reports.check(page)
    assert "broken off" in page
    for cell in results.load(tmp_path)["cells"]:
        if cell["status"] != "done":
            assert cell["reason"] in page


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        ([], 3, "required: DIR"),
        (["a", "b", "c"], 3, "one folder, or two"),
        (["nowhere"], 3, "there is no such folder; `twinlink sweep"),
        ([""], 3, "it holds no run.json"),
        (["run", "nowhere"], 3, "there is no such folder"),
    ],
)
def test_bad_arguments(tmp_path: Path, arguments: list[str], code: int, told: str) -> None:
    synthetic_run.write(tmp_path / "run", subjects=("zeromq",), payloads=(100,), rounds=1)
    run = call("report", *(str(tmp_path / each) for each in arguments))
    assert run.code() == code
    assert told in run.err
    assert run.out == []


def test_damage_is_told(tmp_path: Path) -> None:
    synthetic_run.write(tmp_path, **SMALL)
    path = tmp_path / "records" / "zeromq-100-rw-dt-closed.sent.csv.gz"
    path.unlink()
    run = call("report", str(tmp_path))
    assert run.code() == 2
    assert f"{path} is missing" in run.err


def differing(found: dict[str, Any]) -> set[str]:
    return {row["id"] for row in found["cells"] if row["real"] and row["quantity"] == "rtt_p50"}


def test_two_runs_of_the_same_do_not_differ(tmp_path: Path) -> None:
    """Twenty comparisons of twelve cells: that one of them finds something by chance is what ALPHA allows."""
    by_chance = 0
    synthetic_run.write(tmp_path / "a", seed=100, subjects=("zeromq", "raw-zeromq", "raw-tcp"), payloads=(100, 10240))
    for seed in range(20):
        other = tmp_path / f"b{seed}"
        synthetic_run.write(other, seed=seed, subjects=("zeromq", "raw-zeromq", "raw-tcp"), payloads=(100, 10240))
        found = compare.compare(tmp_path / "a", other)
        assert len({row["id"] for row in found["cells"]}) == 12
        by_chance += bool(differing(found))
    assert by_chance <= 2
    same = compare.compare(tmp_path / "a", tmp_path / "a")
    assert all(row["ratio"] == 1 and row["real"] is False for row in same["cells"])


def test_a_fifth_more_is_found(tmp_path: Path) -> None:
    cells: dict[str, Any] = {"subjects": ("zeromq", "raw-zeromq", "zenoh", "raw-tcp")}

    def slower(subject: str, octets: int) -> float:
        return 1.2 if (subject, octets) == ("zeromq", 10240) else 1.0

    synthetic_run.write(tmp_path / "a", seed=1, **cells)
    synthetic_run.write(tmp_path / "b", seed=2, slower=slower, **cells)
    found = compare.compare(tmp_path / "a", tmp_path / "b")
    assert differing(found) == {"zeromq-10240-rw-dt-closed", "zeromq-10240-dt-rw-closed"}
    for row in found["cells"]:
        if row["id"] in differing(found):
            assert row["ci95"][0] < 1.2 < row["ci95"][1]
            assert row["p"] <= row["p_holm"] < compare.ALPHA
    text = compare.text(found)
    assert "| ZeroMQ 10 KB RW→DT |" in text
    assert "38 of 40 cells are inconclusive" in text


def test_a_slower_machine_is_told_from_a_slower_twinlink(tmp_path: Path) -> None:
    synthetic_run.write(tmp_path / "a", seed=1, **SMALL)
    synthetic_run.write(tmp_path / "b", seed=2, slower=lambda subject, octets: 1.5, **SMALL)
    found = compare.compare(tmp_path / "a", tmp_path / "b")
    assert all(row["real"] for row in found["subjects"])
    assert found["relative"]
    assert not any(row["real"] for row in found["relative"])
    assert "Without twinlink it differs too: raw pyzmq (1." in compare.text(found)


def test_a_disk_that_is_full(start: Start, tmp_path: Path) -> None:
    synthetic_run.write(tmp_path / "run", **SMALL)
    run = start("report", str(tmp_path / "run"), preexec_fn=no_more_than_1000_octets)
    assert run.code() == 2
    assert f"{tmp_path / 'run'}: File too large; make room there, or write elsewhere" in run.err


def test_loss_is_compared(tmp_path: Path) -> None:
    synthetic_run.write(tmp_path / "a", seed=1, **SMALL)
    synthetic_run.write(tmp_path / "b", seed=1, lost=4, **SMALL)
    (row,) = compare.compare(tmp_path / "a", tmp_path / "b")["loss"]
    assert (row["lost_a"], row["sent_a"], row["lost_b"], row["sent_b"]) == (0, 60, 12, 60)
    assert row["real"]


def test_what_arrived_without_an_acknowledgement_is_not_lost(tmp_path: Path) -> None:
    for name in ("a", "b"):
        synthetic_run.write(tmp_path / name, seed=1, lost=4, **SMALL)
    for path in (tmp_path / "b" / "records").glob("*.sent.csv.gz"):
        sent = records.read(path)
        sent["acknowledged"] = False
        records.write(path, sent)
    (row,) = compare.compare(tmp_path / "a", tmp_path / "b")["loss"]
    assert (row["lost_a"], row["lost_b"]) == (12, 12)


def test_one_round_tells_nothing(tmp_path: Path) -> None:
    for name, seed in (("a", 1), ("b", 2)):
        synthetic_run.write(tmp_path / name, seed=seed, **SMALL | {"rounds": 1})
    found = compare.compare(tmp_path / "a", tmp_path / "b")
    assert all(row["real"] is None and row["p"] is None and row["ratio"] > 0 for row in found["cells"])
    assert "no test is possible" in compare.text(found)


def test_a_subject_of_one_run_is_named_once_and_not_by_each_of_its_options(tmp_path: Path) -> None:
    synthetic_run.write(tmp_path / "a", subjects=("zeromq", "raw-zeromq"), payloads=(100,))
    synthetic_run.write(tmp_path / "b", subjects=("zeromq",), payloads=(100,))
    found = compare.compare(tmp_path / "a", tmp_path / "b")
    assert [row["what"] for row in found["differences"]] == ["configuration.subjects"]
    assert found["only_in_a"] == ["raw-zeromq-100-rw-dt-closed", "raw-zeromq-100-dt-rw-closed"]


def test_settings_are_never_mixed(tmp_path: Path) -> None:
    synthetic_run.write(tmp_path / "a", **SMALL)
    synthetic_run.write(tmp_path / "b", setting="loopback", **SMALL)
    with pytest.raises(ConfigurationError, match=r"netns.*loopback.*compare runs of one setting"):
        compare.compare(tmp_path / "a", tmp_path / "b")


def test_comparison_command(tmp_path: Path) -> None:
    synthetic_run.write(tmp_path / "a", **SMALL)
    run = synthetic_run.write(tmp_path / "b", broken_off=True, **SMALL)
    run["system"]["digital_twin"]["versions"]["libzmq"] = "4.3.6"
    run["configuration"]["used"]["subject_options"]["zeromq"]["io_threads"] = 2
    run["rate_limit"] = "100mbit"
    (tmp_path / "b" / "run.json").write_text(json.dumps(run))
    told = call("report", str(tmp_path / "a"), str(tmp_path / "b"), "--out", str(tmp_path / "out"))
    assert told.code() == 0, told.err
    text = "\n".join(told.out)
    for part in ("# b against a", "B was broken off", "libzmq: A 4.3.5, B 4.3.6", "rate_limit: A None, B 100mbit",
                 "configuration.subject_options.zeromq.io_threads: A None, B 2"):  # fmt: skip
        assert part in text
    assert (tmp_path / "out" / "comparison.md").read_text().strip() == text.strip()
    found = json.loads((tmp_path / "out" / "comparison.json").read_text())
    assert found["format"] == "twinlink-comparison"
    assert found == compare.compare(tmp_path / "a", tmp_path / "b")
