"""A listening socket with the filter: what it accepts, and what an accepted socket gets."""

import socket
import struct
import time
from collections.abc import Iterator

import pytest

from twinlink.testing import patience
from twinlink.transports import accept_filter

SHORT_S = 0.2


@pytest.fixture(params=["127.0.0.1", "::1"])
def server(request: pytest.FixtureRequest) -> Iterator[socket.socket]:
    family = socket.AF_INET6 if ":" in request.param else socket.AF_INET
    with socket.create_server((request.param, 0), family=family, backlog=8) as listening:
        host, port = listening.getsockname()[:2]
        accept_filter.attach([f"tcp/[{host}]:{port}" if ":" in host else f"tcp/{host}:{port}"])
        yield listening


def connect(server: socket.socket) -> socket.socket:
    return socket.create_connection(server.getsockname()[:2], patience())


def accepts_nothing(server: socket.socket) -> bool:
    server.settimeout(SHORT_S)
    try:
        server.accept()[0].close()
    except TimeoutError:
        return True
    return False


def test_what_sends_nothing_is_not_accepted(server: socket.socket) -> None:
    """Also when more are idle than the kernel queues."""
    idle = [connect(server) for _ in range(20)]
    assert accepts_nothing(server)
    for one in idle:
        one.close()


def test_what_is_refused_can_close_its_socket_at_once(server: socket.socket) -> None:
    """Zenoh's sockets have SO_LINGER: the thread that closes one waits until the other side has acknowledged it."""
    server.settimeout(patience())
    for _ in range(3):
        one = connect(server)
        one.sendall(b"first")
        accepted, _ = server.accept()
        accepted.recv(5)
        accepted.close()
        one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, int(patience())))
        before = time.monotonic()
        one.close()
        assert time.monotonic() - before < patience() / 2


def test_what_sends_is_accepted_amid_idle_ones_also_when_it_sends_late(server: socket.socket) -> None:
    idle = [connect(server) for _ in range(20)]
    late = connect(server)
    assert accepts_nothing(server)
    late.sendall(b"late")
    server.settimeout(patience())
    accepted, _ = server.accept()
    with accepted:
        accept_filter.detach(accepted.fileno())
        accepted.settimeout(patience())
        assert accepted.recv(4) == b"late"
        accepted.sendall(b"answer")
        assert late.recv(6) == b"answer"
        late.close()
        assert not accepted.recv(1)
    for one in idle:
        one.close()


def test_only_the_socket_that_listens_there_has_it(server: socket.socket) -> None:
    with socket.create_server(("127.0.0.2", server.getsockname()[1])) as other, connect(other), other.accept()[0]:
        pass
