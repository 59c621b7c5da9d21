"""What listens at an endpoint, for a person whose link meets no peer; asked over TCP, without a driver."""

import socket
from contextlib import suppress
from typing import NamedTuple

from .resolver import connect

GREETING_S = 0.2  # a program that greets does so at once
GREETING_OCTETS = 64
MQTT_CONNECT = bytes.fromhex("10 0d 0004 4d515454 05 02 0005 00 0000")  # MQTT 5.0 section 3.1
MQTT_CONNACK = 0x20
ZMTP_SIGNATURE = 0xFF, 0x7F  # octets 0 and 9, RFC 23/ZMTP


class Listener(NamedTuple):
    """What was found.

    Attributes:
        problem: the system's message why no TCP connection can be made; None if one can.
        protocol: the transport that it speaks, as far as can be told: ``zeromq``, ``mqtt`` or None.
        greeting: the octets that it sends to any client, as text for a person; empty for those transports and Zenoh.
    """

    problem: str | None
    protocol: str | None = None
    greeting: str = ""


def probe(host: str, port: int, within_s: float, *, asks: bool = False) -> Listener:
    """Connect to a host's addresses until one accepts; ``within_s`` for resolving its name, and for each address.

    Without ``asks`` only the ``problem`` is found out.
    """
    try:
        with connect(host, port, within_s) as connection:
            return _ask(connection) if asks else Listener(None)
    except OSError as error:
        return Listener(error.strerror or str(error))


def _ask(connection: socket.socket) -> Listener:
    connection.settimeout(GREETING_S)
    greeting = _received(connection)
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
