"""Hellos, old and new sessions, how patiently to connect: a driver whose transport keeps what it is given."""

import time

import pytest

from tests.core.pair import Outlet
from tests.core.receiving import OURS, THEIRS
from twinlink.message import Message
from twinlink.protocol.frames import HELLO_TOPIC, AbandonReason, Hello, Kind, abandoned_body, ack_body, frame, parse
from twinlink.protocol.liveness import BEHIND_NS, PEER_TIMEOUT_NS, RESTART_NS, SUSPENDED_NS, TICK_NS
from twinlink.protocol.reconnect import STEP_NS, TIMEOUT_FACTORS
from twinlink.runtime.driver import SessionDriver


def test_a_hello_is_answered_until_both_sides_know(driver: SessionDriver, transport: Outlet) -> None:
    def hello(number: int, heard: dict[int, int]) -> list[tuple[int, Hello]]:
        body = Hello("theirs", heard, {}).encode()
        transport.sent.clear()
        now = time.monotonic_ns()
        driver.receive(b"traffic/_link", frame(Kind.HELLO, THEIRS, number, 1, body), now, False)
        assert all(topic == b"traffic/_link" and parse(octets)[0] is Kind.HELLO for topic, octets in transport.sent)
        return [(parse(octets)[2], Hello.decode(octets[32:])) for _, octets in transport.sent]

    ((first, answer),) = hello(5, {})
    assert answer.heard == {THEIRS: 5}
    ((second, answer),) = hello(6, {OURS: first})
    assert answer.heard == {THEIRS: 6}
    assert second > first
    assert hello(7, {OURS: first}) == []


def test_a_peer_that_comes_up_again_is_told_again_from_where_on_it_is_owed(
    driver: SessionDriver, transport: Outlet
) -> None:
    """Those hellos may have been lost; what it confirms when it comes up left after them."""

    def hello(number: int, heard: dict[int, int]) -> tuple[int, Hello]:
        body = Hello("theirs", heard, {}).encode()
        driver.receive(HELLO_TOPIC, frame(Kind.HELLO, THEIRS, number, 1, body), time.monotonic_ns(), False)
        driver.send_hello()
        _, octets = transport.sent[-1]
        return parse(octets)[2], Hello.decode(octets[32:])

    first, _ = hello(1, {})
    _, told = hello(2, {OURS: first})
    assert THEIRS in told.start_sequences
    down, said = hello(3, {})
    assert not said.start_sequences
    _, told = hello(4, {OURS: down})
    assert THEIRS in told.start_sequences


def test_an_ack_shows_that_we_are_heard_and_mere_consumption_does_not(driver: SessionDriver) -> None:
    driver.receive(b"traffic/_link", frame(Kind.HELLO, THEIRS, 1, 1, Hello("theirs", {}, {}).encode()), 0, False)
    peer = driver.session.peer_manager.peers.sessions[THEIRS]
    record = (0, 1, 1)
    for body, expected in ((ack_body(OURS, 1, []), 0), (ack_body(5, 1, [record]), 0), (ack_body(OURS, 1, [record]), 9)):
        driver.receive(b"ack/flow", frame(Kind.ACK, THEIRS, 0, 1, body), 9, False)
        assert peer.confirmed_mono_ns == expected


def test_a_hello_whose_number_is_no_number_is_dropped(driver: SessionDriver) -> None:
    """Repeated in our hellos, it would make them malformed to every peer."""
    body = Hello("theirs", {}, {}).encode()
    driver.receive(b"traffic/_link", frame(Kind.HELLO, THEIRS, 2**63, 1, body), 0, False)
    assert driver.session.malformed["sequence"][0] == 1
    assert driver.session.peer_manager.peers.all() == []


def test_who_has_not_read_all_says_so(driver: SessionDriver, transport: Outlet) -> None:
    def says() -> bool:
        driver.send_hello()
        return Hello.decode(transport.sent[-1][1][32:]).behind

    now = time.monotonic_ns()
    driver.on_tick(now, now)
    assert not says()
    driver.on_tick(now, now - 2 * BEHIND_NS)
    assert says()


def test_our_own_frames_do_not_come_back_to_us(driver: SessionDriver) -> None:
    driver.receive(b"traffic/flow", frame(Kind.DATA, OURS, 0, 1, b""), 0, False)
    driver.receive(b"traffic/_link", frame(Kind.BYE, OURS, 0, 1, b""), 0, False)
    assert driver.session.malformed["reflected"][0] == 2
    assert len(driver.session.messages.flow("flow").queue) == 0


def test_nothing_of_an_old_session_follows_the_first_hello_of_its_successor(
    driver: SessionDriver, transport: Outlet
) -> None:
    """What the old one left in buffers on the way may arrive for seconds."""
    old, new = THEIRS, THEIRS + 1
    received: list[Message] = []
    receive_flow = driver.session.messages.flow("flow")
    receive_flow.subscribed, receive_flow.handler = True, received.append

    def arrives(epoch: int, sequence: int, now: int) -> None:
        driver.receive(b"traffic/flow", frame(Kind.DATA, epoch, sequence, 1, b"data"), now, False)

    def hello(epoch: int, now: int) -> None:
        body = Hello("theirs", {OURS: now - 1}, {"flow": 0}, True).encode()
        driver.receive(HELLO_TOPIC, frame(Kind.HELLO, epoch, now, 1, body), now, False)

    start = time.monotonic_ns()
    hello(old, start)
    arrives(old, 0, start)
    late = start + 2 * PEER_TIMEOUT_NS
    for now in range(start, late, TICK_NS):
        driver.on_tick(now, now)
    assert not driver.session.peer_manager.up
    arrives(old, 1, late)  # it may come back
    hello(new, late)
    arrives(new, 0, late)
    arrives(old, 2, late)
    assert [(message.epoch, message.sequence) for message in received] == [(old, 0), (old, 1), (new, 0)]
    answered = len(transport.sent)
    driver.receive(
        b"traffic/flow", frame(Kind.ABANDONED, old, 3, 1, abandoned_body(AbandonReason.EVICTED, [])), late, False
    )
    assert len(transport.sent) == answered  # it would take what was dropped as stale for delivered


@pytest.mark.parametrize("down", [False, True], ids=["up", "fell silent"])
def test_a_flow_that_begins_while_its_peer_is_silent_begins_with_what_was_lost(
    driver: SessionDriver, down: bool
) -> None:
    """After a cut, data may arrive before the hello that brings the peer back."""
    received: list[int] = []
    receive_flow = driver.session.messages.flow("flow")
    receive_flow.subscribed, receive_flow.handler = True, lambda message: received.append(message.sequence)
    now = time.monotonic_ns()
    driver.receive(
        HELLO_TOPIC, frame(Kind.HELLO, THEIRS, now, 1, Hello("theirs", {OURS: now - 1}, {}, True).encode()), now, False
    )
    for _ in range(down * 2 * PEER_TIMEOUT_NS // TICK_NS):
        now += TICK_NS
        driver.on_tick(now, now)
    assert bool(driver.session.peer_manager.up) is not down
    driver.receive(b"traffic/flow", frame(Kind.DATA, THEIRS, 1, 1, b"data"), now, False)
    assert received == []
    driver.receive(b"traffic/flow", frame(Kind.RETRANSMIT, THEIRS, 0, 1, b"data"), now, False)
    assert received == [0, 1]


@pytest.mark.parametrize("replaced", [True, False], ids=["replaced", "not yet replaced"])
def test_a_hello_that_waited_does_not_end_the_session_that_lives(driver: SessionDriver, replaced: bool) -> None:
    """Those of the session that died are read after those of the next one, which are then not read for a while."""
    old, new = THEIRS, THEIRS + 1
    received: list[tuple[int, int]] = []
    receive_flow = driver.session.messages.flow("flow")
    receive_flow.subscribed, receive_flow.handler = (
        True,
        lambda message: received.append((message.epoch, message.sequence)),
    )

    def hello(epoch: int, sent: int, now: int) -> None:
        body = Hello("theirs", {OURS: now - 1}, {"flow": 0}, True).encode()
        driver.receive(HELLO_TOPIC, frame(Kind.HELLO, epoch, sent, 10**18 + sent, body), now, False)

    def data(sequence: int, now: int) -> None:
        driver.receive(b"traffic/flow", frame(Kind.DATA, new, sequence, 1, b"data"), now, False)

    start = time.monotonic_ns()
    hello(old, start, start)
    now = start + (RESTART_NS + 1 if replaced else 1)
    hello(new, start + 2 * PEER_TIMEOUT_NS, now)
    data(0, now)
    assert driver.session.peer_manager.up == ({new} if replaced else {old, new})
    now += 2 * RESTART_NS
    hello(old, start + 1, now)
    data(1, now)
    assert new in driver.session.peer_manager.up
    now += 2 * RESTART_NS
    hello(new, start + 3 * PEER_TIMEOUT_NS, now)
    hello(old, start + 2, now)
    data(2, now)
    assert driver.session.peer_manager.up == {new}
    assert received == [(new, 0), (new, 1), (new, 2)]


def test_a_transport_connects_anew_as_patience_says(driver: SessionDriver, transport: Outlet) -> None:
    start = time.monotonic_ns()

    def alone(since_ns: int, seconds: float) -> list[int]:
        transport.renewed.clear()
        for now in range(since_ns, since_ns + int(seconds * 1e9), TICK_NS):
            driver.on_tick(now, now)
        return list(transport.renewed)

    assert alone(start, 0.9 * STEP_NS / 1e9) == []
    met = start + 2 * STEP_NS
    assert alone(start + STEP_NS, STEP_NS / 1e9) == [TIMEOUT_FACTORS[1]]
    meet(driver, met, trip_ns=100_000_000)
    assert set(alone(met, 60)) == {TIMEOUT_FACTORS[1]}  # what was in force when a peer came
    met += 61 * 10**9
    meet(driver, met, trip_ns=10_000_000)
    # as much as the path needs: a try that takes long finds a peer late that is back
    assert set(alone(met, 60)) == {TIMEOUT_FACTORS[0]}


def meet(driver: SessionDriver, now: int, trip_ns: int) -> None:
    """A peer confirms a hello that left so long ago."""
    driver.on_tick(now, now)
    hello = Hello("theirs", {OURS: now - trip_ns}, {})
    driver.receive(HELLO_TOPIC, frame(Kind.HELLO, THEIRS, now, 1, hello.encode()), now, False)
    assert driver.session.peer_manager.up


def test_nobody_is_alone_with_a_node_that_is_heard_or_may_return(driver: SessionDriver) -> None:
    """Then nothing is sent past the limits: it would be ahead of what is owed to that node."""
    peer_manager, now = driver.session.peer_manager, time.monotonic_ns()
    assert peer_manager.alone
    driver.send_hello()
    for number, heard in ((1, {}), (2, {OURS: now + 10**9})):
        body = Hello("theirs", heard, {}, True).encode()
        driver.receive(HELLO_TOPIC, frame(Kind.HELLO, THEIRS, number, 1, body), now + 2 * 10**9, False)
    assert peer_manager.up
    assert not peer_manager.alone
    at = now + 2 * 10**9
    while peer_manager.up:
        at += TICK_NS
        driver.on_tick(at, at)
    for later in range(at, at + SUSPENDED_NS, TICK_NS):
        driver.on_tick(later, later)
        assert not peer_manager.alone
    driver.on_tick(later + 2 * TICK_NS, later + 2 * TICK_NS)
    assert peer_manager.alone


def test_a_session_that_fell_silent_beside_its_successor_will_not_return(driver: SessionDriver) -> None:
    """It was restarted so soon that the new one said hello before the old one could be missed."""
    peer_manager, newer = driver.session.peer_manager, THEIRS + 10

    def hello(epoch: int) -> None:
        now = time.monotonic_ns()
        body = Hello("theirs", {OURS: now - 1}, {}, True).encode()
        driver.receive(HELLO_TOPIC, frame(Kind.HELLO, epoch, now, now, body), now, False)

    driver.on_tick(time.monotonic_ns(), time.monotonic_ns())
    hello(THEIRS)
    hello(newer)
    assert peer_manager.up == {THEIRS, newer}
    peer = peer_manager.peers.sessions[THEIRS]
    peer.heard_mono_ns = peer.confirmed_mono_ns = time.monotonic_ns() - 2 * PEER_TIMEOUT_NS
    driver.on_tick(time.monotonic_ns(), time.monotonic_ns())
    assert peer_manager.up == {newer}
    assert peer_manager.names(frozenset({THEIRS})) == "theirs (down, may return)"
    hello(newer)
    assert peer_manager.names(frozenset({THEIRS})) == "no peer that is left"


def test_a_connection_over_which_a_peer_is_heard_is_not_given_up_before_what_came_over_it_is_read(
    driver: SessionDriver, transport: Outlet
) -> None:
    """A side that stood still: behind the first hello is the one that makes the peer up, and its data."""
    start = time.monotonic_ns()
    driver.on_tick(start, start)
    body = Hello("theirs", {}, {}).encode()
    late = start + 2 * STEP_NS
    driver.receive(HELLO_TOPIC, frame(Kind.HELLO, THEIRS, 1, 1, body), late, False)
    driver.on_tick(late, late)
    assert transport.renewed == []
    driver.on_tick(late + 2 * STEP_NS, late)  # it stood still again, and has read nothing since
    assert transport.renewed == []
    driver.on_tick(late + 3 * STEP_NS, late + 3 * STEP_NS)  # nothing else came
    assert len(transport.renewed) == 1
