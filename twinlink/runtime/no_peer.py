"""Advice where a link has met no peer."""

import socket
import time
from collections.abc import Callable, Sequence

from ..errors import AuthenticationError, PeerTimeout
from ..process.internal_errors import INTERVAL_S
from ..process.listener_probe import Listener, is_second_port, probe
from ..process.resolver import addresses
from ..transports import Endpoint, Transport

RESOLVE_S = 0.3  # a name that was not found in all the time before is not waited for
CONNECT_S = 1.0
REPAIR_S = 1.0  # time for another attempt after a key was trusted on either side
NAMED = 4
GREETS = {"zeromq", "mqtt"}  # transports with listeners that `probe` recognises


def met_or_refused(meets: Callable[[], object], transport: Transport) -> Callable[[], bool]:
    """The condition to wait for without a peer: ``meets()``, or a problem with identities, which only a person repairs.

    A problem that was found before the call, or before keys changed, may be repaired: it counts only after `REPAIR_S`.
    """
    identity = transport.identity
    version = identity.version if identity is not None else 0
    counts_from = time.monotonic() + (0.0 if transport.authentication_problem is None else REPAIR_S)

    def is_decided() -> bool:
        nonlocal version, counts_from
        if meets():
            return True
        now = time.monotonic()
        if transport.authentication_problem is None or now < counts_from:
            return False
        if identity is not None:
            identity.refresh(at_once=True)
            if identity.version != version:
                version, counts_from = identity.version, now + REPAIR_S
                return False
        return True

    return is_decided


def no_peer_error(transport: Transport, name: str, heard: Sequence[str], within_s: float) -> PeerTimeout:
    """What to raise where no peer was up for ``within_s`` seconds, with what to check.

    ``name`` is that of the transport; ``heard`` are nodes that say hello and do not confirm hearing this one.  May
    take a second or two, for name resolution and TCP.
    """
    role, other = ("listening on", "connects") if transport.listening else ("connecting to", "listens")
    endpoint, first = ",".join(map(str, transport.endpoints)), transport.endpoint.port
    where = f"{role} {endpoint} over {name}"
    if transport.authentication_problem is not None:
        return AuthenticationError(f"no peer, {where}: {transport.authentication_problem}")
    if (refusal := transport.refusals.last) is not None and not heard:
        folder = transport.identity.identity.folder if transport.identity is not None else None
        return AuthenticationError(f"no peer within {within_s:g} s, {where}: {refusal.advice(folder)}")
    ports = f"port {first}" if transport.ports == 1 else f"ports {first} to {first + transport.ports - 1}"
    patience_s = within_s + INTERVAL_S  # what goes on raising is kept so often
    if heard:
        nodes = ", ".join(heard[:NAMED])
        hint = f"{nodes} is heard but does not confirm hearing us: check the way back, {ports}"
    elif raised := [one for one in transport.internal_errors.since(0) if time.monotonic() - one.at_s < patience_s]:
        hint = f"{raised[-1].where} of this side raised {raised[-1].error}; the log has its traceback"
    else:
        check = (
            f"check that the other side {other} and has the transport {name!r}, that the address is right and that "
            f"no firewall closes {ports}"
        )
        hint = transport.why_alone() or check
        if transport.listening:
            hint += _ended(transport, name)
        elif name != "memory":  # there the endpoint is a name and no more
            hint = _unresolved(transport) or _listener(transport, name, hint)
    return PeerTimeout(f"no peer within {within_s:g} s, {where}: {hint}")


def _unresolved(transport: Transport) -> str | None:
    """What is wrong with the host name of the other side, or its proxy, if anything."""
    try:
        addresses((transport.via or transport.endpoint).host, RESOLVE_S)
    except TimeoutError:
        return "the host name is not resolved, as DNS does not answer: check the way to it, or give an address"
    except socket.gaierror:
        return "the host name does not resolve: check its spelling, and DNS or /etc/hosts"
    except OSError as error:
        return f"the host name cannot be used: {error}"
    return None


def _listener(transport: Transport, name: str, check: str) -> str:
    """What is wrong with what listens at the endpoints, as far as TCP can tell; ``check``: what to check otherwise."""
    reached = transport.endpoints if transport.via is None else (transport.via,)
    asked = [(one, probe(one.host, one.port, CONNECT_S, asks=True)) for one in reached]
    if all(found.problem for _, found in asked):
        problems = [f"{one}: {found.problem}" if len(asked) > 1 else f"{found.problem}" for one, found in asked]
        known = next((found.advice for _, found in asked if found.advice), None)
        return f"TCP says: {', '.join(problems)}; {known or check}"
    one, found = next((one, found) for one, found in asked if not found.problem)
    if transport.ports > 1 and found.protocol == name and is_second_port(one.host, one.port, CONNECT_S):
        return (
            f"port {one.port} is the second port of the link that listens at {one.port - 1}: connect to "
            f"{Endpoint(one.host, one.port - 1)}"
        )
    return _mismatch(name, found) or check


def _ended(transport: Transport, name: str) -> str:
    """What a listener has met that may have been a peer, as the end of a sentence."""
    said = ""
    if limits := {option: count for option, count in transport.limits_exceeded.items() if count}:
        counts = ", ".join(f"{option} {count}" for option, count in sorted(limits.items()))
        said += f"; this side has ended connections for its limits ({counts}): if they were peers, raise those options"
    if transport.foreign_connections:
        said += (
            f"; {transport.foreign_connections} connections spoke another protocol: if they were peers, open both "
            f"sides with transport {name!r}"
        )
    return said


def _mismatch(name: str, found: Listener) -> str | None:
    """Where the program that listens speaks another protocol than this transport's."""
    if found.ends:
        return (
            "what listens there ends each connection at once: it has reached a limit, which its log names, or a filter "
            "of addresses keeps this host out"
        )
    if found.protocol == name or name not in {*GREETS, "websocket", "tcp", "zenoh"}:
        return None
    remedy = "open both sides with the same transport"
    if found.protocol:
        return f"what listens there speaks {found.protocol}, not {name}: {remedy}"
    if found.greeting:
        return f"another program listens there, which greets with {found.greeting}: check the address"
    if name in GREETS:
        return f"what listens there does not speak {name}: {remedy}"
    return None
