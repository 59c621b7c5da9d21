"""What listens at an endpoint, for a person whose link meets no peer; asked over TCP, without a driver."""

import errno
import socket
from contextlib import suppress
from typing import NamedTuple

from .resolver import connect

GREETING_S = 0.2  # a program that greets does so at once
GREETING_OCTETS = 64
MQTT_CONNECT = bytes.fromhex("10 0d 0004 4d515454 05 02 0005 00 0000")  # MQTT 5.0 section 3.1
MQTT_CONNACK = 0x20
ZMTP_SIGNATURE = 0xFF, 0x7F  # octets 0 and 9, RFC 23/ZMTP
_DESCRIPTORS = "this host has no descriptor free: close what is not needed, or raise the limit (`ulimit -n`)"
_ROUTE = "this host has no route there: check its addresses and routes (`ip route get ADDRESS`)"
_FORBIDDEN = "this host itself forbids the connection: check its own packet filter and the rights of the program"
_MEMORY = "this host lacks memory for another connection: end what is not needed"
ADVICE = {  # for errors of TCP whose cause is on this host
    errno.EMFILE: _DESCRIPTORS,
    errno.ENFILE: _DESCRIPTORS,
    errno.ENOBUFS: _MEMORY,
    errno.ENOMEM: _MEMORY,
    errno.ENETUNREACH: _ROUTE,
    errno.EADDRNOTAVAIL: "this host has no address or no free port for it: check `ip address` and `ss -s`",
    errno.EACCES: _FORBIDDEN,
    errno.EPERM: _FORBIDDEN,
}
_NAME = "check the spelling of the host name, and DNS or /etc/hosts"


class Listener(NamedTuple):
    """What was found.

    Attributes:
        problem: the system's message why no TCP connection can be made; None if one can.
        protocol: the transport that it speaks, as far as can be told: ``zeromq``, ``mqtt`` or None.
        greeting: the octets that it sends to any client, as text for a person; empty for those transports and Zenoh.
        advice: what to do about ``problem``, where its cause is on this host; None if it need not be.
        ends: whether it ends the connection at once, before anything is sent to it.
    """

    problem: str | None
    protocol: str | None = None
    greeting: str = ""
    advice: str | None = None
    ends: bool = False


def probe(host: str, port: int, within_s: float, *, asks: bool = False) -> Listener:
    """Connect to a host's addresses until one accepts; ``within_s`` for resolving its name, and for each address.

    Without ``asks`` only the ``problem`` is found out.
    """
    try:
        with connect(host, port, within_s) as connection:
            return _ask(connection) if asks else Listener(None)
    except OSError as error:
        advice = _NAME if isinstance(error, socket.gaierror) else ADVICE.get(error.errno or 0)
        return Listener(error.strerror or str(error), advice=advice)


def is_second_port(host: str, port: int, within_s: float) -> bool:
    """Whether this port looks like the second of a ZeroMQ link, which listens at the port before.

    Both greet as ZeroMQ does, and the next port does not.
    """

    def greets(at: int) -> bool:
        return 0 < at < 65536 and probe(host, at, within_s, asks=True).protocol == "zeromq"

    return greets(port) and greets(port - 1) and not greets(port + 1)


def ends_at_once(connection: socket.socket) -> bool:
    """Whether the other side ends a connection on which nothing was sent."""
    before = connection.gettimeout()
    connection.settimeout(GREETING_S)
    try:
        return not connection.recv(1, socket.MSG_PEEK)
    except TimeoutError:
        return False
    except OSError:
        return True
    finally:
        connection.settimeout(before)


def _ask(connection: socket.socket) -> Listener:
    if ends_at_once(connection):
        return Listener(None, ends=True)
    connection.setblocking(False)  # what it greets with has come
    greeting = _received(connection)
    connection.settimeout(GREETING_S)
    if len(greeting) > 9 and (greeting[0], greeting[9]) == ZMTP_SIGNATURE:
        return Listener(None, "zeromq")
    if greeting:
        return Listener(None, greeting=repr(greeting)[1:])
    with suppress(OSError):
        connection.sendall(MQTT_CONNECT)
    answer = _received(connection)
    return Listener(None, "mqtt" if answer[:1] == bytes([MQTT_CONNACK]) else None)


def _received(connection: socket.socket) -> bytes:
    try:
        return connection.recv(GREETING_OCTETS)
    except OSError:  # nothing came, or it was reset
        return b""
