"""`twinlink live` as a user starts it, without a browser."""

import json
import re
import struct
import time
import urllib.error
import urllib.request
from typing import Any

import numpy as np
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect
from websockets.typing import Subprotocol

import twinlink
from tests.cli.running import Start
from twinlink.control import PrbBlock
from twinlink.spectrum import Spectrum
from twinlink.testing import free_endpoint, patience, wait_until

SPECTRUM = Spectrum(np.full((24, 2), 1000, np.int16), 2, scs_hz=30_000, centre_hz=3.6e9, observed_ns=0)
ROW_HEAD = struct.Struct(">IBBH")  # step, waterfall, state, octets
DATA = 1
MODULES = "page", "marks", "strip", "tables", "waterfall"
PEER = "index", "websocket", "node", "peers", "stream", "fragments", "frames", "ranges"  # of docs/javascript.md
URL = re.compile(r"\w+://[^\s\"'`]+")


def test_a_peer_of_the_page_gets_what_the_link_carries(start: Start, endpoint: str) -> None:
    page = free_endpoint()
    with twinlink.open("zeromq", listen=endpoint, node="gnb") as gnb:
        sender = gnb.sender("spectrum", overflow="latest")
        run = start("live", endpoint, "--http", page.removeprefix("tcp/"))
        run.wait_for("open http://")
        gnb.wait_ready(patience())
        with twinlink.open("websocket", connect=page, node="browser") as browser:
            states: list[dict[str, Any]] = []
            rows: list[bytes] = []
            browser.receiver("live-state", handler=lambda message: states.append(message.json()))
            browser.receiver("live-rows", handler=lambda message: rows.append(bytes(message.payload)))

            def level() -> int | None:
                sender.send(SPECTRUM.encode())
                for octets in rows:
                    _, number, state, count = ROW_HEAD.unpack_from(octets)
                    if (number, state, count) == (0, DATA, 2):
                        return octets[ROW_HEAD.size]
                return None

            wait_until(level)
            assert level() == round((10 * np.log10(2 * 1000**2) + 30.5) * 2)
            wait_until(lambda: states and states[-1]["waterfalls"])
            (waterfall,) = states[-1]["waterfalls"]
            assert (waterfall["flow"], waterfall["node"], waterfall["prbs"]) == ("spectrum", "gnb", 2)
            assert (waterfall["low_hz"], waterfall["high_hz"]) == (3.6e9 - 360e3, 3.6e9 + 360e3)
            (flow,) = states[-1]["flows"]
            assert (flow["flow"], flow["nodes"], flow["lost"], flow["direction"]) == (
                "spectrum",
                ["gnb"],
                0,
                "received",
            )
            assert json.dumps(states[-1])
        run.interrupt()
        assert run.code() == 0


def test_at_a_mirror_it_shows_both_directions_of_the_observed_node(start: Start, endpoint: str) -> None:
    page, mirrored = free_endpoint(), free_endpoint()
    with (
        twinlink.open("zeromq", listen=endpoint, node="twin") as twin,
        twin.mirror(mirrored),
        twinlink.open("zeromq", connect=endpoint, node="gnb") as gnb,
    ):
        twin.receiver("spectrum", handler=lambda message: None)
        gnb.receiver("control", handler=lambda message: None)
        gnb.wait_ready(patience())
        start("live", mirrored, "--http", page.removeprefix("tcp/")).wait_for("open http://")
        states: list[dict[str, Any]] = []
        with twinlink.open("websocket", connect=page, node="browser") as browser:
            browser.receiver("live-state", handler=lambda message: states.append(message.json()))

            def flows() -> list[tuple[str, str, list[str]]]:
                gnb.sender("spectrum").send(SPECTRUM.encode())
                twin.sender("control").send(PrbBlock("b-1", (1,), time.time_ns(), 60_000).encode())
                rows = states[-1]["flows"] if states else []
                return [(one["direction"], one["flow"], one["nodes"]) for one in rows]

            expected = [("received", "spectrum", ["gnb"]), ("sent", "control", ["twin"])]
            wait_until(lambda: flows() == expected and states[-1]["blocks"] and states[-1]["waterfalls"])
            state = states[-1]
            assert (state["node"], [one["node"] for one in state["peers"]]) == ("twin", ["gnb"])
            assert [(one["direction"], one["node"]) for one in state["waterfalls"]] == [("received", "gnb")]
            assert [(one["id"], one["by"], one["state"]) for one in state["blocks"]] == [("b-1", "twin", "asked")]


def test_beyond_loopback_the_address_has_a_token_that_everything_needs(start: Start, endpoint: str) -> None:
    port = free_endpoint().rpartition(":")[2]
    run = start("live", endpoint, "--http", f"0.0.0.0:{port}")
    run.wait_for("open http://")
    (token,) = re.findall(rf"open http://0\.0\.0\.0:{port}/([\w-]+)/ ", run.err)
    assert len(token) >= 32
    base = f"127.0.0.1:{port}"
    for path in (f"/{token}/", f"/{token}/page.js"):
        with urllib.request.urlopen(f"http://{base}{path}", timeout=patience()) as answer:
            assert answer.status == 200
    with connect(f"ws://{base}/{token}/?epoch=1", subprotocols=[Subprotocol("twinlink.1")], open_timeout=patience()):
        pass
    for wrong in (
        "",
        "/",
        "/page.js",
        f"/{token}",
        f"/{token[:-1]}/",
        f"/{token}x/",
        f"//{token}/",
        "/%00/",
        f"/?{token}/",
    ):
        with pytest.raises(urllib.error.HTTPError, match="403"):
            urllib.request.urlopen(f"http://{base}{wrong}", timeout=patience())
        with pytest.raises(InvalidStatus, match="403"):
            connect(f"ws://{base}{wrong}?epoch=1", subprotocols=[Subprotocol("twinlink.1")], open_timeout=patience())


def test_a_port_that_is_taken_is_said(start: Start, endpoint: str) -> None:
    page = free_endpoint()
    with twinlink.open("websocket", listen=page):
        run = start("live", endpoint, "--http", page.removeprefix("tcp/"))
        assert run.code() == 2
        assert "Address already in use" in run.err


def test_it_loads_nothing_from_elsewhere(start: Start, endpoint: str) -> None:
    address = free_endpoint().removeprefix("tcp/")
    start("live", endpoint, "--http", address).wait_for("open http://")
    modules = *MODULES, *(f"twinlink/{name}" for name in PEER)
    for target in ("/", "/page.css", "/icon.svg", *(f"/{name}.js" for name in modules)):
        with urllib.request.urlopen(f"http://{address}{target}", timeout=patience()) as answer:
            assert "default-src 'self'" in answer.headers["Content-Security-Policy"]
            assert set(URL.findall(answer.read().decode())) <= {"http://www.w3.org/2000/svg", "ws://${place}"}
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(f"http://{address}/../view.py", timeout=patience())
