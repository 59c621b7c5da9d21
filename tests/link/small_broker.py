"""A broker of MQTT 5 for a handful of clients, which says in its answers what a test wants, and holds them to it."""

import contextlib
import socket
import struct
import threading
from dataclasses import dataclass, field

from twinlink.transports import Endpoint

CONNECT, CONNACK, PUBLISH, PUBACK, PUBREC, PUBREL, PUBCOMP = 1, 2, 3, 4, 5, 6, 7  # MQTT 5.0 section 2.1.2
SUBSCRIBE, SUBACK, UNSUBSCRIBE, UNSUBACK, PINGREQ, PINGRESP, DISCONNECT = 8, 9, 10, 11, 12, 13, 14
QOS_NOT_SUPPORTED = 0x9B


@dataclass
class SmallBroker:
    """It forwards each message to all other clients.

    Attributes:
        properties: of its CONNACK, encoded.
        connack: its reason code.
        granted: the reason code for each filter; at most the QoS that was asked for.
        most_qos: it ends the connection of a client that publishes with a higher one.
        ends_after_connack: a reason code of a DISCONNECT that follows at once.
        connections: how many it has accepted.
        pings: how many it has answered.
        highest_qos: of the messages that came.
    """

    properties: bytes = b""
    connack: int = 0
    granted: int | None = None
    most_qos: int = 2
    ends_after_connack: int | None = None
    connections: int = 0
    pings: int = 0
    highest_qos: int = 0
    _clients: list[socket.socket] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.endpoint = Endpoint("127.0.0.1", self._listening.getsockname()[1])
        self._lock = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """End it and all connections."""
        for one in [self._listening, *self._clients]:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def __enter__(self) -> "SmallBroker":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client = self._listening.accept()[0]
                client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self.connections += 1
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError, IndexError, struct.error), client.makefile("rb") as packets:
            while first := packets.read(1):
                left, shift, octet = 0, 0, 0x80
                while octet & 0x80:
                    octet = packets.read(1)[0]
                    left |= (octet & 0x7F) << shift
                    shift += 7
                if not self._answer(client, first[0], packets.read(left)):
                    break
        with self._lock:
            if client in self._clients:
                self._clients.remove(client)
        with contextlib.suppress(OSError):
            client.shutdown(socket.SHUT_RDWR)

    def _answer(self, client: socket.socket, first: int, body: bytes) -> bool:
        """Whether the connection goes on."""
        kind = first >> 4
        if kind == CONNECT:
            self._send(client, CONNACK << 4, bytes((0, self.connack, len(self.properties))) + self.properties)
            if self.ends_after_connack is not None:
                self._send(client, DISCONNECT << 4, bytes((self.ends_after_connack, 0)))
                return False
            return self.connack == 0
        if kind == SUBSCRIBE:
            codes = bytes(min(asked, 2) if self.granted is None else self.granted for asked in _asked(body))
            self._send(client, SUBACK << 4, body[:2] + b"\0" + codes)
            with self._lock:
                self._clients.append(client)
        elif kind == UNSUBSCRIBE:
            self._send(client, UNSUBACK << 4, body[:2] + b"\0\0\0")
        elif kind == PINGREQ:
            self.pings += 1
            self._send(client, PINGRESP << 4, b"")
        elif kind == PUBLISH:
            return self._forward(client, (first >> 1) & 3, body)
        elif kind == PUBREL:
            self._send(client, PUBCOMP << 4, body[:2])
        return kind != DISCONNECT

    def _forward(self, client: socket.socket, qos: int, body: bytes) -> bool:
        self.highest_qos = max(self.highest_qos, qos)
        if qos > self.most_qos:
            self._send(client, DISCONNECT << 4, bytes((QOS_NOT_SUPPORTED, 0)))
            return False
        topic = 2 + int.from_bytes(body[:2])
        if qos:
            self._send(client, (PUBACK if qos == 1 else PUBREC) << 4, body[topic : topic + 2])
            body = body[:topic] + body[topic + 2 :]
        with self._lock:
            others = [one for one in self._clients if one is not client]
        for one in others:
            with contextlib.suppress(OSError):
                self._send(one, PUBLISH << 4, body)
        return True

    def _send(self, client: socket.socket, first: int, body: bytes) -> None:
        length, left = b"", len(body)
        while left or not length:
            left, octet = divmod(left, 128)
            length += bytes([octet | (0x80 if left else 0)])
        with self._lock:
            client.sendall(bytes([first]) + length + body)


def _asked(body: bytes) -> list[int]:
    """The QoS that a SUBSCRIBE without properties asks for, for each filter."""
    asked, at = [], 3
    while at < len(body):
        at += 2 + int.from_bytes(body[at : at + 2])
        asked.append(body[at] & 3)
        at += 1
    return asked
