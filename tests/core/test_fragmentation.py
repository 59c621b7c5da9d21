"""Frames in fragments: what comes out went in, whatever is lost on the way."""

from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinlink.protocol.fragmentation import (
    PARTIAL_FRAME_OCTETS,
    Fragmenter,
    FragmentReassembler,
    FrameTooLong,
)
from twinlink.protocol.frames import HEADER_OCTETS, Kind, MalformedFrame, check, frame

TOPICS = [b"traffic/a", b"traffic/b"]
PART_OCTETS = 1000
BOTH = frozenset((8, 9))

MAX_PARTIAL_OCTETS = 2**27  # the default


def in_parts(whole: bytes) -> list[bytes]:
    """All fragments of a frame."""
    fragmenter = Fragmenter(0, whole, False)
    parts = []
    while fragmenter.offset < fragmenter.octets:
        parts.append(fragmenter.next_fragment(PART_OCTETS))
    return parts


payloads = st.builds(lambda octets, fill: bytes([fill]) * octets, st.integers(1, 3 * PART_OCTETS), st.integers(0, 255))
ways = st.lists(st.tuples(st.sampled_from(TOPICS), st.integers(1, 2), payloads), max_size=6)  # topic, session, payload


@given(ways, st.data())
def test_what_comes_out_went_in(sent: list[tuple[bytes, int, bytes]], data: st.DataObject) -> None:
    queues: dict[tuple[bytes, int], list[tuple[int, bytes]]] = defaultdict(list)
    frames = []
    for number, (topic, epoch, payload) in enumerate(sent):
        whole = frame(Kind.DATA, epoch, number, 1000 + number, payload)
        frames.append((topic, whole))
        queues[topic, epoch] += [(number, part) for part in in_parts(whole + b"a seal")]
    lossy = data.draw(st.booleans())
    joined = FragmentReassembler(2**24)
    there: dict[int, int] = defaultdict(int)
    broken: set[int] = set()
    came = []
    while queues:
        key = data.draw(st.sampled_from(sorted(queues)))
        number, part = queues[key].pop(0)
        if not queues[key]:
            del queues[key]
        assert check(part) is Kind.FRAGMENT
        assert len(part) <= PART_OCTETS + 32
        if lossy and data.draw(st.booleans()):
            broken.add(number)
            continue
        taken = joined.receive(key[0], part, True)
        there[number] += len(part) - 32
        if isinstance(taken, memoryview):
            came.append((key[0], bytes(taken)))
        else:
            assert number in broken or taken == there[number]
    assert sorted(came) == sorted(one for number, one in enumerate(frames) if number not in broken)
    assert joined._octets == sum(partial.octets + PARTIAL_FRAME_OCTETS for partial in joined._partial.values())


LONG = frame(Kind.DATA, 0, 0, 1, bytes(2**24 - HEADER_OCTETS))


def begun_by(epoch: int) -> bytes:
    """The first 1000 octets of LONG, as this session sends it."""
    return frame(Kind.FRAGMENT, epoch, 0, 1, LONG[:8] + epoch.to_bytes(8) + LONG[16:1000])


def test_strangers_take_no_more_than_so_much_memory_and_no_peers_place() -> None:
    joined = FragmentReassembler(2**24)
    peers = MAX_PARTIAL_OCTETS // len(LONG) - 1
    for epoch in range(1000):
        known = 10 <= epoch < 10 + peers
        taken = joined.receive(b"traffic/a", begun_by(epoch), known)
        assert taken in ((1000,) if known or epoch < 10 else (0, 1000))
        assert joined._octets <= MAX_PARTIAL_OCTETS
    for epoch in range(10, 10 + peers):
        rest = frame(Kind.FRAGMENT, epoch, 1000, 1, LONG[1000:])
        whole = joined.receive(b"traffic/a", rest, True)
        assert isinstance(whole, memoryview)
        assert whole == LONG[:8] + epoch.to_bytes(8) + LONG[16:]
    for epoch in range(1000):
        joined.forget(epoch)
    assert (joined._octets, joined._partial) == (0, {})


def test_peers_do_not_throw_each_other_out() -> None:
    joined = FragmentReassembler(2**24)
    taken = [joined.receive(b"traffic/a", begun_by(epoch), True) for epoch in range(20)]
    first = taken.index(0)
    assert taken == [1000] * first + [0] * (20 - first)
    assert isinstance(joined.receive(b"traffic/a", frame(Kind.FRAGMENT, 0, 1000, 1, LONG[1000:]), True), memoryview)
    assert joined.receive(b"traffic/a", begun_by(19), True) == 1000


@given(st.lists(st.tuples(st.integers(0, 2500), st.integers(1, 1500)), max_size=30))
def test_what_comes_once_more_or_too_early_changes_nothing(pieces: list[tuple[int, int]]) -> None:
    joined = FragmentReassembler(2**24)
    whole = frame(Kind.DATA, 1, 0, 77, bytes(range(250)) * 10)
    there = 0
    for at, octets in [(0, 100), *pieces, (0, len(whole))]:
        piece = whole[at : at + octets]
        taken = joined.receive(b"traffic/a", frame(Kind.FRAGMENT, 1, at, 77, piece), True)
        there = max(there, at + len(piece)) if at <= there else there
        assert bytes(taken) == whole if isinstance(taken, memoryview) else taken == there
        if there == len(whole):
            return


def test_what_is_a_part_itself_is_malformed() -> None:
    part = frame(Kind.FRAGMENT, 1, 0, 1, b"")
    for octets in (part, part[:20], part + b"more"):
        with pytest.raises(MalformedFrame, match="fragment"):
            FragmentReassembler(100).receive(b"traffic/a", frame(Kind.FRAGMENT, 1, 0, 1, octets), True)


def test_of_what_is_too_long_the_number_is_known() -> None:
    first = frame(Kind.DATA, 1, 17, 1, bytes(100))[:40]
    with pytest.raises(FrameTooLong) as caught:
        FragmentReassembler(100).receive(b"traffic/a", frame(Kind.FRAGMENT, 1, 0, 1, first), True)
    assert caught.value.args == (17,)


def test_what_not_everybody_has_is_under_way() -> None:
    fragmenter = Fragmenter(5, frame(Kind.DATA, 1, 5, 77, bytes(3 * PART_OCTETS)), False)
    assert fragmenter.in_flight(BOTH) == 0
    fragmenter.next_fragment(PART_OCTETS), fragmenter.next_fragment(PART_OCTETS)
    assert fragmenter.in_flight(BOTH) == 2 * PART_OCTETS
    assert fragmenter.on_progress(8, 77, 2 * PART_OCTETS)
    assert fragmenter.on_progress(9, 77, PART_OCTETS)
    assert (fragmenter.in_flight(BOTH), fragmenter.in_flight(frozenset((8,)))) == (PART_OCTETS, 0)


def test_of_another_frame_is_no_progress() -> None:
    fragmenter = Fragmenter(5, frame(Kind.DATA, 1, 5, 77, bytes(3 * PART_OCTETS)), False)
    fragmenter.next_fragment(PART_OCTETS)
    assert not fragmenter.on_progress(8, 78, PART_OCTETS)
    assert not fragmenter.on_progress(8, 77, fragmenter.octets)
    assert fragmenter.on_progress(8, 77, PART_OCTETS)
    assert fragmenter.in_flight(BOTH) == PART_OCTETS


def test_what_everybody_has_from_before_is_not_handed_over_again() -> None:
    fragmenter = Fragmenter(5, frame(Kind.DATA, 1, 5, 77, bytes(3 * PART_OCTETS)), False)
    fragmenter.next_fragment(2 * PART_OCTETS)
    fragmenter.rewind(BOTH)
    assert fragmenter.offset == 0
    fragmenter.on_progress(8, 77, 2 * PART_OCTETS)  # said late
    assert fragmenter.in_flight(BOTH) == fragmenter.offset == 0
    fragmenter.on_progress(9, 77, PART_OCTETS)
    assert fragmenter.in_flight(BOTH) == 0
    assert fragmenter.offset == PART_OCTETS
