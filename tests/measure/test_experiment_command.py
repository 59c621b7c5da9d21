"""`twinlink experiment`: its list, its refusals, and an experiment on the machinery of a sweep."""

import json
import os
from pathlib import Path

import pytest
from twinlink_measure.experiments import NAMES, clients, description, report, sweep_parts
from twinlink_results import results

from tests.cli.calling import call
from tests.cli.running import Run
from tests.measure.experimenting import quiet

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="SKIPPED: network namespaces need root")


def test_the_list_names_all_seventeen() -> None:
    run = Run(["experiment", "list"])
    assert run.code() == 0, run.err
    assert tuple(line.split()[0] for line in run.out) == NAMES
    assert len(NAMES) == 17


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["pubsub-bridge", "--setting", "netns"], 3, "experiment pubsub-bridge runs in a virtual machine"),
        (["octets", "--setting", "loopback"], 3, "needs two network namespaces, and so root"),
        (["octets", "--hub", "node-red"], 3, "--hub is for the hub-* experiments; octets has no hub"),
        (["hub-resources", "--hub", "node-red"], 3, "--hub node-red needs --node-red DIR"),
        (
            ["hub-resources", "--hub", "node-red", "--node-red", "no-such-folder"],
            2,
            "Node-RED is not there: no-such-folder",
        ),
        (["hub-direct", "--hub", "node-red", "--node-red", "x"], 3, "hub-direct has no part for --hub node-red"),
        (["hub-direct", "--node-red", "x"], 3, "--node-red is for --hub node-red"),
        (["octet"], 3, "'octet' is none of list, table-1, octets"),
    ],
)
def test_what_cannot_be_run_is_said(arguments: list[str], code: int, told: str, tmp_path: Path) -> None:
    run = call("experiment", *arguments, "--out", str(tmp_path / "out"))
    assert run.code() == code
    assert told in run.err
    assert not (tmp_path / "out").exists()


@needs_root
def test_the_octets_of_an_own_subscription_are_those_of_its_protocol(tmp_path: Path) -> None:
    part = {**description.load("octets").parts[0], "subjects": ("raw-own-mqtt-qos0",), "payloads": (100,)}
    counts = {"count": 20, "rounds": 1, "warm_up": 3}
    run = quiet(tmp_path, "octets", counts, [part], "netns")
    (row,) = sweep_parts.measure(run)
    assert (row.status, row.n, row.missing) == ("done", 20, 0), row.reason
    # PUBLISH of 100 octets with a topic of one: 105 octets, behind 66 of Ethernet, IP and TCP; up and down.
    least = 2 * (105 + 66)
    assert row.figures["octets"] is not None
    assert least <= row.figures["octets"] < least * 1.3  # some acknowledgements of TCP travel alone on a busy machine
    # Its raw records give the same figures again.
    found, _ = results.tabulate(tmp_path / "parts" / "octets", tmp_path / "again")
    (cell,) = found["cells"]
    assert cell["statistics"]["rtt_ns"]["mean"] == pytest.approx(row.figures["mean"] * 1e6)  # type: ignore[operator]
    about = {
        "started_ns": 1, "ended_ns": 2, "complete": True, "quick": True, "setting": "netns", "counts": counts,
        "system": {"cpus": 2, "cpu_model": "one", "kernel": "6", "python": "3"}, "load": [], "notes": [], "figures": {},
    }  # fmt: skip
    content = report.content(run.experiment, [row], about)
    assert json.loads(json.dumps(content))["orderings"][0]["verdict"] == "not measured here"


def test_one_client_has_the_answers_of_all_others(tmp_path: Path) -> None:
    counts = {"clients": [5], "rounds": {"mqtt": 3, "opcua": 2}, "octets": 16}
    run = quiet(tmp_path, "clients", counts, lambda part: part["name"] in ("mqtt-qos2", "opcua"))
    rows = clients.measure(run)
    assert [(row.case["system"], row.status, row.n, row.missing) for row in rows] == [
        ("mqtt-qos2", "done", 3, 0),
        ("opcua", "done", 2, 0),
    ], rows
