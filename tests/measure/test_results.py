"""Results of a run: valid, reproducible, and consistent with the raw records."""

import gzip
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from twinlink_results import results, summary, table
from twinlink_results import run as folders

from tests.cli.running import PATIENCE_S, Run
from tests.measure import synthetic_run
from twinlink.appkit import records
from twinlink.errors import ConfigurationError
from twinlink.story import Name, Stage, Story

SMALL: dict[str, Any] = {"subjects": ("zeromq", "raw-zeromq", "raw-tcp"), "payloads": (100, 10240), "rounds": 3}


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def cell(found: dict[str, Any], name: str) -> dict[str, Any]:
    return next(each for each in found["cells"] if each["id"] == name)


@pytest.fixture(scope="module")
def rebuilt(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("sweep") / "run"
    synthetic_run.write(folder, lost=2, **SMALL)
    return folder, results.rebuild(folder)


def test_schema(rebuilt: tuple[Path, dict[str, Any]]) -> None:
    validator = jsonschema.Draft202012Validator(results.schema())
    validator.check_schema(results.schema())
    written = json.loads((rebuilt[0] / "results.json").read_text())
    validator.validate(written)
    assert written == json.loads(json.dumps(rebuilt[1]))
    for broken in (
        written | {"setting": "my desk"},
        {key: value for key, value in written.items() if key != "cells"},
        written | {"cells": [written["cells"][0] | {"statistics": {"n_sent": 3}}]},
    ):
        assert not validator.is_valid(broken)


def test_the_run_stays_as_it_was_and_all_is_there(rebuilt: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    folder, found = rebuilt
    synthetic_run.write(tmp_path / "run", lost=2, **SMALL)
    raw = files(tmp_path / "run")
    assert raw == {name: content for name, content in files(folder).items() if name in raw}
    derived = files(folder).keys() - raw.keys()
    assert derived >= {"results.json", "table.md", "table.csv", "report.html", "figures/latency.png"}
    assert not [name for name in derived if name.endswith(".part")]
    run = json.loads((folder / "run.json").read_text())
    for key in run.keys() - {"format", "version", "cells"}:
        assert found[key] == run[key]
    assert [{k: v for k, v in each.items() if k not in ("statistics", "mgen")} for each in found["cells"]] == run[
        "cells"
    ]


def test_again_it_is_the_same(rebuilt: tuple[Path, dict[str, Any]]) -> None:
    folder, _ = rebuilt
    before = files(folder)
    (folder / "report.html").unlink()
    (folder / "figures" / "latency.png").write_bytes(b"of an earlier time")
    results.rebuild(folder)
    assert files(folder) == before


def test_sums_of_the_records_are_the_summary(rebuilt: tuple[Path, dict[str, Any]]) -> None:
    folder, found = rebuilt
    for each in found["cells"]:
        figures = each["statistics"]
        sent, received = (
            records.read(folder / "records" / f"{each['id']}.{side}.csv.gz") for side in ("sent", "received")
        )
        rtt = sent["rtt_ns"][sent["acknowledged"]]
        assert figures["n_sent"] == len(sent) == sum(one["sent"] for one in each["rounds"])
        assert figures["n_received"] == len(received)
        assert figures["n_acknowledged"] == len(rtt)
        assert figures["lost"] == len(sent) - len(received)
        assert figures["rtt_ns"]["n"] == len(rtt)
        assert figures["rtt_ns"]["mean"] * len(rtt) == pytest.approx(rtt.sum(), rel=1e-9)
        assert (figures["rtt_ns"]["min"], figures["rtt_ns"]["max"]) == (rtt.min(), rtt.max())
    assert cell(found, "zeromq-100-rw-dt-closed")["statistics"]["lost"] == 6
    assert cell(found, "zeromq-100-dt-rw-closed")["statistics"]["lost"] == 0


def test_comparisons_find_what_was_put_in(tmp_path: Path) -> None:
    slower = {"zeromq": 1.5}
    synthetic_run.write(tmp_path, slower=lambda subject, octets: slower.get(subject, 1.0), **SMALL)
    found = results.compute(tmp_path, results.load(tmp_path))[0]["comparisons"]
    assert {(each["subject"], each["to"]) for each in found["paired"]} == {
        ("zeromq", "raw-zeromq"),
        ("zeromq", "raw-tcp"),
    }
    for each in found["paired"]:
        if each["to"] == "raw-zeromq":
            assert each["ci95"][0] < 1.5 * 57 / 55 < each["ci95"][1] or each["octets"] > 100
            assert each["ci95"][0] > 1.2
    assert len(found["anova"]) == 4
    for each in found["anova"]:
        assert set(each["subjects"]) == set(SMALL["subjects"])
        assert each["p"] < 1e-4


def test_a_run_that_was_broken_off(tmp_path: Path) -> None:
    synthetic_run.write(tmp_path, broken_off=True, **SMALL)
    found = results.rebuild(tmp_path)
    jsonschema.Draft202012Validator(results.schema()).validate(json.loads((tmp_path / "results.json").read_text()))
    assert [each["statistics"] is None for each in found["cells"]].count(True) == 1
    page = (tmp_path / "report.html").read_text()
    assert "broken off" in page
    assert "the run was interrupted before" in page
    assert "skipped" in (tmp_path / "table.md").read_text()


def test_nothing_was_measured(tmp_path: Path) -> None:
    run = synthetic_run.write(tmp_path, **SMALL)
    for each in run["cells"]:
        each |= {"status": "failed", "reason": "no peer <within> 5 s", "rounds": []}
        for side in ("sent", "received"):
            (tmp_path / "records" / f"{each['id']}.{side}.csv.gz").unlink()
    run["system"] = {"real_world": None, "digital_twin": None}
    (tmp_path / "run.json").write_text(json.dumps(run))
    found = results.rebuild(tmp_path)
    assert all(each["statistics"] is None for each in found["cells"])
    assert "no peer &lt;within&gt; 5 s" in (tmp_path / "report.html").read_text()
    assert not list((tmp_path / "figures").iterdir())


def change(path: Path, old: str, new: str) -> None:
    text = gzip.decompress(path.read_bytes()).decode()
    assert old in text
    path.write_bytes(gzip.compress(text.replace(old, new, 1).encode()))


def test_damaged_records_are_named(tmp_path: Path) -> None:
    run = synthetic_run.write(tmp_path, **SMALL)
    path = tmp_path / "records" / "zeromq-100-rw-dt-closed.sent.csv.gz"
    whole = path.read_bytes()
    rows = gzip.decompress(whole).decode().splitlines()

    def told() -> str:
        with pytest.raises(results.DamagedRun) as caught:
            results.compute(tmp_path, results.load(tmp_path))
        assert str(path) in str(caught.value)
        return str(caught.value)

    change(path, rows[3], rows[3].replace(",100,", ",abc,"))
    assert "line 4" in told()
    path.write_bytes(gzip.compress("\n".join(rows[:-1]).encode() + b"\n"))
    assert "holds 19 messages of round 2, where run.json says 20" in told()
    path.write_bytes(gzip.compress("\n".join(rows).replace("2,19,100,", "2,19,101,").encode() + b"\n"))
    assert f"line {len(rows)}: 101 octets in a cell of 100" in told()
    path.write_bytes(whole[: len(whole) // 2])
    assert "cannot be read" in told()
    middle = len(whole) // 2
    path.write_bytes(whole[:middle] + bytes(octet ^ 0xFF for octet in whole[middle : middle + 8]) + whole[middle + 8 :])
    assert "cannot be read" in told()
    change_to = rows[3].replace(",100,", f",{2**70},")
    path.write_bytes(gzip.compress("\n".join([*rows[:3], change_to, *rows[4:]]).encode()))
    assert "line 4" in told()
    path.write_bytes(gzip.compress(b"a,b,c\n1,2,3\n"))
    assert "first line" in told()
    path.write_bytes(gzip.compress(bytes(2**26), 1) * 9)
    assert f"{path} cannot be read: it unpacks to more than 536,870,912 octets" in told()
    path.write_bytes((tmp_path / "records" / "zeromq-100-rw-dt-closed.received.csv.gz").read_bytes())
    assert "line 1" in told()
    path.unlink()
    assert "is missing: run.json says that 60 messages were sent" in told()

    path.write_bytes(whole)
    results.compute(tmp_path, results.load(tmp_path))
    run["cells"][0]["rounds"].pop()
    (tmp_path / "run.json").write_text(json.dumps(run))
    assert "round 2" in told()


def test_a_record_of_arrivals_that_is_cut_or_gone_is_named(tmp_path: Path) -> None:
    """Or its messages would be told to have arrived, from their acknowledgements, and its figures be missing."""
    run = synthetic_run.write(tmp_path, **SMALL)
    path = tmp_path / "records" / "zeromq-100-rw-dt-closed.received.csv.gz"
    rows = gzip.decompress(path.read_bytes()).decode().splitlines()
    arrived = len(rows) - 1

    def told() -> str:
        with pytest.raises(results.DamagedRun) as caught:
            results.compute(tmp_path, results.load(tmp_path))
        assert str(path) in str(caught.value)
        return str(caught.value)

    path.write_bytes(gzip.compress("\n".join(rows[:-1]).encode() + b"\n"))
    assert "holds 19 messages of round 2, where run.json says 20 were received" in told()
    path.unlink()
    assert f"is missing: run.json says that {arrived} messages were received" in told()
    for entry in run["cells"][0]["rounds"]:
        del entry["arrivals"]
    (tmp_path / "run.json").write_text(json.dumps(run))
    results.compute(tmp_path, results.load(tmp_path))  # made before that was counted


@pytest.mark.parametrize(
    ("side", "number", "told"),
    [
        ("sent", 0, "line 5: the sequence 0 is not that of one message of its round"),
        ("sent", -5, "line 5: the sequence -5 is not that of one message of its round"),
        ("sent", 20, "line 5: the sequence 20 is not that of one message of its round"),
        ("received", 999, "line 5: the sequence 999 is of no message that was sent in its round"),
    ],
)
def test_a_number_that_is_nobodys_is_no_loss(side: str, number: int, told: str, tmp_path: Path) -> None:
    run = synthetic_run.write(tmp_path, **SMALL)
    path = records.file(tmp_path / "records", run["cells"][0]["id"], side)
    rows = records.read(path)
    rows["sequence"][3] = number
    records.write(path, rows)
    with pytest.raises(results.DamagedRun) as caught:
        results.compute(tmp_path, results.load(tmp_path))
    assert str(caught.value) == f"{path}, {told}"


def test_a_damaged_run_file_is_named(tmp_path: Path) -> None:
    run = synthetic_run.write(tmp_path, **SMALL)
    path = tmp_path / "run.json"

    def told(content: str, error: type[Exception] = results.DamagedRun) -> str:
        path.write_text(content)
        with pytest.raises(error) as caught:
            results.load(tmp_path)
        assert str(path) in str(caught.value)
        return str(caught.value)

    assert "line 1" in told('{"format": "twinlink-run", ')
    assert "nested too deeply" in told("[" * 100_000)
    assert "cells[1].octets" in told(json.dumps(run | {"cells": [run["cells"][0], run["cells"][1] | {"octets": "x"}]}))
    assert "one id" in told(json.dumps(run | {"cells": run["cells"][:1] * 2}))
    elsewhere = run["cells"][0] | {"id": "../../x"}
    assert "cells[0].id: '../../x' does not match" in told(json.dumps(run | {"cells": [elsewhere]}))
    assert "not JSON compliant" in told(json.dumps(run | {"configuration": {"given": {"x": 1e400}, "used": {}}}))
    assert "version 2" in told(json.dumps(run | {"version": 2}), ConfigurationError)
    assert "not that of a sweep" in told(json.dumps({"transports": {}}), ConfigurationError)
    with pytest.raises(ConfigurationError, match="there is no such folder"):
        results.load(tmp_path / "nowhere")
    with pytest.raises(ConfigurationError, match=r"holds no run\.json"):
        results.load(tmp_path / "records")


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("started_ns", 10**30),
        ("setting", "my desk"),
        ("source", 5),
        ("system.real_world", 5),
        ("ntp.real_world.bound_ns", "?"),
        ("configuration.used", 5),
        ("configuration.used.count", "many"),
        ("idle_rtt_ns.zeromq", "x"),
        ("mgen", []),
        ("cells.0.direction", "up"),
        ("cells.0.mode", "x"),
        ("cells.0.status", "x"),
        ("cells.0.octets", True),
        ("cells.0.reason", 5),
        ("cells.0.rate_hz", "x"),
        ("cells.0.search", {"steps": 5}),
        ("cells.0.search.steps.0.lossless", 1),
        ("cells.0.rounds.0.sender_cpu_ns", "x"),
        ("cells.0.rounds.0.wire_octets", 5),
        ("cells.0.rounds.0.wire_octets.back", "x"),
        ("cells.0.rounds.0.warm_up", None),
        ("cells.0.rounds.0.counters.lost", "x"),
    ],
)
def test_a_wrong_value_in_the_run_file_is_named(path: str, value: Any, tmp_path: Path) -> None:
    run = synthetic_run.write(tmp_path, subjects=("zeromq",), payloads=(100,), rounds=1)
    step = {"round": 0, "rate_hz": 1.0, "sent": 1, "received": 1, "lost": 0, "lossless": True}
    run["cells"][0]["search"] = {"steps": [step], "highest_loss_free_hz": 1.0}
    run |= {"idle_rtt_ns": {"zeromq": 1}}
    ntp = ("offset_ns", "root_delay_ns", "root_dispersion_ns", "bound_ns")
    run["ntp"]["real_world"] = {"server": "x", **dict.fromkeys(ntp, 1)}
    (tmp_path / "run.json").write_text(json.dumps(run))
    found, _ = results.compute(tmp_path, results.load(tmp_path))
    jsonschema.validate(found, results.schema())
    *way, last = path.split(".")
    for whole in (run, found):
        part: Any = whole
        for name in way:
            part = part[int(name) if name.isdecimal() else name]
        part[last] = value
    (tmp_path / "run.json").write_text(json.dumps(run))
    where = re.sub(r"\.(\d+)", r"[\1]", path)
    with pytest.raises(results.DamagedRun, match=re.escape(f"{tmp_path / 'run.json'}: {where}")):
        results.load(tmp_path)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(found, results.schema())


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, tuple[Run, Path]]]:
    """Two sweeps at the same time, as they mostly wait; and their folders."""
    folder = tmp_path_factory.mktemp("begun")
    common = ("sweep", "--setting", "loopback", "--rounds", "2")
    links = ("--subjects", "zeromq,raw-zeromq", "--payloads", "100,10K", "--count", "20", "--json")
    mgen = ("--source", "mgen", "--transports", "zeromq", "--payloads", "100", "--directions", "rw-dt", "--count", "10")
    options = {"links": links, "mgen": mgen} if shutil.which("mgen") else {"links": links}
    runs = {name: (Run([*common, *each, "--out", str(folder / name)]), folder / name) for name, each in options.items()}
    yield runs
    for run, _ in runs.values():
        if run.process.poll() is None:
            run.interrupt()
        run.process.wait(PATIENCE_S)


def test_a_sweep_made_again_is_the_sweep(begun: dict[str, tuple[Run, Path]]) -> None:
    sweep, folder = begun["links"]
    assert sweep.code() == 0, sweep.err
    before = files(folder)
    jsonschema.Draft202012Validator(results.schema()).validate(json.loads(before["results.json"]))
    for name in before:
        if name != "run.json" and not name.startswith("records/"):
            (folder / name).unlink()
    again = results.rebuild(folder)
    assert files(folder) == before
    assert json.loads(sweep.out[-1]) == {"type": "summary"} | json.loads(json.dumps(again))
    for each in again["cells"]:
        assert each["status"] == "done"
        assert each["statistics"]["n_sent"] == each["statistics"]["n_acknowledged"] == 20


@pytest.mark.skipif(shutil.which("mgen") is None, reason="mgen is not installed")
def test_what_mgen_measured_itself(begun: dict[str, tuple[Run, Path]]) -> None:
    sweep, folder = begun["mgen"]
    assert sweep.code() == 0, sweep.err
    found = json.loads((folder / "results.json").read_text())
    jsonschema.Draft202012Validator(results.schema()).validate(found)
    mgen = found["cells"][0]["mgen"]
    assert (mgen["sent"], mgen["received"], mgen["errors"]) == (10, 10, 0)
    counted = [each["counters"] for each in found["cells"][0]["rounds"]]
    assert [sum(each[name] for each in counted) for name in ("acknowledged", "received", "missing")] == [10, 10, 0]
    assert mgen["link_delay_ns"]["p50"] < mgen["mgen_delay_ns"]["p50"]
    assert mgen["link_delay_ns"]["n"] == 10
    assert "10 of 10" in (folder / "table.md").read_text()
    assert "10 of 10" in (folder / "report.html").read_text()


@pytest.mark.skipif(shutil.which("mgen") is None, reason="mgen is not installed")
def test_logs_of_mgen_that_are_gone_or_cut_are_named(begun: dict[str, tuple[Run, Path]], tmp_path: Path) -> None:
    sweep, whole = begun["mgen"]
    assert sweep.code() == 0, sweep.err
    folder = shutil.copytree(whole, tmp_path / "run")
    run = json.loads((folder / "run.json").read_text())
    (one,) = run["cells"]

    def told(path: Path) -> str:
        with pytest.raises(results.DamagedRun) as caught:
            results.compute(folder, results.load(folder))
        assert str(path) in str(caught.value)
        return str(caught.value)

    for end, half in (
        ("tx.drc", "of the 10 messages that were sent"),
        ("rx.drc", ""),
        ("bridge.csv", "of the 10 mess"),
    ):
        path = folder / "mgen" / f"{one['id']}.{end}"
        content = path.read_bytes()
        path.unlink()
        assert "is missing, which run.json names; copy the run's folder again" in told(path)
        if half:
            path.write_bytes(content[: len(content) // 2])
            assert half in told(path)
        path.write_bytes(content)
    one |= {"status": "interrupted", "reason": "8 of 10 rounds were done"}
    (folder / "run.json").write_text(json.dumps(run))
    rows = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(rows[:4]))  # the columns' names, and three messages
    found, _ = results.compute(folder, results.load(folder))
    for text in (summary.text(found), table.markdown(found)):
        assert "(n = 3)" in text
    shutil.rmtree(folder / "mgen")
    assert "is missing" in told(folder / "mgen" / f"{one['id']}.tx.drc")


@pytest.mark.parametrize("left", ["records/x.sent.csv.gz", "mgen/x.tx.drc"])
def test_what_a_run_left_that_was_killed_is_not_taken_for_the_next_ones(left: str, tmp_path: Path) -> None:
    (tmp_path / left).parent.mkdir()
    (tmp_path / left).touch()
    with pytest.raises(ConfigurationError, match="of a run that did not end"):
        folders.Run(tmp_path, {})


def test_a_recording_says_which_decisions_are_open_and_what_the_kpms_scored() -> None:
    stages: dict[Name, Stage] = {"seen": Stage(1, "exporter"), "sent": Stage(2, "twin"), "effect": Stage(3, "exporter")}
    ended: dict[Name, Stage] = stages | {"cleared": Stage(4, "exporter")}
    stories = [Story("block-1", (7,), stages=ended).as_dict(), Story("block-2", (8,), stages=stages).as_dict()]
    assert summary._decisions(stories).startswith("2 PRB blocks: 1 cleared, 1 open")
    parts = {"completeness": 1.0, "age": 0.9, "kpm": 0.5}
    windows = [{"score": 0.5, "parts": parts}, {"score": 1.0, "parts": parts | {"age": 1.0, "kpm": None}}]
    told = summary._fidelity([{"node": "gnb-1", "epoch": "0", "windows": windows}])
    assert "0.500 at least (by kpm); KPMs scored 0.500 in the mean" in told
