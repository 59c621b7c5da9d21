"""Frames whose payload is not copied behind the header: everywhere as if they were whole."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinlink.protocol.fragmentation import Fragmenter
from twinlink.protocol.frames import (
    HEADER,
    HEADER_OCTETS,
    AnyFrame,
    Kind,
    SplitFrame,
    frame,
    mark_retransmitted,
    received_split,
    sent_at,
    whole,
)
from twinlink.protocol.wire import messages_of

EPOCH, SEQUENCE, SENT_NS = 5, 7, 11
PAYLOAD = bytes(range(256)) * 300
JOINED = frame(Kind.DATA, EPOCH, SEQUENCE, SENT_NS, PAYLOAD)
SPLIT = SplitFrame(JOINED[:HEADER_OCTETS], PAYLOAD)


def test_it_is_as_long_as_the_whole_begins_with_its_header_and_refers_to_the_payload() -> None:
    assert (len(SPLIT), SPLIT[3], SPLIT[:4], bytes(SPLIT)) == (len(JOINED), JOINED[3], JOINED[:4], JOINED)
    assert SPLIT.payload is PAYLOAD
    assert sent_at(SPLIT) == SENT_NS
    assert whole(SPLIT) == JOINED
    assert whole(JOINED) is JOINED


def test_it_cannot_be_taken_for_its_header_alone() -> None:
    with pytest.raises(TypeError):
        memoryview(SPLIT)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        b"".join((SPLIT,))  # type: ignore[arg-type]


def test_a_retransmission_refers_to_the_payload_too() -> None:
    retransmitted = mark_retransmitted(SPLIT)
    assert isinstance(retransmitted, SplitFrame)
    assert retransmitted.payload is PAYLOAD
    assert bytes(retransmitted) == mark_retransmitted(JOINED)


@given(st.lists(st.integers(1, 2 * HEADER_OCTETS) | st.integers(1, len(JOINED))), st.booleans())
def test_its_fragments_are_those_of_the_whole(sizes: list[int], retransmitted: bool) -> None:
    of_split, of_joined = (Fragmenter(SEQUENCE, one, retransmitted) for one in (SPLIT, JOINED))
    for size in (*sizes, len(JOINED)):
        assert of_split.next_fragment(size) == of_joined.next_fragment(size)
        if of_split.offset == of_split.octets:
            break


def test_a_tap_sees_the_message() -> None:
    assert [bytes(one.frame) for one in messages_of(SPLIT)] == [JOINED]


@pytest.mark.parametrize("kind", Kind)
def test_only_messages_arrive_split(kind: Kind) -> None:
    arrived = received_split(frame(kind, EPOCH, SEQUENCE, SENT_NS, PAYLOAD)[:HEADER_OCTETS], PAYLOAD)
    assert isinstance(arrived, SplitFrame) == (kind in (Kind.DATA, Kind.RETRANSMIT))


def test_what_does_not_fit_its_header_arrives_whole_and_is_malformed_as_ever() -> None:
    arrived: list[AnyFrame] = [
        received_split(JOINED[:HEADER_OCTETS], PAYLOAD[1:]),
        received_split(HEADER.pack(0, len(PAYLOAD), EPOCH, SEQUENCE, SENT_NS), PAYLOAD),
    ]
    assert all(isinstance(one, bytes) for one in arrived)
