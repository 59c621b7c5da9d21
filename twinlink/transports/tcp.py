"""TCP: a topic and a frame behind their length, on one connection for each connector.

For two sides that have this library, and a path that passes TCP.  Over WebSocket the same messages pass HTTP proxies,
and a browser reads them; there a connector masks what it sends, which costs both sides a pass over each message.
"""

import socket

from .stream import StreamTransport
from .stream_connection import ADDED_OCTETS, StreamConnection
from .stream_dialer import Dialer
from .tcp_stream import TcpStream, encode

OTHER_PROTOCOL = "what listens there does not speak twinlink over TCP: open both sides with the same transport"
NO_ANSWER = "TCP connects, but what listens there does not answer: it may speak another protocol"


class TcpDialer(Dialer):
    """As `Dialer`."""

    def _connection(self, opened: socket.socket, now: float) -> StreamConnection:
        return TcpStream(
            opened,
            self._options.unsent_octets,
            self._buffers,
            now,
            is_listeners=False,
            most=self._max_frame + ADDED_OCTETS,
            epoch=self._epoch,
        )

    def _refusal(self, connection: StreamConnection) -> str:
        if not connection.begins:
            return "what listens there ends the connection without an answer: it may speak another protocol"
        return "the listener refuses the key of this node" if connection.is_forbidden else OTHER_PROTOCOL

    def _silence(self, connection: StreamConnection) -> str:
        return OTHER_PROTOCOL if connection.begins else NO_ANSWER


class TcpTransport(StreamTransport):
    """As `StreamTransport`."""

    name = "tcp"
    dialer_class = TcpDialer

    encode = staticmethod(encode)

    def _accepted(self, opened: socket.socket, now: float) -> StreamConnection:
        most = self.max_frame + ADDED_OCTETS
        return TcpStream(opened, self.options.unsent_octets, self._buffers, now, is_listeners=True, most=most)
