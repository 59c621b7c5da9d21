"""Bare paho-mqtt and mosquitto, as in paho's examples: network thread and callbacks."""

import queue
import socket
import threading
from typing import Any

from paho.mqtt.client import Client, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion

from twinlink.transports.mosquitto import Mosquitto

from .base import ACK, TICK_S, TRAFFIC, RawChannel

ON_THE_WAY = 1000  # messages that paho has not sent yet or, with QoS 1 and 2, that the broker has not confirmed
HOLD_S = 5.0  # how long `put` waits then


class MqttChannel(RawChannel):
    """The listening side starts the broker; both sides are its clients.

    Options: ``qos`` from each client to the broker and on; ``no_delay`` (TCP_NODELAY) of clients and broker.
    """

    def open(self) -> None:
        """Start the broker, and connect to it."""
        self._client: Client | None = None
        self._inbox: queue.SimpleQueue[bytes | bytearray] = queue.SimpleQueue()
        self._room = threading.Semaphore(ON_THE_WAY)
        self._reflects = False
        self._qos: int = self.options["qos"]
        self._no_delay: bool = self.options["no_delay"]
        self._broker = Mosquitto(self.endpoint, no_delay=self._no_delay) if self.listening else None
        self.broker_pid = self._broker.pid if self._broker else None
        # Each side subscribes to what the other one publishes.
        self._own, self._others = ("dt", "rw") if self.listening else ("rw", "dt")
        self._topics = {topic: f"{topic.decode()}/{self._own}" for topic in (TRAFFIC, ACK)}
        self.connect()

    def connect(self) -> None:
        """Connect to the broker, in the background."""
        self._client = client = Client(CallbackAPIVersion.VERSION2)
        client.max_inflight_messages_set(ON_THE_WAY)
        client.on_socket_open = _no_delay if self._no_delay else None
        client.on_connect = self.subscribe
        client.on_message = self._arrived
        client.on_publish = self._left
        client.reconnect_delay_set(1, 1)
        client.connect_async(self.endpoint.host.strip("[]"), self.endpoint.port)
        client.loop_start()

    def subscribe(self, client: Client, *_: Any) -> None:
        """Subscribe, when the connection is made; paho calls this on its thread."""
        client.subscribe([(f"{topic.decode()}/{self._others}", self._qos) for topic in (TRAFFIC, ACK)])

    def _arrived(self, _client: Client, _userdata: Any, message: MQTTMessage) -> None:
        if self._reflects:
            self.answer(message.payload)
        else:
            self._inbox.put(message.payload)

    def _left(self, *_: Any) -> None:
        self._room.release()

    def reflect(self, octets: int, bulk: bool) -> None:
        """Answer each message on paho's own thread: another one would add a sixth to the round trip."""
        if bulk:
            super().reflect(octets, bulk)
        else:
            self.expected = octets
            self._reflects = True

    def stop(self) -> None:
        """Stop answering."""
        self._reflects = False
        super().stop()

    def settings(self) -> dict[str, Any]:
        """The options."""
        return {**self.options, "network_thread": True}

    def put(self, topic: bytes, frame: bytes | bytearray) -> None:
        """Publish."""
        if self._client is not None and self._client.is_connected() and self._room.acquire(timeout=HOLD_S):
            self._client.publish(self._topics[topic], frame, self._qos)

    def get(self, wait: bool = True) -> Any:
        """The next message's payload."""
        try:
            return self._inbox.get(wait, TICK_S)
        except queue.Empty:
            return None

    def close(self) -> None:
        """Disconnect, and end the broker."""
        if self._client is not None:
            self._client.disconnect()
            self._client.loop_stop()
        if self._broker is not None:
            self._broker.stop()


def _no_delay(_client: Client, _userdata: Any, opened: Any) -> None:
    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
