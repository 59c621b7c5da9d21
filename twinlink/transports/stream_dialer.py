"""Connects to a listener, on a thread of its own, again and again while there is no connection."""

import errno
import os
import select
import socket
import ssl
import time
from abc import ABC, abstractmethod
from collections.abc import Callable

from ..process.guarded_thread import GuardedThread
from ..process.internal_errors import InternalErrors
from ..process.ip_address import family_of, is_address
from ..process.readiness import is_readable
from ..process.resolver import RepeatedLookup
from .base import Endpoint
from .receive_buffers import ReceiveBuffers
from .stream_advice import NO_ANSWER_IN_TLS, NO_TLS, tls_failure
from .stream_connection import StreamConnection
from .stream_options import StreamOptions
from .tls_probe import Outcome, probe

RESOLVE_S = 0.2
ATTEMPT_S = 1.0  # of TCP, at most: one round trip; over a longer one a peer would be declared down
HANDSHAKE_S = 1.0  # times the patience: of TLS, and of what follows it
TLS_SPOKEN = {Outcome.MET, Outcome.REFUSED_HERE, Outcome.REFUSED_THERE}
ASKED_AT = 3  # attempts in a row that the listener ended without a word, whether it speaks TLS is asked
FRESH_S = 0.3  # times the patience: a connection on which something came since then is alive

Connected = Callable[[StreamConnection], None]


class Dialer(ABC):
    """The connection attempts of one connector.

    Args:
        reached: where it connects to: the endpoint, or a proxy.
        context: gives the one for TLS, for each attempt; None for none.
        accepts: whether the listener is trusted, with the certificate of this connection.
        epoch: of the link, which the listener learns; None: it learns none.
        max_frame: octets of the longest frame that is accepted.
        buffers: of the transport.
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
        reached: Endpoint,
        options: StreamOptions,
        context: Callable[[], ssl.SSLContext | None],
        accepts: Callable[[StreamConnection], bool],
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
        self._options = options
        self._context, self._secure = context, context() is not None
        self._epoch, self._max_frame, self._buffers = epoch, max_frame, buffers
        self._accepts = accepts
        self._on_connected = on_connected
        self._host, self._port = endpoint.host.strip("[]"), endpoint.port
        self._is_proxied = reached != endpoint
        reached_host, self._reached_port = reached.host.strip("[]"), reached.port
        self._lookup = None if is_address(reached_host) else RepeatedLookup(reached_host, reached.port)
        self._address = "" if self._lookup else reached_host
        self._patience = 1
        self._connected = False
        self._closing = False
        self._wakes = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._thread = GuardedThread(self._run, "twinlink-dial", errors, again=lambda: not self._closing)

    def start(self) -> None:
        """Begin to connect.  Raises RuntimeError if the process can start no more threads."""
        self._thread.start()

    def dial(self, patience: int, connection: StreamConnection | None, now: float) -> None:
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
            except Interrupted:
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
        """Connect once.  Raises OSError, or Interrupted."""
        if self._lookup is not None:
            self._address = self._lookup.poll(0.0 if self._address else RESOLVE_S) or self._address
            if not self._address:
                return
        opened = self._connect_tcp()
        try:
            self._open_tunnel(opened)
            if (context := self._context()) is not None:
                opened = self._secured(context, opened)
            self._shake_hands(opened)
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

    def _secured(self, context: ssl.SSLContext, opened: socket.socket) -> ssl.SSLSocket:
        """The socket after the handshake of TLS.  Raises OSError, or Interrupted."""
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
            elif isinstance(error, TimeoutError | Interrupted):
                self.failure = NO_ANSWER_IN_TLS
            elif isinstance(error, OSError):
                self.failure = NO_TLS
            raise

    def _shake_hands(self, opened: socket.socket) -> None:
        """Do the handshake of the protocol.  Raises OSError, or Interrupted."""
        deadline = time.monotonic() + HANDSHAKE_S * self._patience
        connection = self._connection(opened, time.monotonic())
        if not self._accepts(connection):
            self._note(ssl.SSLCertVerificationError("not trusted"))
            raise ConnectionError("the listener is not trusted")
        connection.greet()
        while not (connection.is_open or connection.ended or connection.refused):
            try:
                self._await(opened, select.POLLIN, deadline)
            except (TimeoutError, Interrupted):
                self.failure = self._silence(connection)
                raise
            connection.read(time.monotonic())
        if not connection.is_open:
            self.failure = tls_failure(connection.tls_error) if connection.tls_error else self._refusal(connection)
            self._note(connection.tls_error or (PermissionError(self.failure) if connection.is_forbidden else None))
            unknown = not self._secure and not self._is_proxied and not connection.begins
            if unknown and self.errors % ASKED_AT == 0:
                self.needs_tls = probe(self._host, self._port).outcome in TLS_SPOKEN
            raise ConnectionError(self.failure)
        self.failure, self.error, self.errors = None, None, 0
        self._connected, self.needs_tls = True, False
        self._on_connected(connection)

    # Hooks

    def _open_tunnel(self, opened: socket.socket) -> None:  # noqa: B027  (for those that know a proxy)
        """Have the proxy connect to the listener.  Raises OSError, or Interrupted."""

    @abstractmethod
    def _connection(self, opened: socket.socket, now: float) -> StreamConnection:
        """The connection, before its handshake."""

    @abstractmethod
    def _refusal(self, connection: StreamConnection) -> str:
        """For a person: why the other side has ended the handshake."""

    @abstractmethod
    def _silence(self, connection: StreamConnection) -> str:
        """For a person: TCP has connected, and the handshake has not been answered in its time."""

    def _note(self, error: Exception | None) -> None:
        self.error = error
        self.errors += 1

    def _await(self, opened: socket.socket, event: int, deadline: float) -> None:
        """Return when the socket is ready.  Raises TimeoutError at the deadline, Interrupted when woken."""
        waiting = select.poll()
        waiting.register(opened, event)
        waiting.register(self._wakes, select.POLLIN)
        ready = [fd for fd, _ in waiting.poll(max(0.0, deadline - time.monotonic()) * 1000)]
        if self._wakes in ready:
            os.eventfd_read(self._wakes)
            raise Interrupted
        if not ready:
            raise TimeoutError


class Interrupted(Exception):
    """The attempt is to be given up."""
