"""The table of subjects: how each is opened, what it needs, and what its protocol does with an exchange."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ..frames import HEADER_OCTETS
from ..uadp import MOST as UADP_MOST
from .mailbox import MODBUS, S7, Memory

SEND_S = 5.0  # send_timeout: back-pressure must show as delay in an open loop and a search
UADP_GREATEST = UADP_MOST - HEADER_OCTETS
ETHERNET_GREATEST = 1500 - 20 - HEADER_OCTETS  # 20: of UADP, around a ByteString
RoundTrips = Callable[[int, str], int]


def _alike(number: int) -> RoundTrips:
    return lambda octets, direction: number


@dataclass(frozen=True)
class Subject:
    """How to open a subject.

    Attributes:
        module, attribute: the class of its channel, in this package.
        options: of the channel; for twinlink, those of the link and its transport.
        programs: required on the listening side.
        settable: options of a raw subject that a sweep may change; `options` has their defaults.
        extra: of twinlink's distribution, which installs the library.
        greatest: octets of its longest payload, and why; None if a link's own limit comes first.
        round_trips: of one exchange in a closed loop, over the path between the two sides, by octets of payload and
            direction; without connection set-up at the beginning, and while TCP's window has room.  None: not stated.
        cable: whether it needs Ethernet: the cable between two namespaces, and no delay on it.
    """

    module: str
    attribute: str
    options: Mapping[str, Any] = field(default_factory=dict)
    programs: tuple[str, ...] = ()
    settable: tuple[str, ...] = ()
    extra: str = ""
    greatest: tuple[int, str] | None = None
    round_trips: RoundTrips | None = None
    cable: bool = False


def over(transport: str, *programs: str, **options: Any) -> Subject:
    """twinlink over a transport."""
    return Subject("link", "LinkChannel", {"transport": transport, "send_timeout": SEND_S, **options}, programs)


def _mqtt(qos: int, round_trips: int) -> Subject:
    options = {"qos": qos, "no_delay": True}
    return Subject(
        "mqtt", "MqttChannel", options, ("mosquitto",), ("no_delay",), "mqtt", round_trips=_alike(round_trips)
    )


def _own_mqtt(qos: int, round_trips: int) -> Subject:
    return replace(_mqtt(qos, round_trips), module="own_subscription", attribute="OwnMqttChannel", extra="industrial")


def _websocket(attribute: str) -> Subject:
    options = {"no_delay": True}
    return Subject("websocket", attribute, options, (), ("no_delay",), "websocket", round_trips=_alike(1))


def _http(new_connection: bool) -> Subject:
    """One round trip to connect, where the connection is new, and one for the request."""
    each = 2 if new_connection else 1
    return Subject(
        "http",
        "HttpChannel",
        {"new_connection": new_connection, "no_delay": True, "poll_ms": 0, "sweep_ms": 0},
        settable=("no_delay", "poll_ms", "sweep_ms"),
        extra="industrial",
        round_trips=lambda octets, direction: each if direction == "rw-dt" else 2 * each,
    )


def _mailbox(module: str, attribute: str, memory: Memory, limit: str, **others: Any) -> Subject:
    """Mailboxes in a server's memory; the client writes messages and polls for answers, or the reverse."""
    options = {"poll_ms": 0, "sweep_ms": 0, **others}
    return Subject(
        module,
        attribute,
        options,
        settable=tuple(options),
        extra="industrial",
        greatest=(memory.greatest_payload, limit),
        round_trips=memory.round_trips,
    )


def _opcua(attribute: str, round_trips: RoundTrips, **intervals: int) -> Subject:
    options = {"no_delay": True, **intervals, "sweep_ms": 0}
    return Subject(
        "opcua",
        attribute,
        options,
        settable=tuple(options),
        extra="industrial",
        round_trips=round_trips,
    )


SUBJECTS = {
    "zeromq": over("zeromq"),
    "zenoh": over("zenoh"),
    "mqtt-qos0": over("mqtt", "mosquitto", qos=0),
    "mqtt-qos1": over("mqtt", "mosquitto", qos=1),
    "mqtt-qos2": over("mqtt", "mosquitto", qos=2),
    "websocket": over("websocket"),
    "tcp": over("tcp"),
    "raw-tcp": Subject("tcp", "TcpChannel", round_trips=_alike(1)),
    "raw-zeromq": Subject("zeromq", "ZeromqChannel", round_trips=_alike(1)),
    "raw-zenoh": Subject("zenoh", "ZenohChannel", round_trips=_alike(1)),
    "raw-zenoh-default": Subject("zenoh", "ZenohChannel", {"tuned": False}, round_trips=_alike(1)),  # Zenoh's defaults
    "raw-mqtt": _mqtt(0, 1),  # paho-mqtt, QoS 0
    "raw-mqtt-qos1": _mqtt(1, 1),  # mosquitto forwards before it has the subscriber's PUBACK
    "raw-mqtt-qos2": _mqtt(2, 3),  # PUBLISH, PUBREC and PUBREL before each delivery: one and a half each way
    "raw-websocket": _websocket("WebsocketChannel"),
    "raw-websocket-hub": _websocket("HubChannel"),  # the hub is beside the listening side
    "raw-http": _http(new_connection=False),
    "raw-http-new": _http(new_connection=True),
    "raw-modbus": _mailbox("modbus", "ModbusChannel", MODBUS, "a unit has 65,536 registers of 16 bits", no_delay=True),
    "raw-s7": _mailbox("s7", "S7Channel", S7, "a data block has 64 KiB"),
    "raw-opcua": _opcua("OpcuaChannel", _alike(2), poll_ms=0),  # write and read
    "raw-uadp": Subject(
        "uadp",
        "UadpChannel",
        greatest=(UADP_GREATEST, "a UDP datagram has 65,507 octets, and UADP's chunks are not used"),
        round_trips=_alike(1),
    ),
    "raw-uadp-eth": Subject(
        "uadp",
        "UadpEthernetChannel",
        greatest=(ETHERNET_GREATEST, "an Ethernet frame has 1500 octets, and UADP's chunks are not used"),
        round_trips=_alike(1),
        cable=True,
    ),
    "raw-opcua-sub": _opcua("OpcuaSubscriptionChannel", _alike(1), publishing_ms=0, sampling_ms=0),
}
# For experiments: a client's own subscription (own_subscription.py), which no sweep measures beside the others.
OWN_SUBSCRIPTION = {
    **{f"raw-own-mqtt-qos{qos}": _own_mqtt(qos, trips) for qos, trips in enumerate((1, 1, 3))},
    "raw-own-opcua": Subject(
        "own_subscription",
        "OwnOpcuaChannel",
        {"no_delay": True, "publishing_ms": 0, "sampling_ms": 0, "sweep_ms": 0},
        settable=("no_delay", "publishing_ms", "sampling_ms"),
        extra="industrial",
        round_trips=_alike(1),
    ),
}
# The short names of `twinlink sweep --systems`.
SYSTEMS = {
    "zeromq": ("zeromq", "raw-zeromq"),
    "zenoh": ("zenoh", "raw-zenoh", "raw-zenoh-default"),
    "tcp": ("tcp", "raw-tcp"),
    "mqtt": ("mqtt-qos0", "mqtt-qos1", "mqtt-qos2", "raw-mqtt", "raw-mqtt-qos1", "raw-mqtt-qos2"),
    "websocket": ("websocket", "raw-websocket", "raw-websocket-hub"),
    "http": ("raw-http", "raw-http-new"),
    "modbus": ("raw-modbus",),
    "s7": ("raw-s7",),
    "opcua": ("raw-opcua", "raw-opcua-sub"),
    "uadp": ("raw-uadp", "raw-uadp-eth"),
}
# The values of settable options: true and false, or a range in ms.
RANGES_MS = {"poll_ms": (0, 10_000), "publishing_ms": (0, 10_000), "sampling_ms": (0, 10_000), "sweep_ms": (0, 2_000)}
SWITCHES = ("no_delay",)
