"""What a tap keeps for the view: bounded, the newest of each topic, and nothing without a browser."""

from twinlink_live.newest import KEPT, LOOK_OCTETS, MAX_TOPICS, Newest

from twinlink.protocol.frames import Kind, frame
from twinlink.protocol.wire import RECEIVED, SENT

EPOCH = 7


def data(number: int, payload: bytes = b"x", kind: Kind = Kind.DATA) -> bytes:
    return frame(kind, EPOCH, number, 1000 + number, payload)


def test_nothing_but_decisions_is_kept_while_nobody_looks() -> None:
    newest = Newest()
    newest.on_received(b"traffic/spectrum", data(0), 0)
    newest.on_sent("other", data(0))
    assert not newest.topics
    newest.on_received(b"traffic/control-result", data(1), 0)
    newest.on_sent("control", data(2))
    assert set(newest.topics) == {(RECEIVED, "control-result"), (SENT, "control")}


def test_the_newest_of_a_topic_give_place_to_no_other() -> None:
    newest = Newest()
    newest.active = True
    for number in range(100):
        newest.on_received(b"traffic/spectrum", data(number), 0)
    newest.on_received(b"traffic/rare", data(5), 0)
    messages, left_out = newest.topics[RECEIVED, "spectrum"].take()
    assert [one.sequence for one in messages] == list(range(100 - KEPT, 100))
    assert (left_out, newest.topics[RECEIVED, "spectrum"].passed) == (100 - KEPT, 100)
    assert newest.topics[RECEIVED, "rare"].take()[0][0][:3] == (EPOCH, 5, 1005)
    assert newest.topics[RECEIVED, "spectrum"].take() == ([], 0)


def test_long_messages_take_no_more_than_the_limit_between_two_looks() -> None:
    newest = Newest()
    newest.active = True
    long = bytes(LOOK_OCTETS // 4)
    for number in range(8):
        newest.on_received(b"traffic/spectrum", data(number, long), 0)
    messages, left_out = newest.topics[RECEIVED, "spectrum"].take()
    assert (len(messages), left_out) == (3, 5)  # with its header, the fourth is beyond it
    newest.looked()
    newest.on_received(b"traffic/spectrum", data(9, bytes(LOOK_OCTETS * 2)), 0)  # one is always kept
    assert len(newest.topics[RECEIVED, "spectrum"].take()[0]) == 1


def test_messages_of_a_bundle_and_no_other_frames() -> None:
    newest = Newest()
    newest.active = True
    topic = b"traffic/numbers"
    newest.on_received(topic, data(0, data(3, b"a") + data(4, b"bc", Kind.RETRANSMIT), Kind.BUNDLE) + b"tail", 0)
    newest.on_received(topic, data(0, bytes(8), Kind.ABANDONED), 0)
    newest.on_received(b"ack/numbers", data(0), 0)
    newest.on_received(topic, data(0, b"cut", Kind.BUNDLE), 0)
    messages, _ = newest.topics[RECEIVED, "numbers"].take()
    assert [(one.sequence, bytes(one.payload)) for one in messages] == [(3, b"a"), (4, b"bc")]
    assert len(newest.topics) == 1


def test_a_peer_that_invents_topics_takes_no_memory() -> None:
    newest = Newest()
    newest.active = True
    for number in range(2 * MAX_TOPICS):
        newest.on_received(f"traffic/f{number}".encode(), data(0), 0)
    newest.on_received(b"traffic/\xff", data(0), 0)
    assert len(newest.topics) == MAX_TOPICS
