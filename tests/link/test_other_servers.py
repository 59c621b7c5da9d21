"""Something that is not twinlink answers at the listener's port."""

import socket
import subprocess
import sys
import threading

import pytest

from twinlink.testing import patience

CONNECTS = """
import sys, twinlink
with twinlink.open("zeromq", connect=sys.argv[1]) as link:
    try:
        link.wait_ready(2)
    except twinlink.PeerTimeout:
        print("nobody")
"""


@pytest.mark.parametrize("answer", [b"\x01\x00", b"HTTP/1.1 400 Bad Request\r\n" + b"x" * 200])
def test_a_connector_outlives_what_answers_in_another_language(answer: bytes, endpoint: str) -> None:
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
        command = [sys.executable, "-c", CONNECTS, endpoint]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=patience(), check=False)
        for server in (one, other):
            server.shutdown(socket.SHUT_RDWR)
    for connection in held:
        connection.close()
    assert (done.returncode, done.stdout) == (0, "nobody\n")
