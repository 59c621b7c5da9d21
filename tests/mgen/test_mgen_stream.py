"""Messages cut out of a TCP stream, however it comes in."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from twinlink_measure.mgen.stream import Stream

from twinlink.appkit.mgen_message import Address, Flag, Packet, Protocol
from twinlink.errors import MalformedPayload


def fragments(flow: int, sequence: int, sizes: list[int]) -> bytes:
    """A message of so many fragments, as MGEN sends it, with a fill that shows when octets are swapped."""
    octets = b""
    for number, size in enumerate(sizes):
        flags = 0 if len(sizes) == 1 else Flag.END_OF_MSG if number == len(sizes) - 1 else Flag.CONTINUES
        begin = Packet(size, flags, flow, sequence, number * 1000, Address("127.0.0.1", 5002)).serialize()[:60]
        octets += begin + random.Random(len(octets)).randbytes(size - len(begin))
    return octets


def feed(stream: Stream, octets: bytes, chunks: random.Random | None = None) -> list[tuple[bytes, int, int, int]]:
    """All messages that come out, each with flow, sequence and number of fragments."""
    found = []
    while octets:
        room = stream.room()
        count = min(len(room), len(octets), chunks.randrange(1, 90_000) if chunks else len(octets))
        room[:count] = octets[:count]
        octets = octets[count:]
        for whole in stream.feed(count):
            found.append((bytes(whole.octets), whole.flow, whole.sequence, whole.fragments))
    return found


sizes = st.lists(st.integers(60, 65535), min_size=1, max_size=4)


@settings(max_examples=40)
@given(st.lists(sizes, min_size=1, max_size=6), st.randoms(use_true_random=False))
def test_any_messages_in_any_pieces(messages: list[list[int]], chunks: random.Random) -> None:
    sent = [fragments(1, number, sizes) for number, sizes in enumerate(messages)]
    stream = Stream(2**24)
    found = feed(stream, b"".join(sent), chunks)
    assert [octets for octets, *_ in found] == [bytes([Protocol.TCP]) + octets for octets in sent]
    assert [rest for _, *rest in found] == [[1, number, len(sizes)] for number, sizes in enumerate(messages)]
    stream.finish()
    assert (stream.incomplete, stream.too_long) == (0, 0)


@given(st.binary(min_size=24, max_size=200), st.integers(0, 3))
def test_garbage_is_refused_or_waits_for_more(octets: bytes, whole: int) -> None:
    stream = Stream(2**24)
    before = b"".join(fragments(1, number, [100]) for number in range(whole))
    try:
        found = feed(stream, before + octets)
    except MalformedPayload:
        stream.finish()
        assert stream.incomplete == 0
    else:
        assert len(found) >= whole


def test_octet_by_octet() -> None:
    sent = fragments(7, 0, [100, 80]) + fragments(7, 1, [60])
    stream = Stream(2**24)
    found = [message for octet in sent for message in feed(stream, bytes([octet]))]
    assert [message[1:] for message in found] == [(7, 0, 2), (7, 1, 1)]


def test_what_never_ends_is_counted() -> None:
    stream = Stream(2**24)
    assert feed(stream, fragments(1, 0, [65535, 65535, 100])[:100_000]) == []
    assert stream.under_way == 100_000
    stream.finish()
    assert stream.incomplete == 1
    stream.finish()
    assert stream.incomplete == 1


def test_a_new_message_before_the_last_one_ended() -> None:
    stream = Stream(2**24)
    found = feed(stream, fragments(1, 0, [100, 100, 100])[:200] + fragments(1, 1, [100, 100]))
    assert [message[1:] for message in found] == [(1, 1, 2)]
    assert stream.incomplete == 1


def test_a_message_longer_than_the_link_takes_is_left_out_and_takes_no_memory() -> None:
    stream = Stream(100_000)
    long = fragments(1, 0, [65535] * 40 + [100])
    found = feed(stream, long + fragments(1, 1, [50_000, 50_000]) + fragments(1, 2, [50_000, 50_001]), random.Random(1))
    assert [message[1:] for message in found] == [(1, 1, 2)]
    assert (stream.too_long, stream.incomplete) == (2, 0)
    assert len(stream.room()) <= 2 * 256 * 1024


@pytest.mark.parametrize("octets", [b"GET / HTTP/1.1\r\nHost: example\r\n\r\n", bytes(100)])
def test_another_protocol(octets: bytes) -> None:
    with pytest.raises(MalformedPayload):
        feed(Stream(2**24), octets)
