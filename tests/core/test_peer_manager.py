"""Hellos, old and new sessions, how patiently to connect: a dispatcher whose transport keeps what it is given."""

import time

import pytest

from tests.core.receiving import OURS, THEIRS, Kept
from twinlink.engine.dispatch import FrameDispatcher
from twinlink.engine.peers import SUSPENDED_NS
from twinlink.message import Message
from twinlink.protocol.frames import HELLO_TOPIC, Hello, Kind, ack_body, frame, parse
from twinlink.protocol.liveness import BEHIND_NS, PEER_TIMEOUT_NS, RESTART_NS, TICK_NS
from twinlink.protocol.reconnect import STEP_NS, TIMEOUT_FACTORS


def test_a_hello_is_answered_until_both_sides_know(dispatcher: FrameDispatcher, transport: Kept) -> None:
    def hello(number: int, heard: dict[int, int]) -> list[tuple[int, Hello]]:
        body = Hello("theirs", heard, {}).encode()
        transport.sent.clear()
        now = time.monotonic_ns()
        dispatcher.dispatch(b"traffic/_link", frame(Kind.HELLO, THEIRS, number, 1, body), now, True)
        assert all(topic == b"traffic/_link" and parse(octets)[0] is Kind.HELLO for topic, octets in transport.sent)
        return [(parse(octets)[2], Hello.decode(octets[32:])) for _, octets in transport.sent]

    ((first, answer),) = hello(5, {})
    assert answer.heard == {THEIRS: 5}
    ((second, answer),) = hello(6, {OURS: first})
    assert answer.heard == {THEIRS: 6}
    assert second > first
    assert hello(7, {OURS: first}) == []


def test_an_ack_shows_that_we_are_heard_and_mere_consumption_does_not(dispatcher: FrameDispatcher) -> None:
    dispatcher.dispatch(b"traffic/_link", frame(Kind.HELLO, THEIRS, 1, 1, Hello("theirs", {}, {}).encode()), 0, True)
    hears = dispatcher.peer_manager.peers.confirmed_mono_ns
    record = (0, 1, 1)
    for body, expected in ((ack_body(OURS, 1, []), 0), (ack_body(5, 1, [record]), 0), (ack_body(OURS, 1, [record]), 9)):
        dispatcher.dispatch(b"ack/flow", frame(Kind.ACK, THEIRS, 0, 1, body), 9, True)
        assert hears == {THEIRS: expected}


def test_a_hello_whose_number_is_no_number_is_dropped(dispatcher: FrameDispatcher) -> None:
    """Repeated in our hellos, it would make them malformed to everybody."""
    body = Hello("theirs", {}, {}).encode()
    dispatcher.dispatch(b"traffic/_link", frame(Kind.HELLO, THEIRS, 2**63, 1, body), 0, True)
    assert dispatcher.malformed["sequence"][0] == 1
    assert dispatcher.peer_manager.peers.all() == []


def test_who_has_not_read_all_says_so(dispatcher: FrameDispatcher, transport: Kept) -> None:
    def says() -> bool:
        dispatcher.peer_manager.send_hello()
        return Hello.decode(transport.sent[-1][1][32:]).behind

    now = time.monotonic_ns()
    dispatcher.on_tick(now, now)
    assert not says()
    dispatcher.on_tick(now, now - 2 * BEHIND_NS)
    assert says()


def test_our_own_frames_do_not_come_back_to_us(dispatcher: FrameDispatcher) -> None:
    dispatcher.dispatch(b"traffic/flow", frame(Kind.DATA, OURS, 0, 1, b""), 0, True)
    dispatcher.dispatch(b"traffic/_link", frame(Kind.BYE, OURS, 0, 1, b""), 0, True)
    assert dispatcher.malformed["reflected"][0] == 2
    assert len(dispatcher.flow("flow").queue) == 0


def test_nothing_of_an_old_session_follows_the_first_hello_of_its_successor(dispatcher: FrameDispatcher) -> None:
    """What the old one left in buffers on the way may arrive for seconds."""
    old, new = THEIRS, THEIRS + 1
    received: list[Message] = []
    receive_flow = dispatcher.flow("flow")
    receive_flow.subscribed, receive_flow.handler = True, received.append

    def arrives(epoch: int, sequence: int, now: int) -> None:
        dispatcher.dispatch(b"traffic/flow", frame(Kind.DATA, epoch, sequence, 1, b"data"), now, True)

    def hello(epoch: int, now: int) -> None:
        body = Hello("theirs", {OURS: now - 1}, {"flow": 0}, True).encode()
        dispatcher.dispatch(HELLO_TOPIC, frame(Kind.HELLO, epoch, now, 1, body), now, True)

    start = time.monotonic_ns()
    hello(old, start)
    arrives(old, 0, start)
    late = start + 2 * PEER_TIMEOUT_NS
    for now in range(start, late, TICK_NS):
        dispatcher.on_tick(now, now)
    assert not dispatcher.peer_manager.up
    arrives(old, 1, late)  # it may come back
    hello(new, late)
    arrives(new, 0, late)
    arrives(old, 2, late)
    assert [(message.epoch, message.sequence) for message in received] == [(old, 0), (old, 1), (new, 0)]


@pytest.mark.parametrize("down", [False, True], ids=["up", "fell silent"])
def test_a_flow_that_begins_while_its_peer_is_silent_begins_with_what_was_lost(
    dispatcher: FrameDispatcher, down: bool
) -> None:
    """After a cut, data may arrive before the hello that brings the peer back."""
    received: list[int] = []
    receive_flow = dispatcher.flow("flow")
    receive_flow.subscribed, receive_flow.handler = True, lambda message: received.append(message.sequence)
    now = time.monotonic_ns()
    dispatcher.dispatch(
        HELLO_TOPIC, frame(Kind.HELLO, THEIRS, now, 1, Hello("theirs", {OURS: now - 1}, {}, True).encode()), now, True
    )
    for _ in range(down * 2 * PEER_TIMEOUT_NS // TICK_NS):
        now += TICK_NS
        dispatcher.on_tick(now, now)
    assert bool(dispatcher.peer_manager.up) is not down
    dispatcher.dispatch(b"traffic/flow", frame(Kind.DATA, THEIRS, 1, 1, b"data"), now, True)
    assert received == []
    dispatcher.dispatch(b"traffic/flow", frame(Kind.RETRANSMIT, THEIRS, 0, 1, b"data"), now, True)
    assert received == [0, 1]


@pytest.mark.parametrize("replaced", [True, False], ids=["replaced", "not yet replaced"])
def test_a_hello_that_waited_does_not_end_the_session_that_lives(dispatcher: FrameDispatcher, replaced: bool) -> None:
    """Those of the session that died are read after those of the next one, which are then not read for a while."""
    old, new = THEIRS, THEIRS + 1
    received: list[tuple[int, int]] = []
    receive_flow = dispatcher.flow("flow")
    receive_flow.subscribed, receive_flow.handler = (
        True,
        lambda message: received.append((message.epoch, message.sequence)),
    )

    def hello(epoch: int, sent: int, now: int) -> None:
        body = Hello("theirs", {OURS: now - 1}, {"flow": 0}, True).encode()
        dispatcher.dispatch(HELLO_TOPIC, frame(Kind.HELLO, epoch, sent, 10**18 + sent, body), now, True)

    def data(sequence: int, now: int) -> None:
        dispatcher.dispatch(b"traffic/flow", frame(Kind.DATA, new, sequence, 1, b"data"), now, True)

    start = time.monotonic_ns()
    hello(old, start, start)
    now = start + (RESTART_NS + 1 if replaced else 1)
    hello(new, start + 2 * PEER_TIMEOUT_NS, now)
    data(0, now)
    assert dispatcher.peer_manager.up == ({new} if replaced else {old, new})
    now += 2 * RESTART_NS
    hello(old, start + 1, now)
    data(1, now)
    assert new in dispatcher.peer_manager.up
    now += 2 * RESTART_NS
    hello(new, start + 3 * PEER_TIMEOUT_NS, now)
    hello(old, start + 2, now)
    data(2, now)
    assert dispatcher.peer_manager.up == {new}
    assert received == [(new, 0), (new, 1), (new, 2)]


def test_a_transport_connects_anew_as_patience_says(dispatcher: FrameDispatcher, transport: Kept) -> None:
    start = time.monotonic_ns()

    def alone(since_ns: int, seconds: float) -> list[int]:
        transport.renewed.clear()
        for now in range(since_ns, since_ns + int(seconds * 1e9), TICK_NS):
            dispatcher.on_tick(now, now)
        return list(transport.renewed)

    assert alone(start, 0.9 * STEP_NS / 1e9) == []
    met = start + 2 * STEP_NS
    assert alone(start + STEP_NS, STEP_NS / 1e9) == [TIMEOUT_FACTORS[1]]
    meet(dispatcher, met, trip_ns=100_000_000)
    assert set(alone(met, 60)) == {TIMEOUT_FACTORS[1]}  # what was in force when somebody came
    met += 61 * 10**9
    meet(dispatcher, met, trip_ns=10_000_000)
    # as much as the path needs: a try that takes long finds late who is back
    assert set(alone(met, 60)) == {TIMEOUT_FACTORS[0]}


def meet(dispatcher: FrameDispatcher, now: int, trip_ns: int) -> None:
    """Somebody confirms a hello that left so long ago."""
    dispatcher.on_tick(now, now)
    hello = Hello("theirs", {OURS: now - trip_ns}, {})
    dispatcher.dispatch(HELLO_TOPIC, frame(Kind.HELLO, THEIRS, now, 1, hello.encode()), now, True)
    assert dispatcher.peer_manager.up


def test_nobody_is_alone_with_a_node_that_is_heard_or_may_return(dispatcher: FrameDispatcher) -> None:
    """Then nothing is sent past the limits: it would be ahead of what is owed to that node."""
    peer_manager, now = dispatcher.peer_manager, time.monotonic_ns()
    assert peer_manager.alone
    peer_manager.send_hello()
    for number, heard in ((1, {}), (2, {OURS: now + 10**9})):
        body = Hello("theirs", heard, {}, True).encode()
        dispatcher.dispatch(HELLO_TOPIC, frame(Kind.HELLO, THEIRS, number, 1, body), now + 2 * 10**9, True)
    assert peer_manager.up
    assert not peer_manager.alone
    at = now + 2 * 10**9
    while peer_manager.up:
        at += TICK_NS
        dispatcher.on_tick(at, at)
    for later in range(at, at + SUSPENDED_NS, TICK_NS):
        dispatcher.on_tick(later, later)
        assert not peer_manager.alone
    dispatcher.on_tick(later + 2 * TICK_NS, later + 2 * TICK_NS)
    assert peer_manager.alone


def test_a_session_that_fell_silent_beside_its_successor_will_not_return(dispatcher: FrameDispatcher) -> None:
    """It was restarted so soon that the new one said hello before the old one could be missed."""
    peer_manager, newer = dispatcher.peer_manager, THEIRS + 10

    def hello(epoch: int) -> None:
        now = time.monotonic_ns()
        body = Hello("theirs", {OURS: now - 1}, {}, True).encode()
        dispatcher.dispatch(HELLO_TOPIC, frame(Kind.HELLO, epoch, now, now, body), now, True)

    dispatcher.on_tick(time.monotonic_ns(), time.monotonic_ns())
    hello(THEIRS)
    hello(newer)
    assert peer_manager.up == {THEIRS, newer}
    peer_manager.peers.heard_mono_ns[THEIRS] = peer_manager.peers.confirmed_mono_ns[THEIRS] = (
        time.monotonic_ns() - 2 * PEER_TIMEOUT_NS
    )
    dispatcher.on_tick(time.monotonic_ns(), time.monotonic_ns())
    assert peer_manager.up == {newer}
    assert peer_manager.names(frozenset({THEIRS})) == "theirs (down, may return)"
    hello(newer)
    assert peer_manager.names(frozenset({THEIRS})) == "nobody who is left"
