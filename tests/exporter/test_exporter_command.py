"""``twinlink-exporter`` as a process: logs, exit codes, signals, and no traceback whatever happens."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from twinlink_e3 import Endpoints
from twinlink_exporter.__main__ import main
from twinlink_exporter.sockets import is_closed_to_us

import twinlink
from tests.cli.calling import call
from twinlink.control import PrbBlock, PrbBlockResult
from twinlink.identity import Identity
from twinlink.identity.watched import WatchedIdentity
from twinlink.recording import verify
from twinlink.signed_payload import Signer, Verified, Verifier
from twinlink.testing import free_endpoint, patience, wait_until
from twinlink.transport_options import TransportName

from .agent import Agent, encode_indication
from .conftest import LONG_MS, trusting_pair

IQ = bytes(6144)
UNPRIVILEGED_UID = 65534
Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start(endpoints: Endpoints, tmp_path: Path) -> Iterator[Start]:
    """Start the command on private E3 endpoints."""
    processes: list[subprocess.Popen[str]] = []

    def run(*arguments: str) -> subprocess.Popen[str]:
        command = [
            sys.executable, "-m", "twinlink_exporter",
            "--setup", endpoints.setup, "--to-dapp", endpoints.to_dapp, "--from-dapp", endpoints.from_dapp,
            "--log", str(tmp_path / "log"), "--summary", str(tmp_path / "summary"), *arguments,
        ]  # fmt: skip
        processes.append(subprocess.Popen(command, stderr=subprocess.PIPE, text=True))
        return processes[-1]

    yield run
    for process in processes:
        process.kill()
        process.wait()
        if process.stderr:
            process.stderr.close()


def events(tmp_path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]


def wait_for_event(tmp_path: Path, name: str) -> None:
    wait_until(lambda: (tmp_path / "log").exists() and name in [event["event"] for event in events(tmp_path)])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_it_waits_for_agent_and_twin_and_ends_on_a_signal(start: Start, tmp_path: Path, number: signal.Signals) -> None:
    if signal.getsignal(number) is signal.SIG_IGN:
        pytest.skip(f"{number.name} is ignored here, as nohup has it, and so it is by what this test starts")
    process = start("--connect", free_endpoint())
    wait_for_event(tmp_path, "e3-setup-request")
    process.send_signal(number)
    _, said = process.communicate(timeout=patience())
    assert process.returncode == 0
    assert "asking for an E3 agent at ipc://" in said
    assert "Traceback" not in said
    assert json.loads((tmp_path / "summary").read_text())["indications"] == 0
    assert [event["event"] for event in events(tmp_path)][-1] == "summary"


def test_a_twin_that_is_not_there_is_missed_aloud(start: Start, tmp_path: Path) -> None:
    endpoint = free_endpoint()
    process = start("--connect", endpoint)
    wait_for_event(tmp_path, "no-peer")
    with twinlink.open("zeromq", listen=endpoint, node="twin-1"):
        wait_for_event(tmp_path, "peer-up")
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=patience())
    assert (
        f"connecting to {endpoint} over zeromq: TCP says: Connection refused; check that the other side listens" in said
    )
    assert process.returncode == 0


@pytest.mark.parametrize("transport", ["zeromq", "zenoh"])
@pytest.mark.parametrize("exporter_listens", [False, True])
def test_the_whole_way_on_each_transport_with_either_side_listening(
    start: Start, endpoints: Endpoints, tmp_path: Path, transport: TransportName, exporter_listens: bool
) -> None:
    endpoint = free_endpoint()
    with Agent(endpoints) as agent:
        way = ("--listen" if exporter_listens else "--connect", endpoint)
        patient = ("--max-age-ms", str(LONG_MS), "--out-after", str(LONG_MS))
        recording = tmp_path / "gnb.mcap"
        process = start("--transport", transport, *way, "--insecure-control", *patient, "--record", str(recording))
        ends = (None, endpoint) if exporter_listens else (endpoint, None)
        with twinlink.open(transport, listen=ends[0], connect=ends[1], node="twin-1") as twin:
            wait_for_event(tmp_path, "peer-up")
            # On a busy machine a setup may be answered too late, and be requested again.
            agent.wait_for(lambda a: len(a.subscribed) > len(a.releases))
            agent.send(*(encode_indication(agent.subscribed[-1], IQ, k) for k in range(100)))
            spectrum = twin.receiver("spectrum")
            got = [spectrum.receive(timeout=patience()) for _ in range(100)]
            assert [message.sequence for message in got if message] == list(range(100))
            twin.sender("control").send(PrbBlock("b", (70,), time.time_ns(), 10_000).encode())
            agent.wait_for(lambda a: a.controls == [[70]])
        agent.wait_for(lambda a: a.controls == [[70], []])  # the twin went
        process.terminate()
        _, said = process.communicate(timeout=patience())
        agent.wait_for(lambda a: a.releases == a.subscribed)
    assert process.returncode == 0
    assert "Traceback" not in said
    summary = json.loads((tmp_path / "summary").read_text())
    assert (summary["exported"], summary["spectrum"]["acknowledged"], summary["spectrum"]["lost"]) == (100, 100, 0)
    report = verify(recording)
    assert report.complete
    recorded = {(stream["direction"], stream["flow"]): stream["messages"] for stream in report.streams}
    assert (recorded["sent", "spectrum"], recorded["received", "control"]) == (100, 1)
    (event,) = [event for event in events(tmp_path) if event["event"] == "recorded"]
    assert (event["paths"], event["left_out"], event["problem"]) == ([str(recording)], 0, None)


@pytest.mark.parametrize("option", ["--identity", "--sign"])
def test_with_identities_a_signed_decision_reaches_the_ran(
    start: Start, endpoints: Endpoints, tmp_path: Path, option: str
) -> None:
    endpoint, (twin_folder, gnb_folder) = free_endpoint(), trusting_pair(tmp_path)
    own = twin_folder if option == "--identity" else None
    with (
        Agent(endpoints) as agent,
        twinlink.open("zeromq", listen=endpoint, node="twin-1", identity=own) as twin,
    ):
        spectrum, results = twin.receiver("spectrum"), twin.receiver("control-result")
        patient = ("--max-age-ms", str(LONG_MS), "--out-after", str(LONG_MS))
        process = start(option, str(gnb_folder), "--connect", endpoint, *patient)
        wait_for_event(tmp_path, "peer-up")
        agent.wait_for(lambda a: a.subscribed == [1])
        agent.send(encode_indication(1, IQ))
        observation = spectrum.receive(timeout=patience())
        assert observation is not None
        watched = twin.identity or WatchedIdentity(Identity.load(twin_folder))
        signer, verifier = Signer(watched, twin.epoch), Verifier(watched, twin.epoch)
        decision, statuses = PrbBlock("b", (70,), time.time_ns(), 10_000).encode(), []
        for payload in (decision, signer.sign("control", decision, observation.node or "", observation.epoch)):
            twin.sender("control").send(payload)
            result = results.receive(timeout=patience())
            assert result is not None
            verdict = verifier.verify("control-result", result.payload, result.node, result.epoch)
            assert isinstance(verdict, Verified)
            statuses.append(PrbBlockResult.decode(verdict.body).status)
        assert statuses == ["rejected", "installed"]
        assert agent.controls == [[70]]
        process.terminate()
        _, said = process.communicate(timeout=patience())
    assert process.returncode == 0
    assert "decisions: signed ones of trusted twins" in said
    reasons = [event["reason"] for event in events(tmp_path) if event["event"] == "block-rejected"]
    assert [reason.partition(":")[0] for reason in reasons] == ["unsigned"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["--n-prbs", "0"],
        ["--insecure-control", "--identity", "/nonexistent"],
        ["--insecure-control", "--sign", "/nonexistent"],
        ["--identity", "/nonexistent", "--sign", "/nonexistent"],
        ["--n-prbs", "106", "--fft-size", "1024"],
        ["--protect-prbs", "5-1"],
        ["--protect-prbs", "106"],
        ["--centre-hz", "nan"],
        ["--scs-khz", "17"],
        ["--out-after", "0"],
        ["--completeness", "1.1"],
        ["--connect", "*:7447"],
        ["--transport", "pigeon"],
        ["--connect", "tcp/a:1", "--listen", "tcp/a:1"],
        ["--no-such-option"],
    ],
)
def test_bad_arguments_exit_with_3_and_a_sentence(arguments: list[str]) -> None:
    exporter = call(*arguments, program=main)
    assert exporter.code() == 3, exporter.err
    assert "twinlink-exporter: " in exporter.err


def test_options_may_come_from_the_environment(start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    endpoint = free_endpoint()
    monkeypatch.setenv("TWINLINK_LISTEN", endpoint)
    monkeypatch.setenv("TWINLINK_PROTECT_PRBS", "0-3")
    process = start("--node", "gnb-7")
    wait_for_event(tmp_path, "started")
    process.terminate()
    process.communicate(timeout=patience())
    started = next(event for event in events(tmp_path) if event["event"] == "started")
    assert (started["endpoint"], started["protected"], started["node"]) == (endpoint, [0, 1, 2, 3], "gnb-7")


@pytest.mark.parametrize("option", ["--log", "--summary", "--record"])
def test_what_cannot_be_written_is_said_at_the_start(start: Start, option: str) -> None:
    process = start(option, "/proc/none/there")
    _, said = process.communicate(timeout=patience())
    assert process.returncode == 2
    assert said.splitlines()[-1].startswith("twinlink-exporter: /proc/none")
    assert said.endswith("; check the path\n")


def test_a_port_in_use_exits_with_2(start: Start) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        process = start("--listen", f"tcp/127.0.0.1:{other.getsockname()[1]}")
        _, said = process.communicate(timeout=patience())
    assert process.returncode == 2
    assert "Traceback" not in said


def test_an_impossible_e3_endpoint_exits_with_2(start: Start) -> None:
    process = start("--setup", "tcp://*:9990")
    _, said = process.communicate(timeout=patience())
    assert process.returncode == 2
    assert "an endpoint reads ipc:///path or tcp://address:port" in said
    assert "Traceback" not in said


def test_a_socket_that_this_user_may_not_use_is_named(endpoints: Endpoints, tmp_path: Path) -> None:
    """As where the gNB runs as root and the exporter does not."""
    path = Path(endpoints.setup.removeprefix("ipc://"))
    with socket.socket(socket.AF_UNIX) as agent:
        agent.bind(str(path))
        assert not is_closed_to_us(endpoints.setup)
        path.chmod(0o500)
        user = os.geteuid()
        if user == 0:
            path.parent.chmod(0o755)
            os.seteuid(UNPRIVILEGED_UID)
        try:
            assert is_closed_to_us(endpoints.setup)
        finally:
            os.seteuid(user)
    assert not is_closed_to_us("ipc:///nonexistent/setup")
    assert not is_closed_to_us("tcp://127.0.0.1:9990")
