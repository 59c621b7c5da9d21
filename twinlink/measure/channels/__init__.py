"""The subjects of a sweep, by name.

A subject is twinlink over one of its transports, or the same frames over a bare library: the difference is the cost of
twinlink.  Modules are imported when their subject is measured.
"""

import os
import shutil
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, get_args

from ... import options as link_options
from ...errors import ConfigurationError, TransportMissing
from ...protocol.send.endpoint import Reliability
from ...transports import Endpoint, names
from ...transports.mosquitto import SBIN
from .base import Channel, PeerLost

__all__ = ["SUBJECTS", "Channel", "PeerLost", "Subject", "channel", "check", "find"]


@dataclass(frozen=True)
class Subject:
    """How to open a subject.

    Attributes:
        module, attribute: the class of its channel, in this package.
        options: of the channel; for twinlink, those of the link and its transport.
        programs: required on the listening side.
    """

    module: str
    attribute: str
    options: dict[str, Any] = field(default_factory=dict)
    programs: tuple[str, ...] = ()


SEND_S = 5.0  # send_timeout: back-pressure must show as delay in an open loop and a search


def _twinlink(transport: str, *programs: str, **options: Any) -> Subject:
    return Subject("link", "LinkChannel", {"transport": transport, "send_timeout": SEND_S, **options}, programs)


SUBJECTS = {
    "zeromq": _twinlink("zeromq"),
    "zenoh": _twinlink("zenoh"),
    "mqtt-qos0": _twinlink("mqtt", "mosquitto", qos=0),
    "mqtt-qos1": _twinlink("mqtt", "mosquitto", qos=1),
    "mqtt-qos2": _twinlink("mqtt", "mosquitto", qos=2),
    "raw-tcp": Subject("tcp", "TcpChannel"),
    "raw-zeromq": Subject("zeromq", "ZeromqChannel"),
    "raw-zenoh": Subject("zenoh", "ZenohChannel"),
    "raw-zenoh-default": Subject("zenoh", "ZenohChannel", {"tuned": False}),  # Zenoh's defaults
    "raw-mqtt": Subject("mqtt", "MqttChannel", programs=("mosquitto",)),  # paho-mqtt, QoS 0
}
PORTS = 2  # consecutive ports of a subject


def find(subject: str) -> Subject:
    """The subject of this name, or a transport of another package.  Raises ConfigurationError."""
    known = SUBJECTS.get(subject)
    if known is not None:
        return known
    if subject in names() and subject not in ("memory", "mqtt"):
        return _twinlink(subject)
    raise ConfigurationError(f"no subject is called {subject!r}; known: {', '.join(SUBJECTS)}")


def check(subject: str, options: dict[str, Any]) -> None:
    """Check a subject's options without opening it.

    Raises:
        ConfigurationError: the subject is unknown, or does not take them.
        TransportMissing: its driver is not installed.
    """
    transport = find(subject).options.get("transport")
    if transport is None:
        raise ConfigurationError(f"subject {subject!r} takes no options")
    given = dict(options)
    link_options.check_choice("reliability", given.pop("reliability", None), get_args(Reliability))
    link_options.check(transport, given)


def channel(
    subject: str, endpoint: Endpoint, listening: bool, node: str, options: dict[str, Any] | None = None
) -> Channel:
    """One end of a subject, not open yet; ``options`` are added to the subject's own.

    Raises:
        ConfigurationError: the subject is unknown.
        TransportMissing: its driver is not installed.
    """
    known = find(subject)
    for program in known.programs if listening else ():
        if shutil.which(program, path=f"{os.environ.get('PATH', os.defpath)}:{SBIN}") is None:
            raise TransportMissing(f"subject {subject!r} needs the program {program}, which is not installed")
    made: type[Channel] = getattr(import_module(f"{__name__}.{known.module}"), known.attribute)
    return made(endpoint, listening, node, {**known.options, **(options or {})})
