"""Where E3 agent and dApps meet: three ZeroMQ sockets on one host.

    channel      RAN side    dApp side      endpoint
    setup        REP bind    REQ connect    setup
    RAN -> dApp  PUB bind    SUB connect    to_dapp
    dApp -> RAN  SUB bind    PUB connect    from_dapp

Messages have one part and no topic.  Never set ZMQ_CONFLATE: it lets an indication overwrite the subscriptionResponse.
"""

import argparse
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Endpoints:
    """ZeroMQ endpoints of the three channels."""

    setup: str
    to_dapp: str
    from_dapp: str


# As hard-coded in dapps 0.0.6 and by default in libe3.
ENDPOINTS = {
    "ipc": Endpoints("ipc:///tmp/dapps/setup", "ipc:///tmp/dapps/e3_socket", "ipc:///tmp/dapps/dapp_socket"),
    "tcp": Endpoints("tcp://127.0.0.1:9990", "tcp://127.0.0.1:9991", "tcp://127.0.0.1:9999"),
}


def add_endpoint_arguments(parser: argparse.ArgumentParser) -> None:
    """Add ``--e3``, ``--setup``, ``--to-dapp`` and ``--from-dapp``; read them with `endpoints_of`."""
    group = parser.add_argument_group("E3 sockets")
    group.add_argument("--e3", choices=sorted(ENDPOINTS), default="ipc", help="set of endpoints; below, those of ipc")
    group.add_argument("--setup", metavar="ENDPOINT", help=f"setup channel, if not {ENDPOINTS['ipc'].setup}")
    group.add_argument("--to-dapp", metavar="ENDPOINT", help=f"RAN to dApp, if not {ENDPOINTS['ipc'].to_dapp}")
    group.add_argument("--from-dapp", metavar="ENDPOINT", help=f"dApp to RAN, if not {ENDPOINTS['ipc'].from_dapp}")


def endpoints_of(arguments: argparse.Namespace) -> Endpoints:
    """The endpoints that the arguments of `add_endpoint_arguments` ask for."""
    overrides = {
        name: getattr(arguments, name)
        for name in ("setup", "to_dapp", "from_dapp")
        if getattr(arguments, name) is not None
    }
    return replace(ENDPOINTS[arguments.e3], **overrides)
