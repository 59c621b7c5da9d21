"""The codec against octets that mgen 5.02b sent (golden/), and against everything else."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinlink.appkit.mgen_message import Address, Flag, Packet, Position, parse, parse_logged
from twinlink.errors import MalformedPayload

GOLDEN = Path(__file__).with_name("golden")
NO_GPS = Position(999.0, 999.0, -999, 0)
LOOPBACK_UDP = Address("127.0.0.1", 15001)
LOOPBACK_TCP = Address("127.0.0.1", 15002)

CAPTURED = {
    "udp-28": Packet(28, Flag.LAST_BUFFER, 1, 0, 1795276355_315915_000, LOOPBACK_UDP),
    "udp-100-data": Packet(
        100, Flag.LAST_BUFFER, 1, 0, 1795276352_945270_000, LOOPBACK_UDP, None, NO_GPS, bytes.fromhex("deadbeef")
    ),
    "udp-128-ipv6": Packet(128, Flag.LAST_BUFFER, 5, 0, 1795278194_815473_000, Address("::1", 15001), None, NO_GPS),
    "udp-200-checksum": Packet(
        200,
        Flag.LAST_BUFFER | Flag.CHECKSUM,
        3,
        0,
        1795278190_136812_000,
        LOOPBACK_UDP,
        None,
        NO_GPS,
        bytes([1, 2, 3, 4, 5]),
    ),
    "tcp-100": Packet(100, Flag.LAST_BUFFER, 6, 0, 1795278197_152399_000, LOOPBACK_TCP, None, NO_GPS),
}

# The first 64 octets of the first and the last fragment of a TCP message of 200,000.
FRAGMENTS = {
    "ffff020100000007000000006b01be45000a74e53a9a01047f000001000000000437682004376820fffffc190000000000000000"
    "000000000000000000000000": Packet(65535, Flag.CONTINUES, 7, 0, 1795276357_685285_000, LOOPBACK_TCP, None, NO_GPS),
    "0d43020a00000007000000006b01be45000a754d3a9a01047f000001000000000437682004376820fffffc190000000000000000"
    "000000000000000000000000": Packet(
        3395, Flag.END_OF_MSG | Flag.LAST_BUFFER, 7, 0, 1795276357_685389_000, LOOPBACK_TCP, None, NO_GPS
    ),
}


@pytest.mark.parametrize("name", CAPTURED)
def test_what_mgen_sent(name: str) -> None:
    octets = (GOLDEN / f"{name}.bin").read_bytes()
    assert parse(octets) == CAPTURED[name]
    assert CAPTURED[name].serialize() == octets


@pytest.mark.parametrize("octets", FRAGMENTS)
def test_fragments_that_mgen_sent(octets: str) -> None:
    begin = bytes.fromhex(octets)
    assert parse(begin) == FRAGMENTS[octets]
    assert FRAGMENTS[octets].serialize()[:64] == begin


hosts = st.ip_addresses().map(str)
addresses = st.builds(Address, hosts, st.integers(0, 65535))
packets = st.builds(
    Packet,
    size=st.integers(200, 2000),
    flags=st.sampled_from([0, 1, 2, 8, 0x0A, 0x0C]),
    flow=st.integers(0, 2**32 - 1),
    sequence=st.integers(0, 2**32 - 1),
    sent_ns=st.builds(lambda s, us: (s * 10**6 + us) * 1000, st.integers(0, 2**32 - 1), st.integers(0, 999_999)),
    destination=addresses,
    host=st.none() | addresses,
    position=st.builds(
        Position,
        st.integers(0, 2**32 - 1).map(lambda raw: raw / 60000 - 180),
        st.integers(0, 2**32 - 1).map(lambda raw: raw / 60000 - 180),
        st.integers(-(2**31), 2**31 - 1),
        st.integers(0, 2),
    ),
    payload=st.binary(max_size=100),
)


@given(packets)
def test_what_is_serialized_is_parsed_again(packet: Packet) -> None:
    octets = packet.serialize()
    assert len(octets) == packet.size
    assert parse(octets) == packet


@given(packets, st.integers(0, 199))
def test_a_packet_that_is_cut_off_keeps_what_is_there(packet: Packet, octets: int) -> None:
    try:
        found = parse(packet.serialize()[:octets])
    except MalformedPayload:
        assert octets < 44
    else:
        assert (found.flow, found.sequence, found.sent_ns) == (packet.flow, packet.sequence, packet.sent_ns)
        assert packet.payload.startswith(found.payload)


@given(st.binary(max_size=300) | st.binary(max_size=300).map(lambda rest: b"\x00\x64\x02" + rest))
def test_other_octets_are_refused_or_parsed(octets: bytes) -> None:
    for function in (parse, parse_logged):
        try:
            packet = function(octets)
        except MalformedPayload:
            continue
        assert octets[2] == 2
        assert packet.flow == int.from_bytes(octets[4:8], "big")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({2: 1}, "version 1"),
        ({22: 3}, "address of type 3"),
        ({22: 2}, "address of type 2 with 4"),
        ({0: 0, 1: 27}, "a size of 27"),
    ],
)
def test_what_a_listener_would_refuse(change: dict[int, int], reason: str) -> None:
    octets = bytearray((GOLDEN / "udp-100-data.bin").read_bytes())
    for offset, value in change.items():
        octets[offset] = value
    with pytest.raises(MalformedPayload, match=reason):
        parse(octets)


@pytest.mark.parametrize("arguments", [{"size": 27}, {"size": 30, "destination": Address("::1", 1)}])
def test_too_small_for_its_header(arguments: dict[str, Any]) -> None:
    fields: dict[str, Any] = {"size": 28, "flags": 0, "flow": 1, "sequence": 0, "sent_ns": 0}
    with pytest.raises(ValueError, match="header alone"):
        Packet(**{"destination": LOOPBACK_UDP, **fields, **arguments}).serialize()
