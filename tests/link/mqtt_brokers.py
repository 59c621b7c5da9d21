"""MQTT brokers with limits: mosquitto with any configuration, and a proxy before it that ends connections."""

import contextlib
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

from twinlink.testing import free_endpoint, wait_until
from twinlink.transports import Endpoint, mosquitto

PUBLISH, DISCONNECT = 0x30, 0xE0


@contextlib.contextmanager
def configured_mosquitto(directory: Path, lines: str) -> Iterator[Endpoint]:
    """A broker with a configuration that `Mosquitto` would never give it."""
    endpoint = Endpoint.parse(free_endpoint(1))
    configuration = directory / "mosquitto.conf"
    configuration.write_text(f"listener {endpoint.port} {endpoint.host}\n{lines}\n")
    binary = shutil.which("mosquitto", path=mosquitto.SBIN)
    assert binary
    command = [binary, "-c", str(configuration)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            wait_until(lambda: _accepts(endpoint))
            yield endpoint
        finally:
            process.kill()


def _accepts(endpoint: Endpoint) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((endpoint.host, endpoint.port)) == 0


class StrictBroker:
    """Ends a connection on which a PUBLISH longer than ``limit`` octets arrives; a real broker does the rest.

    Attributes:
        endpoint: where it listens.
        connections: how many it has accepted.
        longest: octets of the longest PUBLISH that it let pass.
    """

    def __init__(self, behind: Endpoint, limit: int, reason: int | None = None) -> None:
        """``reason``: the code of a DISCONNECT that it sends first; None: it sends none."""
        self.connections = self.longest = 0
        self.limit = limit
        self._behind, self._reason = behind, reason
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.endpoint = Endpoint("127.0.0.1", self._listening.getsockname()[1])
        self._open: set[socket.socket] = set()
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """End it and all connections."""
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self.cut()

    def cut(self) -> None:
        """End all connections."""
        for one in list(self._open):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client = self._listening.accept()[0]
                self.connections += 1
                server = socket.create_connection((self._behind.host, self._behind.port))
                for one in (client, server):
                    one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    self._open.add(one)
                for work in (self._check, self._pass_on):
                    threading.Thread(target=work, args=(client, server), daemon=True).start()

    def _pass_on(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while octets := server.recv(1 << 16):
                client.sendall(octets)
            client.shutdown(socket.SHUT_RDWR)

    def _check(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError, IndexError), client.makefile("rb") as packets:
            while first := packets.read(1):
                head, left, shift = first, 0, 0
                while not shift or head[-1] & 0x80:  # Remaining Length, MQTT 5.0 section 2.1.4
                    head += packets.read(1)
                    left |= (head[-1] & 0x7F) << shift
                    shift += 7
                if first[0] & 0xF0 == PUBLISH:
                    if len(head) + left > self.limit:
                        if self._reason is not None:
                            client.sendall(bytes((DISCONNECT, 2, self._reason, 0)))
                        break
                    self.longest = max(self.longest, len(head) + left)
                server.sendall(head + packets.read(left))
        for one in (client, server):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
            self._open.discard(one)
