"""This host's clock offset according to an NTP server (RFC 5905)."""

import math
import socket
from typing import Any

import ntplib

TIMEOUT_S = 2.0
PORT = 123
_UNSYNCHRONISED = 3  # leap indicator: the server's own clock is not set
_STRATUM_INVALID = 16


def parse(server: str) -> tuple[str, int]:
    """Host and port of ``HOST``, ``HOST:PORT``, ``[IPV6]`` or ``[IPV6]:PORT``.  Raises ValueError."""
    host, separator, port = server, "", ""
    if server.startswith("["):
        host, closed, rest = server[1:].partition("]")
        separator, port = rest[:1], rest[1:]
        if not closed or separator not in ("", ":"):
            raise ValueError(f"{server!r} is not HOST or HOST:PORT")
    elif server.count(":") == 1:
        host, separator, port = server.partition(":")
    number = int(port) if port.isascii() and port.isdigit() else 0
    if not host or (separator and not 0 < number < 65536):
        raise ValueError(f"{server!r} is not HOST or HOST:PORT")
    return host, number or PORT


def view(server: str, timeout_s: float = TIMEOUT_S) -> dict[str, Any]:
    """One answer of a server: its clock minus ours, and the bound of the error; all in ns.

    ``bound_ns`` is the root distance of RFC 5905 section 11.2 (appendix A.5.5.2) without a daemon's own jitter: half
    the delay to the primary server (``root_delay_ns``) plus the dispersion on the way (``root_dispersion_ns``), both as
    seen from this host.  A failure gives ``error`` and the server's name alone.

    Raises:
        ValueError: ``server`` is not HOST or HOST:PORT.
    """
    host, port = parse(server)
    try:
        answer = ntplib.NTPClient().request(host, version=4, port=port, timeout=timeout_s)
    except (ntplib.NTPException, OSError) as error:
        return {"server": server, "error": _reason(error, host, port, timeout_s)}
    if answer.leap == _UNSYNCHRONISED or not 0 < answer.stratum < _STRATUM_INVALID:
        reason = (
            f"{server} answers, but its own clock is not synchronised (leap {answer.leap}, stratum {answer.stratum})"
        )
        return {"server": server, "error": reason}
    root_delay_s = answer.root_delay + max(answer.delay, 0.0)
    return {
        "server": server,
        "offset_ns": round(answer.offset * 1e9),
        "delay_ns": round(answer.delay * 1e9),
        "root_delay_ns": round(root_delay_s * 1e9),
        "root_dispersion_ns": round(answer.root_dispersion * 1e9),
        "bound_ns": math.ceil((root_delay_s / 2 + answer.root_dispersion) * 1e9),
        "stratum": answer.stratum,
    }


def _reason(error: Exception, host: str, port: int, timeout_s: float) -> str:
    if isinstance(error, socket.gaierror):
        return f"{host} does not resolve: check the name, and DNS"
    if isinstance(error, OSError):
        return f"{host}, UDP port {port}: {error.strerror or error}"
    text = str(error)
    if "No response" in text:
        text = f"no answer within {timeout_s:g} s: does a server run there, and is UDP let through?"
    return f"{host}, UDP port {port}: {text}"
