"""Which side lost a message, and what still may come."""

from twinlink.protocol.frames import HELLO_TOPIC, AbandonReason, Hello, Kind, abandoned_body, ack_body, frame
from twinlink.protocol.wire import RECEIVED, SENT, Wire, messages_of
from twinlink.recording.account import Account
from twinlink.runtime.capture import MAX_STREAMS

OWN, PEER = 1, 2
TOPIC = b"traffic/x"


def arrive(account: Account, *sequences: int, kind: Kind = Kind.DATA) -> None:
    for sequence in sequences:
        for wire in messages_of(frame(kind, PEER, sequence, 7, b"payload")):
            account.message(RECEIVED, "x", wire)


def hello(**fields: object) -> bytes:
    return frame(Kind.HELLO, PEER, 1, 7, Hello("gnb", {OWN: 1}, **fields).encode())  # type: ignore[arg-type]


def missing(account: Account) -> dict[str, list[tuple[int, int]]]:
    sides = account.streams[RECEIVED, "x", PEER].missing_by_side()
    return {side: list(ranges) for side, ranges in sides.items() if ranges}


def test_a_message_is_missing_on_the_side_that_lost_it() -> None:
    account = Account(OWN)
    arrive(account, 0, 1, 3, 6, 9)
    assert missing(account) == {"open": [(2, 3), (4, 6), (7, 9)]}
    account.control(
        RECEIVED, TOPIC, frame(Kind.ABANDONED, PEER, 12, 7, abandoned_body(AbandonReason.EVICTED, [(4, 6)]))
    )
    account.event({"type": "Gap", "flow": "x", "epoch": f"{PEER:016x}", "first": 2, "end": 3})
    assert missing(account) == {"sender": [(4, 6)], "path": [(2, 3)], "open": [(7, 9), (10, 12)]}
    arrive(account, 7, kind=Kind.RETRANSMIT)
    account.commit()
    arrive(account, 7, 6)
    (stream,) = account.described()
    assert (stream["repaired"], stream["duplicates"]) == (1, 2)
    assert stream["recorded"] == [[0, 2], [3, 4], [6, 8], [9, 10]]


def test_octets_are_those_of_the_messages_in_the_file() -> None:
    account = Account(OWN)
    arrive(account, 0, 1)
    account.discard("disk")
    arrive(account, 2)
    account.commit()
    (stream,) = account.described()
    assert (stream["messages"], stream["octets"]) == (1, len(b"payload"))
    assert stream["left_out"] == {"disk": [[0, 2]]}


def test_a_hello_says_what_is_owed_and_what_was_sent() -> None:
    account = Account(OWN)
    arrive(account, 7)
    assert missing(account) == {}  # what was sent before may not have been for this side
    account.control(RECEIVED, HELLO_TOPIC, hello(flows={"x": 9, "y": 4}, start_sequences={OWN: {"x": 5}}))
    assert missing(account) == {"open": [(5, 7), (8, 9)]}
    assert account.streams[RECEIVED, "y", PEER].missing().count() == 0
    assert account.nodes[PEER] == "gnb"


def test_what_a_peer_sent_before_it_knew_this_side_is_not_missing() -> None:
    account = Account(OWN)
    account.control(RECEIVED, HELLO_TOPIC, hello(flows={"x": 4}))
    account.control(RECEIVED, HELLO_TOPIC, hello(flows={"x": 9}, start_sequences={OWN: {"x": 8}}))
    assert missing(account) == {"open": [(8, 9)]}
    arrive(account, 8)
    account.commit()
    (stream,) = account.described()
    assert (stream["first"], stream["end"], stream["recorded"], stream["missing"]) == (8, 9, [[8, 9]], {})


def test_the_next_file_expects_what_this_one_lacks() -> None:
    first, second = Account(OWN), Account(OWN)
    arrive(first, 0, 1, 3, 6)
    first.event({"type": "Gap", "flow": "x", "epoch": f"{PEER:016x}", "first": 2, "end": 3})
    first.commit()
    (stream,) = first.described(continues=True)
    assert stream["to_next_file"] == [[4, 6]]
    assert stream["missing"] == {"path": [[2, 3]]}
    second.begin(first.beginning())
    arrive(second, 5, 8)
    second.commit()
    (stream,) = second.described()
    assert stream["recorded"] == [[5, 6], [8, 9]]
    assert stream["missing"] == {"open": [[4, 5], [7, 8]]}


def test_a_chunk_that_could_not_be_written_is_left_out() -> None:
    account = Account(OWN)
    arrive(account, 0, 1)
    account.commit()
    arrive(account, 2, 3)
    account.discard("disk")
    (stream,) = account.described()
    assert (stream["recorded"], stream["left_out"], stream["missing"]) == ([[0, 2]], {"disk": [[2, 4]]}, {})


def test_acks_are_those_of_each_peer() -> None:
    account = Account(OWN)
    for sequence in range(3):
        account.message(SENT, "x", Wire(0, OWN, sequence, 7, bytes(32)))
    acks = ack_body(OWN, 0, [(0, 1, 2), (1, 1, 0)])  # T2 of 0: rejected
    account.control(RECEIVED, b"ack/x", frame(Kind.ACK, PEER, 0, 7, acks))
    account.control(RECEIVED, b"ack/x", frame(Kind.ACK, PEER, 0, 7, ack_body(PEER, 0, [(2, 1, 2)])))  # of another's
    (stream,) = account.described()
    assert stream["peers"] == [{"epoch": f"{PEER:016x}", "node": None, "acked": [[0, 1]], "rejected": [[1, 2]]}]


def test_invented_sessions_are_counted_and_take_no_memory() -> None:
    account = Account(OWN)
    for epoch in range(MAX_STREAMS + 50):
        account.message(RECEIVED, "x", Wire(0, epoch, 0, 7, bytes(32)))
    assert (len(account.streams), account.unaccounted) == (MAX_STREAMS, 50)


def test_malformed_frames_are_not_recorded() -> None:
    account = Account(OWN)
    for octets in (b"", b"TL", bytes(32), frame(Kind.HELLO, PEER, 1, 7, b"{}"), frame(Kind.NAK, PEER, 1, 7, b"")[:-1]):
        assert not account.control(RECEIVED, TOPIC, octets)
    assert not account.control(RECEIVED, b"\xff", frame(Kind.ACK, PEER, 0, 7, b""))
