"""The programs over HTTP: health, readiness with its reasons, and metrics that Prometheus takes."""

import argparse
import json
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import twinlink
from tests.cli.calling import call
from twinlink.appkit import convert
from twinlink.testing import free_endpoint, patience, wait_until

from . import dashboard
from .prometheus import program

PATIENT = ("--insecure-control", "--max-age-ms", "200000")  # a decision may come as late as this machine makes it


class Program:
    """One of the programs, with its HTTP server at a port that it chooses."""

    def __init__(self, module: str, *arguments: str) -> None:
        command = [sys.executable, "-m", module, *arguments, "--http", "127.0.0.1:0"]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert self.process.stderr is not None
        for line in self.process.stderr:
            if found := re.search(r"at http://(127\.0\.0\.1:\d+)", line):
                self.address = found[1]
                return
        raise AssertionError(f"{module} ended with {self.process.wait()} and served nothing")

    def get(self, path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://{self.address}{path}", timeout=patience()) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def reasons(self) -> list[str]:
        """Why it is not ready."""
        status, text = self.get("/readyz")
        said: dict[str, Any] = json.loads(text)
        assert said["ready"] is (status == 200) is (not said["reasons"])
        return list(said["reasons"])

    def value(self, series: str) -> float:
        """Of one series, by its name and labels."""
        found = [line for line in self.get("/metrics")[1].splitlines() if line.startswith(f"{series} ")]
        return float(found[0].rpartition(" ")[2]) if found else -1.0

    def total(self, name: str) -> float:
        """Of all series of this name."""
        found = [line for line in self.get("/metrics")[1].splitlines() if line.startswith((f"{name} ", f"{name}{{"))]
        return sum(float(line.rpartition(" ")[2]) for line in found)

    def end(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        code = self.process.wait(patience())
        assert self.process.stderr is not None
        self.process.stderr.close()
        return code


@pytest.fixture
def ran(tmp_path: Path) -> list[str]:
    """Options for E3 sockets of this test alone."""
    names = {"setup": "setup", "to-dapp": "out", "from-dapp": "in"}
    return [word for option, name in names.items() for word in (f"--{option}", f"ipc://{tmp_path}/{name}")]


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def start(stack: ExitStack, module: str, *arguments: str) -> Program:
    one = Program(module, *arguments)

    def end() -> None:
        if one.process.poll() is None:
            one.end(signal.SIGKILL)

    stack.callback(end)
    return one


def test_from_nothing_to_in_sync_and_back(ran: list[str], stack: ExitStack, tmp_path: Path) -> None:
    """As an operator sees it: not ready, and why; ready; the twin killed; what Prometheus makes of it all."""
    endpoint = free_endpoint()
    exporter = start(stack, "twinlink_exporter", *ran, *PATIENT, "--connect", endpoint, "--clear-at-start")
    assert exporter.get("/healthz") == (200, "ok\n")
    said = exporter.reasons()
    assert [text for text in said if "no E3 session" in text]
    assert "no twin is up" in said
    emulator = start(stack, "twinlink_ran_emulator", *ran, "--loop", "0")
    twin = start(stack, "twinlink_replay", "--listen", endpoint)
    wait_until(lambda: not [why for one in (exporter, emulator, twin) for why in one.reasons()])

    for one in (exporter, emulator, twin):
        done = subprocess.run(
            [program("promtool"), "check", "metrics"], input=one.get("/metrics")[1], text=True, capture_output=True,
            check=False,
        )  # fmt: skip
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    wait_until(lambda: twin.value('twinlink_flow_received_total{flow="spectrum"}') > 200)
    assert exporter.value("twinlink_e3_session_up") == 1
    assert exporter.value('twinlink_peer_up{peer="twin-1"}') == 1
    assert twin.value('twinlink_replay_sync_state{state="in-sync"}') == 1
    assert 0 < twin.value('twinlink_age_of_information_seconds{flow="spectrum"}') < 2
    served = exporter.get("/metrics")[1] + twin.get("/metrics")[1]
    assert dashboard.metrics() - set(re.findall(r"^(\w+)", served, re.MULTILINE)) == set()
    wait_until(lambda: "twinlink_block_remaining_seconds" in exporter.get("/metrics")[1])
    scraped(stack, tmp_path, {"exporter": exporter, "emulator": emulator, "twin": twin})

    wait_until(lambda: exporter.value("twinlink_block_active_prbs") > 0)
    twin.end(signal.SIGKILL)
    wait_until(lambda: exporter.reasons() == ["no twin is up"])
    assert exporter.get("/healthz")[0] == 200  # it does its work, as far as it can: it must not be restarted for that
    assert exporter.value('twinlink_peer_up{peer="twin-1"}') == 0
    wait_until(lambda: exporter.value("twinlink_block_active_prbs") == 0)
    assert exporter.total("twinlink_exporter_blocks_cleared_total") > 0
    assert exporter.value("twinlink_block_unknown") == 0
    assert exporter.end() == 0


def scraped(stack: ExitStack, tmp_path: Path, programs: dict[str, Program]) -> None:
    """A real Prometheus takes the metrics of all programs, and has an answer to each query of the dashboard."""
    targets = [
        {
            "job_name": name,
            "static_configs": [{"targets": [one.address], "labels": {"namespace": "ran", "pod": name}}],
        }
        for name, one in programs.items()
    ]
    config = tmp_path / "prometheus.json"  # which is YAML as well
    config.write_text(json.dumps({"global": {"scrape_interval": "1s"}, "scrape_configs": targets}))
    log = stack.enter_context((tmp_path / "prometheus.log").open("w+"))
    listen = free_endpoint(1).removeprefix("tcp/")
    server = subprocess.Popen(
        [
            program("prometheus"), f"--config.file={config}", f"--web.listen-address={listen}",
            f"--storage.tsdb.path={tmp_path}/tsdb",
        ],
        stderr=log,
    )  # fmt: skip

    def ask(query: str) -> list[dict[str, Any]]:
        assert server.poll() is None, (tmp_path / "prometheus.log").read_text()
        url = f"http://{listen}/api/v1/query?{urllib.parse.urlencode({'query': query})}"
        try:
            with urllib.request.urlopen(url, timeout=patience()) as answer:
                return list(json.load(answer)["data"]["result"])
        except urllib.error.HTTPError as error:
            with error:
                if error.code == 400:
                    raise AssertionError(f"{query}: {error.read().decode()}") from error
        except OSError:
            pass  # it does not listen yet
        return []

    try:
        wait_until(lambda: {one["metric"]["job"] for one in ask("twinlink_build_info")} == set(programs))
        # A rate needs two scrapes; a busy machine may take long from one to the next.
        silent = dashboard.queries("2m")

        def all_answer() -> bool:
            for name in [name for name, query in silent.items() if ask(query)]:
                del silent[name]
            return not silent

        try:
            wait_until(all_answer)
        except AssertionError as error:
            raise AssertionError(f"Prometheus has no answer to {silent}") from error
    finally:
        server.terminate()
        server.wait(patience())


def test_the_dashboard_shows_the_chosen_namespaces_only() -> None:
    for name, query in dashboard.queries("1m").items():
        assert len(dashboard.METRIC.findall(query)) == query.count('namespace=~".*"'), name


def test_a_block_that_a_killed_exporter_left_is_cleared_at_the_next_start(ran: list[str], stack: ExitStack) -> None:
    endpoint = free_endpoint()
    emulator = start(stack, "twinlink_ran_emulator", *ran, "--loop", "0")
    start(stack, "twinlink_replay", "--listen", endpoint)
    exporter = start(stack, "twinlink_exporter", *ran, *PATIENT, "--connect", endpoint)
    wait_until(lambda: exporter.value("twinlink_block_active_prbs") > 0)
    exporter.end(signal.SIGKILL)
    assert emulator.value("twinlink_ran_emulator_blocked_prbs") > 0
    nowhere = free_endpoint()  # without a twin no decision replaces the block
    start(stack, "twinlink_exporter", *ran, "--connect", nowhere, "--clear-at-start")
    wait_until(lambda: emulator.value("twinlink_ran_emulator_blocked_prbs") == 0)


def test_a_block_is_cleared_at_the_ran_on_sigterm(ran: list[str], stack: ExitStack) -> None:
    endpoint = free_endpoint()
    emulator = start(stack, "twinlink_ran_emulator", *ran, "--loop", "0")
    start(stack, "twinlink_replay", "--listen", endpoint)
    exporter = start(stack, "twinlink_exporter", *ran, *PATIENT, "--connect", endpoint)
    wait_until(lambda: exporter.value("twinlink_block_active_prbs") > 0)
    assert exporter.end() == 0
    wait_until(lambda: emulator.value("twinlink_ran_emulator_blocked_prbs") == 0)


def test_pong_serves_and_a_port_in_use_is_said(stack: ExitStack) -> None:
    pong = start(stack, "twinlink", "pong", "--listen", free_endpoint())
    assert pong.reasons() == []
    assert pong.get("/nothing")[0] == 404
    arguments = [sys.executable, "-m", "twinlink", "pong", "--listen", free_endpoint(), "--http", pong.address]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=patience(), check=False)
    assert done.returncode == 2
    assert f"--http cannot serve at {pong.address}" in done.stderr


@pytest.mark.parametrize("wrong", ["9464", "127.0.0.1:70000", "http://127.0.0.1:1", "::1:9464", ""])
def test_an_address_that_cannot_be(wrong: str) -> None:
    done = call("pong", "--http", wrong)
    assert done.code() == 3
    assert f"argument --http: {wrong!r}" in done.err


def test_a_group_is_no_address_to_serve_at() -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=r"\[ff02::1\] is a multicast group"):
        convert.http_address("[ff02::1]:9464")


def test_counters_rise_and_histograms_take_each_ack_once() -> None:
    metrics = pytest.importorskip("twinlink.metrics", reason="prometheus_client is not installed")
    endpoint = free_endpoint()
    with (
        twinlink.open("zeromq", listen=endpoint, node="twin") as twin,
        twinlink.open("zeromq", connect=endpoint, node="gnb") as gnb,
    ):
        twin.receiver("spectrum", handler=lambda message: None)
        gnb.wait_ready(patience())
        collector, outbox = metrics.collector(gnb), gnb.sender("spectrum", on_ack=lambda ack: None)

        def sample(name: str) -> Any:
            return next(
                one.value for family in collector.collect() for one in family.samples
                if one.name == name and one.labels["flow"] == "spectrum"
            )  # fmt: skip

        for sent in (10, 25):
            while outbox.stats()["sent"] < sent:
                outbox.send(b"record")
                time.sleep(0.001)  # alone in its frame, so that each has an ack of its own
            outbox.flush(patience())
            for _ in range(2):  # what a scrape has seen, the next one does not count again
                assert sample("twinlink_flow_acknowledged_total") == sent
                assert sample("twinlink_rtt_seconds_count") == sent
                assert sample("twinlink_one_way_delay_seconds_count") == sent


def test_without_prometheus_client_the_extra_is_named() -> None:
    program_text = (
        "import sys; sys.modules['prometheus_client'] = None\n"
        "import twinlink\n"
        "try:\n    import twinlink.metrics\nexcept twinlink.TwinlinkError as error:\n    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", program_text], capture_output=True, text=True, check=True)
    assert "pip install 'twinlink[metrics]'" in done.stdout
