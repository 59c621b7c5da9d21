from pathlib import Path

import pytest
from twinlink_measure.mgen.script import Flow, Pattern, protocol_for, sweeps

from twinlink.appkit.mgen_message import Address, Protocol
from twinlink.errors import ConfigurationError

SCRIPTS = Path(__file__).parents[2] / "mgen-scripts"
TO = Address("127.0.0.1", 5001)


def test_the_ready_sweeps_are_what_the_module_makes() -> None:
    assert {str(path.relative_to(SCRIPTS)): path.read_text() for path in SCRIPTS.rglob("*.mgn")} == sweeps()


def test_every_payload_direction_and_pattern_is_there() -> None:
    names = set(sweeps())
    for direction in ("rw-dt", "dt-rw"):
        for pattern in Pattern:
            for payload in ("100B", "1KB", "8KB", "10KB", "100KB", "1MB"):
                assert f"{direction}/{pattern}-{payload}.mgn" in names


@pytest.mark.parametrize(
    ("flow", "event"),
    [
        (Flow(1, Protocol.UDP, TO, 100), "ON 1 UDP DST 127.0.0.1/5001 PERIODIC [20 100] COUNT 100 TTL 64"),
        (
            Flow(2, Protocol.TCP, TO, 2**20, 7, 0.5, Pattern.POISSON),
            "ON 2 TCP DST 127.0.0.1/5001 POISSON [0.5 1048576] COUNT 7 TTL 64",
        ),
        (
            Flow(3, Protocol.TCP, TO, 1024, 10, 50, Pattern.BURST),
            "ON 3 TCP DST 127.0.0.1/5001 BURST [REGULAR 1 PERIODIC [50 1024] FIXED 0.2] COUNT 10 TTL 64",
        ),
    ],
)
def test_an_event(flow: Flow, event: str) -> None:
    assert flow.event() == event


@pytest.mark.parametrize(
    ("protocol", "octets"),
    [(Protocol.UDP, 27), (Protocol.UDP, 8193), (Protocol.TCP, 75), (Protocol.TCP, 16 * 1024 * 1024)],
)
def test_what_mgen_or_the_bridge_cannot_carry(protocol: Protocol, octets: int) -> None:
    with pytest.raises(ConfigurationError, match=rf"{octets} B by {protocol.name}"):
        Flow(1, protocol, TO, octets)


def test_no_messages() -> None:
    with pytest.raises(ConfigurationError):
        Flow(1, Protocol.UDP, TO, 100, 0)
    with pytest.raises(ConfigurationError):
        Flow(1, Protocol.UDP, TO, 100, 1, 0)


def test_udp_as_far_as_it_goes() -> None:
    assert [protocol_for(octets) for octets in (28, 8192, 8193)] == [Protocol.UDP, Protocol.UDP, Protocol.TCP]
