"""Advice for a person whose link has met no peer."""

from collections.abc import Sequence

from ..errors import PeerTimeout
from ..process.resolver import addresses
from ..transports import Transport

RESOLVE_S = 0.3  # a name that was not found in all the time before is not waited for
NAMED = 4


def no_peer_error(transport: Transport, name: str, heard: Sequence[str], within_s: float) -> PeerTimeout:
    """What to raise where no peer was up for ``within_s`` seconds, with what to check.

    ``name`` is that of the transport; ``heard`` are nodes that say hello and do not confirm hearing this one.
    """
    role, other = ("listening on", "connects") if transport.listening else ("connecting to", "listens")
    endpoint, first = ",".join(map(str, transport.endpoints)), transport.endpoint.port
    ports = f"port {first}" if transport.ports == 1 else f"ports {first} to {first + transport.ports - 1}"
    if heard:
        nodes = ", ".join(heard[:NAMED])
        hint = f"{nodes} is heard but does not confirm hearing us: check the way back, {ports}"
    else:
        check = (
            f"check that the other side {other} and has the transport {name!r}, that the address is right and that "
            f"no firewall closes {ports}"
        )
        hint = _unresolved(transport, name) or transport.why_alone() or check
    return PeerTimeout(f"no peer within {within_s:g} s, {role} {endpoint} over {name}: {hint}")


def _unresolved(transport: Transport, name: str) -> str | None:
    """What is wrong with the host name of the other side, if anything."""
    if transport.listening or name == "memory":  # there it is a name and no more
        return None
    try:
        addresses(transport.endpoint.host, RESOLVE_S)
    except TimeoutError:
        return "the host name is not resolved, as DNS does not answer: check the way to it, or give an address"
    except OSError:
        return "the host name does not resolve: check its spelling, and DNS or /etc/hosts"
    return None
