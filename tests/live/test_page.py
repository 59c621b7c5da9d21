"""The page in a real browser, beside a real link."""

import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from twinlink_live import serving

import twinlink
from tests.cli.running import Start
from tests.live import chromium
from twinlink.appkit.convert import http_address
from twinlink.control import PrbBlock, PrbBlockResult
from twinlink.spectrum import Spectrum
from twinlink.story import Story, encode
from twinlink.testing import free_endpoint, patience, wait_until

PRBS = 20
LOUD = 7  # the PRB in which there is power
PIXELS = """
(() => {
  const canvas = document.querySelector("canvas"), context = canvas?.getContext("2d");
  if (!canvas || !canvas.width) return null;
  const row = context.getImageData(0, 0, canvas.width, 1).data;
  return Array.from({length: %d}, (_, prb) => {
    const at = 4 * Math.floor((prb + 0.5) * canvas.width / %d);
    return row[at] + row[at + 1] + row[at + 2];
  });
})()
""" % (PRBS, PRBS)  # noqa: UP031  (braces are JavaScript's)

needs_browser = pytest.mark.skipif(chromium.COMMAND is None, reason="no chromium here (apt install chromium)")


def record(loud: int) -> bytes:
    samples = np.full((PRBS * 12, 2), 10, np.int16)
    samples[12 * loud : 12 * (loud + 1)] = 5000
    return Spectrum(samples, PRBS, scs_hz=30_000, centre_hz=3.6e9, observed_ns=0).encode()


class Gnb(threading.Thread):
    """Sends a record every 10 ms."""

    def __init__(self, endpoint: str) -> None:
        super().__init__()
        self.loud = LOUD
        self._ended = threading.Event()
        self._link = twinlink.open("zeromq", listen=endpoint, node="gnb")

    def run(self) -> None:
        with self._link as link:
            sender = link.sender("spectrum", overflow="latest")
            while not self._ended.wait(0.01):
                sender.send(record(self.loud))

    def answer(self, result: bytes) -> None:
        self._link.sender("control-result").send(result)

    def end(self) -> None:
        self._ended.set()
        self.join()


@pytest.fixture
def gnb(endpoint: str) -> Iterator[Gnb]:
    one = Gnb(endpoint)
    one.start()
    yield one
    one.end()


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[chromium.Browser]:
    one = chromium.Browser(tmp_path / "browser")
    yield one
    one.close()


@needs_browser
def test_the_page_shows_the_link_as_it_is(start: Start, endpoint: str, gnb: Gnb, browser: chromium.Browser) -> None:
    http = free_endpoint().removeprefix("tcp/")
    run = start("live", endpoint, "--http", http)
    run.wait_for("open http://")
    browser.open(f"http://{http}/")

    def loudest() -> int | None:
        row = browser.value(PIXELS)
        return None if not row or max(row) == min(row) else row.index(max(row))

    wait_until(lambda: loudest() == LOUD)
    gnb.loud = LOUD + 5  # the picture changes with the signal
    wait_until(lambda: loudest() == LOUD + 5)
    flows = "[...document.querySelectorAll('#flows td')].slice(0, 3).map((cell) => cell.textContent)"
    wait_until(lambda: browser.value(flows) == ["spectrum", "← from gnb", "spectrum"])
    assert browser.value("[...document.querySelectorAll('#peers td')].slice(0, 2).map((cell) => cell.textContent)") == [
        "gnb",
        "up",
    ]

    browser.press(" ")
    assert browser.value("document.getElementById('pause').getAttribute('aria-pressed')") == "true"
    gnb.loud = LOUD
    drawn = browser.value("document.body.dataset.drawn")
    wait_until(lambda: int(browser.value("document.body.dataset.drawn")) > int(drawn) + 5)
    assert loudest() == LOUD + 5  # it stands still
    browser.press(" ")
    wait_until(lambda: loudest() == LOUD)

    gnb.end()
    wait_until(lambda: "gnb" in browser.value("document.getElementById('events').textContent"))
    run.interrupt()
    assert run.code() == 0
    wait_until(lambda: "not connected" in browser.value("document.getElementById('link').textContent"))
    refused = [one for one in browser.reports if "ERR_CONNECTION" not in str(one)]
    assert refused == []


@needs_browser
def test_a_page_of_another_site_is_refused(start: Start, endpoint: str, browser: chromium.Browser) -> None:
    http = free_endpoint().removeprefix("tcp/")
    start("live", endpoint, "--http", http).wait_for("open http://")
    browser.open("about:blank")  # its origin is "null"
    browser.value(
        f"window.socket = new WebSocket('ws://{http}/', 'twinlink.1'); socket.onclose = () => window.ended = true"
    )
    wait_until(lambda: browser.value("window.ended"), patience())


BRIGHT = """
(() => {
  const canvas = document.querySelector("canvas"), context = canvas.getContext("2d");
  const row = context.getImageData(0, 0, canvas.width, 1).data;
  let bright = 0;
  for (let at = 0; at < row.length; at += 4) bright += row[at] > 128;
  return bright / canvas.width;
})()
"""
MARKED = """
(() => {
  const canvas = document.querySelector(".marks"), context = canvas.getContext("2d");
  const row = context.getImageData(0, 10, canvas.width, 1).data;
  return [...row].filter((value, at) => at % 4 === 3 && value > 0).length / canvas.width;
})()
"""  # how much of the edge above the waterfall is marked


@needs_browser
def test_a_program_shows_its_own_link(endpoint: str, browser: chromium.Browser) -> None:
    page = free_endpoint().removeprefix("tcp/")
    with (
        twinlink.open("zeromq", connect=endpoint, node="twin") as twin,
        serving.serving(http_address(page), twin, print),
    ):
        gnb = Gnb(endpoint)
        gnb.start()
        try:
            twin.receiver("spectrum", handler=lambda message: None)
            browser.show(1280, 900)
            browser.open(f"http://{page}/")
            wait_until(lambda: browser.value(PIXELS))
            _zooms(browser)
            _shows_a_block(browser, twin, gnb)
            _fits_a_phone(browser)
            _a_stopped_tab_holds_up_nothing(browser, twin, gnb)
        finally:
            gnb.end()
    assert [one for one in browser.reports if "ERR_CONNECTION" not in str(one)] == []


def _zooms(browser: chromium.Browser) -> None:
    """One PRB of 20 is loud; of half as many it is a tenth of the picture."""
    wait_until(lambda: browser.value(BRIGHT) == pytest.approx(1 / PRBS, rel=0.2))
    browser.press("i")
    wait_until(lambda: browser.value(BRIGHT) == pytest.approx(2 / PRBS, rel=0.2))
    browser.press("ArrowRight")
    browser.press("ArrowRight")
    wait_until(lambda: browser.value(BRIGHT) == 0)  # PRBs 10 to 19
    browser.press("0")
    wait_until(lambda: browser.value(BRIGHT) == pytest.approx(1 / PRBS, rel=0.2))
    browser.value("document.querySelector('[data-do=taller]').click()")


def _shows_a_block(browser: chromium.Browser, twin: twinlink.Link, gnb: "Gnb") -> None:
    assert browser.value(MARKED) == 0
    answers = twin.receiver("control-result")
    twin.sender("control").send(PrbBlock("b-1", tuple(range(5, 10)), time.time_ns(), 60_000).encode())
    state = "document.querySelector('#blocks td').textContent"
    wait_until(lambda: browser.value(state) == "… asked")
    gnb.answer(PrbBlockResult("b-1", "installed", tuple(range(5, 10)), 2).encode())
    assert next(iter(answers)).node == "gnb"
    wait_until(lambda: browser.value(state) == "■ installed")  # what was observed before is not on air with it
    wait_until(lambda: browser.value(MARKED) == pytest.approx(5 / PRBS, rel=0.2))
    _unfolds_its_stages(browser, twin)


def _unfolds_its_stages(browser: chromium.Browser, twin: twinlink.Link) -> None:
    """What only the twin knows is not known until it says so; what is unfolded stays so."""
    gaps, stages = "document.querySelectorAll('.story .gap').length", "document.querySelector('.story').innerText"
    assert browser.value(gaps) == 0
    browser.value("document.querySelector('.fold').click()")
    wait_until(lambda: browser.value(gaps) == 6)  # all but installed
    assert browser.value(stages).count("not known") == 6
    story = Story("b-1", tuple(range(5, 10)), "twin", "gnb", offset={"offset": 0, "bound": 200_000})
    for name, time_ns in (("seen", 1_000_000), ("on air", 6_500_000)):
        story.note(name, time_ns, "exporter")  # type: ignore[arg-type]
    story.note("sent", 5_000_000, "twin")
    twin.state("prb-block").report("gnb", encode([story]), column="story")
    wait_until(lambda: browser.value(gaps) == 4)
    said = browser.value(stages)
    assert "+4 ms ± 0.2 ms" in said
    assert "+5.5 ms" in said
    assert browser.value("document.querySelector('.fold').ariaExpanded") == "true"


def _fits_a_phone(browser: chromium.Browser) -> None:
    light = browser.value("getComputedStyle(document.body).backgroundColor")
    browser.show(390, 844, "dark")
    assert browser.value("getComputedStyle(document.body).backgroundColor") != light
    assert browser.value("document.documentElement.scrollWidth") <= 390
    edges = (
        "[...document.querySelectorAll('button, h1, h2, dd, canvas')].map((one) => one.getBoundingClientRect().right)"
    )
    assert max(browser.value(edges)) <= 390


def _a_stopped_tab_holds_up_nothing(browser: chromium.Browser, twin: twinlink.Link, gnb: "Gnb") -> None:
    browser.signal_renderers(signal.SIGSTOP)
    try:
        before = twin.stats()["received"]["spectrum"]["received"]
        wait_until(lambda: twin.stats()["received"]["spectrum"]["received"] > before + 300)
        assert twin.stats()["received"]["spectrum"]["missing"] == 0
    finally:
        browser.signal_renderers(signal.SIGCONT)
    wait_until(lambda: browser.value("document.getElementById('link').textContent") == "connected")
