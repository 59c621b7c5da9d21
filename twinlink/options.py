"""What `twinlink.open` takes besides its endpoint: the link's own options with their ranges, and its transport's."""

import logging
import os
import sys
from collections.abc import Mapping, Sequence
from ipaddress import ip_address
from typing import Any

from .errors import ConfigurationError
from .protocol.frames import HEADER_OCTETS, MAX_HELLO, MAX_PAYLOAD, is_node_name
from .transports import Endpoint, Transport, transport_class
from .transports.base import Options, make_options

MIN_WINDOW = 1024 * 1024
WINDOW = 128 * 1024 * 1024  # the default, as is what follows
RETENTION = 64 * 1024 * 1024
RANGES: dict[str, tuple[float, float]] = {  # from, to; a whole number where these are
    "max_payload": (0, MAX_PAYLOAD),
    "window": (MIN_WINDOW, 2**40),
    "retention": (MIN_WINDOW, 2**40),
    "receive_buffer": (MIN_WINDOW, 2**40),
    "max_flows": (1, 2**20),
    "max_peers": (1, 2**20),
    "send_timeout": (0, 1e9),
}
BUSY_POLL = True
OWN = (*RANGES, "busy_poll")  # of the link, not of its transport
IDENTITY_VARIABLE, REQUIRE_VARIABLE = "TWINLINK_IDENTITY", "TWINLINK_REQUIRE_IDENTITY"
NOT_REQUIRED = {"", "0", "false", "no", "off"}  # values of the latter

_warned_hosts: set[str] = set()  # addresses on which a link of this process listens without an identity, as was said

logger = logging.getLogger("twinlink")


def check(transport: str, given: Mapping[str, Any]) -> tuple[type[Transport], Options]:
    """The class of a transport and its options, defaults filled in; what is ``given`` of the link's own is checked.

    Raises:
        ConfigurationError: there is no such transport, or an option cannot be used.
        TransportMissing: the transport's driver is not installed.
    """
    for name, (low, high) in RANGES.items():
        if name in given:
            _check_number(name, given[name], low, high)
    if type(given.get("busy_poll", BUSY_POLL)) is not bool:
        raise ConfigurationError(f"busy_poll must be true or false, not {given['busy_poll']!r}")
    backend = transport_class(transport)
    rest = {name: value for name, value in given.items() if name not in OWN}
    return backend, make_options(transport, backend.options_class, rest, OWN)


def make_transport(
    name: str,
    *,
    listen: str | None,
    connect: str | Sequence[str] | None,
    node: str | None,
    options: Mapping[str, Any],
    identity: str | os.PathLike[str] | None = None,
) -> Transport:
    """The transport of a link, not yet open: everything that can be checked without opening it has been.

    Args:
        name: of the transport.
        listen, connect, node, identity: as `twinlink.open` takes them.
        options: the link's own (of which ``max_payload`` counts here) and the transport's.

    Raises:
        ConfigurationError, TransportMissing: as `twinlink.open` does.
    """
    if not getattr(sys, "_is_gil_enabled", lambda: True)():
        raise ConfigurationError(
            "this CPython runs without its global interpreter lock, with which alone twinlink has been tried: start it "
            "with -X gil=1 or PYTHON_GIL=1, or use a build that has the lock"
        )
    backend, of_transport = check(name, options)
    if (listen is None) == (connect is None):
        raise ConfigurationError("give exactly one of listen= and connect=: one side listens, the other connects")
    texts = listen if listen is not None else connect
    parse = Endpoint.parse if connect is None else Endpoint.parse_remote
    endpoint, *others = map(parse, texts if isinstance(texts, list | tuple) and texts else [texts])
    if node is not None and not is_node_name(node):
        raise ConfigurationError(f"node must be a string of 1 to 255 printable characters, not {node!r}")
    if endpoint.port + backend.ports - 1 > 65535:
        raise ConfigurationError(f"{name} needs {backend.ports} ports from {endpoint.port} up")
    max_payload = options.get("max_payload", MAX_PAYLOAD)
    transport = backend(endpoint, listen is not None, max(max_payload, MAX_HELLO) + HEADER_OCTETS, of_transport)
    if others:
        transport.alternatives(others)
    if identity is None and name != "memory":  # which stays within the process
        identity = os.environ.get(IDENTITY_VARIABLE)
        if not identity and os.environ.get(REQUIRE_VARIABLE, "").lower() not in NOT_REQUIRED:
            raise ConfigurationError(
                f"a link without an identity is not opened, as {REQUIRE_VARIABLE} says: make one with `twinlink key "
                f"new`, and give its folder in {IDENTITY_VARIABLE} or with identity="
            )
    if identity:
        _set_identity(transport, name, identity, node)
    return transport


def _set_identity(transport: Transport, name: str, folder: str | os.PathLike[str], node: str | None) -> None:
    from .identity import Identity  # these need a package that other links do without
    from .identity.watched import WatchedIdentity

    if not transport.takes_identity:
        raise ConfigurationError(
            f"transport {name!r} cannot authenticate its peers, so a link over it takes no identity ({folder}): use "
            f"zeromq, zenoh, mqtt, websocket or tcp. Where {IDENTITY_VARIABLE} gives one, identity='' opens a link "
            "without it"
        )
    identity = Identity.load(folder)
    if node not in {None, identity.name}:
        raise ConfigurationError(
            f"node={node!r}, and {folder} is the identity of {identity.name}: a node has the name of its identity"
        )
    transport.identity = WatchedIdentity(identity)


def warn_if_open(transport: Transport, name: str) -> None:
    """Say that any program may join, if the transport is going to listen beyond this host without an identity.

    Once for each address in a process: a notebook opens the same link again and again.
    """
    if name == "memory" or not transport.listening or transport.admits_only_trusted:
        return
    host = transport.endpoint.host
    if transport.identity is None and not _is_loopback(transport) and host not in _warned_hosts:
        _warned_hosts.add(host)
        logger.warning(
            "%s listens on %s without an identity: any program that reaches this port may join, read and send. "
            "`twinlink key new` makes an identity; or listen on 127.0.0.1",
            name, transport.endpoint,
        )  # fmt: skip


def _is_loopback(transport: Transport) -> bool:
    host = transport.endpoint.host.strip("[]").partition("%")[0]
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def check_choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    """One of several words; None stands for the default.  Raises ConfigurationError."""
    if value is not None and value not in choices:
        raise ConfigurationError(f"{name} must be one of {', '.join(choices)}, not {value!r}")


def _check_number(name: str, value: object, low: float, high: float) -> None:
    kinds, kind = ((int, float), "a number") if isinstance(high, float) else ((int,), "a whole number")
    if type(value) not in kinds or not low <= value <= high:  # type: ignore[operator]
        raise ConfigurationError(f"{name} must be {kind} from {low:,.0f} to {high:,.0f}, not {value!r}")
