"""The transports by name; other packages add theirs by entry points.

A transport moves frames between one listener and its connectors; it knows nothing of sequences, acks or flows.
`base.Transport` is the interface; `twinlink.testing` is the conformance suite.
"""

import importlib
from shlex import quote
from typing import cast

from ..errors import ConfigurationError, TransportMissing
from ..spelling import near
from ..transport_options import TransportName
from .base import PORT, Endpoint, Transport

__all__ = ["PORT", "Endpoint", "Transport", "names", "transport_class", "transport_name"]

# name -> module, class, package of the driver for pip
TRANSPORTS = {
    "memory": ("twinlink.transports.memory", "MemoryTransport", None),
    "mqtt": ("twinlink.transports.mqtt", "MqttTransport", "twinlink[mqtt]"),
    "tcp": ("twinlink.transports.tcp", "TcpTransport", None),
    "websocket": ("twinlink.transports.websocket", "WebsocketTransport", "twinlink[websocket]"),
    "zenoh": ("twinlink.transports.zenoh", "ZenohTransport", "eclipse-zenoh"),
    "zeromq": ("twinlink.transports.zeromq", "ZeromqTransport", "pyzmq"),
}
ELSEWHERE = {"0mq": "zeromq", "zmq": "zeromq", "ws": "websocket", "wss": "websocket", "mosquitto": "mqtt"}
ENTRY_POINT_GROUP = "twinlink.transports"


def names() -> list[str]:
    """All known names, installed drivers or not."""
    from importlib.metadata import entry_points  # it takes a fifth of the time in which twinlink is imported

    return sorted({*TRANSPORTS, *(point.name for point in entry_points(group=ENTRY_POINT_GROUP))})


def transport_name(text: str) -> TransportName:
    """A name from a configuration, or of a third-party transport, as `twinlink.open` takes it under a type checker.

    Raises ConfigurationError: no transport has this name.
    """
    if text not in names():
        raise _unknown(text)
    return cast(TransportName, text)


def transport_class(name: str) -> type[Transport]:
    """The class for a name.

    Raises:
        ConfigurationError: no transport has this name.
        TransportMissing: its driver is not installed.
    """
    if name in TRANSPORTS:
        module, attribute, package = TRANSPORTS[name]
        try:
            found: type[Transport] = getattr(importlib.import_module(module), attribute)
        except ModuleNotFoundError as error:
            raise TransportMissing(
                f"the driver of transport {name!r} is not installed ({error}); "
                f"install it with: pip install {quote(package or 'twinlink')}"
            ) from error
        return found
    from importlib.metadata import entry_points  # as above

    for point in entry_points(group=ENTRY_POINT_GROUP, name=name):
        try:
            loaded: type[Transport] = point.load()
        except ModuleNotFoundError as error:
            extra = f"[{point.extras[0]}]" if point.extras else ""
            distribution = point.dist.name if point.dist else "the package that provides it"
            raise TransportMissing(
                f"transport {name!r} is provided by {distribution}, but its driver is not installed ({error}); "
                f"install it with: pip install '{distribution}{extra}'"
            ) from error
        return loaded
    raise _unknown(name)


def _unknown(name: str) -> ConfigurationError:
    known = names()
    if "/" in str(name) or ":" in str(name):
        return ConfigurationError(
            f"{name!r} is an endpoint, and the transport comes first: twinlink.open('zeromq', connect={name!r}); "
            f"transports are {', '.join(known)}"
        )
    if (meant := ELSEWHERE.get(str(name).lower())) is not None:
        return ConfigurationError(f"no transport is called {name!r}; known: {', '.join(known)}; did you mean {meant}?")
    return ConfigurationError(f"no transport is called {name!r}; known: {', '.join(known)}{near(str(name), known)}")
