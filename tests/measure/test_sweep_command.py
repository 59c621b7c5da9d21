"""`twinlink sweep` as a user starts it: short, real sweeps on loopback."""

import json
import resource
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from twinlink_results import results

from tests.cli.calling import call
from tests.cli.running import LONG_S, Run, no_more_than_1000_octets
from tests.measure.sweeping import children, processes
from twinlink.appkit import records
from twinlink.cli import main

SUBJECTS = ("zeromq", "zenoh", "mqtt-qos0", "raw-tcp", "raw-zeromq")  # the others: test_sweep_subjects.py
ROUNDS, COUNT = 2, 6


def begin(*arguments: str, out: Path) -> Run:
    return Run(["sweep", "--setting", "loopback", "--out", str(out), *arguments])


def finish(run: Run, code: int = 0) -> Run:
    assert run.code() == code, run.err
    return run


def sweep(*arguments: str, out: Path, code: int = 0) -> Run:
    return finish(begin(*arguments, out=out), code)


def content(folder: Path) -> dict[str, Any]:
    return dict(json.loads((folder / "run.json").read_text()))


def tables(folder: Path, cell: dict[str, Any]) -> tuple[records.Table, records.Table]:
    sent, received = (records.read(folder / "records" / f"{cell['id']}.{side}.csv.gz") for side in ("sent", "received"))
    return sent, received


ONE_WAY = ("--payloads", "100", "--directions", "rw-dt")
NO_NTP = "ntp.invalid does not resolve: check the name, and DNS"
SWEEPS = {
    "everything": (  # one subject of each kind
        *("--subjects", ",".join(SUBJECTS), "--payloads", "5K"),
        *("--count", str(COUNT), "--rounds", str(ROUNDS), "--warm-up", "3"),
    ),
    "search": (
        *("--subjects", "zeromq", "--mode", "open,saturation", *ONE_WAY),
        *("--rounds", "1", "--rate", "200", "--count", "40"),
    ),
    "option": (
        *("--subjects", "zeromq", "--option", "zeromq.send_hwm=500", "--option", "zeromq.reliability=detect", *ONE_WAY),
        *("--quick", "--count", "2"),
    ),
    "requirement": (
        *("--subjects", "zeromq", *ONE_WAY, "--count", "4", "--rounds", "1", "--rate", "50"),
        *("--require", "loss=0", "--require", "rtt-p50-ms=0.000001", "--ntp", "ntp.invalid"),
    ),
}


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, tuple[Run, Path]]]:
    """Short sweeps, begun at the same time, as they mostly wait; and their folders."""
    folder = tmp_path_factory.mktemp("begun")
    runs = {name: (begin(*arguments, out=folder / name), folder / name) for name, arguments in SWEEPS.items()}
    yield runs
    for run, _ in runs.values():
        if run.process.poll() is None:
            run.interrupt()
        run.process.wait(LONG_S)


@pytest.fixture(scope="module")
def everything(begun: dict[str, tuple[Run, Path]]) -> Path:
    run, folder = begun["everything"]
    assert "zeromq" in "\n".join(finish(run).out).lower()
    return folder


def cells(folder: Path) -> Iterator[tuple[dict[str, Any], records.Table, records.Table]]:
    for cell in content(folder)["cells"]:
        yield cell, *tables(folder, cell)


def test_subjects_are_measured_both_ways(everything: Path) -> None:
    run = content(everything)
    assert run["complete"]
    assert run["ended_ns"] > run["started_ns"]
    assert {(cell["subject"], cell["octets"], cell["direction"]) for cell in run["cells"]} == {
        (subject, octets, direction) for subject in SUBJECTS for octets in (5120,) for direction in ("rw-dt", "dt-rw")
    }
    assert {cell["status"] for cell in run["cells"]} == {"done"}, [cell["reason"] for cell in run["cells"]]
    assert run["configuration"]["used"]["seed"] == 1
    assert set(run["configuration"]["used"]["subject_options"]) == set(SUBJECTS)
    assert set(run["idle_rtt_ns"]) == set(SUBJECTS)
    for side in ("real_world", "digital_twin"):
        assert run["system"][side]["cpus"] >= 1
        assert run["system"][side]["versions"]["pyzmq"]


def test_the_records_are_all_there_and_agree_with_what_was_counted(everything: Path) -> None:
    for cell, sent, received in cells(everything):
        assert sum(entry["sent"] for entry in cell["rounds"]) == len(sent) == COUNT, cell["id"]
        assert sent["acknowledged"].all(), cell["id"]
        for number in range(ROUNDS):
            own, other = sent[sent["round"] == number], received[received["round"] == number]
            assert own["sequence"].tolist() == list(range(COUNT // ROUNDS)), cell["id"]
            assert other["sequence"].tolist() == list(range(COUNT // ROUNDS)), cell["id"]
            # Both sides tell the same story of each message.
            assert (own["sent_ns"] == other["sent_ns"]).all(), cell["id"]
            assert (own["peer_received_ns"] == other["received_ns"]).all(), cell["id"]
        assert (sent["octets"] == cell["octets"]).all()
        assert (received["octets"] == cell["octets"]).all()
        for entry in cell["rounds"]:
            assert entry["warm_up"] == 3
            assert entry["sender_cpu_ns"] > 0
            assert entry["receiver_cpu_ns"] > 0
            assert entry["sender_peak_rss_octets"] > 1_000_000
            assert (entry["broker_cpu_ns"] is not None) == ("mqtt" in cell["subject"]), cell["id"]
            if not cell["subject"].startswith("raw-"):
                assert entry["counters"]["acknowledged"] == entry["counters"]["received"] == entry["sent"], cell["id"]
                assert entry["counters"]["lost"] == 0


def test_the_four_instants_are_in_order(everything: Path) -> None:
    for cell, sent, _ in cells(everything):
        residence = sent["peer_sent_ns"] - sent["peer_received_ns"]
        assert (residence >= 0).all(), cell["id"]
        assert (sent["rtt_ns"] >= residence).all(), cell["id"]
        assert (sent["peer_received_ns"] >= sent["sent_ns"]).all(), cell["id"]  # one host, one clock
        assert (sent["received_ns"] >= sent["peer_sent_ns"]).all(), cell["id"]


def test_subjects_take_turns_in_an_order_that_changes(everything: Path) -> None:
    orders = []
    for number in range(ROUNDS):
        begun = {cell["id"]: cell["rounds"][number]["started_ns"] for cell, _, _ in cells(everything)}
        orders.append(sorted(begun, key=lambda cell_id: begun[cell_id]))
        subjects = [cell_id.rsplit("-", 4)[0] for cell_id in orders[-1]]
        turns = [one for one, before in zip(subjects, [None, *subjects], strict=False) if one != before]
        assert len(turns) == len(SUBJECTS)  # each has one turn a round, all its cells in it
    assert orders[0] != orders[1]


def test_results_are_made_and_hold_to_their_schema(everything: Path) -> None:
    found = json.loads((everything / "results.json").read_text())
    jsonschema.validate(found, results.schema())
    for cell in found["cells"]:
        assert cell["statistics"]["n_sent"] == COUNT
    assert (everything / "report.html").stat().st_size > 10_000


def test_an_open_loop_keeps_its_schedule_and_a_search_ends(begun: dict[str, tuple[Run, Path]]) -> None:
    run, folder = begun["search"]
    finish(run)
    for cell, sent, received in cells(folder):
        assert sorted(received["sequence"]) == list(range(len(sent)))
        if cell["mode"] == "open":
            assert cell["rate_hz"] == 200
            assert np.abs(np.diff(sent["scheduled_ns"]) - 5_000_000).max() <= 1
            assert (sent["sent_ns"] >= sent["scheduled_ns"]).all()
        else:
            search = cell["search"]
            assert search["steps"]
            assert len(sent) >= 40
            carried = [step["rate_hz"] for step in search["steps"] if step["lossless"]]
            assert search["highest_loss_free_hz"] == (max(carried) if carried else None)
            (found,) = (each for each in json.loads((folder / "results.json").read_text())["cells"] if each["search"])
            assert ("at_highest_rate" in found["statistics"]) == bool(carried)


def test_a_run_is_not_overwritten(everything: Path) -> None:
    before = (everything / "run.json").read_bytes()
    run = sweep("--subjects", "raw-tcp", out=everything, code=3)
    assert "holds a run already" in run.err
    assert (everything / "run.json").read_bytes() == before


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--subjects", "carrier-pigeon"], "no subject is called"),
        (["--subjects", "raw-own-opcua"], "no subject of a sweep: `twinlink experiment loopback` measures it"),
        (["--transports", "zeromq,zeromq"], "each once"),
        (["--payloads", "17M"], "at most"),
        (["--payloads", "1K,1024"], "each payload once"),
        (["--directions", "up"], "none of rw-dt, dt-rw"),
        (["--mode", "sideways"], "none of closed"),
        (["--rate-limit", "100mbit"], "cable between two namespaces"),
        (["--rate-limit", "quick"], "'quick' is no rate such as 100mbit"),
        (["--rate-limit", "mbit"], "'mbit' is no rate such as 100mbit"),
        (["--ntp", "127.0.0.1:no"], "'127.0.0.1:no' is not of the form host or host:port"),
        (["--peer", "tcp/127.0.0.1:1"], "go together"),
        (["--source", "mgen", "--mode", "closed"], "open loop"),
        (["--source", "mgen", "--subjects", "raw-tcp"], "through twinlink"),
        (["--option", "zenoh.shared_memory=true", "--subjects", "zeromq"], "not measured here"),
        (
            ["--option", "zeromq.sned_hwm=5"],
            "zeromq.sned_hwm: unknown option sned_hwm for transport 'zeromq'; it knows: ",
        ),
        (["--option", "zenoh.shared_memory=1"], "zenoh.shared_memory: option shared_memory takes bool, not 1"),
        (["--option", "zeromq.send_hwm=-1"], "option send_hwm must be above 0"),
        (["--option", "mqtt-qos0.window=5"], "window must be a whole number from 1,048,576"),
        (["--option", "zeromq.reliability=none"], "reliability must be one of repair, detect, not 'none'"),
        (["--option", "zeromq.node=gnb"], "unknown option node"),
        (["--option", "raw-tcp.no_delay=false"], "subject 'raw-tcp' has no option"),
        (["--require", "happiness=1"], "none of loss"),
        (["--require", "loss"], "not NAME=MOST, such as loss=0"),
        (["--require", "loss=2"], "from 0 to 1"),
        (["--count", "0"], "at least 1"),
        (["--count", "many"], "'many' is not a whole number"),
        (["--payloads", "1X"], "'1X' is not a number of octets such as 100, 64KB or 1MB"),
        (["--payloads", "1G"], "a payload of 1073741824 octets; a link takes at most 16777216"),
        (["--seed", "x"], "whole number from 0"),
        (["--timeout", "0"], "above 0"),
        (["--mode", "open", "--rate", "0"], "above 0"),
        (["--source", "mgen", "--payloads", "1K,10"], "of 10 B by UDP: MGEN and the bridge carry 28 to 8192"),
    ],
)
def test_what_cannot_be_is_said_at_once(arguments: list[str], told: str, tmp_path: Path) -> None:
    run = call("sweep", "--setting", "loopback", "--out", str(tmp_path / "out"), *arguments)
    assert run.code() == 3
    assert told in run.err
    assert not (tmp_path / "out").exists()


def test_an_option_of_a_subject_reaches_it(begun: dict[str, tuple[Run, Path]]) -> None:
    run, folder = begun["option"]
    finish(run)
    used = content(folder)["configuration"]["used"]["subject_options"]["zeromq"]
    assert (used["send_hwm"], used["reliability"]) == (500, "detect")


def test_a_quick_sweep_takes_few_messages_and_says_so(begun: dict[str, tuple[Run, Path]]) -> None:
    """As many as an option says, where it does."""
    _, folder = begun["option"]
    used = content(folder)["configuration"]["used"]
    assert {name: used[name] for name in ("count", "rounds", "warm_up")} == {"count": 2, "rounds": 1, "warm_up": 5}
    assert "few values (--quick)" in (folder / "report.html").read_text()


def test_a_requirement_that_is_not_met_is_exit_code_1(begun: dict[str, tuple[Run, Path]]) -> None:
    run = finish(begun["requirement"][0], 1)
    assert "--rate 50 is not used: it is for --mode open, this is closed" in run.err
    assert "rtt-p50-ms" in run.err
    assert "loss" not in run.err


def test_an_ntp_server_that_cannot_be_asked_is_said_once_and_stops_nothing(begun: dict[str, tuple[Run, Path]]) -> None:
    run, folder = begun["requirement"]
    finish(run, 1)
    told = [line for line in run.err.splitlines() if "ntp.invalid" in line]
    assert told == [f"twinlink sweep: no time from NTP at the Real World and the Digital Twin: {NO_NTP}"]
    assert {side["error"] for side in content(folder)["ntp"].values()} == {NO_NTP}


def test_a_disk_that_is_full_is_said_with_the_folder(tmp_path: Path) -> None:
    arguments = ["sweep", "--setting", "loopback", "--out", str(tmp_path), "--subjects", "raw-tcp", *ONE_WAY]
    run = finish(Run([*arguments, "--count", "2", "--rounds", "1"], preexec_fn=no_more_than_1000_octets), 2)
    assert "is kept" not in run.err
    assert f"{tmp_path}: File too large; make room there, or write elsewhere" in run.err


def test_the_table_is_printed_where_there_is_no_room_for_the_figures(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    arguments = ["sweep", "--setting", "loopback", "--out", str(folder), "--subjects", "raw-tcp", *ONE_WAY]
    limit = partial(resource.setrlimit, resource.RLIMIT_FSIZE, (20_000, 20_000))
    run = finish(Run([*arguments, "--count", "4", "--rounds", "1"], preexec_fn=limit), 2)
    assert f"{folder}: File too large; make room there" in run.err
    assert f"`twinlink report {folder}` makes the report" in run.err
    table = run.out[run.out.index("Closed loop, RW→DT: mean RTT in ms, ± how far its CI95 reaches") :]
    assert [line.split()[:2] for line in table[1:3]] == [["100", "B"], ["raw", "TCP"]]
    assert not list((folder / "figures").iterdir())  # none that breaks off in its midst
    finish(Run(["report", str(folder)]))
    assert (folder / "report.html").exists()


@pytest.mark.parametrize("step", ["compute", "derive"])
def test_ctrl_c_while_the_report_is_made_says_how_to_make_it(
    step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(results, step, interrupted)
    folder = tmp_path / "out"
    arguments = ["sweep", "--setting", "loopback", "--out", str(folder), "--subjects", "raw-tcp", *ONE_WAY]
    assert main([*arguments, "--count", "2", "--rounds", "1"]) == 2
    told = capsys.readouterr()
    assert f"the records are kept: `twinlink report {folder}` makes the report\n" in told.err
    assert ("raw TCP" in told.out) == (step == "derive")
    monkeypatch.undo()
    assert main(["report", str(folder)]) == 0
    assert (folder / "report.html").exists()


def test_rounds_that_were_saved_before_a_disk_was_full_are_kept(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    arguments = ["sweep", "--setting", "loopback", "--out", str(folder), "--subjects", "raw-tcp", *ONE_WAY]
    limit = partial(resource.setrlimit, resource.RLIMIT_FSIZE, (8000, 8000))
    run = finish(Run([*arguments, "--count", "2000", "--rounds", "20", "--warm-up", "1"], preexec_fn=limit), 2)
    assert f"the records are kept: `twinlink report {folder}` makes the report" in run.err
    assert not list(folder.rglob("*.part"))
    report = finish(Run(["report", str(folder)]))  # the records are those that run.json tells of
    (cell,) = content(folder)["cells"]
    assert 0 < len(cell["rounds"]) < 20
    assert (cell["status"], cell["reason"]) == ("interrupted", f"{len(cell['rounds'])} of 20 rounds were done")
    assert "of 1 cells 0 have all their rounds, 1 some, 0 none" in " ".join(report.out)


def test_ctrl_c_keeps_what_was_measured_and_leaves_nothing_behind(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    arguments = ["sweep", "--setting", "loopback", "--out", str(folder), "--subjects", "raw-tcp", "--payloads", "100"]
    run = Run([*arguments, "--count", "10000", "--rounds", "10000", "--warm-up", "1"])
    run.wait_for("s left")  # at least one round has been done
    while not (workers := children(run.process.pid)):
        assert run.process.poll() is None, run.err  # between two rounds
    run.interrupt()
    assert run.code() == 1
    assert "interrupted" in run.err
    kept = content(folder)
    assert not kept["complete"]
    for cell, sent, received in cells(folder):
        assert cell["status"] == "interrupted"
        assert sum(entry["sent"] for entry in cell["rounds"]) == len(sent) == len(received) > 0
    assert (folder / "report.html").exists()
    assert not set(workers) & processes().keys()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_during_the_report_names_the_command_that_makes_it(number: signal.Signals, tmp_path: Path) -> None:
    if signal.getsignal(number) is signal.SIG_IGN:
        pytest.skip(f"{number.name} is ignored here, as under nohup, and so it is in what is started here")
    folder = tmp_path / "out"
    arguments = ["sweep", "--setting", "loopback", "--out", str(folder), "--subjects", "raw-tcp", *ONE_WAY]
    run = Run([*arguments, "--count", "3", "--rounds", "1", "--warm-up", "1"])
    run.wait_for("making the report")
    run.process.send_signal(number)
    assert run.code() == 2
    assert f"the records are kept: `twinlink report {folder}` makes the report" in run.err
    assert content(folder)["complete"]
