"""Connects to a WebSocket listener, perhaps through a proxy."""

import select
import socket
import time
from typing import Any

from websockets.client import ClientProtocol
from websockets.uri import parse_uri

from ..process.ip_address import bracketed
from . import websocket_advice, websocket_proxy
from .stream_connection import ADDED_OCTETS, StreamConnection
from .stream_dialer import HANDSHAKE_S, Dialer, Interrupted
from .websocket_connection import SUBPROTOCOL, WebsocketConnection, quiet
from .websocket_options import WebsocketOptions


class WebsocketDialer(Dialer):
    """As `Dialer`."""

    _options: WebsocketOptions

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        query = "" if self._epoch is None else f"?epoch={self._epoch:016x}"
        self._uri = parse_uri(f"{'wss' if self._secure else 'ws'}://{bracketed(self._host)}:{self._port}/{query}")

    def _open_tunnel(self, opened: socket.socket) -> None:
        if not self._options.proxy:
            return
        proxy, _ = websocket_proxy.parse(self._options.proxy)
        deadline = time.monotonic() + HANDSHAKE_S * self._patience
        opened.send(websocket_proxy.request(proxy, self._host, self._port))
        answer = b""
        while websocket_proxy.END not in answer and len(answer) < websocket_proxy.ANSWER_OCTETS:
            try:
                self._await(opened, select.POLLIN, deadline)
            except (TimeoutError, Interrupted):
                self.failure = "the proxy does not answer: check the address in the option proxy"
                raise
            if not (octets := opened.recv(4096)):
                break
            answer += octets
        if failure := websocket_proxy.refusal(answer, f"{self._host}:{self._port}"):
            self.failure = failure
            raise ConnectionError(failure)

    def _connection(self, opened: socket.socket, now: float) -> StreamConnection:
        protocol = ClientProtocol(
            self._uri, subprotocols=[SUBPROTOCOL], max_size=self._max_frame + ADDED_OCTETS, logger=quiet
        )
        return WebsocketConnection(opened, protocol, self._options.unsent_octets, self._buffers, now)

    def _refusal(self, connection: StreamConnection) -> str:
        assert isinstance(connection, WebsocketConnection)
        return websocket_advice.refusal(connection)

    def _silence(self, connection: StreamConnection) -> str:
        return websocket_advice.silence(connection.begins)
