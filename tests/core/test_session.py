"""What goes out for what comes in, in which order: a driver with a transport that keeps what it is given."""

import contextlib
import time
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.core.pair import Outlet
from tests.core.receiving import OURS, THEIRS, acks_sent, data, driver_on
from twinlink.events import Event, Gap, LimitExceeded, Restarted
from twinlink.message import Message
from twinlink.protocol.frames import (
    HELLO_TOPIC,
    MAX_ACK_RANGE,
    REJECTED,
    AbandonReason,
    Hello,
    Kind,
    abandoned_body,
    frame,
    parse_ack,
    parse_nak,
)
from twinlink.protocol.liveness import PeerState
from twinlink.protocol.receive.flows import MAX_FLOWS
from twinlink.runtime.driver import SessionDriver
from twinlink.runtime.receiver import Receiver


class Unused:
    """What a Receiver waits with, when everything is there already."""

    closed = False

    def wait(self, done: Callable[[], object], timeout: float | None) -> None:
        raise AssertionError(done, timeout)


@pytest.mark.parametrize("at_once", [True, False])
def test_consumption_is_never_announced_before_the_ack(driver: SessionDriver, transport: Outlet, at_once: bool) -> None:
    """Or the sender would take what was delivered for lost."""
    receive_flow = driver.session.messages.flow("flow")
    receive_flow.subscribed = True
    receiver = Receiver(Unused(), driver, receive_flow, str)
    for sequence in range(200):
        data(driver, sequence, at_once)
        if sequence % 3:
            receiver.take()  # by another thread, which may be ahead of the acks
    driver.flush_acks()
    while receiver.take() is not None:
        pass
    acknowledged: set[int] = set()
    for consumed, sequences in acks_sent(transport):
        acknowledged |= set(sequences)
        assert set(range(consumed)) <= acknowledged
    assert acknowledged == set(range(200))


def test_what_came_again_does_not_hide_how_far_is_consumed(driver: SessionDriver, transport: Outlet) -> None:
    """Or a sender whose window is full would wait for it for ever."""
    hello = Hello("theirs", {}, {"flow": 0}, True)
    driver.receive(HELLO_TOPIC, frame(Kind.HELLO, THEIRS, 1, 1, hello.encode()), 0, False)
    receive_flow = driver.session.messages.flow("flow")
    receive_flow.subscribed = True
    receive_flow.handler = lambda message: None
    messages = [frame(Kind.DATA, THEIRS, sequence, 1, b"") for sequence in (0, 2, 3)]
    messages.append(frame(Kind.RETRANSMIT, THEIRS, 1, 1, b""))
    driver.receive(b"traffic/flow", frame(Kind.BUNDLE, THEIRS, 0, 1, b"".join(messages)), 0, True)
    assert [sequence for _, sequences in acks_sent(transport) for sequence in sequences] == [0, 2, 3, 1]
    assert acks_sent(transport)[-1] == (4, [])


def test_what_will_not_come_is_done_with_once_the_application_has_what_came_before(
    driver: SessionDriver, transport: Outlet
) -> None:
    """Or a sender whose window is full of what it had to give up would wait for ever."""
    hello = Hello("theirs", {}, {"flow": 0}, True)
    driver.receive(HELLO_TOPIC, frame(Kind.HELLO, THEIRS, 1, 1, hello.encode()), 0, False)
    receive_flow = driver.session.messages.flow("flow")
    receive_flow.subscribed = True
    receiver = Receiver(Unused(), driver, receive_flow, str)

    def consumed_when_asked() -> int:
        driver.receive(
            b"traffic/flow", frame(Kind.ABANDONED, THEIRS, 4, 1, abandoned_body(AbandonReason.EVICTED, [])), 0, False
        )
        return acks_sent(transport)[-1][0]

    data(driver, 0, at_once=False)
    driver.receive(
        b"traffic/flow", frame(Kind.ABANDONED, THEIRS, 4, 1, abandoned_body(AbandonReason.EVICTED, [(1, 3)])), 0, True
    )
    assert consumed_when_asked() == 0
    assert receiver.take() is not None
    assert consumed_when_asked() == 3  # the last one is missing: it may come yet
    data(driver, 3, at_once=False)
    assert consumed_when_asked() == 3
    assert receiver.take() is not None
    assert consumed_when_asked() == 4


def test_what_an_announcement_shows_to_be_missing_beside_what_is_gone_is_asked_for(
    driver: SessionDriver, transport: Outlet
) -> None:
    """As after a restart: ZeroMQ brings what the sender said to the dead session, and it holds the rest for lost."""
    hello = Hello("theirs", {}, {"flow": 57}, True)
    driver.receive(HELLO_TOPIC, frame(Kind.HELLO, THEIRS, 1, 1, hello.encode()), 0, False)
    taken: list[int] = []
    receive_flow = driver.session.messages.flow("flow")
    receive_flow.subscribed = True
    receive_flow.handler = lambda message: taken.append(message.sequence)

    def gone(unsent: int, *ranges: tuple[int, int]) -> list[tuple[int, int]]:
        """Announce it; returns what is asked for."""
        before = len(transport.sent)
        body = abandoned_body(AbandonReason.EVICTED, list(ranges))
        driver.receive(b"traffic/flow", frame(Kind.ABANDONED, THEIRS, unsent, 1, body), 0, False)
        asks = [parse_nak(octets) for _, octets in transport.sent[before:] if octets[3] == Kind.NAK]
        return asks[-1][2] if asks else []

    assert gone(49) == []  # these two were queued for the dead session
    assert gone(50) == [(49, 50)]
    assert gone(57, (49, 50)) == [(50, 57)]
    data(driver, 57, at_once=True)
    assert not taken
    assert gone(58, (50, 57)) == []
    assert taken == [57]
    assert gone(60, (58, 60)) == []  # all that it shows to be missing is gone
    assert gone(60, (62, 63)) == []  # the newest was dropped; those before it have not left yet


def test_a_batch_is_acknowledged_together_and_one_alone_at_once(driver: SessionDriver, transport: Outlet) -> None:
    driver.session.messages.flow("flow").subscribed = True
    data(driver, 0, at_once=True)
    assert [sequences for _, sequences in acks_sent(transport)] == [[0]]
    for sequence in range(1, 100):
        data(driver, sequence, at_once=False)
    driver.flush_acks()
    assert [sequences for _, sequences in acks_sent(transport)] == [[0], list(range(1, 65)), list(range(65, 100))]


def test_a_bundle_is_acknowledged_as_a_whole(driver: SessionDriver, transport: Outlet) -> None:
    driver.session.messages.flow("flow").subscribed = True
    data(driver, 0, at_once=False)
    for first, count in ((1, 1000), (1001, MAX_ACK_RANGE), (1001 + MAX_ACK_RANGE, MAX_ACK_RANGE + 1)):
        frames = [frame(Kind.DATA, THEIRS, sequence, 1, bytes(10)) for sequence in range(first, first + count)]
        driver.receive(b"traffic/flow", frame(Kind.BUNDLE, THEIRS, 0, 1, b"".join(frames)), 0, True)
    driver.flush_acks()
    acknowledged = [sequences for _, sequences in acks_sent(transport)]
    assert [len(sequences) for sequences in acknowledged[:3]] == [1, 1000, MAX_ACK_RANGE]  # a row has no room for more
    assert [one for sequences in acknowledged for one in sequences] == list(range(2 + 1000 + 2 * MAX_ACK_RANGE))


bundled = st.lists(
    st.builds(
        lambda first, step, count, kind: [(kind, first + step * n) for n in range(count)],
        st.integers(0, 30), st.sampled_from([1, 1, 1, 2]), st.integers(1, 12),
        st.sampled_from([Kind.DATA, Kind.DATA, Kind.RETRANSMIT]),
    ),
    max_size=8,
)  # fmt: skip


@given(bundled, st.booleans(), st.booleans())
@example([[(Kind.DATA, 1)], [(Kind.DATA, 0), (Kind.DATA, 1), (Kind.DATA, 2)]], True, True)
@example([[(Kind.DATA, 5)], [(Kind.DATA, 6), (Kind.DATA, 7)], [(Kind.RETRANSMIT, n) for n in range(5)]], True, True)
@example([[(Kind.DATA, 5)], [(Kind.RETRANSMIT, 0), (Kind.DATA, 1), (Kind.RETRANSMIT, 2)]], True, True)
def test_in_a_bundle_messages_mean_what_they_mean_alone(
    bundles: list[list[tuple[Kind, int]]], handled: bool, greeted: bool
) -> None:
    outcomes = []
    for together in (False, True):
        transport = Outlet()
        reported: list[Event] = []
        driver = driver_on(transport, "ours", OURS, 1024 * 1024, 64 * 1024, reported.append)
        receive_flow = driver.session.messages.flow("flow")
        receive_flow.subscribed = True
        received: list[Message] = []
        if handled:
            receive_flow.handler = received.append
        if greeted:
            hello = Hello("theirs", {}, {"flow": 0}, True)
            driver.receive(HELLO_TOPIC, frame(Kind.HELLO, THEIRS, 1, 1, hello.encode()), 0, False)
        for bundle in bundles:
            frames = [frame(kind, THEIRS, sequence, 7, bytes(sequence)) for kind, sequence in bundle]
            for octets in [frame(Kind.BUNDLE, THEIRS, 0, 7, b"".join(frames))] if together else frames:
                driver.receive(b"traffic/flow", octets, 0, True)
            driver.flush_acks()
            while driver.callbacks.pending:  # the machine stood still
                driver.callbacks.run()
        acknowledged = [sequence for _, sequences in acks_sent(transport) for sequence in sequences]
        outcomes.append(
            (
                [message._replace(received_ns=0) for message in received + list(receive_flow.queue)],
                acknowledged,
                acks_sent(transport)[-1:] and acks_sent(transport)[-1][0],
                receive_flow.stats(),
                [replace(event, time_ns=0) for event in reported],
            )
        )
    assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize("bundled", [True, False])
def test_what_a_failing_transport_cannot_acknowledge_is_delivered_all_the_same(
    driver: SessionDriver, transport: Outlet, bundled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has been taken: its sender would not retransmit it."""

    def fail(topic: bytes, frame: bytes) -> None:
        raise OSError

    monkeypatch.setattr(transport, "send", fail)
    received: list[Message] = []
    receive_flow = driver.session.messages.flow("flow")
    receive_flow.subscribed, receive_flow.handler = True, received.append
    frames = [frame(Kind.DATA, THEIRS, sequence, 1, b"") for sequence in range(70)]
    for octets in (
        [frame(Kind.BUNDLE, THEIRS, 0, 1, b"".join(part)) for part in (frames[:1], frames[1:])] if bundled else frames
    ):
        with contextlib.suppress(OSError):
            driver.receive(b"traffic/flow", octets, 0, False)
    while driver.callbacks.pending:  # the machine stood still
        driver.callbacks.run()
    assert [message.sequence for message in received] == list(range(70))


def test_what_was_due_when_a_transport_failed_comes_before_what_follows(
    driver: SessionDriver, transport: Outlet, monkeypatch: pytest.MonkeyPatch
) -> None:
    received: list[Message] = []
    receive_flow = driver.session.messages.flow("flow")
    receive_flow.subscribed, receive_flow.handler = True, received.append
    hello = Hello("theirs", {}, {"flow": 0}, True)
    driver.receive(HELLO_TOPIC, frame(Kind.HELLO, THEIRS, 1, 1, hello.encode()), 0, False)
    data(driver, 1, at_once=True)

    def fail(topic: bytes, frame: bytes) -> None:
        raise OSError

    with monkeypatch.context() as failing, contextlib.suppress(OSError):
        failing.setattr(transport, "send", fail)
        data(driver, 0, at_once=True)
    data(driver, 2, at_once=True)
    assert [message.sequence for message in received] == [0, 1, 2]


@pytest.mark.parametrize("leaves", [SystemExit, KeyboardInterrupt])
def test_a_handler_that_leaves_does_not_take_the_rest_of_a_bundle_with_it(
    driver: SessionDriver, leaves: type[BaseException]
) -> None:
    """All of it has been acknowledged: it would not be retransmitted, nor found missing."""
    received: list[int] = []

    def handle(message: Message) -> None:
        received.append(message.sequence)
        if message.sequence == 30:
            raise leaves

    receive_flow = driver.session.messages.flow("flow")
    receive_flow.subscribed, receive_flow.handler = True, handle
    frames = [frame(Kind.DATA, THEIRS, sequence, 1, b"") for sequence in range(70)]
    data(driver, 0, at_once=True)
    with pytest.raises(leaves):
        driver.receive(b"traffic/flow", frame(Kind.BUNDLE, THEIRS, 0, 1, b"".join(frames[1:60])), 0, False)
    driver.receive(b"traffic/flow", frame(Kind.BUNDLE, THEIRS, 0, 1, b"".join(frames[60:])), 0, False)
    assert received == list(range(70))


def test_a_duplicate_is_acknowledged_again_but_not_delivered(driver: SessionDriver, transport: Outlet) -> None:
    receive_flow = driver.session.messages.flow("flow")
    receive_flow.subscribed = True
    data(driver, 0, at_once=True)
    data(driver, 0, at_once=True)
    assert [sequences for _, sequences in acks_sent(transport)] == [[0], [0]]  # the first ack may have been lost
    assert len(receive_flow.queue) == 1


def test_an_unclaimed_flow_costs_less_than_a_window(driver: SessionDriver, transport: Outlet) -> None:
    for sequence in range(200):
        data(driver, sequence, at_once=True, size=10_000)
    receive_flow = driver.session.messages.flow("flow")
    assert 512 * 1024 < receive_flow.queued_octets < 1024 * 1024
    stats = receive_flow.stats()
    assert stats["received"] + stats["unclaimed"] == 200
    assert acks_sent(transport)[-1] == (200, [])  # refused: not acknowledged, and the sender's window is free


def test_a_flood_of_topics_is_bounded(driver: SessionDriver, reported: list[Event]) -> None:
    """Of nodes that have not said hello as many flows are held, together, as of one peer."""
    for number in range(3000):
        driver.receive(f"traffic/flow-{number}".encode(), frame(Kind.DATA, THEIRS, 0, 1, b""), 0, False)
    assert len(driver.session.messages.flows) == MAX_FLOWS
    assert driver.session.limit_counters.counts == {"flows": 3000 - MAX_FLOWS}
    assert [event.limit for event in reported if isinstance(event, LimitExceeded)] == ["flows"]


def test_messages_of_flows_that_cannot_be_held_are_rejected(driver: SessionDriver, transport: Outlet) -> None:
    hello = Hello("theirs", {}, {}, True)
    driver.receive(HELLO_TOPIC, frame(Kind.HELLO, THEIRS, 1, 1, hello.encode()), 0, False)
    for number in range(MAX_FLOWS + 10):
        driver.receive(f"traffic/flow-{number}".encode(), frame(Kind.DATA, THEIRS, 0, 1, b"x"), 0, False)
    rejections = [parse_ack(octets)[2] for _, octets in transport.sent if octets[3] == Kind.ACK]
    assert rejections[-10:] == [[(0, 1, REJECTED)]] * 10
    driver.receive(
        b"traffic/one-more", frame(Kind.ABANDONED, THEIRS, 3, 1, abandoned_body(AbandonReason.EVICTED, [])), 0, False
    )
    assert parse_nak(transport.sent[-1][1]) == (THEIRS, 0, [(0, 3)])  # so that they are sent again, and rejected


def test_what_was_refused_before_the_first_hello_is_no_gap(driver: SessionDriver, transport: Outlet) -> None:
    """The flow has no subscription, nothing more can be held, and the hello comes after the data."""
    driver.session.messages._unclaimed._limit = -1
    now = time.monotonic_ns()
    driver.receive(b"traffic/flow", frame(Kind.DATA, THEIRS, 7, 1, b"data"), now, False)
    assert driver.session.messages.flow("flow").stats()["unclaimed"] == 1
    driver.receive(
        HELLO_TOPIC, frame(Kind.HELLO, THEIRS, 1, 1, Hello("theirs", {}, {"flow": 8}, True).encode()), now, False
    )
    driver.session.messages._unclaimed._limit = 10**9
    driver.session.messages.flow("flow").subscribed = True
    transport.sent.clear()
    driver.receive(b"traffic/flow", frame(Kind.DATA, THEIRS, 10, 1, b"data"), now, False)
    asks = [parse_nak(octets) for _, octets in transport.sent if octets[3] == Kind.NAK]
    assert asks == [(THEIRS, 8, [(7, 10)])]  # 7 is no gap here, but its sender is to know that it was refused
    assert driver.session.malformed == {}


def test_what_is_held_of_a_session_is_not_delivered_after_its_successor(
    driver: SessionDriver, reported: list[Event]
) -> None:
    """A restart within less than two hellos: both sessions are up for a moment."""
    receive_flow = driver.session.messages.flow("flow")
    receive_flow.subscribed = True
    ms, began = 1_000_000, time.monotonic_ns()  # what hellos confirm was said since the link was opened

    def hello(epoch: int, number: int, mono_ns: int) -> None:
        mono_ns += began
        said = Hello("theirs", {OURS: mono_ns}, {"flow": 0}, True).encode()
        driver.receive(HELLO_TOPIC, frame(Kind.HELLO, epoch, number, number, said), mono_ns, False)

    def message(epoch: int, sequence: int, mono_ns: int) -> None:
        driver.receive(b"traffic/flow", frame(Kind.DATA, epoch, sequence, 1, b""), began + mono_ns, False)

    newer = THEIRS + 10
    hello(THEIRS, 1, 100 * ms)
    for sequence in (0, 2, 3):
        message(THEIRS, sequence, 110 * ms)
    hello(newer, 2, 200 * ms)
    message(newer, 0, 210 * ms)
    hello(newer, 3, 700 * ms)
    assert any(isinstance(event, Restarted) for event in reported)
    assert [(one.epoch, one.sequence) for one in receive_flow.queue] == [(THEIRS, 0), (newer, 0)]
    assert [(event.first, event.end) for event in reported if isinstance(event, Gap)] == [(1, 4)]
    assert (receive_flow.stats()["received"], receive_flow.stats()["missing"]) == (2, 3)


def test_a_flow_of_which_a_hello_says_later_that_it_repairs_nothing_delivers_what_it_holds(
    driver: SessionDriver, reported: list[Event]
) -> None:
    """Data overtook the hello that names the flow; what is missing before it will not be asked for."""
    receive_flow = driver.session.messages.flow("flow")
    receive_flow.subscribed = True
    hello = Hello("theirs", {}, {}, True)
    driver.receive(HELLO_TOPIC, frame(Kind.HELLO, THEIRS, 1, 1, hello.encode()), 0, False)
    driver.session.peer_manager.peers.sessions[THEIRS].state = PeerState.LOST  # it fell silent
    for sequence in (5, 6):
        data(driver, sequence, True)
    assert not receive_flow.queue
    hello = Hello("theirs", {}, {"flow": 7}, True, frozenset({"flow"}))
    driver.receive(HELLO_TOPIC, frame(Kind.HELLO, THEIRS, 2, 1, hello.encode()), 0, False)
    assert [message.sequence for message in receive_flow.queue] == [5, 6]
    assert [(event.first, event.end) for event in reported if isinstance(event, Gap)] == [(0, 5)]
    data(driver, 7, True)
    assert len(receive_flow.queue) == 3


def test_a_new_flow_of_a_peer_that_is_up_repairs_nothing_once_a_hello_says_so(
    driver: SessionDriver, reported: list[Event]
) -> None:
    """The first hello that names it was lost; from the next one on a gap is reported, and not waited for."""
    receive_flow = driver.session.messages.flow("flow")
    receive_flow.subscribed = True
    for number, flows in ((1, {}), (2, {}), (3, {"flow": 0})):
        hello = Hello("theirs", {OURS: 1}, flows, True, frozenset(flows))
        driver.receive(HELLO_TOPIC, frame(Kind.HELLO, THEIRS, number, 1, hello.encode()), number, False)
        if number == 2:
            for sequence in (0, 2):
                data(driver, sequence, True)
            assert len(receive_flow.queue) == 1
    assert [message.sequence for message in receive_flow.queue] == [0, 2]
    data(driver, 4, True)
    assert [message.sequence for message in receive_flow.queue] == [0, 2, 4]
    assert [(event.first, event.end) for event in reported if isinstance(event, Gap)] == [(1, 2), (3, 4)]


def test_what_arrives_while_a_handler_runs_counts_as_consumed_when_it_is_handed_over(
    driver: SessionDriver, transport: Outlet
) -> None:
    receive_flow = driver.session.messages.flow("flow")
    receive_flow.subscribed = True
    got: list[int] = []
    meanwhile: list[object] = []

    def handle(message: Message) -> None:
        got.append(message.sequence)
        if message.sequence == 0:  # it waits for something, and so receives
            for sequence in range(1, 10):
                data(driver, sequence, True)
            meanwhile.extend((len(got), receive_flow.stats()["queued"], acks_sent(transport)[-1]))

    receive_flow.handler = handle
    data(driver, 0, True)
    assert meanwhile == [1, 9, (1, [9])]
    assert got == list(range(10))
    assert acks_sent(transport)[-1][0] == 10


def test_what_arrived_is_acknowledged_before_a_nak_says_what_is_missing(
    driver: SessionDriver, transport: Outlet
) -> None:
    """Or the sender, which has told that an evicted message will not come, would take it for lost."""
    driver.session.messages.flow("flow").subscribed = True
    hello = frame(Kind.HELLO, THEIRS, 1, 1, Hello("theirs", {OURS: 1}, {}, True).encode())
    driver.receive(HELLO_TOPIC, hello, time.monotonic_ns(), False)
    transport.sent.clear()
    for kind, number, body in (Kind.DATA, 0, b""), (Kind.ABANDONED, 1, abandoned_body(AbandonReason.EVICTED, [])):
        octets = frame(kind, THEIRS, number, 1, body)
        driver.receive_ahead(b"traffic/flow", octets, time.monotonic_ns())
    driver.flush_acks()
    kinds = [Kind(octets[3]) for _, octets in transport.sent]
    assert kinds.index(Kind.ACK) < kinds.index(Kind.NAK)
