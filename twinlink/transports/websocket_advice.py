"""Why a WebSocket listener is not reached, and what to do, for a person."""

import ssl

from websockets.exceptions import InvalidMessage, InvalidStatus

from .stream_connection import FOREIGN_TLS
from .websocket_connection import WebsocketConnection

BAD_GATEWAY, UNAVAILABLE, GATEWAY_TIMEOUT = 502, 503, 504
NEEDS_LOGIN = 401, 403, 407
NO_HTTP = "what listens there does not speak WebSocket: open both sides with the same transport"
NO_TLS = (
    "what listens there does not speak TLS: give the listener tls_certificate, or leave tls, tls_trusted and "
    "tls_certificate out here"
)
NEEDS_TLS = (
    "the listener takes only TLS: give this side an identity if the listener has one (`twinlink key new`, then "
    "--identity), else the option tls_trusted with a file of the listener's certificate, or tls behind a public Route"
)
NO_ANSWER_IN_TLS = f"TCP connects, but TLS gets no answer; {NO_TLS}"


def refusal(connection: WebsocketConnection) -> str:
    """The other side has ended the handshake."""
    if connection.tls_error is not None:
        return tls_failure(connection.tls_error)
    error = connection.protocol.handshake_exc
    if isinstance(error, InvalidStatus):
        return _status(error.response.status_code, error.response.reason_phrase)
    if not connection.begins:
        return "what listens there ends the connection without an answer: it may speak another protocol"
    if isinstance(error, InvalidMessage):
        return NO_HTTP
    return f"what listens there is no listener of twinlink ({connection.refused}): check the address"


def silence(connection: WebsocketConnection) -> str:
    """TCP has connected, and the handshake has not been answered in its time."""
    if connection.begins and not connection.begins.startswith(b"HTTP/"):
        return NO_HTTP
    return "TCP connects, but what listens there does not answer the WebSocket handshake: it may speak another protocol"


def tls_failure(error: ssl.SSLError) -> str:
    """TLS has refused the other side, or the other side us."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return (
            f"the listener's certificate is not accepted ({error.verify_message}): give tls_trusted, a file with it or "
            "its authority's, and connect to a name that is in it"
        )
    reason = error.reason or str(error)
    if "ALERT" in reason and ("CERT" in reason or "UNKNOWN_CA" in reason):
        return (
            f"the listener does not accept our certificate ({reason}): give tls_certificate and tls_private_key here, "
            "and the certificate at the listener in tls_trusted"
        )
    if reason in FOREIGN_TLS or isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError):
        return NO_TLS
    return f"TLS fails ({reason}): check the certificates, and that both sides have TLS 1.2 or later"


def _status(code: int, phrase: str) -> str:
    said = f"what answers there is HTTP with status {code} {phrase}".rstrip()
    if code in {BAD_GATEWAY, UNAVAILABLE, GATEWAY_TIMEOUT}:
        return (
            f"{said}: a proxy or Route that reaches no listener: check that the listener runs, and its service and port"
        )
    if code in NEEDS_LOGIN:
        return f"{said}: a proxy that wants a login: have it let this address through"
    return f"{said}, and no listener of twinlink: check the address, and what its proxy or Route forwards to"
