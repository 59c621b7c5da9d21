"""WebSocket (RFC 6455): a binary message is a topic and a frame, on one TCP connection for each connector.

It passes HTTP proxies and the Routes of OpenShift, and a browser can read it (docs/protocol.md).
"""

import logging
import socket
from collections.abc import Sequence

from websockets.exceptions import InvalidOrigin
from websockets.server import ServerProtocol
from websockets.typing import Origin

from ..protocol.frames import MessageFrame
from . import websocket_pages, websocket_proxy
from .base import Endpoint, Frame
from .stream import StreamTransport
from .stream_connection import ADDED_OCTETS, StreamConnection
from .websocket_connection import SUBPROTOCOL, WebsocketConnection, encode, quiet
from .websocket_dialer import WebsocketDialer
from .websocket_options import WebsocketOptions

REPORTED_ORIGINS = 16

logger = logging.getLogger("twinlink")


class WebsocketTransport(StreamTransport):
    """websockets >= 17."""

    name = "websocket"
    dialer_class = WebsocketDialer
    options_class = WebsocketOptions
    options: WebsocketOptions

    def __init__(self, endpoint: Endpoint, listening: bool, max_frame: int, options: WebsocketOptions) -> None:
        super().__init__(endpoint, listening, max_frame, options)
        if options.proxy:
            self.via = websocket_proxy.parse(options.proxy)[1]
            self.scouts = False  # a proxy that answers proves nothing about the listener
        self.admits_only_trusted |= listening and bool(options.token)
        # A browser lets any page connect anywhere, and says from where the page is (RFC 6455 section 10.2); other
        # programs say nothing.
        names = [Origin(name.strip()) for name in options.origins.split(",") if name.strip()]
        self._origins = None if "*" in names else [None, *names]
        if self._tls is not None:
            self._tls.set_alpn_protocols(["http/1.1"])  # a proxy would otherwise choose HTTP/2
        self._reported_origins: set[str] = set()
        self._pages = websocket_pages.read(options.pages) if listening and options.pages else {}

    def encode(self, topic: bytes, frame: MessageFrame) -> Sequence[Frame]:
        return encode(topic, frame, mask=not self.listening)

    def _accepted(self, opened: socket.socket, now: float) -> StreamConnection:
        protocol = ServerProtocol(
            origins=self._origins,
            subprotocols=[SUBPROTOCOL],
            max_size=self.max_frame + ADDED_OCTETS,
            logger=quiet,
        )
        connection = WebsocketConnection(opened, protocol, self.options.unsent_octets, self._buffers, now)
        connection.pages, connection.token = self._pages, self.options.token
        return connection

    def _is_refused(self, connection: StreamConnection) -> bool:
        assert isinstance(connection, WebsocketConnection)
        error = connection.protocol.handshake_exc
        if not isinstance(error, InvalidOrigin):
            return False
        self.limits_exceeded["origins"] += 1
        origin = error.value or ""
        if origin not in self._reported_origins and len(self._reported_origins) < REPORTED_ORIGINS:
            self._reported_origins.add(origin)
            logger.warning(
                "websocket %s: refused a web page of %s; if it may read and send here, add it to the option origins",
                self.endpoint, origin,
            )  # fmt: skip
        return True
