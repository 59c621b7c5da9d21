"""Options of transport ``websocket``."""

from dataclasses import dataclass

from .stream_options import StreamOptions


@dataclass(frozen=True)
class WebsocketOptions(StreamOptions):
    """As `StreamOptions`; with TLS it is ``wss``."""

    origins: str = ""  # of web pages that a listener admits, with commas between them; "*": all
    pages: str = ""  # of a listener: a folder whose files browsers get at the same port; what is not there is 404
    token: str = ""  # of a listener: requests, also of a WebSocket, are for /TOKEN/...; others are 403
    proxy: str = ""  # of a connector: http://[user:password@]host:port, to be asked for a tunnel (CONNECT)
