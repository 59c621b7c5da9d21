"""A connector that is alone finds out when the other side's port answers; over real TCP, on loopback."""

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import twinlink
from tests.core.pair import Outlet
from twinlink.protocol.frames import Kind
from twinlink.protocol.reconnect import TIMEOUT_FACTORS, ProbeResult
from twinlink.runtime.driver import SessionDriver
from twinlink.runtime.port_probe import INTERVAL_S, MAX_ATTEMPTS, MIN_SILENCE_S, PortProbe
from twinlink.runtime.receive_loop import ReceiveLoop
from twinlink.testing import free_endpoint, patience, wait_until
from twinlink.transport_options import TransportName
from twinlink.transports import Endpoint

STEP_S = 0.05


@pytest.fixture
def endpoint() -> Endpoint:
    return Endpoint.parse(free_endpoint())


@pytest.fixture
def port_probe(endpoint: Endpoint) -> Iterator[PortProbe]:
    port_probe = PortProbe(endpoint)
    yield port_probe
    port_probe.cancel()


def listen(endpoint: Endpoint, backlog: int = 128) -> socket.socket:
    return socket.create_server((endpoint.host, endpoint.port), backlog=backlog)


def until(done: Callable[[], object], turn: Callable[[], object] = lambda: None) -> None:
    deadline = time.monotonic() + patience()
    while not done():
        assert time.monotonic() < deadline
        turn()


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def silence(port_probe: PortProbe) -> None:
    """Search until the port has not answered for a while."""
    until(lambda: port_probe.probe(STEP_S) is None and not port_probe.reachable)
    since = time.monotonic()
    until(lambda: port_probe.probe(STEP_S) is None and time.monotonic() - since > MIN_SILENCE_S)


def test_a_port_that_answers_from_the_first_is_no_news(port_probe: PortProbe, endpoint: Endpoint) -> None:
    """The transport's own attempt is not to be disturbed; but how long the path is tells what patience it needs."""
    with listen(endpoint):
        answers: list[ProbeResult | None] = []
        begun_ns = time.monotonic_ns()
        until(lambda: any(answers), lambda: answers.append(port_probe.probe(STEP_S)))
        assert port_probe.reachable
        assert [answer.newly_reachable for answer in answers if answer] == [False]
        assert answers[-1] is not None
        assert 0 < answers[-1].rtt_ns < time.monotonic_ns() - begun_ns


def test_a_port_that_begins_to_answer_is_told_of_once(port_probe: PortProbe, endpoint: Endpoint) -> None:
    silence(port_probe)
    with listen(endpoint):
        until(lambda: (answer := port_probe.probe(STEP_S)) is not None and answer.newly_reachable)
        assert port_probe.reachable
        assert all(port_probe.probe(STEP_S) is None for _ in range(100))
    silence(port_probe)  # and is seen to fall silent again


def test_a_silence_of_a_moment_is_a_packet_that_was_lost(port_probe: PortProbe, endpoint: Endpoint) -> None:
    until(lambda: port_probe.probe(STEP_S) is None and not port_probe.reachable)
    port_probe._silent_since_s = time.monotonic() + patience()  # the silence is young, however slow the machine
    with listen(endpoint):
        answers: list[ProbeResult | None] = []
        until(lambda: any(answers), lambda: answers.append(port_probe.probe(STEP_S)))
    assert [answer.newly_reachable for answer in answers if answer] == [False]


def test_attempts_that_nobody_answers_are_many_in_turn_and_few_at_a_time(
    port_probe: PortProbe, endpoint: Endpoint
) -> None:
    """A listener that has no room for another connection drops the first packet, as a partition does."""
    with ExitStack() as held, listen(endpoint, backlog=0) as listener:
        for _ in range(4):
            one = held.enter_context(socket.socket())
            one.setblocking(False)
            one.connect_ex((endpoint.host, endpoint.port))
        before = descriptors()
        silence(port_probe)
        begun = time.monotonic()
        searches = 0
        while time.monotonic() - begun < 20 * INTERVAL_S:
            assert port_probe.probe(STEP_S) is None
            assert descriptors() <= before + MAX_ATTEMPTS
            searches += 1
        assert searches <= 40  # it waits in between
        listener.settimeout(patience())
        for _ in range(4):
            held.enter_context(listener.accept()[0])
        until(lambda: port_probe.probe(STEP_S) is not None)
        assert descriptors() == before + 4  # accepted; no attempt is left


def test_a_host_is_asked_for_by_name() -> None:
    endpoint = Endpoint("localhost", Endpoint.parse(free_endpoint()).port)
    port_probe = PortProbe(endpoint)
    silence(port_probe)
    with listen(Endpoint("127.0.0.1", endpoint.port)):
        until(lambda: port_probe.probe(STEP_S) is not None)


def test_where_no_connection_can_be_begun_nothing_answers(endpoint: Endpoint) -> None:
    port_probe = PortProbe(Endpoint("[fe80::1%nowhere]", endpoint.port))
    before = descriptors()
    silence(port_probe)
    assert descriptors() <= before  # what earlier tests left may have been given back meanwhile


def test_the_transport_is_told_to_connect_and_hello_is_said(
    driver: SessionDriver, transport: Outlet, port_probe: PortProbe, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("twinlink.runtime.receive_loop.FAST_HELLO_NS", int(patience() * 1e9))
    receive_loop = ReceiveLoop(transport, driver, port_probe)

    def turn() -> None:
        receive_loop.run_once(STEP_S)

    until(lambda: not port_probe.reachable, turn)
    since = time.monotonic()
    until(lambda: time.monotonic() - since > MIN_SILENCE_S, turn)
    assert not transport.reached_with
    hellos = len(transport.sent)
    with listen(endpoint):
        until(lambda: transport.reached_with, turn)
        until(lambda: len(transport.sent) > hellos, turn)
    assert len(transport.reached_with) == 1
    assert transport.reached_with[0] in TIMEOUT_FACTORS
    assert {frame[3] for _, frame in transport.sent[hellos:]} == {Kind.HELLO}


@pytest.mark.parametrize("transport_name", ["zeromq", "zenoh"])
def test_who_connects_leaves_no_attempt_open(transport_name: TransportName) -> None:
    """The listener comes late; once it is met, only the transport's connections are there."""
    where = free_endpoint()
    with twinlink.open(transport_name, connect=where) as connector:
        port_probe = connector._port_probe
        assert port_probe is not None
        wait_until(lambda: not port_probe.reachable)
        with twinlink.open(transport_name, listen=where) as listener:
            for link in (connector, listener):
                link.wait_ready(patience())
            assert listener._port_probe is None
            wait_until(lambda: not port_probe._attempts)
