"""Names and colours of the subjects, directions, modes and settings of a run, for table, figures and page."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from twinlink.appkit.formatting import payload

DIRECTIONS = {"rw-dt": "RW→DT", "dt-rw": "DT→RW"}

WAYS = {
    "rw-dt": "from the Real World to the Digital Twin (RW→DT)",
    "dt-rw": "from the Digital Twin to the Real World (DT→RW)",
}

MODES = {"closed": "closed loop", "open": "open loop", "saturation": "saturation"}

SETTINGS = {
    "loopback": "two processes on loopback",
    "netns": "two network namespaces of one host",
    "hosts": "two hosts",
}

EXPERIMENT_SETTINGS = {**SETTINGS, "guest": "two network namespaces of a virtual machine"}


@dataclass(frozen=True, slots=True)
class Subject:
    """Name and style of a subject.

    Attributes:
        name: for people.
        short: for narrow columns.
        colour, marker, line: matplotlib's; marker and line tell all subjects apart without colour, and the marker alone
            those of a sweep.  A baseline without twinlink has a broken line and an open marker.
        polled: whether messages from the Digital Twin wait there for a poll or the publishing.  Their one-way delay is
            an *age*, which includes that wait.
    """

    name: str
    short: str
    colour: str
    marker: str
    line: str = "-"
    polled: bool = False

    @property
    def raw(self) -> bool:
        """Whether it is a baseline."""
        return self.line != "-"

    @property
    def open_or_full(self) -> dict[str, Any]:
        """Face and size of its marker, for matplotlib: an open one of a baseline shows a full one within it."""
        return {"mfc": "none", "ms": 7} if self.raw else {"mfc": self.colour, "ms": 4.5}


# Okabe and Ito's colours, which are distinct for any colour vision: one hue for each library, the lighter of two for
# the bare library, and a marker and a line for each.  They are listed in this order everywhere; the paper's two first.
SUBJECTS = {
    "zenoh": Subject("twinlink over Zenoh", "Zenoh", "#d55e00", "s"),
    "zeromq": Subject("twinlink over ZeroMQ", "ZeroMQ", "#0072b2", "o"),
    "mqtt-qos0": Subject("twinlink over MQTT, QoS 0", "MQTT QoS 0", "#009e73", "v"),
    "mqtt-qos1": Subject("twinlink over MQTT, QoS 1", "MQTT QoS 1", "#cc79a7", "<"),
    "mqtt-qos2": Subject("twinlink over MQTT, QoS 2", "MQTT QoS 2", "#7b4fa3", ">"),
    "websocket": Subject("twinlink over WebSocket", "WebSocket", "#6b4a00", "h"),
    "tcp": Subject("twinlink over TCP", "TCP", "#555555", "^"),
    "raw-zenoh": Subject("raw zenoh", "raw zenoh", "#e69f00", "s", "--"),
    "raw-zenoh-default": Subject("raw zenoh with its defaults", "raw zenoh (defaults)", "#8c5a2b", "D", ":"),
    "raw-zeromq": Subject("raw pyzmq", "raw pyzmq", "#56b4e9", "o", "--"),
    "raw-tcp": Subject("raw TCP", "raw TCP", "#333333", "^", "-."),
    "raw-mqtt": Subject("raw MQTT, QoS 0 (paho)", "raw MQTT", "#5fc9a8", "v", "--"),
    "raw-mqtt-qos1": Subject("raw MQTT, QoS 1 (paho)", "raw MQTT QoS 1", "#e3a1c4", "<", "-."),
    "raw-mqtt-qos2": Subject("raw MQTT, QoS 2 (paho)", "raw MQTT QoS 2", "#ab8fc9", ">", ":"),
    "raw-websocket": Subject("raw WebSocket", "raw WebSocket", "#a6761d", "h", "--"),
    "raw-websocket-hub": Subject("raw WebSocket through a hub", "raw WebSocket hub", "#d9b26f", "3", "-."),
    "raw-http": Subject("raw HTTP, kept alive", "raw HTTP", "#e7298a", "p", "--", polled=True),
    "raw-http-new": Subject("raw HTTP, new connections", "raw HTTP new", "#f29ac5", "P", ":", polled=True),
    "raw-modbus": Subject("raw Modbus TCP", "raw Modbus", "#66a61e", "*", "-.", polled=True),
    "raw-s7": Subject("raw S7 (ISO on TCP)", "raw S7", "#1f78b4", "X", "--", polled=True),
    "raw-opcua": Subject("raw OPC UA, write and read", "raw OPC UA", "#b2182b", "d", "-.", polled=True),
    "raw-opcua-sub": Subject("raw OPC UA, subscription", "raw OPC UA sub", "#ef8a62", "+", "--", polled=True),
    "raw-uadp": Subject("raw OPC UA PubSub (UADP over UDP)", "raw UADP", "#8073ac", "1", "--"),
    "raw-uadp-eth": Subject("raw OPC UA PubSub (UADP over Ethernet)", "raw UADP Ethernet", "#54278f", "2", ":"),
    "raw-own-mqtt-qos0": Subject("MQTT QoS 0, own subscription", "MQTT QoS 0, own", "#4fb597", "v", ":"),
    "raw-own-mqtt-qos1": Subject("MQTT QoS 1, own subscription", "MQTT QoS 1, own", "#d68fb4", "<", "--"),
    "raw-own-mqtt-qos2": Subject("MQTT QoS 2, own subscription", "MQTT QoS 2, own", "#9a7abf", ">", "-."),
    "raw-own-opcua": Subject("OPC UA, own subscription", "OPC UA, own", "#e8764a", "D", "-."),
}

TOO_LONG = "its greatest payload is"  # so begins the reason of a cell whose payload its subject cannot carry
# twinlink over a library, and the bare library
BASELINES = {
    "zenoh": "raw-zenoh",
    "zeromq": "raw-zeromq",
    "mqtt-qos0": "raw-mqtt",
    "mqtt-qos1": "raw-mqtt",
    "mqtt-qos2": "raw-mqtt",
    "websocket": "raw-websocket",
    "tcp": "raw-tcp",
}

_OTHERS = ("#999999", "#6a3d9a", "#b15928", "#1b9e77")


def subject(name: str) -> Subject:
    """Its name and style; transports of other packages have a colour, too."""
    known = SUBJECTS.get(name)
    if known is None:
        raw = name.startswith("raw-")
        known = Subject(
            name if raw else f"twinlink over {name}", name, _OTHERS[sum(name.encode()) % 4], "P", "--" if raw else "-"
        )
    return known


def ordered(names: Iterable[str]) -> list[str]:
    """The distinct subjects, in the order of `SUBJECTS`."""
    places = {name: place for place, name in enumerate(SUBJECTS)}
    return sorted(set(names), key=lambda name: (places.get(name, len(places)), name))


def setting(run: Mapping[str, Any]) -> str:
    """Where a run was measured, such as "two hosts"; ``run`` is run.json or results.json."""
    text = str(SETTINGS.get(run["setting"], run["setting"]))
    if run.get("rate_limit"):
        text += f", limited to {run['rate_limit']}"
    if run.get("delay_ms"):
        text += f", {run['delay_ms']:g} ms each way"
    return text


def place(flow: str, octets: int) -> str:
    """A payload, or an application's flow with its greatest payload."""
    return f"{flow}, up to {payload(octets)}" if flow else payload(octets)


def of_fewer(spread: Mapping[str, Any], received: int) -> str:
    """The number of messages behind a figure, if not all received ones."""
    return f" (n = {spread['n']:,})" if spread["n"] < received else ""


def highest_rate(search: Mapping[str, Any], spread: bool = True) -> str:
    """Result of a search in messages/s, and the range of the rounds, such as "800 (700 to 900 in 3 searches)"."""
    text, each = f"{search['highest_loss_free_hz']:,.0f}", search.get("rounds_hz", [])
    if not spread or not each:
        return text
    apart = f"{min(each):,.0f} to {max(each):,.0f} in {len(each)} searches"
    return f"{text} ({apart if len(each) > 1 else 'one search'})"
