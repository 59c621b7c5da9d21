"""What a connection guard takes for unread, on TCP connections without a driver."""

import socket
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress

import pytest

from twinlink.testing.base import patience
from twinlink.transports.connection_guard import PublisherGuard
from twinlink.transports.tcp_connection import TcpConnection

CHUNK = 64 * 1024
LIMIT = 2 * CHUNK


@pytest.fixture
def connection() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Both ends."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as sends:
        receives, _ = server.accept()
        with receives:
            receives.settimeout(patience())
            yield sends, receives


def taken_in(sends: socket.socket, receives: socket.socket, chunks: int) -> None:
    """The driver receives so many chunks."""
    for _ in range(chunks):
        sends.sendall(bytes(CHUNK))
        left = CHUNK
        while left:
            left -= len(receives.recv(left))


@pytest.mark.parametrize("drained", [False, True])
@pytest.mark.parametrize(("read", "ends"), [(10, False), (9, False), (7, True), (0, True)])
def test_what_was_read_is_not_taken_for_unread(
    read: int, ends: bool, drained: bool, connection: tuple[socket.socket, socket.socket]
) -> None:
    """Much may pass between two checks on a busy machine."""
    ended: Counter[str] = Counter()
    guard = PublisherGuard("here", 10, 10, ended, unread_octets=LIMIT)
    guard.opened(connection[1].fileno(), 0.0)
    taken_in(*connection, 10)
    guard.check(0.2, (read * CHUNK, read), drained)
    assert bool(ended) is ends


def test_what_was_received_before_everything_was_read_is_not_taken_for_unread(
    connection: tuple[socket.socket, socket.socket],
) -> None:
    """A driver's framing takes octets that no transport reads: they add up only until then."""
    ended: Counter[str] = Counter()
    guard = PublisherGuard("here", 10, 10, ended, unread_octets=LIMIT)
    guard.opened(connection[1].fileno(), 0.0)
    for number in range(1, 10):
        taken_in(*connection, 1)
        guard.check(number * 0.05, (0, 0), drained=True)
    assert not ended
    for number in range(10, 12):
        taken_in(*connection, 1)
        guard.check(number * 0.05, (0, 0), drained=False)
    assert ended == {"unread_octets": 1}


def test_what_waits_in_the_kernel_counts_as_written_and_not_as_received(
    connection: tuple[socket.socket, socket.socket],
) -> None:
    sends, receives = connection
    sending, receiving = (TcpConnection(one.fileno()) for one in connection)
    written, sent = sending.counters().written, 0
    sends.setblocking(False)
    with suppress(BlockingIOError):
        while True:
            sent += sends.send(bytes(CHUNK))
    full = sending.counters()
    assert (full.written - written, full.filled, receiving.counters().received) == (sent, True, 0)
    left = sent
    while left:
        left -= len(receives.recv(CHUNK))
    until = time.monotonic() + patience()
    while sending.counters().filled and time.monotonic() < until:  # the last acks of TCP are on their way
        time.sleep(0.01)
    empty = sending.counters()
    assert (empty.written - written, empty.filled, receiving.counters().received) == (sent, False, sent)
