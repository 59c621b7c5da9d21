"""What is refused, as nobody has asked for its flow and there is no room to hold it: the sender is to know."""

import pytest

from tests.core.receiving import THEIRS, Kept, data
from twinlink.engine.dispatch import Reception
from twinlink.engine.unclaimed import TELL_NS
from twinlink.events import Event, Gap, Unclaimed
from twinlink.protocol.frames import (
    HELLO_TOPIC,
    MAX_RANGES,
    REFUSED,
    Hello,
    Kind,
    Why,
    frame,
    gone_body,
    parse_ack,
    parse_ask,
)
from twinlink.protocol.receive.flow import Incoming
from twinlink.protocol.receive.sequence import MAX_GAPS
from twinlink.sync import Thresholds


def refusing(reception: Reception, detect: bool = False, repairs: bool = True) -> Incoming:
    """A flow of a known peer that nobody has asked for, while there is no room for more of such flows."""
    hello = Hello("theirs", {}, {"flow": 0}, repairs, frozenset(["flow"] if detect else []))
    reception.handle(HELLO_TOPIC, frame(Kind.HELLO, THEIRS, 1, 1, hello.encode()), 0, True)
    reception._refusals._octets = reception.flow("crowd").queued_octets = 10**9
    return reception.flow("flow")


def answers(reception: Reception, transport: Kept, unsent: int) -> list[tuple[int, list[tuple[int, int]]]]:
    """What this side says when it is asked what it lacks: known, missing."""
    transport.sent.clear()
    reception.handle(b"traffic/flow", frame(Kind.GONE, THEIRS, unsent, 1, gone_body(Why.EVICTED, [])), 0, True)
    return [parse_ask(octets)[1:] for _, octets in transport.sent if octets[3] == Kind.ASK]


def refusals(transport: Kept) -> list[int]:
    bodies = [parse_ack(octets)[2] for _, octets in transport.sent if octets[3] == Kind.ACK]
    return [sequence for records in bodies for sequence, _, t2_ns in records if t2_ns == REFUSED]


@pytest.mark.parametrize("claimed", [False, True])
def test_a_refusal_that_was_lost_is_said_again_until_the_sender_has_it(
    reception: Reception, transport: Kept, reported: list[Event], claimed: bool
) -> None:
    """Or the sender would take the message for one that is here, and nobody would name it."""
    incoming = refusing(reception)
    data(reception, 0, at_once=True)
    data(reception, 1, at_once=True)
    assert refusals(transport) == [0, 1]
    incoming.claimed = claimed
    assert answers(reception, transport, 2) == [(2, [(0, 2)])]
    reception.handle(b"traffic/flow", frame(Kind.AGAIN, THEIRS, 1, 1, b""), 0, True)
    assert refusals(transport) == [1]
    assert not incoming.queue
    assert incoming.stats()["unclaimed"] == 2
    gone = frame(Kind.GONE, THEIRS, 2, 1, gone_body(Why.EVICTED, [(0, 2)]))
    reception.handle(b"traffic/flow", gone, 0, True)
    assert answers(reception, transport, 2) == [(2, [])]
    assert not any(isinstance(event, Gap) for event in reported)


def test_an_ask_for_a_gap_does_not_say_that_what_was_refused_is_here(reception: Reception, transport: Kept) -> None:
    refusing(reception)
    data(reception, 0, at_once=True)
    reception.flow("crowd").queued_octets = 0
    data(reception, 3, at_once=True)
    asks = [parse_ask(octets)[1:] for _, octets in transport.sent if octets[3] == Kind.ASK]
    assert asks == [(1, [(0, 3)])]


def test_what_is_refused_behind_a_gap_does_not_hide_the_gap(
    reception: Reception, transport: Kept, reported: list[Event]
) -> None:
    incoming = refusing(reception)
    data(reception, 2, at_once=True)
    assert answers(reception, transport, 3) == [(3, [(0, 3)])]
    incoming.claimed = True
    for sequence in (0, 1):
        reception.handle(b"traffic/flow", frame(Kind.AGAIN, THEIRS, sequence, 1, b""), 0, True)
    data(reception, 3, at_once=True)
    assert [message.sequence for message in incoming.queue] == [0, 1, 3]
    assert not any(isinstance(event, Gap) for event in reported)


def test_what_is_held_already_is_not_refused_when_it_comes_again(reception: Reception, transport: Kept) -> None:
    hello = Hello("theirs", {}, {"flow": 0}, True)
    reception.handle(HELLO_TOPIC, frame(Kind.HELLO, THEIRS, 1, 1, hello.encode()), 0, True)
    data(reception, 0, at_once=True)
    incoming = refusing(reception)
    transport.sent.clear()
    data(reception, 0, at_once=True)
    assert [sequences for _, sequences in transport.acks()] == [[0]]
    assert refusals(transport) == []
    assert incoming.stats()["unclaimed"] == 0


def test_on_a_flow_that_nobody_has_asked_for_a_loss_does_not_stay_in_the_senders_window(
    reception: Reception, transport: Kept
) -> None:
    """It would fill before anything is refused, and hold up the sender's other peers for ever."""
    hello = Hello("theirs", {}, {"flow": 0}, True, frozenset({"flow"}))
    reception.handle(HELLO_TOPIC, frame(Kind.HELLO, THEIRS, 1, 1, hello.encode()), 0, True)
    data(reception, 0, at_once=True)
    answers(reception, transport, 1)
    assert transport.acks()[-1][0] == 0  # what is held counts
    data(reception, 2, at_once=True)
    answers(reception, transport, 4)
    assert transport.acks()[-1][0] == 4


def test_what_is_missing_is_asked_for_however_much_was_refused(reception: Reception, transport: Kept) -> None:
    """Of what was refused and cannot be named any more nothing is said: it is not below what is known."""
    refusing(reception)
    crowd = reception.flow("crowd")
    for sequence in range(0, 2 * MAX_RANGES, 2):
        reception._refusals._octets = crowd.queued_octets = 10**9
        data(reception, sequence, at_once=True)
        crowd.queued_octets = 0
        data(reception, sequence + 1, at_once=True)
    missing = 2 * MAX_RANGES
    data(reception, missing + 1, at_once=True)
    unnamed = missing - 2  # the last that was refused
    expected = [(sequence, sequence + 1) for sequence in (*range(0, unnamed, 2), missing)]
    assert answers(reception, transport, missing + 2) == [(unnamed, expected)]


def test_where_nothing_is_sent_again_what_is_missing_before_a_refusal_is_a_gap_at_once_and_the_refusal_is_none(
    reception: Reception, reported: list[Event]
) -> None:
    incoming = refusing(reception, detect=True)
    for sequence in (0, 3, 4, 6):
        data(reception, sequence, at_once=True)
    assert [(event.first, event.end) for event in reported if isinstance(event, Gap)] == [(1, 3), (5, 6)]
    incoming.claimed = True
    data(reception, 7, at_once=True)
    assert (incoming.stats()["unclaimed"], incoming.stats()["missing"], incoming.stats()["received"]) == (4, 3, 1)


@pytest.mark.parametrize("detect", [False, True])
def test_what_is_refused_is_named_once_and_counts_as_missing(
    reception: Reception, reported: list[Event], detect: bool
) -> None:
    incoming = refusing(reception, detect)
    sync = incoming.watch(Thresholds())
    for sequence in (0, 1, 1, 2):
        data(reception, sequence, at_once=True)
    reception.flow("crowd").queued_octets = 0
    data(reception, 3, at_once=True)
    reception.keep_time(2 * TELL_NS, 0)
    incoming.claimed = True
    data(reception, 4, at_once=True)
    reception.keep_time(2 * TELL_NS + 1, 0)
    assert [(event.first, event.end) for event in reported if isinstance(event, Unclaimed)] == [(0, 3)]
    assert sync.completeness() == pytest.approx(2 / 5)


def test_what_is_refused_is_named_once_a_second_and_when_the_link_ends(
    reception: Reception, reported: list[Event]
) -> None:
    """A peer may send for ever what nobody asks for."""
    refusing(reception)
    for sequence in range(20):
        data(reception, sequence, at_once=True)
        reception.keep_time(TELL_NS + sequence * TELL_NS // 10, 0)
    reception.tell()
    named = [(event.first, event.end) for event in reported if isinstance(event, Unclaimed)]
    assert named == [(0, 1), (1, 11), (11, 20)]


@pytest.mark.parametrize("repairs", [False, True])
def test_where_nothing_is_sent_again_a_sender_is_told_of_a_refusal_if_it_can_know_what_that_means(
    reception: Reception, transport: Kept, repairs: bool
) -> None:
    """To a plain one it would be an ack, so for that one it is passed over only."""
    refusing(reception, repairs, repairs)
    data(reception, 0, at_once=True)
    assert transport.acks() == [(1, [0] if repairs else [])]
    assert refusals(transport) == ([0] if repairs else [])


def test_where_nothing_is_sent_again_what_has_come_is_not_refused_and_what_is_a_gap_stays_one(
    reception: Reception, transport: Kept, reported: list[Event]
) -> None:
    hello = Hello("theirs", {}, {"flow": 0}, True, frozenset(["flow"]))
    reception.handle(HELLO_TOPIC, frame(Kind.HELLO, THEIRS, 1, 1, hello.encode()), 0, True)
    data(reception, 0, at_once=True)
    data(reception, 2, at_once=True)
    incoming = refusing(reception, detect=True)
    transport.sent.clear()
    for sequence in (0, 1):
        data(reception, sequence, at_once=True)
    assert refusals(transport) == [1]
    assert [records for _, records in transport.acks()] == [[0], [1]]
    reception.tell()
    assert not any(isinstance(event, Unclaimed) for event in reported)
    stats = incoming.stats()
    assert (stats["received"], stats["missing"], stats["duplicates"], stats["unclaimed"]) == (2, 1, 1, 0)


@pytest.mark.parametrize("detect", [False, True])
def test_what_a_hello_overtook_after_others_of_a_stranger_were_refused_is_taken_in(
    reception: Reception, reported: list[Event], detect: bool
) -> None:
    incoming, crowd = reception.flow("flow"), reception.flow("crowd")
    reception._refusals._octets = crowd.queued_octets = 10**9
    for sequence in (3, 4):
        data(reception, sequence, at_once=True)
    hello = Hello("theirs", {}, {"flow": 7}, True, frozenset(["flow"] if detect else []))
    reception.handle(HELLO_TOPIC, frame(Kind.HELLO, THEIRS, 1, 1, hello.encode()), 0, True)
    incoming.claimed = True
    for sequence in (5, 6, 7):
        data(reception, sequence, at_once=True)
    assert [message.sequence for message in incoming.queue] == [5, 6, 7]
    assert reported == []


def test_what_is_remembered_of_refusals_is_bounded_where_nothing_is_sent_again(reception: Reception) -> None:
    incoming = refusing(reception, detect=True)
    for sequence in range(0, 3 * MAX_GAPS, 2):
        data(reception, sequence, at_once=True)
    assert len(incoming.streams[THEIRS].declined) == MAX_GAPS
    assert incoming.stats()["unclaimed"] == 3 * MAX_GAPS // 2
