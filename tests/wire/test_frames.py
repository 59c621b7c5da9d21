"""The codec: what goes in comes out, and whatever octets come in, nothing but Malformed comes out."""

import contextlib
import json
import string
import struct
import tracemalloc

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from twinlink.protocol.frames import (
    DATA_WORD,
    FLOW_NAME,
    HEADER_OCTETS,
    MAX_ACK_RANGE,
    MAX_ACK_RECORDS,
    MAX_BUNDLED,
    MAX_HELLO,
    MAX_PAYLOAD,
    MAX_RUN,
    MAX_SEQUENCE,
    REJECTED,
    RETRANSMIT_WORD,
    Hello,
    Kind,
    MalformedFrame,
    ack_body,
    ack_range_body,
    check,
    frame,
    parse,
    parse_abandoned,
    parse_ack,
    parse_ack_range,
    parse_bundle,
    parse_nak,
    parse_run,
    run_header,
)
from twinlink.protocol.peers import MAX_START_SEQUENCES
from twinlink.protocol.wire import messages_of

U64 = st.integers(0, 2**64 - 1)
NUMBERS = st.integers(0, MAX_SEQUENCE)
KINDS = st.sampled_from(Kind)
FLOWS = st.text(string.ascii_letters + string.digits, min_size=1, max_size=63)
HELLOS = st.builds(
    Hello,
    st.text(min_size=1, max_size=255).filter(str.isprintable),
    st.dictionaries(U64, NUMBERS, max_size=20),
    st.dictionaries(FLOWS, NUMBERS, max_size=20),
    behind=st.booleans(),
    runs=st.booleans(),
)
RECORDS = st.lists(st.tuples(U64, U64, U64), max_size=MAX_ACK_RECORDS)


@given(KINDS, U64, U64, U64, st.binary(max_size=200))
def test_a_header_comes_back(kind: Kind, epoch: int, sequence: int, sent_ns: int, body: bytes) -> None:
    octets = frame(kind, epoch, sequence, sent_ns, body)
    for view in (octets, memoryview(octets)):
        assert parse(view) == (kind, epoch, sequence, sent_ns)
    assert octets[HEADER_OCTETS:] == body
    assert struct.unpack_from("!2sBBIQQQ", octets) == (b"TL", 1, kind, len(body), epoch, sequence, sent_ns)


@given(U64, U64, RECORDS)
def test_an_ack_comes_back(acked_epoch: int, consumed: int, records: list[tuple[int, int, int]]) -> None:
    octets = frame(Kind.ACK, 1, 2, 3, ack_body(acked_epoch, consumed, records))
    found_epoch, found_consumed, found = parse_ack(octets)
    assert (found_epoch, found_consumed, [tuple(record) for record in found]) == (acked_epoch, consumed, records)


@given(U64, U64, NUMBERS, st.integers(-1, MAX_ACK_RANGE + 1), U64)
@example(0, 0, MAX_SEQUENCE - 1, 1, 1)
@example(0, 0, 0, MAX_ACK_RANGE, 1)
@example(0, 0, 0, MAX_ACK_RANGE + 1, 1)
def test_an_ack_row_comes_back_if_it_is_one(acked_epoch: int, consumed: int, first: int, count: int, t2: int) -> None:
    end = max(first + count, 0)
    octets = frame(Kind.ACK_RANGE, 1, 2, 3, ack_range_body(acked_epoch, consumed, first, end, t2))
    if 0 < count <= MAX_ACK_RANGE and end <= MAX_SEQUENCE and t2 != REJECTED:
        assert parse_ack_range(octets) == (acked_epoch, consumed, range(first, end), t2)
    else:
        with pytest.raises(MalformedFrame):
            parse_ack_range(octets)


MESSAGES = st.lists(
    st.tuples(st.sampled_from([Kind.DATA, Kind.RETRANSMIT]), U64, U64, st.binary(max_size=40)), max_size=20
)


@given(U64, MESSAGES)
@example(1, [(Kind.DATA, number, 2, bytes(size)) for number, size in enumerate((0, 32, 32))])
@example(1, [(Kind.DATA, number, 2, bytes(size)) for number, size in enumerate((0, 0, 32))])
def test_a_bundle_comes_back(epoch: int, messages: list[tuple[Kind, int, int, bytes]]) -> None:
    body = b"".join(frame(kind, epoch, number, sent_ns, payload) for kind, number, sent_ns, payload in messages)
    octets = frame(Kind.BUNDLE, epoch, 0, 7, body)
    words = {Kind.DATA: DATA_WORD, Kind.RETRANSMIT: RETRANSMIT_WORD}
    expected = [(words[kind], *fields) for kind, *fields in messages]
    bundle = parse_bundle(octets, epoch)
    assert bundle == parse_bundle(memoryview(octets), epoch)
    assert list(zip(*bundle, strict=True)) == expected


@given(U64, MESSAGES.filter(len), st.data())
def test_a_bundle_with_something_else_in_it_is_malformed(
    epoch: int, messages: list[tuple[Kind, int, int, bytes]], data: st.DataObject
) -> None:
    frames = [frame(kind, epoch, number, sent_ns, payload) for kind, number, sent_ns, payload in messages]
    place = data.draw(st.integers(0, len(frames) - 1))
    cut = data.draw(st.integers(1, len(frames[-1]) - 1))
    other = st.sampled_from(sorted(set(Kind) - {Kind.DATA, Kind.RETRANSMIT}))
    for wrong in (
        [*frames[:-1], frames[-1][:cut]],
        [*frames[:place], frame(Kind.DATA, epoch ^ 1, 0, 0, b""), *frames[place:]],
        [*frames[:place], frame(data.draw(other), epoch, 0, 0, b""), *frames[place:]],
    ):
        with pytest.raises(MalformedFrame):
            parse_bundle(frame(Kind.BUNDLE, epoch, 0, 7, b"".join(wrong)), epoch)


@pytest.mark.parametrize("last", [b"", b"longer"])
def test_a_bundle_of_more_messages_than_the_limit_is_malformed(last: bytes) -> None:
    one = frame(Kind.DATA, 1, 0, 2, b"")
    most = one * (MAX_BUNDLED - 1) + frame(Kind.DATA, 1, 0, 2, last)
    assert len(parse_bundle(frame(Kind.BUNDLE, 1, 0, 7, most), 1).words) == MAX_BUNDLED
    flood = frame(Kind.BUNDLE, 1, 0, 7, one * (MAX_PAYLOAD // len(one) - 2) + most[-len(one) - len(last) :])
    tracemalloc.start()
    try:
        with pytest.raises(MalformedFrame, match="bundle"):
            parse_bundle(flood, 1)
        assert tracemalloc.get_traced_memory()[1] < 1.5 * MAX_PAYLOAD + 1024 * MAX_BUNDLED
    finally:
        tracemalloc.stop()


@given(U64, NUMBERS, U64, st.integers(0, MAX_RUN + 1), st.integers(0, 3), st.integers(-1, 1))
@example(1, MAX_SEQUENCE, 1, 1, 1, 0)
@example(1, 0, 1, MAX_RUN, 1, 0)
@example(1, 0, 1, MAX_RUN + 1, 1, 0)
def test_a_run_comes_back_if_it_is_one(epoch: int, first: int, sent_ns: int, count: int, size: int, more: int) -> None:
    octets = run_header(count, size, epoch, first, sent_ns) + bytes(max(0, count * size + more))
    if 0 < count <= MAX_RUN and size and not more and first + count - 1 <= MAX_SEQUENCE:
        assert parse(octets) == (Kind.RUN, epoch, first, sent_ns)
        assert parse_run(octets, first) == parse_run(memoryview(octets), first) == (count, size)
        wires = list(messages_of(octets))
        assert [(one.sequence, bytes(one.frame)) for one in wires] == [
            (number, frame(Kind.DATA, epoch, number, sent_ns, bytes(size))) for number in range(first, first + count)
        ]
    else:
        with pytest.raises(MalformedFrame, match="run"):
            parse_run(octets, first)


@given(HELLOS)
def test_a_hello_comes_back(hello: Hello) -> None:
    assert Hello.decode(hello.encode()) == hello
    assert Hello.decode(memoryview(hello.encode())) == hello


@settings(max_examples=500)
@given(st.binary(max_size=300))
@example(b"")
@example(b"TL\x01\x01" + bytes(28))
@example(b"TL\x01\x02" + bytes(28))
def test_no_octets_raise_anything_but_malformed(octets: bytes) -> None:
    for read in (
        check,
        parse,
        parse_ack,
        parse_ack_range,
        parse_nak,
        parse_abandoned,
        lambda frame: parse_bundle(frame, 0),
        lambda frame: parse_run(frame, 0),
        Hello.decode,
    ):
        for view in (octets, memoryview(octets)):
            with contextlib.suppress(MalformedFrame):
                read(view)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)


@settings(max_examples=500)
@given(JSON | st.fixed_dictionaries({}, optional={"node": JSON, "heard": JSON, "flows": JSON, "behind": JSON}))
def test_no_json_raises_anything_but_malformed(value: object) -> None:
    with contextlib.suppress(MalformedFrame):
        hello = Hello.decode(json.dumps(value).encode())
        assert 1 <= len(hello.node) <= 255
        assert all(0 <= epoch < 2**64 for epoch in hello.heard)
        assert all(0 <= number <= MAX_SEQUENCE for number in [*hello.heard.values(), *hello.flows.values()])
        assert Hello.decode(hello.encode()) == hello


@given(st.binary(min_size=0, max_size=60), st.integers(0, 31), st.integers(1, 255))
def test_a_flipped_octet_is_seen_where_it_matters(body: bytes, place: int, flip: int) -> None:
    octets = bytearray(frame(Kind.DATA, 1, 2, 3, body))
    octets[place] ^= flip
    if place < 3 or 4 <= place < 8:
        with pytest.raises(MalformedFrame):
            check(bytes(octets))
    elif place == 3:
        with contextlib.suppress(MalformedFrame):
            assert check(bytes(octets)) in set(Kind) - {Kind.DATA}


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 100_000,
        b"9" * 100_000,
        b'{"node":"x","heard":{},"flows":{"a":' + b"9" * 5000 + b"}}",
        b'{"node":"x","heard":{"' + b"f" * 17 + b'":1},"flows":{}}',
        b'{"node":"two\\nlines","heard":{},"flows":{}}',
        b'{"node":"\\u001b[31mred","heard":{},"flows":{}}',
        b'{"node":"\\ud800","heard":{},"flows":{}}',
        b'{"node":"x","heard":{"-000000000000001":1},"flows":{}}',
        b'{"node":"x","heard":{"0000_0000_0000_1":1},"flows":{}}',
        b'{"node":"x","heard":["0123456789abcdef"],"flows":{}}',
        b'{"node":"x","heard":"0123456789abcdef","flows":{}}',
        b'{"node":"x","heard":"","flows":{}}',
        b'{"node":"x","heard":[],"flows":{}}',
        b'{"node":"x","heard":null,"flows":{}}',
        b'{"node":"x","heard":{"0123456789abcdef":-1},"flows":{}}',
        b'{"node":"x","heard":{"0123456789abcdef":true},"flows":{}}',
        b'{"node":"x","heard":{"0123456789abcdef":"1"},"flows":{}}',
        b'{"node":"x","heard":{"0123456789abcdef":9223372036854775808},"flows":{}}',
        b'{"node":"x","heard":{},"flows":{},"behind":1}',
        b'{"node":"x","heard":{},"flows":{"a":9223372036854775808}}',
        b'{"node":"x","heard":{},"flows":{"a":1.0}}',
        b'{"node":"x","heard":{},"flows":{"a":NaN}}',
        b'{"node":"x","heard":{},"flows":{},"max_payload":-1}',
        b'{"node":"x","heard":{},"flows":{},"max_payload":"1"}',
        b'{"node":"x","heard":{},"flows":{},"since":7}',
        b'{"node":"x","heard":{},"flows":{},"since":{"7":{}}}',
        b'{"node":"x","heard":{},"flows":{},"since":{"0123456789abcdef":7}}',
        b'{"node":"x","heard":{},"flows":{},"since":{"0123456789abcdef":{"a":-1}}}',
        b" " * (MAX_HELLO + 1),
    ],
)
def test_hostile_hellos(body: bytes) -> None:
    with pytest.raises(MalformedFrame):
        Hello.decode(body)


def test_a_hello_has_room_for_every_flow_and_peer() -> None:
    flows = {f"{number:063d}": MAX_SEQUENCE for number in range(1024)}
    heard = {2**64 - 1 - number: MAX_SEQUENCE for number in range(1024)}
    since = {2**64 - 1: dict(list(flows.items())[:MAX_START_SEQUENCES])}
    hello = Hello("n" * 255, heard, flows, True, frozenset(flows), True, MAX_PAYLOAD - 1, since)
    assert len(hello.encode()) <= MAX_HELLO
    assert Hello.decode(hello.encode()) == hello


def test_the_limits_that_are_promised() -> None:
    assert HEADER_OCTETS == 32
    assert MAX_PAYLOAD == 16 * 1024 * 1024
    assert len(ack_body(0, 0, [(0, 0, 0)] * MAX_ACK_RECORDS)) + HEADER_OCTETS == 6192
    assert all(FLOW_NAME.fullmatch(name) for name in ("a", "0", "a.b", "a-b", "a_b", "x" * 63))
    assert not any(FLOW_NAME.fullmatch(name) for name in ("", "_a", ".a", "a/b", "a*", "x" * 64, "ä", "a\n"))
