"""Asks a listener for a handshake of TLS (RFC 8446), to find out which side refuses the other.

Drivers report nothing but that there is no connection.
"""

import os
import socket
import ssl
import struct
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from enum import Enum
from pathlib import Path
from typing import NamedTuple

from ..process.listener_probe import ends_at_once
from ..process.resolver import connect

WITHIN_S = 0.8  # a Zenoh listener ends a connection from which it has read nothing for a second
# A listener refuses a certificate of TLS 1.3 after the handshake, which may take a while.  One that accepts it sends
# tickets at once (RFC 8446 section 4.6.1).
ANSWER_S, LOOK_S = 0.8, 0.02
AGAIN_S = 0.1  # a listener of TLS says why it ends a handshake, unless it ends itself: then it does so once
ROUND_TRIPS = 8  # within which a listener of TLS has answered, unless it is busy
# A plain Zenoh listener takes the beginning of a handshake for the length of a message, and waits for the rest of it.
# It answers what is no message.  A busy listener of TLS does not.
REST, REST_S = bytes(4096), 0.2
RECORDS = {b"\x15", b"\x16"}  # of TLS (RFC 8446 section 5.1): alert, handshake
RTT = struct.Struct("68xI")  # in the kernel's tcp_info: tcpi_rtt, in us


class Outcome(Enum):
    """What came of it."""

    MET = "met"
    REFUSED_HERE = "the listener's certificate is not trusted here"
    REFUSED_THERE = "the listener refuses our certificate"
    NO_TLS = "the listener does not speak TLS"
    SILENT = "the listener takes the connection, and does not answer"
    UNKNOWN = "no connection, or one that tells nothing"


class Finding(NamedTuple):
    """``certificate``: of the listener, DER, where both sides trust each other."""

    outcome: Outcome
    certificate: bytes | None = None


def probe(
    host: str,
    port: int,
    trusted: Collection[bytes] = (),
    pair: tuple[Path, Path] | None = None,
    *,
    roots: bytes = b"",
    names: Collection[str] = (),
    hosts: Collection[str] = (),
) -> Finding:
    """Connect, within `WITHIN_S` or a little more.

    Args:
        host: name or address.
        port: of the listener.
        trusted: certificates of listeners, DER.
        pair: files of this side's certificate and its private key.
        roots: certificates, PEM, of which one must have issued the listener's, if it is not among them; empty: only
            those in ``trusted`` count.
        names, hosts: a certificate that one of ``roots`` has issued must have one of ``names`` as its common name, or
            one of ``hosts`` as that or as the name of its host.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # nothing is sent; and OpenSSL cannot tell two certificates of one name apart
    try:
        if roots:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(cadata=roots.decode())
        if pair is not None:
            context.load_cert_chain(*pair)
        for is_again in (False, True):
            connection = connect(host, port, WITHIN_S)
            if is_again and ends_at_once(connection):  # for its number, not for what it has received
                connection.close()
                break
            with context.wrap_socket(connection, do_handshake_on_connect=False, suppress_ragged_eofs=False) as secured:
                found = _handshake(secured, lambda der: der in trusted or (bool(roots) and _is_of(der, names, hosts)))
            if found is not None:
                return found
            time.sleep(0 if is_again else AGAIN_S)
        else:
            return Finding(Outcome.NO_TLS)
    except OSError:  # of a file, too: that is reported elsewhere
        pass
    return Finding(Outcome.UNKNOWN)


def _is_of(der: bytes, names: Collection[str], hosts: Collection[str]) -> bool:
    """Whether a certificate that an authority has issued has one of these names, or is of one of these hosts."""
    from ..identity import certificates  # needs a package that other links do without

    found = certificates.issued(der)
    return found is not None and (found.name in names or not {found.name, *found.hosts}.isdisjoint(hosts))


def _handshake(connection: ssl.SSLSocket, trusts: Callable[[bytes], bool]) -> Finding | None:
    """None: the listener has ended the connection without an answer."""
    try:
        try:
            connection.do_handshake()
        except (ssl.SSLEOFError, ConnectionResetError):
            return None
        certificate = connection.getpeercert(binary_form=True)
        if certificate is None or not trusts(certificate):
            return Finding(Outcome.REFUSED_HERE)
        _wait_for_answer(connection)
        return Finding(Outcome.MET, certificate)
    except ssl.SSLCertVerificationError:
        return Finding(Outcome.REFUSED_HERE)
    except ssl.SSLError as error:
        if "ALERT" in (error.reason or ""):
            return Finding(Outcome.REFUSED_THERE)
        return Finding(Outcome.NO_TLS if error.reason == "WRONG_VERSION_NUMBER" else Outcome.UNKNOWN)
    except TimeoutError:
        return Finding(_of_a_silent(connection))
    except OSError:  # reset, or closed without a word
        pass
    return Finding(Outcome.UNKNOWN)


def _wait_for_answer(connection: ssl.SSLSocket) -> None:
    """Return when the listener has accepted our certificate, or probably has.  Raises ssl.SSLError: it has not."""
    until = time.monotonic() + ANSWER_S + 4 * _rtt_s(connection)
    connection.settimeout(LOOK_S)
    while time.monotonic() < until and not (connection.session is not None and connection.session.has_ticket):
        with suppress(TimeoutError):
            connection.recv(1)
            return


def _of_a_silent(connection: ssl.SSLSocket) -> Outcome:
    """What a listener is that has not answered."""
    with suppress(OSError), socket.socket(fileno=os.dup(connection.fileno())) as beneath:
        if _rtt_s(beneath) * ROUND_TRIPS > WITHIN_S:
            return Outcome.UNKNOWN
        beneath.settimeout(REST_S)
        try:
            beneath.sendall(REST)
            return Outcome.SILENT if beneath.recv(1) in RECORDS else Outcome.NO_TLS
        except ConnectionError:
            return Outcome.NO_TLS
    return Outcome.SILENT


def _rtt_s(connection: socket.socket) -> float:
    """The round-trip time that TCP has measured."""
    return float(RTT.unpack(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, RTT.size))[0]) / 1e6
