"""Something that is not twinlink answers at the listener's port."""

import contextlib
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest

import twinlink
from twinlink.testing import patience, wait_until
from twinlink.transport_options import TransportName

CONNECTS = """
import sys, twinlink
with twinlink.open("zeromq", connect=sys.argv[1]) as link:
    try:
        link.wait_ready(2)
    except twinlink.PeerTimeout:
        print("nobody")
"""


@contextlib.contextmanager
def answering(endpoint: str, answer: bytes) -> Iterator[list[socket.socket]]:
    """Both ports of an endpoint, which give this answer; the connections that were made."""
    first = int(endpoint.rpartition(":")[2])
    held: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", first)) as one, socket.create_server(("127.0.0.1", first + 1)) as other:

        def serve(server: socket.socket) -> None:
            while True:
                try:
                    connection, _ = server.accept()
                    held.append(connection)
                    connection.sendall(answer)
                    connection.recv(64)
                    connection.shutdown(socket.SHUT_WR)
                except OSError:
                    return

        for server in (one, other):
            threading.Thread(target=serve, args=(server,), daemon=True).start()
        yield held
        for server in (one, other):
            server.shutdown(socket.SHUT_RDWR)
    for connection in held:
        connection.close()


ANSWERS = [b"\x01\x00", b"HTTP/1.1 400 Bad Request\r\n" + b"x" * 200]


@pytest.mark.parametrize("answer", ANSWERS)
def test_a_connector_outlives_what_answers_in_another_language(answer: bytes, endpoint: str) -> None:
    with answering(endpoint, answer):
        command = [sys.executable, "-c", CONNECTS, endpoint]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=patience(), check=False)
    assert (done.returncode, done.stdout) == (0, "nobody\n")


@pytest.mark.parametrize("transport", ["zeromq", "zenoh"])
@pytest.mark.parametrize("answer", ANSWERS)
def test_a_connector_meets_its_peer_again_though_another_program_was_at_the_port_meanwhile(
    transport: TransportName, answer: bytes, endpoint: str
) -> None:
    with twinlink.open(transport, connect=endpoint, node="near") as near:
        with twinlink.open(transport, listen=endpoint, node="far"):
            near.wait_ready(patience())
            time.sleep(0.5)  # until the way to connect is known to work, and kept for two minutes
        wait_until(lambda: not near.peers())
        with answering(endpoint, answer) as connections:
            wait_until(lambda: len(connections) >= {"zeromq": 2, "zenoh": 1}[transport])
            time.sleep(0.5)
        with twinlink.open(transport, listen=endpoint, node="far"):
            near.wait_ready(patience())
