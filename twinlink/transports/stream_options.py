"""Options of a transport of plain sockets, and its TLS contexts."""

import ssl
from dataclasses import dataclass
from pathlib import Path

from ..errors import ConfigurationError
from .base import Options


@dataclass(frozen=True)
class StreamOptions(Options):
    """Options of every transport of plain sockets.

    With ``tls_certificate`` a listener speaks TLS; with ``tls`` or ``tls_trusted`` a connector does.
    """

    reconnect_ms: int = 30  # between two attempts to connect
    connect_timeout_ms: int = 100  # of TCP at first, see renew; TCP itself would try again after 1, 3, 7 s
    heartbeat_ms: int = 5000  # without a word from the other side, after which it is pinged
    heartbeat_timeout_ms: int = 15_000  # for the answer; a node's peers know sooner that it is gone, by hellos
    connections: int = 400  # of a listener
    handshakes: int = 128  # of them, those that have not completed the handshake; then the oldest is ended
    handshake_ms: int = 2000  # limit of a listener: three round trips with TLS, else one
    unsent_octets: int = 128 * 1024 * 1024  # that wait to be sent on one connection
    unread_octets: int = 256 * 1024 * 1024  # of messages incomplete or not read by the link, on all connections
    tls: bool = False  # of a connector: TLS with the certificate authorities of its system
    tls_certificate: str = ""  # file, PEM: this side's certificate, and those up to its authority
    tls_private_key: str = ""  # file, PEM; without it, the key is in tls_certificate
    tls_trusted: str = ""  # file, PEM: certificates of which the other side has one, or one that they signed


def tls_context(options: StreamOptions, listening: bool) -> ssl.SSLContext | None:
    """The context for TLS 1.2 or later; None for none.  Raises ConfigurationError."""
    if listening and not options.tls_certificate:
        if options.tls or options.tls_trusted or options.tls_private_key:
            raise ConfigurationError("a listener needs its certificate for TLS: give tls_certificate")
        return None
    if not (options.tls or options.tls_certificate or options.tls_trusted):
        if options.tls_private_key:
            raise ConfigurationError("tls_private_key needs tls_certificate beside it")
        return None
    purpose = ssl.Purpose.CLIENT_AUTH if listening else ssl.Purpose.SERVER_AUTH
    for name in ("tls_certificate", "tls_private_key", "tls_trusted"):
        if (path := getattr(options, name)) and not Path(path).is_file():
            raise ConfigurationError(f"{name}: there is no file {path}")
    try:
        context = ssl.create_default_context(purpose, cafile=options.tls_trusted or None)
        if options.tls_certificate:
            context.load_cert_chain(options.tls_certificate, options.tls_private_key or None)
    except (ssl.SSLError, OSError) as error:
        names = ", ".join(
            name for name in (options.tls_certificate, options.tls_private_key, options.tls_trusted) if name
        )
        raise ConfigurationError(
            f"TLS takes nothing from {names}: {getattr(error, 'reason', None) or error}; each is a PEM file, and the "
            "private key belongs to the certificate"
        ) from error
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if listening and options.tls_trusted:
        context.verify_mode = ssl.CERT_REQUIRED
    return context
