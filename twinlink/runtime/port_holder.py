"""Which link of this process holds the port that another one is to listen on, as when a notebook's cell runs again."""

import sys
from typing import Protocol, cast

from ..errors import TransportError
from ..process.exit_hooks import open_links
from ..process.ip_address import is_address
from ..process.listener_probe import is_second_port
from ..transports import Transport
from ..transports.base import advice

_ANY_HERE = {"0.0.0.0": "127.0.0.1", "[::]": "::1"}  # where this host is reached that listens on all addresses
ANY = _ANY_HERE.keys()
PROBE_S = 0.5


class Holder(Protocol):
    """A link, as far as its port counts here."""

    _transport: Transport


def in_use_here(error: TransportError, transport: Transport) -> TransportError:
    """The error of a transport that could not listen; names the link of this process that holds the port, if one does,
    and how to close it."""
    if not transport.listening or "in use" not in str(error):
        return error
    port = transport.endpoint.port
    for number, link in enumerate(open_links()):
        if _conflict(held := cast(Holder, link)._transport, transport):
            variables = [name for name, value in vars(sys.modules["__main__"]).items() if value is link]
            named = [name for name in variables if not name.startswith("_")] or [f"twinlink.open_links()[{number}]"]
            what = str(error).removesuffix(advice("in use"))
            if abs(held.endpoint.port - port) == 1:  # nothing is open twice: the ports are too close
                return TransportError(f"{what}.  This process holds it: {link!r}; leave two ports for each link")
            return TransportError(f"{what}.  This process holds it: {link!r}; to close that, call {named[0]}.close()")
    if is_second_port(_ANY_HERE.get(transport.endpoint.host, transport.endpoint.host), port, PROBE_S):
        return TransportError(
            f"{error}.  Port {port} is the second port of a link that listens at {port - 1}: leave two ports for each"
        )
    return error


def _conflict(one: Transport, other: Transport) -> bool:
    if not one.listening or one is other:
        return False
    apart = abs(one.endpoint.port - other.endpoint.port)
    first = min(one, other, key=lambda transport: transport.endpoint.port)
    hosts = {one.endpoint.host, other.endpoint.host}
    return apart < first.ports and (len(hosts) == 1 or bool(hosts & ANY) or not all(map(is_address, hosts)))
