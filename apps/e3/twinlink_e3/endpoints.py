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

PATH_OCTETS = 107  # greatest length of the path of a Unix socket


@dataclass(frozen=True, slots=True)
class Endpoints:
    """Endpoints of the three channels, each ``ipc:///path`` or ``tcp://address:port``; ``link`` is one of `LINKS`."""

    setup: str
    to_dapp: str
    from_dapp: str
    link: str = "zmq"

    def __str__(self) -> str:
        return f"{self.link}: setup {self.setup}, RAN to dApp {self.to_dapp}, dApp to RAN {self.from_dapp}"


LINKS = ("zmq", "posix")
# As hard-coded in dapps 0.0.6 and by default in libe3.
ENDPOINTS = {
    "ipc": Endpoints("ipc:///tmp/dapps/setup", "ipc:///tmp/dapps/e3_socket", "ipc:///tmp/dapps/dapp_socket"),
    "tcp": Endpoints("tcp://127.0.0.1:9990", "tcp://127.0.0.1:9991", "tcp://127.0.0.1:9999"),
}


def add_endpoint_arguments(parser: argparse.ArgumentParser) -> None:
    """Add ``--e3``, ``--e3-link``, ``--setup``, ``--to-dapp`` and ``--from-dapp``; read them with `endpoints_of`."""
    group = parser.add_argument_group("E3 sockets")
    group.add_argument("--e3", choices=sorted(ENDPOINTS), default="ipc", help="set of endpoints; below, those of ipc")
    group.add_argument("--e3-link", choices=LINKS, default="zmq", help="link of the E3 agent; newer OAI uses posix")
    for name, what in (("setup", "setup channel"), ("to_dapp", "RAN to dApp"), ("from_dapp", "dApp to RAN")):
        option, usual = f"--{name.replace('_', '-')}", getattr(ENDPOINTS["ipc"], name)
        group.add_argument(option, type=_endpoint, metavar="ENDPOINT", help=f"{what}, if not {usual}")


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


def posix_address(endpoint: str) -> tuple[socket.AddressFamily, str | tuple[str, int]]:
    """Family and address for Python's sockets; ``tcp://*:port`` is every IPv4 address of this host."""
    if endpoint.startswith("ipc://"):
        return socket.AF_UNIX, endpoint.removeprefix("ipc://")
    host, _, port = endpoint.removeprefix("tcp://").rpartition(":")
    family = socket.AF_INET6 if host.startswith("[") else socket.AF_INET
    return family, ("0.0.0.0" if host == "*" else host.strip("[]"), int(port))


def _endpoint(text: str) -> str:
    """For argparse: an endpoint that libzmq accepts."""
    way = re.fullmatch(r"ipc://.+|tcp://.+:(\d{1,5})", text)
    if not way or int(way[1] or 1) not in range(1, 65536):
        raise argparse.ArgumentTypeError(f"{text!r}: an endpoint reads ipc:///path or tcp://address:port")
    if text.startswith("ipc://") and len(text.removeprefix("ipc://").encode()) > PATH_OCTETS:
        raise argparse.ArgumentTypeError(f"{text!r}: the path of a socket has at most {PATH_OCTETS} octets")
    return text
