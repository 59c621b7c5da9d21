"""paho's client as the MQTT transport uses it: MQTT 5, every limit explicit, its socket served by us."""

import contextlib
import secrets
import socket
import ssl
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions

from .base import Options
from .mqtt_limit import PACKET_TOO_LARGE

FILTERS = ("ack/+", "traffic/+")
MAX_IN_FLIGHT = 1000  # with QoS 1 and 2: unacknowledged messages per direction
ASKED_AT_ONCE = 4  # with QoS 0: messages with QoS 1 of which the broker may not have acknowledged any
SESSION_S = 5  # with QoS 1 and 2: how long the broker keeps messages for a disconnected client
READ_PACKETS = 64  # in a row that are for the other side, before other threads get their turn
# Of a PUBLISH besides the frame, at most: fixed header 5, topic 2 + 71 (``traffic/`` and 63), packet identifier 2,
# properties 3.
PUBLISH_OCTETS = 83
TOPIC_OCTETS = 71
UNSPECIFIED_ERROR = 0x80


@dataclass(frozen=True)
class MqttOptions(Options):
    """Options of transport ``mqtt``."""

    # 0: at most once, 1: at least once, 2: exactly once; from each client to the broker and on.
    qos: int = field(default=0, metadata={"most": 2})
    private_broker: bool = True  # the listening side starts mosquitto; False: a broker is already at the endpoint
    # The broker disconnects a client that is silent for 1.5 times as long; until then it queues.  A private broker
    # lets no client take longer.
    keepalive_s: int = field(default=10, metadata={"most": 65535})
    user_timeout_ms: int = 2000  # TCP_USER_TIMEOUT of the connection
    connect_timeout_ms: int = 250  # at first, see renew; TCP itself would try again after 1, 3, 7 s
    reconnect_ms: int = 50
    connections: int = 400  # of a private broker
    handshakes: int = 128  # of them, those on which nothing has come; then the oldest is ended
    unsent_octets: int = 128 * 1024 * 1024  # that wait for one client which does not read
    unread_octets: int = 256 * 1024 * 1024  # that wait for the link of the listener


def make_client(
    host: str,
    port: int,
    options: MqttOptions,
    max_packet: int,
    connect_timeout_s: float,
    context: ssl.SSLContext | None = None,
) -> Client:
    """A client that is not connected yet: `Client.reconnect` does that.

    ``max_packet`` is what the broker may send at most, in octets; ``context``: for TLS.
    """
    kind = _ReadingLess if options.qos == 2 else _Client
    client = kind(
        CallbackAPIVersion.VERSION2,
        client_id=f"twinlink-{secrets.token_hex(8)}",
        protocol=MQTTProtocolVersion.MQTTv5,
    )
    if context is not None:
        client.tls_set_context(context)
    client.connect_timeout = connect_timeout_s
    client.max_queued_messages = 0  # no limit: the link's window bounds messages in flight
    client.max_inflight_messages = 0  # no limit but the broker's: the transport waits at MAX_IN_FLIGHT
    client.on_socket_open = lambda client, userdata, opened: _set_up(opened, options.user_timeout_ms)
    client.on_socket_register_write = _served_elsewhere
    properties = _properties(PacketTypes.CONNECT, MaximumPacketSize=max_packet)
    if options.qos:
        properties.SessionExpiryInterval = SESSION_S
        properties.ReceiveMaximum = MAX_IN_FLIGHT
    client.connect_async(host, port, options.keepalive_s, properties=properties)
    return client


def subscribe(client: Client, qos: int, filters: Sequence[str]) -> None:
    """Subscribe to the filters at once, without our own and retained messages."""
    options = SubscribeOptions(qos=qos, noLocal=True, retainHandling=SubscribeOptions.RETAIN_DO_NOT_SEND)
    client.subscribe([(topic_filter, options) for topic_filter in filters])


def listeners_mark() -> Properties:
    """The mark of a listener's messages: Payload Format Indicator 0, "unspecified octets"."""
    return _properties(PacketTypes.PUBLISH, PayloadFormatIndicator=0)


def trial_topic() -> str:
    """A topic of the greatest length below ``traffic/``, to which no link subscribes."""
    return f"traffic/limit/{secrets.token_hex(8)}".ljust(TOPIC_OCTETS, "_")


def is_marked(properties: Properties | None) -> bool:
    """Whether a message has the mark."""
    return hasattr(properties, "PayloadFormatIndicator")


def hang_up(client: Client) -> None:
    """Disconnect for good: the broker keeps no session."""
    client.disconnect(properties=_properties(PacketTypes.DISCONNECT, SessionExpiryInterval=0))
    client.loop_write()
    opened = client.socket()
    if opened is not None:  # the broker reads nothing; else paho has closed it after DISCONNECT
        opened.close()


def own_address(client: Client) -> str:
    """The address of its end of the connection, ``host:port``; empty without one."""
    opened: Any = client.socket()
    try:
        host, port = opened.getsockname()[:2] if opened is not None else ("", 0)
    except OSError:  # closed by now
        return ""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def cut(client: Client) -> None:
    """End the connection after an interruption (Ctrl-C) within a packet, which would corrupt the stream."""
    opened: Any = client.socket()
    if opened is not None:
        with contextlib.suppress(OSError):
            opened.shutdown(socket.SHUT_RDWR)


class _Client(Client):
    """paho's client that accepts mosquitto's refusal of a long message.

    mosquitto acknowledges one beyond its message_size_limit with reason code 0x95 (Packet too large), which MQTT 5.0
    (3.4.2.1) does not have for a PUBACK.  paho's own ends the connection then.
    """

    def _handle_pubackcomp(self, cmd: Literal["PUBACK", "PUBCOMP"]) -> MQTTErrorCode:
        packet = self._in_packet["packet"]  # packet identifier (2 octets), reason code
        if packet[2:3] == bytes((PACKET_TOO_LARGE,)):
            packet[2] = UNSPECIFIED_ERROR
        return super()._handle_pubackcomp(cmd)


class _ReadingLess(_Client):
    """paho's client with a `loop_read` that keeps to its limit; for QoS 2.

    paho's own reads as many packets per call as messages are in flight, possibly tens of thousands (mosquitto 2.0.11
    ignores our Receive Maximum).  Meanwhile no hello is sent, and the peers declare us down.
    """

    def loop_read(self, max_packets: int = 1) -> MQTTErrorCode:
        """Read pending packets, at most ``max_packets``."""
        for _ in range(max_packets):
            if self._sock is None:
                return MQTTErrorCode.MQTT_ERR_NO_CONN
            code = self._packet_read()
            if code > 0:
                return self._loop_rc_handle(code)
            if code == MQTTErrorCode.MQTT_ERR_AGAIN:
                break
        return MQTTErrorCode.MQTT_ERR_SUCCESS


def _properties(packet: int, **values: int) -> Properties:
    properties = Properties(packet)  # type: ignore[no-untyped-call]
    for name, value in values.items():
        setattr(properties, name, value)
    return properties


def _set_up(opened: Any, user_timeout_ms: int) -> None:
    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, user_timeout_ms)


def _served_elsewhere(client: Client, userdata: Any, opened: Any) -> None:
    """Its presence keeps paho from writing within `publish`: the thread with the transport's lock does that."""
