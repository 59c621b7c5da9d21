"""The endpoints of E3 agent and dApps: three sockets on one host, of ZeroMQ or POSIX.

    channel      RAN side    dApp side      endpoint
    setup        REP bind    REQ connect    setup
    RAN -> dApp  PUB bind    SUB connect    to_dapp
    dApp -> RAN  SUB bind    PUB connect    from_dapp

Over ZeroMQ, messages have one part and no topic.  Never set ZMQ_CONFLATE: it lets an indication overwrite the
subscriptionResponse.  The POSIX link has the same endpoints; `frames` has its framing.
"""

import argparse
import re
import socket
from dataclasses import dataclass, replace
from pathlib import Path

from twinlink.appkit.options import Parser
from twinlink.process.ip_address import bracketed, check_host, family_of, is_address
from twinlink.process.resolver import Lookup, listen_addresses
from twinlink.process.text import printable

PATH_OCTETS = 107  # greatest length of the path of a Unix socket
RESOLVE_S = 0.3  # for the name of the agent's host


@dataclass(frozen=True, slots=True)
class Endpoints:
    """Endpoints of the three channels, each ``ipc:///path`` or ``tcp://address:port``.

    ``link`` is one of `LINKS`, or `ANY_LINK`.
    """

    setup: str
    to_dapp: str
    from_dapp: str
    link: str = "zmq"

    def __str__(self) -> str:
        return f"{self.link}: setup {self.setup}, RAN to dApp {self.to_dapp}, dApp to RAN {self.from_dapp}"


LINKS = ("zmq", "posix")
ANY_LINK = "auto"  # that of the agent, found by its greeting
# As hard-coded in dapps 0.0.6 and by default in libe3; and as in the examples of NVIDIA's Aerial.
ENDPOINTS = {
    "aerial": Endpoints("tcp://127.0.0.1:5555", "tcp://127.0.0.1:5556", "tcp://127.0.0.1:5557"),
    "ipc": Endpoints("ipc:///tmp/dapps/setup", "ipc:///tmp/dapps/e3_socket", "ipc:///tmp/dapps/dapp_socket"),
    "tcp": Endpoints("tcp://127.0.0.1:9990", "tcp://127.0.0.1:9991", "tcp://127.0.0.1:9999"),
}


def add_endpoint_arguments(parser: Parser, *, finds_link: bool = False) -> None:
    """Add ``--e3``, ``--e3-link``, ``--setup``, ``--to-dapp`` and ``--from-dapp``; read them with `endpoints_of`.

    Args:
        parser: to which they are added.
        finds_link: offer `ANY_LINK`, and make it the default.
    """
    group = parser.group("E3 sockets")
    group.add_argument("--e3", choices=sorted(ENDPOINTS), default="ipc", help="set of endpoints; below, those of ipc")
    links, usual = ((ANY_LINK, *LINKS), ANY_LINK) if finds_link else (LINKS, "zmq")
    group.add_argument("--e3-link", choices=links, default=usual, help="link of the E3 agent; newer OAI uses posix")
    for name, what in (("setup", "setup channel"), ("to_dapp", "RAN to dApp"), ("from_dapp", "dApp to RAN")):
        option, of_ipc = f"--{name.replace('_', '-')}", getattr(ENDPOINTS["ipc"], name)
        group.add_argument(option, type=_endpoint, metavar="ENDPOINT", help=f"{what}, if not {of_ipc}")


def endpoints_of(arguments: argparse.Namespace) -> Endpoints:
    """The endpoints of the arguments of `add_endpoint_arguments`."""
    overrides = {
        name: getattr(arguments, name)
        for name in ("setup", "to_dapp", "from_dapp")
        if getattr(arguments, name) is not None
    }
    return replace(ENDPOINTS[arguments.e3], link=arguments.e3_link, **overrides)


def path_of(endpoint: str) -> Path | None:
    """The file of an ipc endpoint; None for tcp, and for a socket without a file."""
    if not endpoint.startswith("ipc://") or endpoint[6:7] in ("@", "*"):
        return None
    return Path(endpoint.removeprefix("ipc://"))


def connecting(endpoints: Endpoints) -> Endpoints:
    """Where to connect: with one address in place of a host name, at which the setup channel accepts connections.

    To an agent, finding that out is a dApp that left again.  A name without an answer of the resolver stays.  May take
    `RESOLVE_S`.
    """
    setup_host, setup_port = _host_and_port(endpoints.setup)
    found: dict[str, str] = {}

    def with_address(endpoint: str) -> str:
        host, port = _host_and_port(endpoint)
        if host in ("", "*") or is_address(host):
            return endpoint
        if host not in found:
            lookup = Lookup(host, int(setup_port) if host == setup_host else None)
            if not lookup.ended(RESOLVE_S) or lookup.failure:
                return endpoint
            found[host] = lookup.addresses[0]
        return f"tcp://{bracketed(found[host])}:{port}"

    setup, to_dapp, from_dapp = map(with_address, (endpoints.setup, endpoints.to_dapp, endpoints.from_dapp))
    return Endpoints(setup, to_dapp, from_dapp, endpoints.link)


def listening(endpoint: str) -> list[str]:
    """Where to listen: the endpoint with each address of its host.  Raises OSError."""
    host, port = _host_and_port(endpoint)
    if host in ("", "*"):
        return [endpoint]
    return [f"tcp://{bracketed(address)}:{port}" for address in listen_addresses(host)]


def posix_address(endpoint: str) -> tuple[socket.AddressFamily, str | tuple[str, int]]:
    """Family and address for Python's sockets; ``tcp://*:port`` is every IPv4 address of this host."""
    if endpoint.startswith("ipc://"):
        return socket.AF_UNIX, endpoint.removeprefix("ipc://")
    host, port = _host_and_port(endpoint)
    return family_of(host), ("0.0.0.0" if host == "*" else host.strip("[]"), int(port))


def _host_and_port(endpoint: str) -> tuple[str, str]:
    """Both empty for ipc."""
    host, _, port = endpoint.removeprefix("tcp://").rpartition(":")
    return ("", "") if endpoint.startswith("ipc://") else (host, port)


def _endpoint(text: str) -> str:
    """For argparse: an endpoint that libzmq accepts, of one host."""
    way = re.fullmatch(r"ipc://.+|tcp://(?:\[[^\[\]]+\]|[^\[\]:]+):(\d{1,5})", text)
    if not way or int(way[1] or 1) not in range(1, 65536):
        raise argparse.ArgumentTypeError(f"{text!r}: an endpoint reads ipc:///path or tcp://address:port")
    if printable(text) != text:
        raise argparse.ArgumentTypeError(f"{text!r}: the path of a socket is in UTF-8, as libzmq is told it")
    if text.startswith("ipc://") and len(text.removeprefix("ipc://").encode()) > PATH_OCTETS:
        raise argparse.ArgumentTypeError(f"{text!r}: the path of a socket has at most {PATH_OCTETS} octets")
    if text.startswith("tcp://") and (host := _host_and_port(text)[0]) != "*":
        try:
            check_host(host)
        except ValueError as error:
            raise argparse.ArgumentTypeError(f"{text!r}: {error}") from None
    return text
