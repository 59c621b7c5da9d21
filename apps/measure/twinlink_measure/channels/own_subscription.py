"""A client that subscribes to what it publishes: bare payloads, without a frame around them.

The Real World has the client, the Digital Twin the broker or server, which is nothing but that.  The answer to a
message is the message itself, so its RTT is the time from publishing to the own subscription, and its one-way delay is
the same.  The first eight octets of a payload have the message's number.
"""

import struct
import time
from typing import Any

from asyncua import ua
from asyncua.server.server import Server
from paho.mqtt.client import Client

from twinlink.transports import Endpoint

from .base import RawChannel
from .mqtt import MqttChannel
from .opcua import OpcuaSubscriptionChannel

TOPIC = "A"  # one octet, as the paper's
VARIABLE = ua.NodeId.from_string("ns=1;s=A")
_NUMBER = struct.Struct("!Q")
LEAST = _NUMBER.size  # octets of the shortest payload


class OwnSubscription(RawChannel):
    """What the systems have in common."""

    receives = False

    def __init__(self, endpoint: Endpoint, listening: bool, node: str, options: dict[str, Any]) -> None:
        super().__init__(endpoint, listening, node, options)
        self._under_way: dict[int, int] = {}  # number -> T1

    def load(self, octets: int) -> None:
        """Prepare a payload of this size, at least `LEAST`."""
        self._frame = bytearray(max(octets, LEAST))

    def send(self, scheduled_ns: int = 0) -> None:
        """Publish the next message."""
        sequence = self.next
        self.next = sequence + 1
        _NUMBER.pack_into(self._frame, 0, sequence)
        self._under_way[sequence] = sent_ns = time.time_ns()
        mono_ns = time.monotonic_ns()
        self.put(b"", self._frame)
        self.rows.sent(sequence, scheduled_ns, sent_ns, mono_ns)

    def _take_in(self) -> int:
        """Record a message of the own subscription, if one comes; returns its number, or -1."""
        payload = self.get()
        mono_ns, received_ns = time.monotonic_ns(), time.time_ns()
        if payload is None or len(payload) != len(self._frame):
            return -1
        (sequence,) = _NUMBER.unpack_from(payload)
        sent_ns = self._under_way.pop(sequence, None)
        if sent_ns is None:
            return -1
        self.rows.answered(sequence, mono_ns, sent_ns, received_ns, received_ns, received_ns)
        return int(sequence)

    def reflect(self, octets: int, bulk: bool) -> None:
        """The broker or server answers by itself."""

    def stop(self) -> None:
        """End nothing."""


class OwnMqttChannel(OwnSubscription, MqttChannel):
    """One client of the broker, which the Digital Twin starts.  Options: those of `MqttChannel`."""

    def connect(self) -> None:
        """Connect, if this is the client."""
        self._topics = {b"": TOPIC}
        if not self.listening:
            super().connect()

    def subscribe(self, client: Client, *_: Any) -> None:
        """Subscribe to the topic that this client publishes."""
        client.subscribe(TOPIC, self._qos)


class OwnOpcuaChannel(OwnSubscription, OpcuaSubscriptionChannel):
    """The client writes the variable that it subscribes to.  Options: those of `OpcuaSubscriptionChannel`."""

    written = read = VARIABLE

    def _offer(self, server: Server) -> None:
        """The variable keeps what is written."""
