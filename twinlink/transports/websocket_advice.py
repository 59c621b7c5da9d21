"""Why a WebSocket listener is not reached, and what to do, for a person."""

from websockets.exceptions import InvalidMessage, InvalidStatus

from .websocket_connection import WebsocketConnection

BAD_GATEWAY, UNAVAILABLE, GATEWAY_TIMEOUT = 502, 503, 504
NEEDS_LOGIN = 401, 403, 407
NO_HTTP = "what listens there does not speak WebSocket: open both sides with the same transport"


def refusal(connection: WebsocketConnection) -> str:
    """The other side has ended the handshake."""
    error = connection.protocol.handshake_exc
    if isinstance(error, InvalidStatus):
        return _status(error.response.status_code, error.response.reason_phrase)
    if not connection.begins:
        return "what listens there ends the connection without an answer: it may speak another protocol"
    if isinstance(error, InvalidMessage):
        return NO_HTTP
    return f"what listens there is no listener of twinlink ({connection.refused}): check the address"


def silence(begins: bytes) -> str:
    """TCP has connected, and the handshake has not been answered in its time, but by these octets."""
    if begins and not begins.startswith(b"HTTP/"):
        return NO_HTTP
    return "TCP connects, but what listens there does not answer the WebSocket handshake: it may speak another protocol"


def _status(code: int, phrase: str) -> str:
    said = f"what answers there is HTTP with status {code} {phrase}".rstrip()
    if code in {BAD_GATEWAY, UNAVAILABLE, GATEWAY_TIMEOUT}:
        return (
            f"{said}: a proxy or Route that reaches no listener: check that the listener runs, and its service and port"
        )
    if code in NEEDS_LOGIN:
        return f"{said}: a proxy that wants a login: have it let this address through"
    return f"{said}, and no listener of twinlink: check the address, and what its proxy or Route forwards to"
