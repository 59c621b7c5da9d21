"""Publishes frames with paho's client, none longer than the broker takes (`mqtt_limit.py`)."""

import logging
import time
from collections.abc import Callable
from typing import Any

from paho.mqtt.client import Client, MQTTMessageInfo
from paho.mqtt.enums import MQTTErrorCode

from ..errors import TransportError
from ..protocol.frames import HELLO_TOPIC
from .base import Transport
from .mqtt_client import PUBLISH_OCTETS, listeners_mark, trial_topic
from .mqtt_limit import PASSES_OCTETS, FrameLimit

REFUSES_S = 1.0  # a broker that ends the connection because of a message does so within this time

logger = logging.getLogger("twinlink")


class Publisher:
    """For one transport, whose `frame_limit`, `frame_limit_reason` and `too_long` it keeps.

    The caller holds the transport's lock.

    Attributes:
        on_hello_answered: called with the reason code by which the broker acknowledges a hello; None: it is not asked.
    """

    def __init__(self, transport: Transport, warn: Callable[[str], None], prefix: str) -> None:
        """``warn(what)`` logs what the broker does, but not each time; ``prefix``: of every topic."""
        options = transport.options
        broker_is_ours = transport.listening and options.private_broker  # and takes whatever the link sends
        self._limit = FrameLimit(
            str(transport.endpoint),
            transport.max_frame,
            assumed=transport.max_frame if broker_is_ours else PASSES_OCTETS,
            always_acks=options.qos > 0,
            ends_s=min(REFUSES_S, options.user_timeout_ms / 2000),
        )
        self.on_hello_answered: Callable[[int], None] | None = None
        self._hello: int | None = None  # packet identifier of one that was not acknowledged yet
        self._transport = transport
        self._warn = warn
        self._qos: int = options.qos
        self._knows_qos_1 = True  # whether the broker takes messages with QoS 1
        self._mark = listeners_mark() if transport.listening else None
        self._prefix = prefix
        self._trial_topic = prefix + trial_topic()
        self._logged = self._dropped_at = transport.max_frame  # the limits that the log mentions

    @property
    def unacknowledged(self) -> int:
        """How many messages with QoS 1 or 2 the broker has not acknowledged."""
        return len(self._limit.published)

    def publish(self, client: Client, topic: bytes, frame: bytes) -> None:
        """Queue a message with the client.  Raises TransportError."""
        qos, octets = self._qos, len(frame)
        if octets > self._limit.known:
            now = time.monotonic()
            admitted = self._limit.admits(octets, now)
            self._tell()
            if not admitted:
                self._drop(topic, octets)
                return
            qos = qos or int(self._limit.asks(octets, now))
        asks = self.on_hello_answered is not None and topic == HELLO_TOPIC and self._knows_qos_1
        qos = qos or int(asks)
        if qos:
            client.on_publish = self._acknowledged  # otherwise None: paho calls it with QoS 0, too, which takes time
        sent = client.publish(self._prefix + topic.decode(), frame, qos, properties=self._mark)
        if qos:
            self._note(topic, sent, octets)
        if asks:
            self._hello = sent.mid

    def _note(self, topic: bytes, sent: MQTTMessageInfo, octets: int) -> None:
        if sent.rc == MQTTErrorCode.MQTT_ERR_QUEUE_SIZE:
            raise TransportError(
                f"mqtt could not send on {topic.decode()}: the broker at {self._transport.endpoint} has not "
                f"acknowledged {self.unacknowledged} messages"
            )
        self._limit.on_published(sent.mid, octets, time.monotonic())

    def _drop(self, topic: bytes, octets: int) -> None:
        """Count and report a frame beyond the limit; one that is withheld during a trial, the link retransmits."""
        transport = self._transport
        if octets <= transport.frame_limit:
            return
        transport.too_long += 1
        if self._dropped_at != transport.frame_limit:
            self._dropped_at = transport.frame_limit
            logger.warning(
                "mqtt: a frame of %d octets on %s was not sent, as the limit is %d: %s",
                *(octets, topic.decode(), transport.frame_limit, transport.frame_limit_reason),
            )

    # What the broker says

    def on_connected(self, client: Client, properties: Any, qos: int) -> bool:
        """The broker has accepted the client; ``properties`` are those of its CONNACK, ``qos``: what it may use.

        Returns False if the client must be replaced, because it would publish again with a QoS that is not taken.
        """
        before, self._qos = self._qos, qos
        if qos < before and self._limit.published:
            self._limit.published.clear()
            return False
        packet = getattr(properties, "MaximumPacketSize", None)
        self._knows_qos_1 = getattr(properties, "MaximumQoS", 2) > 0
        self._limit.on_connected(
            packet,
            self._transport.max_frame if packet is None else packet - PUBLISH_OCTETS - len(self._prefix),
            knows_qos_1=self._knows_qos_1,
            mono_s=time.monotonic(),
        )
        self._go_on(client)
        return True

    def _acknowledged(self, client: Client, userdata: Any, number: int, reason: Any, properties: Any) -> None:
        is_hello = number == self._hello
        if is_hello and self.on_hello_answered is not None:
            self._hello = None
            self.on_hello_answered(reason.value)
        if number not in self._limit.published:  # it had QoS 0
            return
        refused = self._limit.on_ack(number, reason.value, time.monotonic())
        if not self._qos and not self.unacknowledged:
            client.on_publish = None
        self._go_on(client)
        if reason.is_failure and not refused and not is_hello:
            self._warn(f"did not take a message: {reason}")

    def on_disconnected(self, reason: Any, lost: bool) -> tuple[bool, bool]:
        """The connection has ended, ``lost`` without a DISCONNECT from the broker.

        Returns whether a long message may be the reason, and whether the client must be replaced, because it would
        publish again what it must not.
        """
        refused = self._limit.on_connection_end(reason.value, time.monotonic(), lost=lost)
        replace = self._limit.forgets_published()
        self._tell()
        return refused, replace

    def _go_on(self, client: Client) -> None:
        """Tell the transport what is known by now, and publish the next trial."""
        octets = self._limit.next_trial()
        if octets is not None:
            client.on_publish = self._acknowledged
            sent = client.publish(self._trial_topic, bytes(octets), 1)
            self._limit.on_published(sent.mid, octets, time.monotonic(), trial=True)
        self._tell()

    def _tell(self) -> None:
        limit, transport = self._limit, self._transport
        transport.frame_limit, transport.frame_limit_reason = limit.octets, limit.reason
        if limit.is_learned and limit.octets != self._logged:
            self._logged = limit.octets
            logger.warning("mqtt: no frame longer than %d octets is sent: %s", limit.octets, limit.reason)
