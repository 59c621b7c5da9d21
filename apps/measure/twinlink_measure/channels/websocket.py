"""WebSocket (RFC 6455): a frame is a binary message of `websockets`' threading interface."""

import contextlib
import socket
import struct
import subprocess
import sys
import threading
from typing import Any

from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect
from websockets.sync.connection import Connection
from websockets.sync.server import Server, ServerConnection, serve

from twinlink.process.guarded_thread import GuardedThread
from twinlink.process.ip_address import family_of

from .base import MAX_FRAME, TICK_S, PeerLost, RawChannel

SEND_S = 5.0  # a peer that takes nothing for this long is lost
CLOSE_S = 0.5
# No compression, as the payloads are zeros; no pings; not the default limit of 1 MiB, as payloads go to 16 MiB.
SETTINGS: dict[str, Any] = {
    "compression": None,
    "max_size": MAX_FRAME,
    "ping_interval": None,
    "close_timeout": CLOSE_S,
}


class WebsocketChannel(RawChannel):
    """The listening side has the server; frames are exchanged with its newest connection.

    Options: ``no_delay`` (TCP_NODELAY).
    """

    _connection: Connection | None = None
    _server: Server | None = None

    def open(self) -> None:
        """Listen, or connect.  Raises OSError."""
        self._made = threading.Event()
        self._connected = contextlib.ExitStack()
        if not self.listening:
            self._connect()
            return
        host = self.endpoint.host.strip("[]")
        # The library takes every host for one of IPv4, unless it is given the socket.
        listening = socket.create_server((host, self.endpoint.port), family=family_of(host))
        self._server = serve(self._serve, sock=listening, **SETTINGS)
        self._serving = GuardedThread(self._server.serve_forever, "raw-websocket")
        self._serving.start()

    def _connect(self) -> None:
        address = f"ws://{self.endpoint.host}:{self.endpoint.port}"
        self._take(self._connected.enter_context(connect(address, proxy=None, **SETTINGS)))

    def _serve(self, connection: ServerConnection) -> None:
        """Keep a connection until it is closed, on a thread of the library."""
        self._take(connection)
        connection.wait_closed()

    def _take(self, connection: Connection) -> None:
        opened = connection.socket
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, int(self.options["no_delay"]))
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", int(SEND_S), 0))
        self._connection = connection
        self._made.set()

    def settings(self) -> dict[str, Any]:
        """The options, and what the library's defaults are not."""
        return {**self.options, "compression": None, "pings": False}

    def put(self, topic: bytes, frame: bytes | bytearray) -> None:
        """Send the frame; without a connection it is lost.  Raises PeerLost."""
        if self._connection is not None:
            try:
                self._connection.send(frame)
            except ConnectionClosed as error:
                raise PeerLost(f"the WebSocket connection ended: {error}") from error

    def get(self, wait: bool = True) -> Any:
        """The next message.  Raises PeerLost."""
        if self._connection is None:
            self._made.wait(TICK_S)
            return None
        try:
            return self._connection.recv(TICK_S if wait else 0, decode=False)
        except TimeoutError:
            return None
        except ConnectionClosed as error:
            raise PeerLost(f"the WebSocket connection ended: {error}") from error

    def close(self) -> None:
        """Close the connection, and end the server."""
        with contextlib.suppress(ConnectionClosed, OSError):
            self._connected.close()
        if self._server is not None:
            self._server.shutdown()
            self._serving.join()


class HubChannel(WebsocketChannel):
    """Both sides are clients of the hub (`hub.py`), a process that the listening side starts."""

    _hub: "subprocess.Popen[bytes] | None" = None

    def open(self) -> None:
        """Start the hub, and connect to it.  Raises OSError."""
        self._made = threading.Event()
        self._connected = contextlib.ExitStack()
        if self.listening:
            self._hub = subprocess.Popen(
                [sys.executable, "-m", f"{__package__}.hub", self.endpoint.host.strip("[]"), str(self.endpoint.port)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True,
            )  # fmt: skip
            self.broker_pid = self._hub.pid
            assert self._hub.stdout is not None
            if not self._hub.stdout.readline():
                raise OSError(f"the WebSocket hub cannot listen at {self.endpoint}: its error is on stderr")
        self._connect()

    def close(self) -> None:
        """Close the connection, and end the hub."""
        super().close()
        if self._hub is not None:
            assert self._hub.stdin is not None
            assert self._hub.stdout is not None
            self._hub.stdin.close()
            self._hub.wait()
            self._hub.stdout.close()
