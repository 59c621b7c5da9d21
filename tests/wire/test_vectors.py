"""The golden vectors, both ways, and against a link."""

import json
from pathlib import Path

import pytest

from tests.core.receiving import driver_on
from tests.traces.frames import composed, described
from tests.wire.make_vectors import VECTORS, files
from twinlink.events import Event
from twinlink.protocol.frames import Hello, Kind, check
from twinlink.transports import Endpoint, transport_class
from twinlink.transports.base import Options

# A WebSocket message has its topic in front of the frame, so its vectors are not frames.
TWINS = [path for path in sorted(VECTORS.glob("*.json")) if not path.name.startswith("websocket-")]
GOOD = [path for path in TWINS if not path.name.startswith("malformed-")]


def test_they_are_what_the_script_makes() -> None:
    assert {path.name: path.read_bytes() for path in VECTORS.iterdir()} == files()


@pytest.mark.parametrize("twin", GOOD, ids=lambda path: path.stem)
def test_binary_and_twin_say_the_same(twin: Path) -> None:
    octets, description = twin.with_suffix(".bin").read_bytes(), json.loads(twin.read_text())
    assert described(description["topic"], octets) == description
    assert composed(description) == octets


def test_every_kind_has_a_vector() -> None:
    kinds = {check(path.with_suffix(".bin").read_bytes()) for path in GOOD}
    assert kinds == set(Kind)


def test_a_hello_is_written_as_its_vector() -> None:
    octets = (VECTORS / "hello.bin").read_bytes()
    assert Hello.decode(octets[32:]).encode() == octets[32:]


@pytest.mark.parametrize("twin", TWINS, ids=lambda path: path.stem)
def test_a_link_takes_the_good_and_names_the_bad(twin: Path) -> None:
    octets, description = twin.with_suffix(".bin").read_bytes(), json.loads(twin.read_text())
    transport = transport_class("memory")(Endpoint("vectors", 1), True, 2**24, Options())
    transport.open()
    try:
        events: list[Event] = []
        driver = driver_on(transport, "node", 1, 2**20, 2**10, events.append)
        driver.receive(description["topic"].encode(), octets, 0, False)
        assert list(driver.session.malformed) == ([description["malformed"]] if "malformed" in description else [])
    finally:
        transport.close()
