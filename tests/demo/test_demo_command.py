"""The command as a user runs it, with real parts."""

import csv
import json
import os
import re
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from twinlink_results import results

from tests import reports
from tests.cli.calling import call
from tests.cli.running import PATIENCE_S, Run, Start
from twinlink.appkit import records
from twinlink.protocol.rtt import percentiles
from twinlink.recording import verify

PARTS = {"emulator": "gNB: RAN emulator", "exporter": "gNB: exporter", "replay": "twin: GNU Radio replay"}
PNG = b"\x89PNG\r\n\x1a\n"


def test_a_demo_passes_and_says_so_in_its_summary(played: tuple[Path, dict[str, Any]]) -> None:
    out, summary = played
    assert summary == {"type": "summary"} | json.loads((out / "summary.json").read_text())
    assert (summary["verdict"], summary["failed"], summary["exit_code"]) == ("passed", [], 0), summary["unjudged"]
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


def test_its_decisions_were_signed_and_no_secret_was_left(played: tuple[Path, dict[str, Any]]) -> None:
    out, summary = played
    assert summary["configuration"]["secure"] is True
    assert "decisions: signed ones of trusted twins" in (out / "zeromq" / "exporter.txt").read_text()
    for file in (*out.rglob("*.jsonl"), *out.rglob("*.txt"), *out.rglob("*.json")):
        assert "twinlink-secret" not in file.read_text()


def test_each_side_is_recorded(played: tuple[Path, dict[str, Any]]) -> None:
    out, summary = played
    for name, direction in (("exporter", "sent"), ("replay", "received")):
        report = verify(out / "zeromq" / f"{name}.mcap")
        assert report.complete, report
        (spectrum,) = [one for one in report.streams if (one["direction"], one["flow"]) == (direction, "spectrum")]
        assert spectrum["recorded"] == [[0, summary["transports"]["zeromq"]["played"]]]


def test_the_report_is_one_file_with_its_figures(played: tuple[Path, dict[str, Any]]) -> None:
    out, _ = played
    page = (out / "report.html").read_text()
    assert page.count("data:image/png;base64,") == 5
    reports.check(page)
    for name in ("age.png", "delay.png", "zeromq/spectrogram.png", "zeromq/prbs.png", "zeromq/block.png"):
        assert (out / name).read_bytes().startswith(PNG)
        assert "<svg" in (out / name).with_suffix(".svg").read_text()[:1000]


def valid_results(out: Path) -> dict[str, Any]:
    """results.json, by cell, as its schema has it."""
    found = json.loads((out / "results.json").read_text())
    jsonschema.Draft202012Validator(results.schema()).validate(found)
    return {cell["flow"]: cell for cell in found["cells"]}


def test_its_records_are_those_of_a_sweep_and_say_what_the_parts_counted(played: tuple[Path, dict[str, Any]]) -> None:
    out, summary = played
    cells = valid_results(out)
    assert {flow: cell["direction"] for flow, cell in cells.items()} == {
        "spectrum": "rw-dt", "control": "dt-rw", "control-result": "rw-dt",
    }  # fmt: skip
    tables = {}
    for flow, cell in cells.items():
        assert (cell["status"], cell["subject"], cell["mode"]) == ("done", "zeromq", "open")
        tables[flow] = sent, received = [
            records.read(out / "records" / f"{cell['id']}.{side}.csv.gz") for side in ("sent", "received")
        ]
        acknowledged = sent[sent["acknowledged"]]
        figures = cell["statistics"]
        assert (figures["n_sent"], figures["n_received"]) == (len(sent), len(received))
        assert figures["rtt_ns"]["mean"] * len(acknowledged) == pytest.approx(acknowledged["rtt_ns"].sum())
        assert figures["one_way_delay_ns"]["usable"] is True
        assert figures["clock"]["offset_ns"] == 0  # one machine, one clock
        # What the exporter's end was told of each message is what the twin's end noted itself.
        assert received["sequence"].tolist() == acknowledged["sequence"].tolist()
        assert received["sent_ns"].tolist() == acknowledged["sent_ns"].tolist()
        assert (received["octets"] <= cell["octets"]).all()

    spectrum = summary["transports"]["zeromq"]
    sent, received = tables["spectrum"]
    assert (len(sent), len(received)) == (spectrum["sent"], spectrum["received"])
    assert sent["acknowledged"].sum() == spectrum["acknowledged"]
    acknowledged = sent["rtt_ns"][sent["acknowledged"]]
    assert spectrum["rtt_ns"] == percentiles(acknowledged.tolist())
    assert spectrum["rtt_p50_ns"] == spectrum["rtt_ns"]["p50"]
    exporter = json.loads((out / "zeromq" / "exporter-summary.json").read_text())
    assert sent["octets"].sum() == exporter["spectrum"]["sent_octets"]
    with np.load(out / "zeromq" / "twin" / "observations.npz") as observed:
        for name in ("sequence", "sent_ns", "received_ns"):
            assert received[name].tolist() == observed[name].tolist()
    assert len(tables["control"][0]) == spectrum["decisions"]["proposed"] > 0
    # The end of the run ends the last block, and the twin with which it ends is not there to be told.
    assert cells["spectrum"]["statistics"]["lost"] == cells["control"]["statistics"]["lost"] == 0
    assert cells["control-result"]["statistics"]["lost"] <= 1


def test_its_table_has_a_row_for_each_flow(played: tuple[Path, dict[str, Any]]) -> None:
    out, _ = played
    cells = valid_results(out)
    with (out / "table.csv").open() as file:
        rows = {(row["flow"], row["metric"]): row for row in csv.DictReader(file)}
    assert {flow for flow, _ in rows} == cells.keys()
    for flow, cell in cells.items():
        figures = cell["statistics"]
        latency, rtt = rows[flow, "latency"], rows[flow, "rtt"]
        assert float(latency["value"]) == pytest.approx(figures["one_way_delay_ns"]["mean"] / 1e6, rel=1e-5)
        assert float(rtt["ci95_high"]) == pytest.approx(figures["rtt_ns"]["ci95"][1] / 1e6, rel=1e-5)
    table = (out / "table.md").read_text()
    page = (out / "report.html").read_text()
    for text in ("spectrum, up to 5.2 KB", "control, up to", "control-result, up to"):
        assert text in table
        assert text in page


def test_everything_derived_can_be_made_again(
    played: tuple[Path, dict[str, Any]], start: Start, tmp_path: Path
) -> None:
    out, summary = played
    again = tmp_path / "again"
    shutil.copytree(out, again)
    derived = [again / name for name in ("results.json", "table.md", "table.csv", "summary.json", "report.html")]
    for path in (*derived, *again.rglob("*.png"), *again.rglob("*.svg")):
        path.unlink()
    run = start("report", str(again), "--json")
    assert run.code() == 0, run.err
    assert json.loads(run.out[-1]) == summary
    files = {path.relative_to(out) for path in out.rglob("*") if path.is_file()}
    assert files == {path.relative_to(again) for path in again.rglob("*") if path.is_file()}
    assert [name for name in files if (out / name).read_bytes() != (again / name).read_bytes()] == []


def test_two_demos_are_compared_by_their_flows(played: tuple[Path, dict[str, Any]]) -> None:
    out, _ = played
    run = call("report", str(out), str(out), "--json")
    assert run.code() == 0, run.err
    found = json.loads(run.out[-1])
    assert {row["flow"] for row in found["cells"]} == {"spectrum", "control", "control-result"}
    assert {(row["ratio"], row["real"]) for row in found["cells"]} == {(1.0, None)}  # of single rounds nothing is told


def test_a_damaged_record_is_named(played: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    damaged = tmp_path / "damaged"
    shutil.copytree(played[0], damaged)
    path = damaged / "records" / "zeromq-spectrum.sent.csv.gz"
    records.write(path, records.read(path)[:-1])
    run = call("report", str(damaged))
    assert run.code() == 2
    assert f"{path} holds 549 messages" in run.err


def begun(start: Start, out: Path) -> tuple[Run, dict[str, int]]:
    """A demo that has the interferer on the air, and the process ids of its parts."""
    run = start("demo", "--out", str(out), "--transports", "zeromq", "--seconds", "60", "--pace", "1")
    run.wait_for("interferer on PRBs")
    pids = {name: int(re.findall(rf"{title} is process (\d+)", run.err)[0]) for name, title in PARTS.items()}
    return run, pids


def gone(pid: int) -> bool:
    """Whether a process has ended; zombies count."""
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
    cells = valid_results(tmp_path / "out")
    for cell in cells.values():
        assert cell["status"] == "failed"
        assert cell["reason"] == f"the {victim} ended (killed by SIGKILL) while it was needed"
    assert cells["spectrum"]["statistics"]["n_received"]  # a recording that has no end holds what came before
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
    cells = valid_results(tmp_path / "out")
    assert {cell["status"] for cell in cells.values()} == {"interrupted"}
    assert cells["spectrum"]["statistics"]["n_sent"] == found["sent"]
    assert cells["spectrum"]["statistics"]["n_received"] == found["received"]


def test_a_twin_that_is_late_in_the_first_seconds_has_the_demo_play_again_slower(start: Start, tmp_path: Path) -> None:
    out = tmp_path / "out"
    run = start("demo", "--out", str(out), "--transports", "zeromq", "--seconds", "60")
    run.wait_for("twin is in-sync")
    (pid,) = re.findall(rf"{PARTS['replay']} is process (\d+)", run.err)
    os.kill(int(pid), signal.SIGSTOP)  # as if no processor were left for it
    run.wait_for("stopping the emulator")
    os.kill(int(pid), signal.SIGCONT)
    run.wait_for("zeromq is played at 0.25 of the recorded pace, as at the recorded pace the twin was")
    assert "--pace 1 forces the recorded pace" in run.err
    run.wait_for("242 s of uplink spectrum, at 0.25 of the recorded pace")
    run.interrupt()
    assert run.code() == 1
    found = json.loads((out / "summary.json").read_text())["transports"]["zeromq"]
    assert found["pace"] == 0.25
    assert json.loads((out / "run.json").read_text())["demo"]["transports"]["zeromq"]["slowed"]


def test_parts_do_not_outlive_a_demo_that_is_killed(start: Start, tmp_path: Path) -> None:
    run, pids = begun(start, tmp_path / "out")
    run.process.kill()
    run.code()
    wait_until_gone(pids)
    listening = json.loads((tmp_path / "out" / "zeromq" / "emulator.jsonl").read_text().splitlines()[0])
    shutil.rmtree(Path(listening["setup"].removeprefix("ipc://")).parent)  # a killed runner cannot


@pytest.mark.parametrize(
    "arguments",
    [["--seconds", "0"], ["--seconds", "x"], ["--pace", "0"], ["--pace", "1.5"],
     ["--transports", ""], ["--transports", "zeromq,zeromq"],
     ["--transports", "carrier-pigeon"], ["--transports", "memory"]],
)  # fmt: skip
def test_bad_arguments(arguments: list[str], tmp_path: Path) -> None:
    run = call("demo", "--out", str(tmp_path / "out"), *arguments)
    assert run.code() == 3
    assert run.err
    assert not (tmp_path / "out").exists()


def test_a_recording_that_is_none_is_named(tmp_path: Path) -> None:
    run = call("demo", "--out", str(tmp_path / "out"), "--recording", str(tmp_path / "none.sigmf-meta"))
    assert run.code() == 2
    assert "none.sigmf-meta" in run.err
