"""Connects to a WebSocket listener, on a thread of its own, again and again while there is no connection."""

import errno
import os
import select
import socket
import ssl
import time
from collections.abc import Callable

from websockets.client import ClientProtocol
from websockets.proxy import Proxy
from websockets.uri import parse_uri

from ..process.guarded_thread import GuardedThread
from ..process.internal_errors import InternalErrors
from ..process.ip_address import bracketed, family_of, is_address
from ..process.readiness import is_readable
from ..process.resolver import RepeatedLookup
from . import websocket_proxy
from .base import Endpoint
from .receive_buffers import ReceiveBuffers
from .tls_probe import Outcome, probe
from .websocket_advice import NO_ANSWER_IN_TLS, NO_TLS, refusal, silence, tls_failure
from .websocket_connection import ADDED_OCTETS, SUBPROTOCOL, WebsocketConnection, quiet
from .websocket_options import WebsocketOptions

RESOLVE_S = 0.2
ATTEMPT_S = 1.0  # of TCP, at most: one round trip; over a longer one a peer would be declared down
HANDSHAKE_S = 1.0  # times the patience: of TLS and HTTP
TLS_SPOKEN = {Outcome.MET, Outcome.REFUSED_HERE, Outcome.REFUSED_THERE}
ASKED_AT = 3  # attempts in a row that the listener ended without a word, whether it speaks TLS is asked
FRESH_S = 0.3  # times the patience: a connection on which something came since then is alive

Connected = Callable[[WebsocketConnection], None]


class Dialer:
    """The connection attempts of one connector.

    Args:
        context: gives the one for TLS, for each attempt; None for plain ``ws``.
        accepts: whether the listener is trusted, with the certificate of this connection.
        epoch: of the link, which the listener learns from the request; None: it learns none.
        max_frame: octets of the longest frame that is accepted.
        on_connected: called on its thread with each connection; messages that came with its handshake are in its inbox.
        errors: takes what its thread raises.

    Attributes:
        failure, error: what the last attempt met beyond TCP, for a person, and as it was raised; None if it got no
            further, or succeeded.
        errors: how many in a row met one.
        needs_tls: whether the listener speaks TLS, though this side does not.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        options: WebsocketOptions,
        context: Callable[[], ssl.SSLContext | None],
        accepts: Callable[[WebsocketConnection], bool],
        epoch: int | None,
        max_frame: int,
        buffers: ReceiveBuffers,
        on_connected: Connected,
        errors: InternalErrors,
    ) -> None:
        self.failure: str | None = None
        self.error: Exception | None = None
        self.errors = 0
        self.needs_tls = False
        self._port = endpoint.port
        self._options = options
        self._context, self._secure = context, context() is not None
        self._max_size = max_frame + ADDED_OCTETS
        self._accepts = accepts
        self._buffers = buffers
        self._on_connected = on_connected
        self._host = endpoint.host.strip("[]")
        query = "" if epoch is None else f"?epoch={epoch:016x}"
        self._uri = parse_uri(f"{'wss' if self._secure else 'ws'}://{bracketed(self._host)}:{self._port}/{query}")
        self._proxy: Proxy | None = None
        reached = endpoint
        if options.proxy:
            self._proxy, reached = websocket_proxy.parse(options.proxy)
        reached_host, self._reached_port = reached.host.strip("[]"), reached.port
        self._lookup = None if is_address(reached_host) else RepeatedLookup(reached_host, reached.port)
        self._address = "" if self._lookup else reached_host
        self._patience = 1
        self._connected = False
        self._closing = False
        self._wakes = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._thread = GuardedThread(self._run, "twinlink-websocket-dial", errors, again=lambda: not self._closing)

    def start(self) -> None:
        """Begin to connect.  Raises RuntimeError if the process can start no more threads."""
        self._thread.start()

    def dial(self, patience: int, connection: WebsocketConnection | None, now: float) -> None:
        """Connect anew unless ``connection``, the present one, is alive.

        An attempt goes on, unless its patience (see `Transport.renew`) changes.  ``now`` is monotonic, in seconds.
        """
        changed, self._patience = patience != self._patience, patience
        if connection is None:
            if changed:
                self._wake()
        elif now - connection.heard_s > FRESH_S * patience:
            connection.abort()

    def lost(self) -> None:
        """The connection has ended: make another one."""
        self._connected = False
        if not self._closing:
            self._wake()

    def stop(self, within_s: float) -> None:
        """End the thread."""
        self._closing = True
        self._wake()
        if self._thread.ident is not None:
            self._thread.join(within_s)
        if not self._thread.is_alive():
            os.close(self._wakes)

    def _wake(self) -> None:
        os.eventfd_write(self._wakes, 1)

    def _run(self) -> None:
        while not self._closing:
            try:
                self._attempt()
            except _Interrupted:
                continue
            except OSError:
                if self._lookup is not None:
                    self._lookup.next_address()
            while self._connected and not self._closing:
                self._rest(None)
            if not self._closing:
                self._rest(self._options.reconnect_ms / 1000)

    def _rest(self, seconds: float | None) -> None:
        """Wait for so long, or until another thread wakes this one."""
        if is_readable(self._wakes, seconds):
            os.eventfd_read(self._wakes)

    def _attempt(self) -> None:
        """Connect once.  Raises OSError, or _Interrupted."""
        if self._lookup is not None:
            self._address = self._lookup.poll(0.0 if self._address else RESOLVE_S) or self._address
            if not self._address:
                return
        opened = self._connect_tcp()
        try:
            if self._proxy is not None:
                self._open_tunnel(self._proxy, opened)
            if (context := self._context()) is not None:
                opened = self._secured(context, opened)
            self._upgrade(opened)
        except BaseException:
            opened.close()
            raise

    def _connect_tcp(self) -> socket.socket:
        least_s = self._options.connect_timeout_ms / 1000
        limit_s = max(least_s, min(least_s * (2 * self._patience - 1), ATTEMPT_S))
        opened = socket.socket(family_of(self._address), socket.SOCK_STREAM)
        try:
            opened.setblocking(False)
            code = opened.connect_ex((self._address, self._reached_port))
            if code == errno.EINPROGRESS:
                self._await(opened, select.POLLOUT, time.monotonic() + limit_s)
                code = opened.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if code:
                raise OSError(code, os.strerror(code))
        except BaseException as error:
            opened.close()
            if isinstance(error, OSError):
                self.failure, self.error, self.errors = None, None, 0
            raise
        return opened

    def _open_tunnel(self, proxy: Proxy, opened: socket.socket) -> None:
        """Have the proxy connect to the listener.  Raises OSError, or _Interrupted."""
        deadline = time.monotonic() + HANDSHAKE_S * self._patience
        opened.send(websocket_proxy.request(proxy, self._host, self._port))
        answer = b""
        while websocket_proxy.END not in answer and len(answer) < websocket_proxy.ANSWER_OCTETS:
            try:
                self._await(opened, select.POLLIN, deadline)
            except (TimeoutError, _Interrupted):
                self.failure = "the proxy does not answer: check the address in the option proxy"
                raise
            if not (octets := opened.recv(4096)):
                break
            answer += octets
        if failure := websocket_proxy.refusal(answer, f"{self._host}:{self._port}"):
            self.failure = failure
            raise ConnectionError(failure)

    def _secured(self, context: ssl.SSLContext, opened: socket.socket) -> ssl.SSLSocket:
        """The socket after the handshake of TLS.  Raises OSError, or _Interrupted."""
        deadline = time.monotonic() + HANDSHAKE_S * self._patience
        secured = context.wrap_socket(opened, server_hostname=self._host, do_handshake_on_connect=False)
        try:
            while True:
                try:
                    secured.do_handshake()
                    return secured
                except ssl.SSLWantReadError:
                    self._await(secured, select.POLLIN, deadline)
                except ssl.SSLWantWriteError:
                    self._await(secured, select.POLLOUT, deadline)
        except BaseException as error:
            secured.close()
            if isinstance(error, OSError) and not isinstance(error, TimeoutError):
                self._note(error)
            if isinstance(error, ssl.SSLError):
                self.failure = tls_failure(error)
            elif isinstance(error, TimeoutError | _Interrupted):
                self.failure = NO_ANSWER_IN_TLS
            elif isinstance(error, OSError):
                self.failure = NO_TLS
            raise

    def _upgrade(self, opened: socket.socket) -> None:
        """Do the handshake of WebSocket.  Raises OSError, or _Interrupted."""
        deadline = time.monotonic() + HANDSHAKE_S * self._patience
        protocol = ClientProtocol(self._uri, subprotocols=[SUBPROTOCOL], max_size=self._max_size, logger=quiet)
        protocol.send_request(protocol.connect())
        connection = WebsocketConnection(opened, protocol, self._options.unsent_octets, self._buffers, time.monotonic())
        if not self._accepts(connection):
            self._note(ssl.SSLCertVerificationError("not trusted"))
            raise ConnectionError("the listener is not trusted")
        for octets in protocol.data_to_send():
            connection.transmit((octets,))
        while not (connection.is_open or connection.ended or connection.refused):
            try:
                self._await(opened, select.POLLIN, deadline)
            except (TimeoutError, _Interrupted):
                self.failure = silence(connection)
                raise
            connection.read(time.monotonic())
        if not connection.is_open:
            self.failure = refusal(connection)
            self._note(connection.tls_error or connection.protocol.handshake_exc)
            unknown = not self._secure and self._proxy is None and not connection.begins
            if unknown and self.errors % ASKED_AT == 0:
                self.needs_tls = probe(self._host, self._port).outcome in TLS_SPOKEN
            raise ConnectionError(self.failure)
        self.failure, self.error, self.errors = None, None, 0
        self._connected, self.needs_tls = True, False
        self._on_connected(connection)

    def _note(self, error: Exception | None) -> None:
        self.error = error
        self.errors += 1

    def _await(self, opened: socket.socket, event: int, deadline: float) -> None:
        """Return when the socket is ready.  Raises TimeoutError at the deadline, _Interrupted when woken."""
        waiting = select.poll()
        waiting.register(opened, event)
        waiting.register(self._wakes, select.POLLIN)
        ready = [fd for fd, _ in waiting.poll(max(0.0, deadline - time.monotonic()) * 1000)]
        if self._wakes in ready:
            os.eventfd_read(self._wakes)
            raise _Interrupted
        if not ready:
            raise TimeoutError


class _Interrupted(Exception):
    """The attempt is to be given up."""
