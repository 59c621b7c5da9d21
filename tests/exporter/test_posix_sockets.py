"""The dApp's POSIX sockets against a RAN of plain sockets, which does what agents do that are slow, old or broken."""

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from dataclasses import replace
from pathlib import Path

import pytest
import twinlink_e3 as e3
from twinlink_e3 import posix_address
from twinlink_exporter import posix_sockets
from twinlink_exporter.posix_sockets import PosixSockets

from twinlink.testing import patience, wait_until


@pytest.fixture
def posix(endpoints: e3.Endpoints) -> e3.Endpoints:
    return replace(endpoints, link="posix")


@pytest.fixture
def sockets(posix: e3.Endpoints) -> Iterator[PosixSockets]:
    opened = PosixSockets(posix)
    yield opened
    opened.close()


@pytest.fixture
def listen() -> Iterator[Callable[[str], socket.socket]]:
    with ExitStack() as stack:

        def bind(endpoint: str) -> socket.socket:
            listener = stack.enter_context(socket.socket(socket.AF_UNIX))
            listener.bind(endpoint.removeprefix("ipc://"))
            listener.listen()
            listener.settimeout(patience())
            return listener

        yield bind


def until(sockets: PosixSockets, condition: Callable[[], object]) -> bool:
    """Turns of the exporter's loop until the condition holds; returns whether a connection was lost meanwhile."""
    lost = False

    def turn() -> object:
        nonlocal lost
        if sockets.poller.poll(0) or (now_ns := time.monotonic_ns()) >= sockets.next_tick_ns(now_ns):
            lost = sockets.tick(time.monotonic_ns()) or lost
        return condition()

    wait_until(turn)
    return lost


def test_a_burst_comes_out_whole_and_says_so(
    sockets: PosixSockets, posix: e3.Endpoints, listen: Callable[[str], socket.socket]
) -> None:
    to_dapp, from_dapp = listen(posix.to_dapp), listen(posix.from_dapp)
    until(sockets, lambda: sockets.connected)
    ran, _ = to_dapp.accept()
    with ran:
        ran.sendall(b"".join(e3.frame(bytes((number,))) for number in range(200)) + e3.frame(b"late")[:6])
        until(sockets, lambda: sockets.receive() == b"\0")
        assert sockets.has_more  # the kernel has no more, so that `poller` is silent
        assert [sockets.receive() for _ in range(199)] == [bytes((number,)) for number in range(1, 200)]
        assert not sockets.has_more
        assert sockets.receive() is None
        ran.sendall(b"te")
        until(sockets, lambda: sockets.receive() == b"late")
    until(sockets, lambda: sockets.receive() is None and not sockets.connected)
    assert sockets.tick(time.monotonic_ns())
    from_dapp.close()


def test_what_the_ran_sent_before_it_was_gone_is_read(
    sockets: PosixSockets, posix: e3.Endpoints, listen: Callable[[str], socket.socket]
) -> None:
    to_dapp, from_dapp = listen(posix.to_dapp), listen(posix.from_dapp)
    until(sockets, lambda: sockets.connected)
    ran, receiving = to_dapp.accept()[0], from_dapp.accept()[0]
    with ran, receiving:
        ran.sendall(e3.frame(b"first") + e3.frame(b"last"))
    assert until(sockets, lambda: not sockets.connected)  # by the end of the other connection
    assert sockets.has_more
    assert [sockets.receive(), sockets.receive(), sockets.receive()] == [b"first", b"last", None]


def test_a_connection_is_kept_while_the_other_is_refused(
    sockets: PosixSockets, posix: e3.Endpoints, listen: Callable[[str], socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An agent of libe3 up to 0.0.7 accepts each only once."""
    monkeypatch.setattr(posix_sockets, "RECONNECT_NS", 1_000_000)
    to_dapp = listen(posix.to_dapp)
    until(sockets, lambda: sockets.from_ran is not None)
    end_s = time.monotonic() + 0.1
    until(sockets, lambda: time.monotonic() > end_s)
    assert not sockets.connected
    from_dapp = listen(posix.from_dapp)
    until(sockets, lambda: sockets.connected)
    to_dapp.accept()[0].close()
    from_dapp.accept()[0].close()
    to_dapp.settimeout(0)
    with pytest.raises(BlockingIOError):
        to_dapp.accept()


def test_a_ran_that_reads_nothing_is_given_up(
    sockets: PosixSockets, posix: e3.Endpoints, listen: Callable[[str], socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(posix_sockets, "STALLED_NS", 100_000_000)
    _, from_dapp = listen(posix.to_dapp), listen(posix.from_dapp)
    until(sockets, lambda: sockets.connected)
    ran, _ = from_dapp.accept()
    with ran:
        sockets.send(b"first")
        sockets.send(b"second")
        assert until(sockets, lambda: not sockets.can_send)
        assert ran.recv(100) == b"first"  # the second waited until this was read


def test_pdus_over_tcp_leave_soon_and_apart(tcp_endpoints: e3.Endpoints, monkeypatch: pytest.MonkeyPatch) -> None:
    """What one read of the RAN returns is one PDU to it."""
    monkeypatch.setattr(posix_sockets, "FILE_CHECK_NS", 3600 * 10**9)  # no other reason to tick
    endpoints = replace(tcp_endpoints, link="posix")
    with ExitStack() as stack:
        listeners = []
        for endpoint in (endpoints.to_dapp, endpoints.from_dapp):
            listeners.append(stack.enter_context(socket.create_server(posix_address(endpoint)[1])))
            listeners[-1].settimeout(patience())
        sockets = stack.enter_context(closing(PosixSockets(endpoints)))
        until(sockets, lambda: sockets.connected)
        ran = stack.enter_context(listeners[1].accept()[0])
        begun_s = time.monotonic()
        for number in range(3):
            sockets.send(bytes((number,)) * 9)
        ran.setblocking(False)
        read: list[bytes] = []

        def take() -> bool:
            with suppress(BlockingIOError):
                read.append(ran.recv(100))
            return len(read) == 3

        until(sockets, take)
        assert read == [bytes((number,)) * 9 for number in range(3)]
        assert time.monotonic() - begun_s >= 2 * posix_sockets.TCP_GAP_NS / 1e9


def test_the_setup_request_waits_for_the_agent_and_is_sent_once(
    sockets: PosixSockets, posix: e3.Endpoints, listen: Callable[[str], socket.socket]
) -> None:
    sockets.send_setup(b"request")
    assert sockets.receive_setup() is None
    setup = listen(posix.setup)
    until(sockets, lambda: sockets._request is None)
    agent, _ = setup.accept()
    with agent:
        assert agent.recv(100) == b"request"
        for octet in e3.frame(b"reply")[:-1]:
            agent.send(bytes((octet,)))
            assert sockets.receive_setup() is None
        agent.send(b"y")
        replies: list[bytes | None] = []
        until(sockets, lambda: replies.append(sockets.receive_setup()) or replies[-1])  # type: ignore[func-returns-value]
        assert replies[-1] == b"reply"
        assert agent.recv(100) == b""


def test_a_socket_file_that_is_no_socket_is_waited_for(sockets: PosixSockets, posix: e3.Endpoints) -> None:
    Path(posix.setup.removeprefix("ipc://")).write_text("")
    sockets.send_setup(b"request")
    assert not until(sockets, lambda: sockets.receive_setup() is None)
