"""A connector that is alone finds out when the other side's port answers; over real TCP, on loopback."""

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import twinlink
from tests.core.receiving import Kept
from twinlink.engine.dispatch import Reception
from twinlink.protocol.frames import Kind
from twinlink.protocol.reconnect import Answer
from twinlink.runtime.port_probe import EVERY_S, LEAST_SILENCE_S, MOST, Scout
from twinlink.runtime.receive_loop import Pump
from twinlink.testing import free_endpoint, patience, wait_until
from twinlink.transports import Endpoint

STEP_S = 0.05


@pytest.fixture
def endpoint() -> Endpoint:
    return Endpoint.parse(free_endpoint())


@pytest.fixture
def scout(endpoint: Endpoint) -> Iterator[Scout]:
    scout = Scout(endpoint)
    yield scout
    scout.rest()


def listen(endpoint: Endpoint, backlog: int = 128) -> socket.socket:
    return socket.create_server((endpoint.host, endpoint.port), backlog=backlog)


def until(done: Callable[[], object], turn: Callable[[], object] = lambda: None) -> None:
    deadline = time.monotonic() + patience()
    while not done():
        assert time.monotonic() < deadline
        turn()


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def silence(scout: Scout) -> None:
    """Search until the port has not answered for a while."""
    until(lambda: scout.search(STEP_S) is None and not scout.answers)
    since = time.monotonic()
    until(lambda: scout.search(STEP_S) is None and time.monotonic() - since > LEAST_SILENCE_S)


def test_a_port_that_answers_from_the_first_is_no_news(scout: Scout, endpoint: Endpoint) -> None:
    """The transport's own attempt is not to be disturbed; but how long the path is tells what patience it needs."""
    with listen(endpoint):
        answers: list[Answer | None] = []
        begun_ns = time.monotonic_ns()
        until(lambda: any(answers), lambda: answers.append(scout.search(STEP_S)))
        assert scout.answers
        assert [answer.anew for answer in answers if answer] == [False]
        assert answers[-1] is not None
        assert 0 < answers[-1].trip_ns < time.monotonic_ns() - begun_ns


def test_a_port_that_begins_to_answer_is_told_of_once(scout: Scout, endpoint: Endpoint) -> None:
    silence(scout)
    with listen(endpoint):
        until(lambda: (answer := scout.search(STEP_S)) is not None and answer.anew)
        assert scout.answers
        assert all(scout.search(STEP_S) is None for _ in range(100))
    silence(scout)  # and is seen to fall silent again


def test_a_silence_of_a_moment_is_a_packet_that_was_lost(scout: Scout, endpoint: Endpoint) -> None:
    until(lambda: scout.search(STEP_S) is None and not scout.answers)
    scout._silent_since_s = time.monotonic() + patience()  # the silence is young, however slow the machine
    with listen(endpoint):
        answers: list[Answer | None] = []
        until(lambda: any(answers), lambda: answers.append(scout.search(STEP_S)))
    assert [answer.anew for answer in answers if answer] == [False]


def test_attempts_that_nobody_answers_are_many_in_turn_and_few_at_a_time(scout: Scout, endpoint: Endpoint) -> None:
    """Whoever listens and has no room for another connection drops the first packet, as a partition does."""
    with ExitStack() as held, listen(endpoint, backlog=0) as listener:
        for _ in range(4):
            one = held.enter_context(socket.socket())
            one.setblocking(False)
            one.connect_ex((endpoint.host, endpoint.port))
        before = descriptors()
        silence(scout)
        begun = time.monotonic()
        searches = 0
        while time.monotonic() - begun < 20 * EVERY_S:
            assert scout.search(STEP_S) is None
            assert descriptors() <= before + MOST
            searches += 1
        assert searches <= 40  # it waits in between
        listener.settimeout(patience())
        for _ in range(4):
            held.enter_context(listener.accept()[0])
        until(lambda: scout.search(STEP_S) is not None)
        assert descriptors() == before + 4  # accepted; no attempt is left


def test_a_host_is_asked_for_by_name() -> None:
    endpoint = Endpoint("localhost", Endpoint.parse(free_endpoint()).port)
    scout = Scout(endpoint)
    silence(scout)
    with listen(Endpoint("127.0.0.1", endpoint.port)):
        until(lambda: scout.search(STEP_S) is not None)


def test_where_no_connection_can_be_begun_nothing_answers(endpoint: Endpoint) -> None:
    scout = Scout(Endpoint("[fe80::1%nowhere]", endpoint.port))
    before = descriptors()
    silence(scout)
    assert descriptors() == before


def test_the_transport_is_told_to_connect_and_hello_is_said(
    reception: Reception, transport: Kept, scout: Scout, endpoint: Endpoint
) -> None:
    pump = Pump(transport, reception, scout)

    def turn() -> None:
        pump.turn(STEP_S)

    until(lambda: not scout.answers, turn)
    since = time.monotonic()
    until(lambda: time.monotonic() - since > LEAST_SILENCE_S, turn)
    assert not transport.reached_with
    hellos = len(transport.sent)
    with listen(endpoint):
        until(lambda: transport.reached_with, turn)
        until(lambda: len(transport.sent) > hellos, turn)
    assert transport.reached_with == [1]
    assert {frame[3] for _, frame in transport.sent[hellos:]} == {Kind.HELLO}


@pytest.mark.parametrize("transport_name", ["zeromq", "zenoh"])
def test_who_connects_leaves_no_attempt_open(transport_name: str) -> None:
    """The listener comes late; once it is met, only the transport's connections are there."""
    where = free_endpoint()
    with twinlink.open(transport_name, connect=where) as connector:
        scout = connector._scout
        assert scout is not None
        wait_until(lambda: not scout.answers)
        with twinlink.open(transport_name, listen=where) as listener:
            for link in (connector, listener):
                link.wait_ready(patience())
            assert listener._scout is None
            wait_until(lambda: not scout._attempts)
