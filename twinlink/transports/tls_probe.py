"""Asks a listener for a handshake of TLS (RFC 8446), to find out which side refuses the other.

Drivers report nothing but that there is no connection.
"""

import socket
import ssl
import struct
from collections.abc import Collection
from contextlib import suppress
from enum import Enum
from pathlib import Path
from typing import NamedTuple

from ..process.resolver import connect

WITHIN_S = 1.0
ALERT_S = 0.1  # and four round trips: a listener that refuses a certificate of TLS 1.3 says so after the handshake
ROUND_TRIPS = 8  # within which a listener of TLS has answered for certain
RTT = struct.Struct("68xI")  # in the kernel's tcp_info: tcpi_rtt, in us


class Outcome(Enum):
    """What came of it."""

    MET = "met"
    REFUSED_HERE = "the listener's certificate is not trusted here"
    REFUSED_THERE = "the listener refuses our certificate"
    NO_TLS = "the listener does not speak TLS"
    UNKNOWN = "no connection, or none that tells"


class Finding(NamedTuple):
    """``certificate``: of the listener, DER, where both sides trust each other."""

    outcome: Outcome
    certificate: bytes | None = None


def probe(host: str, port: int, trusted: Collection[bytes] = (), pair: tuple[Path, Path] | None = None) -> Finding:
    """Connect, within `WITHIN_S` or a little more.

    Args:
        host: name or address.
        port: of the listener.
        trusted: certificates of listeners, DER.
        pair: files of the own certificate and its private key.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # nothing is sent; and OpenSSL cannot tell two certificates of one name apart
    try:
        if pair is not None:
            context.load_cert_chain(*pair)
        connection = connect(host, port, WITHIN_S)
    except OSError:  # of a file, too: that is reported elsewhere
        return Finding(Outcome.UNKNOWN)
    with context.wrap_socket(connection, do_handshake_on_connect=False, suppress_ragged_eofs=False) as secured:
        return _handshake(secured, trusted)


def _handshake(connection: ssl.SSLSocket, trusted: Collection[bytes]) -> Finding:
    try:
        try:
            connection.do_handshake()
        except (ssl.SSLEOFError, ConnectionResetError):  # a listener of TLS says why it ends a handshake
            return Finding(Outcome.NO_TLS)
        certificate = connection.getpeercert(binary_form=True)
        if certificate not in trusted:
            return Finding(Outcome.REFUSED_HERE)
        connection.settimeout(ALERT_S + 4 * _rtt_s(connection))
        with suppress(TimeoutError):
            connection.recv(1)
        return Finding(Outcome.MET, certificate)
    except ssl.SSLError as error:
        if "ALERT" in (error.reason or ""):
            return Finding(Outcome.REFUSED_THERE)
        return Finding(Outcome.NO_TLS if error.reason == "WRONG_VERSION_NUMBER" else Outcome.UNKNOWN)
    except TimeoutError:
        with suppress(OSError):
            if _rtt_s(connection) * ROUND_TRIPS < WITHIN_S:
                return Finding(Outcome.NO_TLS)
    except OSError:  # reset, or closed without a word
        pass
    return Finding(Outcome.UNKNOWN)


def _rtt_s(connection: socket.socket) -> float:
    """The round-trip time that TCP has measured."""
    return float(RTT.unpack(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, RTT.size))[0]) / 1e6
