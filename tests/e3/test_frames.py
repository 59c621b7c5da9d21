"""Framing of the POSIX link."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from twinlink_e3 import MAX_PDU_OCTETS, FrameReader, MalformedPdu, frame


@given(st.lists(st.binary(min_size=1, max_size=300), max_size=8), st.lists(st.integers(0, 2400), max_size=6))
def test_pdus_come_out_whole_however_the_stream_is_cut(pdus: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(map(frame, pdus))
    got: list[bytes] = []
    reader, start = FrameReader(), 0
    for cut in [*sorted(cuts), len(stream)]:
        got += reader.feed(stream[start:cut])
        start = max(start, cut)
    assert got == pdus


def test_the_longest_pdu_passes() -> None:
    octets = bytes(MAX_PDU_OCTETS)
    assert list(FrameReader().feed(frame(octets))) == [octets]


@pytest.mark.parametrize("length", [0, MAX_PDU_OCTETS + 1, 2**32 - 1])
def test_a_length_out_of_range_is_malformed_before_anything_is_held(length: int) -> None:
    reader = FrameReader()
    assert next(reader.feed(frame(b"good") + length.to_bytes(4, "big"))) == b"good"
    with pytest.raises(MalformedPdu, match="--e3-link"):
        list(reader.feed(b""))


def test_an_agent_on_zeromq_is_named() -> None:
    with pytest.raises(MalformedPdu, match="--e3-link zmq"):
        list(FrameReader().feed(bytes.fromhex("ff00000000000000017f03")))
