"""The endpoints of E3 agent and dApps: three ZeroMQ sockets on one host.

    channel      RAN side    dApp side      endpoint
    setup        REP bind    REQ connect    setup
    RAN -> dApp  PUB bind    SUB connect    to_dapp
    dApp -> RAN  SUB bind    PUB connect    from_dapp

Messages have one part and no topic.  Never set ZMQ_CONFLATE: it lets an indication overwrite the subscriptionResponse.
"""

import argparse
import re
from dataclasses import dataclass, replace

PATH_OCTETS = 107  # greatest length of the path of a Unix socket


@dataclass(frozen=True, slots=True)
class Endpoints:
    """ZeroMQ endpoints of the three channels."""

    setup: str
    to_dapp: str
    from_dapp: str

    def __str__(self) -> str:
        return f"setup {self.setup}, RAN to dApp {self.to_dapp}, dApp to RAN {self.from_dapp}"


# As hard-coded in dapps 0.0.6 and by default in libe3.
ENDPOINTS = {
    "ipc": Endpoints("ipc:///tmp/dapps/setup", "ipc:///tmp/dapps/e3_socket", "ipc:///tmp/dapps/dapp_socket"),
    "tcp": Endpoints("tcp://127.0.0.1:9990", "tcp://127.0.0.1:9991", "tcp://127.0.0.1:9999"),
}


def add_endpoint_arguments(parser: argparse.ArgumentParser) -> None:
    """Add ``--e3``, ``--setup``, ``--to-dapp`` and ``--from-dapp``; read them with `endpoints_of`."""
    group = parser.add_argument_group("E3 sockets")
    group.add_argument("--e3", choices=sorted(ENDPOINTS), default="ipc", help="set of endpoints; below, those of ipc")
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
    return replace(ENDPOINTS[arguments.e3], **overrides)


def _endpoint(text: str) -> str:
    """For argparse: an endpoint that libzmq accepts."""
    way = re.fullmatch(r"ipc://.+|tcp://.+:(\d{1,5})", text)
    if not way or int(way[1] or 1) not in range(1, 65536):
        raise argparse.ArgumentTypeError(f"{text!r}: an endpoint reads ipc:///path or tcp://address:port")
    if text.startswith("ipc://") and len(text.removeprefix("ipc://").encode()) > PATH_OCTETS:
        raise argparse.ArgumentTypeError(f"{text!r}: the path of a socket has at most {PATH_OCTETS} octets")
    return text
