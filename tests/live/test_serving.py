"""A program shows its own link: both directions, beside a recorder, with the numbers of its stats."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from twinlink_live import serving

import twinlink
from tests.live.page_peer import PagePeer
from twinlink.appkit.convert import http_address
from twinlink.control import PrbBlock, PrbBlockResult
from twinlink.recording import verify
from twinlink.spectrum import Spectrum
from twinlink.testing import free_endpoint, patience, wait_until

SPECTRUM = Spectrum(np.full((24, 2), 1000, np.int16), 2, scs_hz=30_000, centre_hz=3.6e9, observed_ns=0)


@contextmanager
def shown(link: twinlink.Link) -> Iterator[PagePeer]:
    page = free_endpoint()
    with serving.serving(http_address(page.removeprefix("tcp/")), link, print), PagePeer(page) as browser:
        wait_until(lambda: browser.state)
        yield browser


@pytest.fixture
def ends(endpoint: str) -> Iterator[tuple[twinlink.Link, twinlink.Link]]:
    with (
        twinlink.open("zeromq", listen=endpoint, node="twin") as twin,
        twinlink.open("zeromq", connect=endpoint, node="gnb") as gnb,
    ):
        twin.wait_ready(patience())
        gnb.wait_ready(patience())
        yield twin, gnb


def test_both_directions_with_the_numbers_of_stats(ends: tuple[twinlink.Link, twinlink.Link]) -> None:
    twin, gnb = ends
    twin.receiver("spectrum", handler=lambda message: None)
    twin.receiver("snr", handler=lambda message: None)
    twin.sync("spectrum")
    gnb.receiver("status", handler=lambda message: None)
    with shown(twin) as browser:
        spectrum, status, snr = gnb.sender("spectrum"), twin.sender("status"), gnb.sender("snr")
        for _ in range(7):
            spectrum.send(SPECTRUM.encode())
            status.send(b"fine")
        snr.send_array(np.array([20.0, 21.0]))
        wait_until(lambda: browser.flow("received", "spectrum").get("messages") == 7)
        wait_until(lambda: browser.flow("sent", "status").get("messages") == 7)
        wait_until(lambda: browser.state["strips"] and browser.state["waterfalls"])
        wait_until(lambda: browser.state["peers"][0]["rtt_ns"])
        stats = twin.stats()
        received, sent = browser.flow("received", "spectrum"), browser.flow("sent", "status")
        assert received["octets"] == stats["received"]["spectrum"]["received_octets"]
        assert received["lost"] == stats["received"]["spectrum"]["missing"] == 0
        assert sent["octets"] == stats["sent"]["status"]["sent_octets"]
        assert (received["nodes"], received["format"]) == (["gnb"], "spectrum")
        assert received["sync"]["state"] in ("in-sync", "stale")
        (peer,) = browser.state["peers"]
        (delays,) = stats["sent"]["status"]["peers"].values()
        wait_until(lambda: browser.state["peers"][0]["rtt_ns"] == delays["rtt_ns"])
        assert (peer["node"], peer["state"]) == ("gnb", "up")
        assert peer["one_way_ns"]["bound"] > 0
        assert browser.state["strips"][0]["values"][-1][1:] == [20.0, 21.0]


def test_blocks_from_before_the_browser_and_from_both_flows(ends: tuple[twinlink.Link, twinlink.Link]) -> None:
    twin, gnb = ends
    decisions = gnb.receiver("control")
    results = twin.receiver("control-result")
    page = free_endpoint()
    with serving.serving(http_address(page.removeprefix("tcp/")), twin, print) as view:
        assert view is not None
        twin.sender("control").send(PrbBlock("b-1", (1,), time.time_ns(), 60_000).encode())
        assert next(iter(decisions)).node == "twin"
        gnb.sender("control-result").send(PrbBlockResult("b-1", "installed", (1,), 20).encode())
        assert next(iter(results)).node == "gnb"
        with PagePeer(page) as browser:
            wait_until(lambda: browser.state.get("blocks"))
            (block,) = browser.state["blocks"]
            assert (block["id"], block["state"], block["by"]) == ("b-1", "installed", "twin")
            view.on_interference([4, 5])
            wait_until(lambda: browser.state["interference"])
            view.on_interference([])
            wait_until(lambda: browser.state["interference"][0]["steps"][1] is not None)
            assert browser.state["interference"][0]["ranges"] == [[4, 5]]


def test_a_recorder_is_there_at_once_and_outlives_the_view(
    ends: tuple[twinlink.Link, twinlink.Link], tmp_path: Path
) -> None:
    twin, gnb = ends
    twin.receiver("numbers", handler=lambda message: None)
    sender, file = gnb.sender("numbers"), tmp_path / "run.mcap"

    def sends(count: int) -> None:
        before = sender.stats()["acknowledged"]
        for _ in range(count):
            sender.send(b"1")
        wait_until(lambda: sender.stats()["acknowledged"] == before + count)

    sends(1)  # unrecorded
    with twin.record(file, flows=["numbers"]) as recorder:
        sends(10)
        with shown(twin) as browser:
            sends(10)
            wait_until(lambda: browser.flow("received", "numbers").get("messages") == 21)
        sends(10)
    assert recorder.stats()["messages"] == 30
    report = verify(file)
    assert report.complete, report


def test_without_an_address_nothing_is_served(ends: tuple[twinlink.Link, twinlink.Link]) -> None:
    with serving.serving(None, ends[0], print) as view:
        assert view is None
    assert not ends[0]._driver._taps
