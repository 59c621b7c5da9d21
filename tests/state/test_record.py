"""The octets of a state: what is written is read back, and what strangers send is read whole or refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinlink.errors import MalformedPayload
from twinlink.state.record import HEAD, MAX_MESSAGE, MAX_NUMBER, RECORD_OCTETS, Record, Slot, Stamp, decode

# Lengths of column, key and author, flags 2; version 1001, session 0xabc, set at 1000, answers 0; 1500 ms, 2 octets.
OCTETS = (
    bytes.fromhex(
        "744b0100"
        "0008 0006 0006 0002"
        "00000000000003e9 0000000000000abc 00000000000003e8 0000000000000000"
        "000005dc 00000002"
    )
    + b"reportedcell-1gnb-01on"
)
RECORD = Record(Slot("cell-1", "reported"), Stamp(1001, "gnb-01", 0xABC), 1000, 0, 1500, b"on")

numbers = st.integers(0, MAX_NUMBER)
texts = st.text(st.characters(categories=["L", "N"]), min_size=1, max_size=30)


@st.composite
def records(draw: st.DrawFn) -> Record:
    remaining = draw(st.none() | st.integers(0, 2**32 - 1))
    payload = (
        None if remaining == 0 else draw(st.binary(max_size=50) if remaining else st.none() | st.binary(max_size=50))
    )
    column = draw(st.sampled_from(["desired", "reported", "on-air"]))
    stamp = Stamp(draw(st.integers(1, MAX_NUMBER)), draw(texts), draw(st.integers(0, 2**64 - 1)))
    recalled = column == "desired" and draw(st.booleans())
    return Record(Slot(draw(texts), column), stamp, draw(numbers), draw(numbers), remaining, payload, recalled)


def test_the_octets_are_those_of_the_page() -> None:
    assert HEAD + RECORD.encode() == OCTETS
    assert decode(OCTETS) == [RECORD]
    assert RECORD_OCTETS == 48


@given(st.lists(records(), min_size=1, max_size=5))
def test_what_is_written_is_read_back(written: list[Record]) -> None:
    assert decode(HEAD + b"".join(one.encode() for one in written)) == written


@given(st.binary(max_size=300))
def test_other_octets_are_refused_and_raise_nothing_else(octets: bytes) -> None:
    for one in (octets, HEAD + octets):
        try:
            decode(one)
        except MalformedPayload:
            continue


@given(st.integers(0, len(OCTETS) - 1), st.integers(0, 255))
def test_a_changed_octet_is_refused_or_another_value(at: int, octet: int) -> None:
    changed = OCTETS[:at] + bytes([octet]) + OCTETS[at + 1 :]
    try:
        assert (decode(changed) == [RECORD]) is (changed == OCTETS)
    except MalformedPayload:
        assert changed != OCTETS


def with_field(at: int, octets: str) -> bytes:
    put = bytes.fromhex(octets)
    return OCTETS[:at] + put + OCTETS[at + len(put) :]


@pytest.mark.parametrize(
    ("octets", "why"),
    [
        (b"", "begins with nothing"),
        (with_field(0, "7453"), "begins with 7453"),
        (with_field(2, "02"), "version 1"),
        (with_field(3, "01"), "begins with 744b0101"),
        (HEAD, "without a record"),
        (OCTETS[:-1], "a record of 22 octets, of which 21 are there"),
        (OCTETS + b"x", "1 octets at the end"),
        (with_field(10, "0000"), "time that remains"),
        (with_field(10, "0008"), "unknown flags"),
        (with_field(10, "0003"), "unknown flags"),
        (with_field(10, "0006"), "marked as recalled"),
        (with_field(12, "0000000000000000"), "is 0 or above"),
        (with_field(12, "8000000000000000"), "is 0 or above"),
        (with_field(28, "ffffffffffffffff"), "is 0 or above"),
        (with_field(44, "00000000"), "a payload of 2 octets, where at most 0"),
        (with_field(52, "20"), "column ' eported'"),
        (with_field(60, "0a"), "a key has"),
        (with_field(66, "00"), "an author has"),
        (with_field(60, "ff"), "not UTF-8"),
    ],
)
def test_what_is_wrong_is_said(octets: bytes, why: str) -> None:
    with pytest.raises(MalformedPayload, match=why):
        decode(octets)


def test_the_longest_message_holds_the_longest_value() -> None:
    longest = Record(Slot("k" * 128, "c" * 63), Stamp(1, "\N{GRINNING FACE}" * 255, 1), 1, 0, None, bytes(65_536))
    octets = HEAD + longest.encode()
    assert len(octets) == MAX_MESSAGE
    assert decode(octets) == [longest]
