"""A client of MQTT 3.1.1 on asyncio, of which one process can hold a thousand: paho-mqtt takes a thread for each.

It connects, subscribes to one topic, publishes and receives with QoS 0 to 2.  It does not reconnect, and sends no
PINGREQ: its sessions are shorter than the keep-alive interval.
"""

import asyncio
import struct
from collections.abc import Callable
from enum import IntEnum

KEEP_ALIVE_S = 3600


class Packet(IntEnum):
    """Types of control packets (MQTT 3.1.1, section 2.2.1)."""

    CONNECT = 1
    CONNACK = 2
    PUBLISH = 3
    PUBACK = 4
    PUBREC = 5
    PUBREL = 6
    PUBCOMP = 7
    SUBSCRIBE = 8
    SUBACK = 9


class Client(asyncio.Protocol):
    """One connection.

    Args:
        name: the client identifier.
        on_message: called with each payload; with QoS 2 after PUBREL.

    Attributes:
        subscribed: set when the broker has confirmed the subscription.
    """

    def __init__(self, name: str, on_message: Callable[[bytes], None]) -> None:
        self._name = name
        self._on_message = on_message
        self._buffer = b""
        self._number = 0
        self._refused = ""  # how the broker refused the client
        self._held: dict[int, bytes] = {}  # QoS 2: payloads until PUBREL
        self.connected, self.subscribed = asyncio.Event(), asyncio.Event()

    async def open(self, host: str, port: int, topic: str, qos: int) -> None:
        """Connect and subscribe.  Raises OSError."""
        loop = asyncio.get_running_loop()
        await loop.create_connection(lambda: self, host, port)
        await self.connected.wait()
        self._check()
        self._send(Packet.SUBSCRIBE << 4 | 2, struct.pack("!H", self._next()) + _text(topic) + bytes([qos]))
        await self.subscribed.wait()
        self._check()

    def _check(self) -> None:
        if self._refused:
            raise OSError(f"the MQTT broker {self._refused}")

    def publish(self, topic: str, payload: bytes, qos: int) -> None:
        """Publish."""
        number = struct.pack("!H", self._next()) if qos else b""
        self._send(Packet.PUBLISH << 4 | qos << 1, _text(topic) + number + payload)

    def close(self) -> None:
        """Close the connection."""
        self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Of asyncio."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._send(Packet.CONNECT << 4, _text("MQTT") + struct.pack("!BBH", 4, 2, KEEP_ALIVE_S) + _text(self._name))

    def connection_lost(self, exc: Exception | None) -> None:
        """Of asyncio."""
        self._refused = self._refused or "closed the connection"
        self.connected.set()
        self.subscribed.set()

    def data_received(self, data: bytes) -> None:
        """Of asyncio."""
        self._buffer += data
        while (packet := _first(self._buffer)) is not None:
            head, body, length = packet
            self._buffer = self._buffer[length:]
            self._take(head, body)

    def _take(self, head: int, body: bytes) -> None:
        match head >> 4:
            case Packet.CONNACK:
                if body[1]:
                    self._refused = f"refused the client with return code {body[1]}"
                self.connected.set()
            case Packet.SUBACK:
                self.subscribed.set()
            case Packet.PUBLISH:
                self._published(head >> 1 & 3, body)
            case Packet.PUBREC:
                self._send(Packet.PUBREL << 4 | 2, body)
            case Packet.PUBREL:
                self._send(Packet.PUBCOMP << 4, body)
                payload = self._held.pop(int.from_bytes(body, "big"), None)
                if payload is not None:
                    self._on_message(payload)

    def _published(self, qos: int, body: bytes) -> None:
        first = 2 + int.from_bytes(body[:2], "big")
        if qos == 0:
            self._on_message(body[first:])
            return
        number, payload = body[first : first + 2], body[first + 2 :]
        if qos == 1:
            self._send(Packet.PUBACK << 4, number)
            self._on_message(payload)
        else:
            self._held[int.from_bytes(number, "big")] = payload
            self._send(Packet.PUBREC << 4, number)

    def _next(self) -> int:
        self._number = self._number % 0xFFFF + 1
        return self._number

    def _send(self, head: int, body: bytes) -> None:
        length, octets = len(body), bytearray([head])
        while True:
            length, digit = divmod(length, 128)
            octets.append(digit | (128 if length else 0))
            if not length:
                break
        self._transport.write(bytes(octets) + body)


def _text(text: str) -> bytes:
    return struct.pack("!H", len(text)) + text.encode()


def _first(octets: bytes) -> tuple[int, bytes, int] | None:
    """The first packet: its head, its body and its whole length; None if it is not complete."""
    length = shift = 0
    for place in range(1, 5):
        if place >= len(octets):
            return None
        length |= (octets[place] & 127) << shift
        shift += 7
        if octets[place] < 128:
            end = place + 1 + length
            return (octets[0], octets[place + 1 : end], end) if len(octets) >= end else None
    raise ValueError("the length of an MQTT packet has more than four octets")
