"""Health, readiness and metrics of a program over HTTP, for kubelets and Prometheus: `Server`.

    /healthz   200 while the main loop turns, else 503: the supervisor of the program should restart it
    /readyz    200 while the program does its work, and nothing in it has raised within a minute, else 503 with the
               reasons, as JSON
    /metrics   in Prometheus' text format

A daemon thread for each address accepts connections and starts another for each.  Their number and duration are
bounded: each is closed `PATIENCE_S` after it was accepted, and beyond `CONNECTIONS` the oldest is closed for a new one.
"""

import contextlib
import math
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any, Self

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from twinlink import __version__
from twinlink.appkit.convert import HttpAddress
from twinlink.errors import TransportError
from twinlink.process import internal_errors
from twinlink.process.guarded_thread import GuardedThread
from twinlink.process.ip_address import family_of
from twinlink.process.resolver import listen_addresses
from twinlink.process.text import to_json
from twinlink.transports.base import advice

from .pulse import Pulse

PATIENCE_S = 5.0  # for a request and its answer: a kubelet gives up after 1 s, Prometheus after 10 s
CONNECTIONS = 8  # open at a time, at each address; for a further one the oldest is closed
MOST_CONNECTIONS = 16  # including closed ones that still have a thread; a further one is refused
_POLL_S = 0.1  # how often the accepting thread checks for connections to close, and for its own end

_TEXT, _JSON = "text/plain; charset=utf-8", "application/json"

_Answer = tuple[HTTPStatus, str, bytes]
_monotonic = time.monotonic


class Server:
    """Serves inside a ``with`` statement.

    Args:
        address: to listen at, each address of a name; port 0 takes a free one.
        pulse: of the main loop.
        reasons: returns why the program is not ready, an empty list if it is; called on threads of the server.
        collectors: of the metrics; called on threads of the server.

    Attributes:
        address: with the port taken.

    Raises:
        TransportError: the address cannot be listened at.
    """

    def __init__(
        self, address: HttpAddress, pulse: Pulse, reasons: Callable[[], list[str]], collectors: Iterable[Collector]
    ) -> None:
        self._pulse, self._reasons = pulse, reasons
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        for one in collectors:
            self._registry.register(one)
        self.address = address
        self._listeners: list[_Listener] = []
        self._ended = False
        try:
            for host in listen_addresses(address.host):
                self._listeners.append(_Listener(host, self.address.port, self._answer))
                self.address = HttpAddress(address.host, int(self._listeners[-1].server_address[1]))
        except OSError as error:
            self._close()
            reason = error.strerror or str(error)
            raise TransportError(f"--http cannot serve at {address}: {reason}{advice(reason)}") from error

    def __enter__(self) -> Self:
        for one in self._listeners:
            GuardedThread(partial(one.serve_forever, _POLL_S), "http", again=lambda: not self._ended).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended = True
        for one in self._listeners:
            one.shutdown()
        self._close()

    def _close(self) -> None:
        for one in self._listeners:
            one.server_close()

    def _answer(self, path: str, accept: str) -> _Answer:
        """Status, content type and content."""
        if path == "/healthz":
            problem = self._pulse.problem()
            status = HTTPStatus.SERVICE_UNAVAILABLE if problem else HTTPStatus.OK
            return status, _TEXT, f"{problem or 'ok'}\n".encode()
        if path == "/readyz":
            problem = self._pulse.problem()
            reasons = [*([problem] if problem else []), *self._reasons(), *internal_errors.recent()]
            status = HTTPStatus.SERVICE_UNAVAILABLE if reasons else HTTPStatus.OK
            return status, _JSON, to_json({"ready": not reasons, "reasons": reasons}).encode() + b"\n"
        if path == "/metrics":
            encode, content_type = choose_encoder(accept)
            return HTTPStatus.OK, content_type, encode(self._registry)
        return HTTPStatus.NOT_FOUND, _TEXT, b"not found: there are /healthz, /readyz and /metrics\n"


class _Listener(ThreadingHTTPServer):
    """Accepts connections; bounds their number and duration."""

    request_queue_size = 32

    def __init__(self, host: str, port: int, answer: Callable[[str, str], _Answer]) -> None:
        self.address_family = family_of(host)
        self.answer = answer
        self._ends: dict[Any, float] = {}  # connections, the oldest first -> when to close it; infinity once closed
        self._lock = threading.Lock()
        super().__init__((host, port), _Handler)

    def server_bind(self) -> None:
        """As TCPServer; HTTPServer also looks up the name of this host in the DNS.  ``::`` takes IPv4 as well."""
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        TCPServer.server_bind(self)

    def verify_request(self, request: Any, client_address: object) -> bool:
        """Whether to take a new connection; closes the oldest if there are too many."""
        with self._lock:
            if len(self._ends) >= MOST_CONNECTIONS:
                return False
            open_ones = [one for one, end in self._ends.items() if end < math.inf]
            if len(open_ones) >= CONNECTIONS:
                self._cut_off(open_ones[0])
            self._ends[request] = _monotonic() + PATIENCE_S
        return True

    def service_actions(self) -> None:
        """Called every `_POLL_S`: closes the connections that have used up their time."""
        now = _monotonic()
        with self._lock:
            for one in [one for one, end in self._ends.items() if end <= now]:
                self._cut_off(one)

    def _cut_off(self, request: Any) -> None:
        """Shut the connection down; its thread, which waits for the client, then sees the end of the stream."""
        self._ends[request] = math.inf
        with contextlib.suppress(OSError):  # the client has left
            request.shutdown(socket.SHUT_RDWR)

    def shutdown_request(self, request: Any) -> None:
        """Called when a connection has ended."""
        with self._lock:
            self._ends.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: object) -> None:
        """Log an error, except that a client left early or was cut off."""
        error = sys.exc_info()[1]
        if error is not None and not isinstance(error, OSError):
            internal_errors.of_process.add("an HTTP request", error, "it was not answered")


class _Handler(BaseHTTPRequestHandler):
    """Answers one request."""

    timeout = PATIENCE_S
    server_version = f"twinlink/{__version__}"
    sys_version = ""
    server: _Listener

    def do_GET(self) -> None:
        """Answer a request."""
        path = self.path.partition("?")[0]
        try:
            status, content_type, content = self.server.answer(path, self.headers.get("Accept", ""))
        except Exception as error:
            internal_errors.of_process.add("an HTTP request", error, "it is answered with 500")
            status, content_type, content = HTTPStatus.INTERNAL_SERVER_ERROR, _TEXT, f"{error!r}\n".encode()
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    do_HEAD = do_GET  # noqa: N815

    def log_message(self, format: str, *_: object) -> None:
        """Log nothing: probes come every few seconds."""
