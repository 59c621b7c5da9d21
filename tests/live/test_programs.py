"""Programs with ``--live``, as a user starts them."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import twinlink
from tests.cli.calling import call
from tests.live.page_peer import PagePeer
from tests.replay.uplink_scenes import Interferer, Scene, hear
from twinlink.control import PrbBlock, PrbBlockResult
from twinlink.spectrum import Spectrum
from twinlink.testing import free_endpoint, patience, wait_until

PRBS = 51
Serve = Callable[..., None]


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """Start a module with ``--live`` at this page, and wait until it says that it serves it."""
    processes: list[subprocess.Popen[bytes]] = []

    def run(module: str, page: str, *arguments: str) -> None:
        said = tmp_path / f"said-{len(processes)}"
        command = [sys.executable, "-m", module, "--live", page.removeprefix("tcp/"), *arguments]
        with said.open("wb") as stderr:
            processes.append(subprocess.Popen(command, stderr=stderr))
        wait_until(lambda: f"open http://{page.removeprefix('tcp/')} in a browser" in said.read_text())

    yield run
    for process in processes:
        process.terminate()
    for process in processes:
        assert process.wait(patience()) == 0


def test_the_exporter_shows_its_link(serve: Serve, endpoint: str, tmp_path: Path) -> None:
    page, e3 = free_endpoint(), [f"--{name}=ipc://{tmp_path}/{name}" for name in ("setup", "to-dapp", "from-dapp")]
    serve("twinlink_exporter", page, "--connect", endpoint, "--node", "gnb-1", *e3)
    with twinlink.open("zeromq", listen=endpoint, node="twin-1") as twin, PagePeer(page) as shown:
        twin.receiver("control-result", handler=lambda message: None)
        twin.wait_ready(patience())
        twin.sender("control").send(PrbBlock("b-1", (1,), time.time_ns(), 1000).encode())
        wait_until(lambda: shown.state.get("blocks") and shown.state["blocks"][0]["state"] == "rejected")
        assert [one["node"] for one in shown.state["peers"]] == ["twin-1"]
        received = twin.stats()["received"]["control-result"]
        assert shown.flow("sent", "control-result")["messages"] == received["received"] == 1


def test_the_twin_shows_what_it_makes_of_records(serve: Serve, endpoint: str) -> None:
    pytest.importorskip("gnuradio", reason="no GNU Radio here (apt install gnuradio)")
    page, interferer = free_endpoint(), Interferer(20, 200, 30, 36, 15)
    heard = hear(Scene(n_prbs=PRBS, n_records=200, interferers=(interferer,)), 31)
    serve("twinlink_replay", page, "--listen", endpoint, "--node", "twin-1")
    with twinlink.open("zeromq", connect=endpoint, node="gnb-1") as gnb, PagePeer(page) as shown:
        results, spectrum = gnb.sender("control-result"), gnb.sender("spectrum")

        def answer(message: twinlink.Message) -> None:
            block = PrbBlock.decode(message.payload)
            results.send(PrbBlockResult(block.id, "installed", block.prbs, time.time_ns()).encode())

        gnb.receiver("control", handler=answer)
        gnb.wait_ready(patience())
        samples = iter(range(10**9))

        def plays(seen: Callable[[], bool]) -> bool:
            one = heard.samples[min(next(samples), len(heard.samples) - 1)]
            spectrum.send(Spectrum(one, PRBS, 30_000, 3.6192e9, time.time_ns()).encode())
            time.sleep(0.002)
            return seen()

        wait_until(lambda: plays(lambda: bool(shown.state.get("interference"))))
        wait_until(lambda: plays(lambda: "on air" in [block["state"] for block in shown.state["blocks"]]))
        wait_until(lambda: plays(lambda: len(shown.state["waterfalls"]) == 2))
        axes = [{name: one[name] for name in ("prbs", "low_hz", "high_hz")} for one in shown.state["waterfalls"]]
        assert axes[0] == axes[1]
        assert {one["direction"] for one in shown.state["waterfalls"]} == {"received", "made"}
        found = [tuple(pair) for one in shown.state["interference"] for pair in one["ranges"]]
        assert all(30 <= first <= last < 36 for first, last in found)


def test_the_demo_shows_itself_to_its_own_host_alone() -> None:
    run = call("demo", "--live", "0.0.0.0:8080")
    assert run.code() == 3
    assert "ssh -L 8080:127.0.0.1:8080" in run.err
