"""A program on the path between two nodes: what it can read, and what comes of what it changes."""

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import twinlink
from tests.identity.nodes import make_pair, needs_mosquitto
from twinlink.testing import free_endpoint, patience, wait_until
from twinlink.transport_options import TransportName

CANARY = b"a canary that no program on the path may see"
PORTS = 2


class Relay:
    """Relays the connections of a link between two endpoints, records the octets, and may change them."""

    def __init__(self, listener: str) -> None:
        self.endpoint = free_endpoint(PORTS)
        self.seen = bytearray()
        self.change: Callable[[bytes], bytes] = bytes
        self._servers = []
        for number in range(PORTS):
            server = socket.create_server(("127.0.0.1", int(self.endpoint.rsplit(":", 1)[1]) + number))
            self._servers.append(server)
            far = int(listener.rsplit(":", 1)[1]) + number
            threading.Thread(target=self._accept, args=(server, far), daemon=True).start()

    def _accept(self, server: socket.socket, far: int) -> None:
        with contextlib.suppress(OSError):
            while True:
                near = server.accept()[0]
                try:
                    there = socket.create_connection(("127.0.0.1", far))
                except OSError:
                    near.close()
                    continue
                for source, sink in ((near, there), (there, near)):
                    threading.Thread(target=self._carry, args=(source, sink), daemon=True).start()

    def _carry(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while octets := source.recv(64 * 1024):
                self.seen += octets
                sink.sendall(self.change(octets))
        for one in (source, sink):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        for server in self._servers:
            with contextlib.suppress(OSError):
                server.shutdown(socket.SHUT_RDWR)
            server.close()


@pytest.fixture
def relay(endpoint: str) -> Iterator[Relay]:
    made = Relay(endpoint)
    yield made
    made.close()


@pytest.mark.parametrize(
    ("transport", "secure"),
    [
        ("zeromq", False),
        ("zeromq", True),
        ("zenoh", False),
        ("zenoh", True),
        ("websocket", True),
        ("tcp", True),
        pytest.param("mqtt", True, marks=needs_mosquitto),
    ],
)
def test_what_is_sent_is_seen_only_without_identities(
    transport: TransportName, secure: bool, relay: Relay, endpoint: str, tmp_path: Path
) -> None:
    twin, gnb = (node.folder if secure else None for node in make_pair(tmp_path))
    with (
        twinlink.open(transport, listen=endpoint, identity=twin) as listener,
        twinlink.open(transport, connect=relay.endpoint, identity=gnb) as connector,
    ):
        wait_until(lambda: listener.peers() and connector.peers())
        for sending, receiving in ((listener, connector), (connector, listener)):
            receiver, sender = receiving.receiver("canary"), sending.sender("canary")
            for payload in (CANARY, CANARY * 10_000):
                sender.send(payload)
                sender.flush(patience())
                message = receiver.receive(timeout=patience())
                assert message is not None
                assert bytes(message.payload) == payload
        assert len(relay.seen) > 20_000 * len(CANARY)
        for text in (CANARY, b"traffic/canary", b'"node"'):
            assert (text in relay.seen) is not secure


def test_what_is_changed_on_the_path_does_not_count(relay: Relay, endpoint: str, tmp_path: Path) -> None:
    twin, gnb = make_pair(tmp_path)
    with (
        twinlink.open("zeromq", listen=endpoint, identity=twin.folder) as listener,
        twinlink.open("zeromq", connect=relay.endpoint, identity=gnb.folder) as connector,
    ):
        wait_until(lambda: listener.peers() and connector.peers())
        got: list[bytes] = []
        listener.receiver("up", handler=lambda message: got.append(bytes(message.payload)))
        sender, changed = connector.sender("up"), 0

        def change(octets: bytes) -> bytes:
            nonlocal changed
            if changed >= 5 or len(octets) < 1000:  # a message: hellos and handshakes are shorter
                return octets
            changed += 1
            return octets[:-1] + bytes([octets[-1] ^ 1])

        relay.change = change
        sent = [bytes([number]) * 1000 for number in range(200)]
        for payload in sent:
            sender.send(payload)
        wait_until(lambda: len(got) == len(sent))
        assert changed == 5
        assert got == sent
        assert listener.stats()["malformed"] == {}
