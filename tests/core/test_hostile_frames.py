"""What one peer's frames may cost the other side: a session that is up, and frames that no honest peer sends."""

import pytest

from tests.core.pair import MS, Pair, mute, pair
from twinlink.events import LimitExceeded
from twinlink.protocol.frames import (
    DATA_WORD,
    HELLO_TOPIC,
    MAX_RANGES,
    RETRANSMIT_WORD,
    AbandonReason,
    Hello,
    Kind,
    abandoned_body,
    frame,
    nak_body,
)
from twinlink.protocol.receive.acks import end_of_run
from twinlink.protocol.receive.window import MAX_MISSING_RANGES
from twinlink.protocol.send.queue import MAX_UNANSWERED_OCTETS

SIZE = 10_000
FLOW = b"traffic/flow"


def octets_sent(made: Pair, ns: int) -> int:
    """What the near end transmits on the flow in so much time."""
    octets, put_on_path = 0, made.near.outlet.send

    def count(topic: bytes, octets_of_frame: bytes) -> None:
        nonlocal octets
        octets += len(octets_of_frame) if topic == FLOW else 0
        put_on_path(topic, octets_of_frame)

    made.near.outlet.send = count  # type: ignore[method-assign,assignment]
    made.run(ns)
    made.near.outlet.send = put_on_path  # type: ignore[method-assign]
    return octets


def test_a_peer_that_requests_all_again_and_again_gets_little_of_it() -> None:
    made = pair()
    made.far.receive("flow")
    made.tampering[made.far.epoch] = mute(b"ack/")
    sender = made.near.sender("flow")
    for _ in range(1000):
        sender.send(bytes(SIZE))
    made.run(500 * MS)
    octets = 0
    for _ in range(200):
        request = nak_body(made.near.epoch, 0, [(0, 1000)])
        made.near.session.receive(b"ack/flow", frame(Kind.NAK, made.far.epoch, 0, 1, request), made.now, made.now)
        octets += octets_sent(made, 5 * MS)
    first_time, ticks = 1000 * (SIZE + 200), 1 + 1000 // 200
    assert first_time < octets < first_time + (ticks + 1) * (MAX_UNANSWERED_OCTETS + 2 * SIZE)
    assert octets < 200 * first_time // 100  # a hundredth of what was requested


def test_a_peer_that_acknowledges_what_it_requested_gets_all_of_it() -> None:
    made = pair()
    got = made.far.receive("flow")
    sender = made.near.sender("flow")
    made.path.cut = True
    for _ in range(1000):
        sender.send(bytes(SIZE))
    made.run(400 * MS)
    made.path.cut = False
    took_ns = made.run_until(lambda: len(got) == 1000)
    assert took_ns < 1500 * MS  # ten times what may be in flight for a peer that acknowledges nothing
    assert sender.stats()["lost"] == 0


def test_announcements_that_jump_do_not_fill_the_memory() -> None:
    made = pair()
    made.near.receive("flow")
    for number in range(100):
        first = 1 + number * 4 * MAX_RANGES
        ranges = [(first + 4 * at, first + 4 * at + 1) for at in range(MAX_RANGES)]
        body = abandoned_body(AbandonReason.EVICTED, ranges)
        octets = frame(Kind.ABANDONED, made.far.epoch, first, 1, body)
        made.near.session.receive(FLOW, octets, made.now, made.now)
    stream = made.near.session.messages.flow("flow").streams[made.far.epoch]
    assert stream.reorder_buffer is not None
    assert MAX_MISSING_RANGES - MAX_RANGES <= len(stream.reorder_buffer.missing) <= MAX_MISSING_RANGES
    made.run(1100 * MS)
    (first_event, *_) = made.near.told(LimitExceeded)
    assert first_event.limit == "ranges"  # type: ignore[attr-defined]


def test_hellos_of_many_new_sessions_are_answered_together() -> None:
    made = pair()
    made.run(100 * MS)  # the answers of these two to each other are past
    answers = 0
    for epoch in range(1000, 1500):
        hello = frame(Kind.HELLO, epoch, made.now, 1, Hello(f"node-{epoch}", {}, {}).encode())
        made.near.session.receive(HELLO_TOPIC, hello, made.now, made.now)
        if made.near.session.hello_due:
            answers += 1
            _, answer = made.near.session.hello(made.now, made.now)
    assert answers == 1
    made.run(150 * MS)
    _, answer = made.near.session.hello(made.now, made.now)
    assert len(Hello.decode(memoryview(answer)[32:]).heard) >= 500


@pytest.mark.parametrize(
    ("words", "sequences", "at", "end"),
    [
        ([DATA_WORD] * 4, (1, 2, 3, 4), 0, 4),
        ([DATA_WORD] * 4, (1, 2, 4, 5), 0, 2),
        ([DATA_WORD] * 4, (1, 2, 4, 5), 2, 4),
        ([DATA_WORD] * 4, (1, 3, 5, 7), 1, 2),
        ([DATA_WORD, DATA_WORD, RETRANSMIT_WORD], (1, 2, 3), 0, 2),
        ([RETRANSMIT_WORD, DATA_WORD, DATA_WORD], (1, 2, 3), 1, 3),
    ],
)
def test_a_run_ends_where_the_kind_or_the_numbers_change(
    words: list[int], sequences: tuple[int, ...], at: int, end: int
) -> None:
    assert end_of_run(tuple(words), sequences, at) == end
