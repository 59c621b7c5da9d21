"""The radio API: two nodes through a batch job as Colosseum's controller takes them, and each script by itself."""

import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from twinlink.testing import patience, wait_until

from .controller import SCRIPTS, Job, boot, call, config, events, play, push, status
from .srn import RESERVATION, Srn, cable, why_not

REASON = why_not()
pytestmark = pytest.mark.skipif(REASON is not None, reason=f"no stand-in for an SRN here: {REASON}")

EMULATOR_ONLY = "[ran-emulator]\n"


@pytest.fixture
def node() -> Iterator[Srn]:
    with Srn(7, "") as node:
        yield node


@pytest.fixture(scope="module")
def idle() -> Iterator[Srn]:
    """Nothing is started on it."""
    with Srn(9, "") as node:
        yield node


@pytest.fixture
def nodes() -> Iterator[list[Srn]]:
    with ExitStack() as stack:
        nodes = [stack.enter_context(Srn(number, "")) for number in (7, 21)]
        cable(nodes)
        yield nodes


def received_octets(node: Srn, interface: str) -> int:
    process = node.start("cat", f"/sys/class/net/{interface}/statistics/rx_bytes", stdout=subprocess.PIPE)
    return int(process.communicate()[0])


def test_two_nodes_run_the_demos_path_over_col0(nodes: list[Srn]) -> None:
    gnb, twin = nodes
    push(gnb, "radio.conf", config("recording.conf", "zenoh"))
    push(twin, "radio.conf", config("twin.conf", "zenoh"))
    said: list[str] = []
    play(Job(nodes, said.append), gnb)

    exported = json.loads(gnb.path("/logs/exporter-summary.json").read_text())
    assert exported["exported"] == exported["spectrum"]["acknowledged"] > 0
    assert exported["spectrum"]["lost"] == 0
    assert exported["blocks_installed"] > 0
    (rebuilt,) = (event for event in events(twin, "replay") if event["event"] == "summary")
    assert rebuilt["records"] == exported["exported"]
    assert rebuilt["missing"] == rebuilt["dropped"] == 0
    assert rebuilt["installed"] > 0
    (done,) = (event for event in events(gnb, "ran-emulator") if event["event"] == "done")
    assert done["records"] >= exported["indications"]

    assert f"172.30.{RESERVATION}.121 peer.col0" in gnb.path("/etc/hosts").read_text()
    assert received_octets(twin, "col0") > exported["spectrum"]["sent_octets"] > received_octets(twin, "tr0")
    for each in (gnb, twin):
        logs = {path.name for path in each.path("/logs").iterdir()}
        assert {"radio.conf", "colosseum_config.ini", "environment.json", "radio_api.txt", "doctor.txt"} <= logs
        assert [name for name in logs if name.startswith("environment-")]
        assert "stop.sh" in each.path("/logs/radio_api.txt").read_text()
    assert twin.path("/logs/twin/rebuilt.sigmf-meta").exists()
    assert [line for line in said if "READY" in line]


GNB_STAND_IN = """#!/bin/bash
echo "$@" >/run/gnb-arguments
trap 'echo the gNB ends; kill $!; wait; exit 0' TERM
/opt/twinlink/bin/twinlink-ran-emulator --recording /opt/recordings/uplink-106prb.sigmf-meta --loop 0 &
echo the gNB is up
wait
"""


def test_the_gnb_of_an_image_begins_with_the_scenario_and_ends_after_the_exporter(node: Srn) -> None:
    """A gNB of OAI cannot be had here: a program in its place, called as it is, which has E3 sockets as it has."""
    push(node, "radio.conf", '[exporter]\nconnect = "tcp/127.0.0.1:7447"\ninsecure-control = true\n')
    program = node.path("/opt/oai-gnb/bin/nr-softmodem")
    program.parent.mkdir(parents=True)
    program.write_text(GNB_STAND_IN)
    program.chmod(0o755)
    assert boot(node).wait(patience(30)) == 1
    assert "/root/config/oai-gnb.conf is missing" in status(node)["INFO"]

    node.path("/root/config").mkdir()
    node.path("/root/config/oai-gnb.conf").write_text("")
    node.path("/root/config/oai-gnb.options").write_text("--phy-test -E\n")
    assert boot(node).wait(patience(30)) == 0
    wait_until(lambda: "gnb: waits for start.sh" in status(node)["INFO"], patience(30))
    assert not node.path("/run/gnb-arguments").exists()
    call(node, "start")
    wait_until(lambda: json.loads(call(node, "statistics").stdout).get("twinlink_e3_session_up") == 1, patience(30))
    assert node.path("/run/gnb-arguments").read_text() == "-O /root/config/oai-gnb.conf --phy-test -E\n"
    said = status(node)
    assert said["STATUS"] == "ACTIVE"
    assert "gnb: " in said["INFO"]
    call(node, "stop")
    wait_until(lambda: status(node)["STATUS"] == "FINISHED", patience(30))
    assert "the gNB ends" in node.path("/logs/gnb.txt").read_text()
    assert [event for event in events(node, "exporter") if event["event"] == "summary"]
    assert not [event for event in events(node, "exporter") if event["event"] == "e3-lost"], "the gNB ended first"


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_script_takes_no_arguments(idle: Srn, script: str) -> None:
    called = call(idle, script, "now")
    assert called.code == 64
    assert called.stdout == ""
    assert not idle.path("/run/twinlink").exists(), "it did something all the same"


def test_calls_in_any_state_are_answered(node: Srn) -> None:
    said = status(node)
    assert said["STATUS"] == "OFF"
    assert "radio.conf is missing" in said["INFO"]
    for script in SCRIPTS:
        assert call(node, script).code == 0
    wait_until(lambda: status(node)["STATUS"] == "FINISHED", patience(30))
    assert call(node, "stop").code == 0, "a second time"
    assert status(node)["STATUS"] == "FINISHED"


def test_a_program_that_ends_is_an_error_until_the_node_is_started_again(node: Srn) -> None:
    push(node, "radio.conf", EMULATOR_ONLY)
    assert boot(node).wait(patience(30)) == 0
    waits = {"STATUS": "READY", "INFO": "ran-emulator: waits for start.sh"}
    wait_until(lambda: status(node) == waits, patience(30))  # on a busy machine it may not answer in time
    assert boot(node).wait(patience(30)) == 1, "what runs is not started twice"
    pid = node.path("/run/twinlink/ran-emulator.pid").read_text().strip()
    node.start("kill", "-KILL", pid).wait()
    wait_until(lambda: status(node)["STATUS"] == "ERROR", patience(10))
    assert "ran-emulator has ended" in status(node)["INFO"]

    call(node, "stop")
    wait_until(lambda: status(node)["STATUS"] == "FINISHED", patience(30))
    assert boot(node).wait(patience(30)) == 0
    assert status(node)["STATUS"] == "READY"
    call(node, "start")
    assert status(node)["STATUS"] == "ACTIVE"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "none of the tables"),
        ("[ran-emulator]\nlop = 0\n", "lop"),
        ("[exporter]\ntransport = 'smoke signals'\n", "smoke signals"),
    ],
)
def test_a_configuration_that_cannot_be_used_is_an_error_with_its_reason(node: Srn, text: str, reason: str) -> None:
    push(node, "radio.conf", text)
    assert boot(node).wait(patience(30)) == 1
    said = status(node)
    assert said["STATUS"] == "ERROR"
    assert reason in said["INFO"]


def test_without_col0_the_exporter_says_what_to_do(node: Srn) -> None:
    push(node, "radio.conf", config("recording.conf", "zenoh"))
    boot(node).wait(patience(30))
    wait_until(lambda: status(node)["STATUS"] == "ERROR", patience(10))
    assert "isGateway" in status(node)["INFO"]


def test_of_two_nodes_that_listen_none_is_chosen(nodes: list[Srn]) -> None:
    gnb, twin = nodes
    for command in (
        ["ip", "address", "add", f"172.30.{RESERVATION}.150/24", "dev", "col0"],
        ["/opt/twinlink/bin/python", "-m", "http.server", "7447"],
    ):
        twin.start(*command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(0.1)
    find = gnb.start("/opt/twinlink/bin/python", "/root/radio_api/find_peer.py", "7447", stderr=subprocess.PIPE)
    _, complaint = find.communicate(timeout=patience(30))
    assert find.returncode == 1
    assert f"172.30.{RESERVATION}.121" in complaint
    assert f"172.30.{RESERVATION}.150" in complaint


@pytest.mark.parametrize(
    "octets",
    [
        b'say "no"\\ \\n',
        b"two\nlines\r\n\ttab\x1b[31m\x00",
        b"\xff\xfe broken \xc3",
        "Größe".encode(),
        b"x" * 100_000,
        b"",
    ],
)
def test_status_is_json_whatever_the_reason_holds(idle: Srn, octets: bytes) -> None:
    state = idle.path("/run/twinlink")
    state.mkdir()
    (state / "failed").write_bytes(octets)
    try:
        said = status(idle)
    finally:
        shutil.rmtree(state)
    assert said["STATUS"] == "ERROR"
    assert said["INFO"].isprintable()
    assert len(said["INFO"]) <= 1000
