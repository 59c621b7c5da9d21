"""What is refused: its flow is not subscribed to, and there is no room to hold it. The sender is to know."""

import pytest

from tests.core.pair import Outlet
from tests.core.receiving import THEIRS, acks_sent, data
from twinlink.events import Event, Gap, Unclaimed
from twinlink.protocol.frames import (
    HELLO_TOPIC,
    MAX_RANGES,
    REJECTED,
    AbandonReason,
    Hello,
    Kind,
    abandoned_body,
    frame,
    parse_ack,
    parse_nak,
)
from twinlink.protocol.receive.flow import ReceiveFlow
from twinlink.protocol.receive.sequence import MAX_GAPS
from twinlink.protocol.receive.unclaimed import REPORT_INTERVAL_NS
from twinlink.runtime.driver import SessionDriver
from twinlink.sync import Thresholds


def refusing(driver: SessionDriver, detect: bool = False, repairs: bool = True) -> ReceiveFlow:
    """A flow of a known peer that the application has not asked for, while there is no room for more of such flows."""
    hello = Hello("theirs", {}, {"flow": 0}, repairs, frozenset(["flow"] if detect else []))
    driver.receive(HELLO_TOPIC, frame(Kind.HELLO, THEIRS, 1, 1, hello.encode()), 0, False)
    driver.session.messages._unclaimed._limit = -1
    return driver.session.messages.flow("flow")


def answers(driver: SessionDriver, transport: Outlet, unsent: int) -> list[tuple[int, list[tuple[int, int]]]]:
    """What this side says when it is asked what it lacks: known, missing."""
    transport.sent.clear()
    driver.receive(
        b"traffic/flow", frame(Kind.ABANDONED, THEIRS, unsent, 1, abandoned_body(AbandonReason.EVICTED, [])), 0, False
    )
    return [parse_nak(octets)[1:] for _, octets in transport.sent if octets[3] == Kind.NAK]


def refusals(transport: Outlet) -> list[int]:
    bodies = [parse_ack(octets)[2] for _, octets in transport.sent if octets[3] == Kind.ACK]
    return [sequence for records in bodies for sequence, _, t2_ns in records if t2_ns == REJECTED]


@pytest.mark.parametrize("claimed", [False, True])
def test_a_refusal_that_was_lost_is_said_again_until_the_sender_has_it(
    driver: SessionDriver, transport: Outlet, reported: list[Event], claimed: bool
) -> None:
    """Or the sender would take the message for one that is here, and neither side would name it."""
    receive_flow = refusing(driver)
    data(driver, 0, at_once=True)
    data(driver, 1, at_once=True)
    assert refusals(transport) == [0, 1]
    receive_flow.subscribed = claimed
    assert answers(driver, transport, 2) == [(2, [(0, 2)])]
    driver.receive(b"traffic/flow", frame(Kind.RETRANSMIT, THEIRS, 1, 1, b""), 0, False)
    assert refusals(transport) == [1]
    assert not receive_flow.queue
    assert receive_flow.stats()["unclaimed"] == 2
    gone = frame(Kind.ABANDONED, THEIRS, 2, 1, abandoned_body(AbandonReason.EVICTED, [(0, 2)]))
    driver.receive(b"traffic/flow", gone, 0, False)
    assert answers(driver, transport, 2) == [(2, [])]
    assert not any(isinstance(event, Gap) for event in reported)


def test_an_ask_for_a_gap_does_not_say_that_what_was_refused_is_here(driver: SessionDriver, transport: Outlet) -> None:
    refusing(driver)
    data(driver, 0, at_once=True)
    driver.session.messages._unclaimed._limit = 10**9
    data(driver, 3, at_once=True)
    asks = [parse_nak(octets)[1:] for _, octets in transport.sent if octets[3] == Kind.NAK]
    assert asks == [(1, [(0, 3)])]


def test_what_is_refused_behind_a_gap_does_not_hide_the_gap(
    driver: SessionDriver, transport: Outlet, reported: list[Event]
) -> None:
    receive_flow = refusing(driver)
    data(driver, 2, at_once=True)
    assert answers(driver, transport, 3) == [(3, [(0, 3)])]
    receive_flow.subscribed = True
    for sequence in (0, 1):
        driver.receive(b"traffic/flow", frame(Kind.RETRANSMIT, THEIRS, sequence, 1, b""), 0, False)
    data(driver, 3, at_once=True)
    assert [message.sequence for message in receive_flow.queue] == [0, 1, 3]
    assert not any(isinstance(event, Gap) for event in reported)


def test_what_is_held_already_is_not_refused_when_it_comes_again(driver: SessionDriver, transport: Outlet) -> None:
    hello = Hello("theirs", {}, {"flow": 0}, True)
    driver.receive(HELLO_TOPIC, frame(Kind.HELLO, THEIRS, 1, 1, hello.encode()), 0, False)
    data(driver, 0, at_once=True)
    receive_flow = refusing(driver)
    transport.sent.clear()
    data(driver, 0, at_once=True)
    assert [sequences for _, sequences in acks_sent(transport)] == [[0]]
    assert refusals(transport) == []
    assert receive_flow.stats()["unclaimed"] == 0


def test_on_a_flow_that_nobody_has_asked_for_a_loss_does_not_stay_in_the_senders_window(
    driver: SessionDriver, transport: Outlet
) -> None:
    """It would fill before anything is refused, and hold up the sender's other peers for ever."""
    hello = Hello("theirs", {}, {"flow": 0}, True, frozenset({"flow"}))
    driver.receive(HELLO_TOPIC, frame(Kind.HELLO, THEIRS, 1, 1, hello.encode()), 0, False)
    data(driver, 0, at_once=True)
    answers(driver, transport, 1)
    assert acks_sent(transport)[-1][0] == 0  # what is held counts
    data(driver, 2, at_once=True)
    answers(driver, transport, 4)
    assert acks_sent(transport)[-1][0] == 4


def test_what_is_missing_is_asked_for_however_much_was_refused(driver: SessionDriver, transport: Outlet) -> None:
    """Of what was refused and cannot be named any more nothing is said: it is not below what is known."""
    refusing(driver)
    for sequence in range(0, 2 * MAX_RANGES, 2):
        driver.session.messages._unclaimed._limit = -1
        data(driver, sequence, at_once=True)
        driver.session.messages._unclaimed._limit = 10**9
        data(driver, sequence + 1, at_once=True)
    missing = 2 * MAX_RANGES
    data(driver, missing + 1, at_once=True)
    unnamed = missing - 2  # the last that was refused
    expected = [(sequence, sequence + 1) for sequence in (*range(0, unnamed, 2), missing)]
    assert answers(driver, transport, missing + 2) == [(unnamed, expected)]


def test_where_nothing_is_sent_again_what_is_missing_before_a_refusal_is_a_gap_at_once_and_the_refusal_is_none(
    driver: SessionDriver, reported: list[Event]
) -> None:
    receive_flow = refusing(driver, detect=True)
    for sequence in (0, 3, 4, 6):
        data(driver, sequence, at_once=True)
    assert [(event.first, event.end) for event in reported if isinstance(event, Gap)] == [(1, 3), (5, 6)]
    receive_flow.subscribed = True
    data(driver, 7, at_once=True)
    assert (receive_flow.stats()["unclaimed"], receive_flow.stats()["missing"], receive_flow.stats()["received"]) == (
        4,
        3,
        1,
    )


@pytest.mark.parametrize("detect", [False, True])
def test_what_is_refused_is_named_once_and_counts_as_missing(
    driver: SessionDriver, reported: list[Event], detect: bool
) -> None:
    receive_flow = refusing(driver, detect)
    sync = receive_flow.watch(Thresholds())
    for sequence in (0, 1, 1, 2):
        data(driver, sequence, at_once=True)
    driver.session.messages._unclaimed._limit = 10**9
    data(driver, 3, at_once=True)
    driver.on_tick(2 * REPORT_INTERVAL_NS, 0)
    receive_flow.subscribed = True
    data(driver, 4, at_once=True)
    driver.on_tick(2 * REPORT_INTERVAL_NS + 1, 0)
    assert [(event.first, event.end) for event in reported if isinstance(event, Unclaimed)] == [(0, 3)]
    assert sync.completeness(2 * REPORT_INTERVAL_NS + 1) == pytest.approx(2 / 5)


def test_what_is_refused_is_named_once_a_second_and_when_the_link_ends(
    driver: SessionDriver, reported: list[Event]
) -> None:
    """A peer may send for ever what is not asked for."""
    refusing(driver)
    for sequence in range(20):
        data(driver, sequence, at_once=True)
        driver.on_tick(REPORT_INTERVAL_NS + sequence * REPORT_INTERVAL_NS // 10, 0)
    driver.report_undelivered()
    named = [(event.first, event.end) for event in reported if isinstance(event, Unclaimed)]
    assert named == [(0, 1), (1, 11), (11, 20)]


@pytest.mark.parametrize("repairs", [False, True])
def test_where_nothing_is_sent_again_a_sender_is_told_of_a_refusal_if_it_can_know_what_that_means(
    driver: SessionDriver, transport: Outlet, repairs: bool
) -> None:
    """To a plain one it would be an ack, so for that one it is passed over only."""
    refusing(driver, repairs, repairs)
    data(driver, 0, at_once=True)
    assert acks_sent(transport) == [(1, [0] if repairs else [])]
    assert refusals(transport) == ([0] if repairs else [])


def test_where_nothing_is_sent_again_what_has_come_is_not_refused_and_what_is_a_gap_stays_one(
    driver: SessionDriver, transport: Outlet, reported: list[Event]
) -> None:
    hello = Hello("theirs", {}, {"flow": 0}, True, frozenset(["flow"]))
    driver.receive(HELLO_TOPIC, frame(Kind.HELLO, THEIRS, 1, 1, hello.encode()), 0, False)
    data(driver, 0, at_once=True)
    data(driver, 2, at_once=True)
    receive_flow = refusing(driver, detect=True)
    transport.sent.clear()
    for sequence in (0, 1):
        data(driver, sequence, at_once=True)
    assert refusals(transport) == [1]
    assert [records for _, records in acks_sent(transport)] == [[0], [1]]
    driver.report_undelivered()
    assert not any(isinstance(event, Unclaimed) for event in reported)
    stats = receive_flow.stats()
    assert (stats["received"], stats["missing"], stats["duplicates"], stats["unclaimed"]) == (2, 1, 1, 0)


@pytest.mark.parametrize("detect", [False, True])
def test_what_a_hello_overtook_after_others_of_a_stranger_were_refused_is_taken_in(
    driver: SessionDriver, reported: list[Event], detect: bool
) -> None:
    receive_flow = driver.session.messages.flow("flow")
    driver.session.messages._unclaimed._limit = -1
    for sequence in (3, 4):
        data(driver, sequence, at_once=True)
    hello = Hello("theirs", {}, {"flow": 7}, True, frozenset(["flow"] if detect else []))
    driver.receive(HELLO_TOPIC, frame(Kind.HELLO, THEIRS, 1, 1, hello.encode()), 0, False)
    receive_flow.subscribed = True
    for sequence in (5, 6, 7):
        data(driver, sequence, at_once=True)
    assert [message.sequence for message in receive_flow.queue] == [5, 6, 7]
    assert reported == []


def test_what_is_remembered_of_refusals_is_bounded_where_nothing_is_sent_again(driver: SessionDriver) -> None:
    receive_flow = refusing(driver, detect=True)
    for sequence in range(0, 3 * MAX_GAPS, 2):
        data(driver, sequence, at_once=True)
    assert len(receive_flow.streams[THEIRS].rejected) == MAX_GAPS
    assert receive_flow.stats()["unclaimed"] == 3 * MAX_GAPS // 2


def test_what_alternates_with_what_is_taken_takes_little_memory(driver: SessionDriver, transport: Outlet) -> None:
    """Each rejected message is a range of its own: of so many, no nak names more than the limit."""
    refusing(driver).subscribe(None, 10)
    for sequence in range(2 * MAX_GAPS + 20):
        data(driver, sequence, at_once=True, size=10 + sequence % 2)
        transport.sent.clear()
    (stream,) = driver.session.messages.flow("flow").streams.values()
    assert len(stream.rejected) == MAX_GAPS
    assert stream.tracker.next == 2 * MAX_GAPS + 20
    ((known, missing),) = answers(driver, transport, 2 * MAX_GAPS + 20)
    assert len(missing) == MAX_RANGES
    assert known == missing[-1][1] + 1
