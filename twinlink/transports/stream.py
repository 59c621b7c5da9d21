"""A transport of plain sockets: one TCP connection for each connector, with TLS or without.

There are no threads and event loops of a driver: the thread in `receive` reads the sockets, and each thread that sends
writes to them, as a thread of their own would add a thread switch per message.  A connector has one thread, which
connects.
"""

import contextlib
import logging
import select
import socket
import ssl
import threading
import time
from abc import abstractmethod
from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from ..errors import ConfigurationError, TransportError
from ..process.ip_address import listening_socket
from ..process.malloc import keep_freed_memory
from ..process.resolver import listen_addresses
from ..protocol.frames import HELLO_TOPIC, MessageFrame
from .base import Endpoint, Frame, Transport, advice, check_descriptors
from .receive_buffers import ReceiveBuffers
from .stream_advice import NEEDS_TLS
from .stream_connection import StreamConnection
from .stream_dialer import Dialer
from .stream_guard import StreamGuard
from .stream_options import StreamOptions, tls_context

if TYPE_CHECKING:
    from ..identity.watched import WatchedIdentity
    from .stream_identity import StreamIdentity

ACK_INITIAL = ord("a")
CHECK_S = 0.05  # between two looks at the limits of all connections
BACKLOG = 1024  # TCP connections that wait to be accepted
ACCEPTED = 64  # at a time, so that a flood of them blocks nothing else
TURN = 8  # after so many messages the other sockets are read: one read may bring hundreds of messages
READY = 64  # sockets that are read in turn, so that what they have sent takes little memory
RETURN_S = 1.5  # a node that connects again so soon is still up, and gets messages at once
REPORT_S = 1.0
DESCRIPTORS = 8  # of files and sockets, with one peer
FAREWELL_S = 0.3  # to send queued octets at close, and for the other side to end the connection

logger = logging.getLogger("twinlink")


class StreamTransport(Transport):
    """What its connections carry is defined by the class that implements it, and its `StreamConnection`."""

    name: ClassVar[str]
    dialer_class: ClassVar[type[Dialer]]
    options_class = StreamOptions
    options: StreamOptions
    takes_identity = True
    takes_split = True
    scouts = True

    def __init__(self, endpoint: Endpoint, listening: bool, max_frame: int, options: StreamOptions) -> None:
        super().__init__(endpoint, listening, max_frame, options)
        self.admits_only_trusted = listening and bool(options.tls_trusted)
        self._tls = tls_context(options, listening)
        self._identity: StreamIdentity | None = None

    @abstractmethod
    def _accepted(self, opened: socket.socket, now: float) -> StreamConnection:
        """The connection of a listener for a socket that it has accepted."""

    @abstractmethod
    def encode(self, topic: bytes, frame: MessageFrame) -> Sequence[Frame]:
        """A message as the parts of what a connection transmits."""

    def _is_refused(self, connection: StreamConnection) -> bool:
        """A listener's connection has ended before it was open; whether that was counted as something of its own."""
        return False

    # Opening

    @property
    def threads(self) -> int:
        return 0 if self.listening else 1

    def _context(self) -> ssl.SSLContext | None:
        """For the TLS of a new connection; None for none."""
        return self._identity.context if self._identity is not None else self._tls

    def open(self) -> None:
        check_descriptors(DESCRIPTORS)
        keep_freed_memory()
        self._closed = False
        if self.identity is not None:
            self._identity = self._authenticated(self.identity)
        self._unread: deque[StreamConnection] = deque()  # with messages for `receive`, in turn
        self._buffers = ReceiveBuffers()
        self._serving = threading.Lock()  # of the thread that reads
        self._table_lock = threading.Lock()
        self._connections: dict[int, StreamConnection] = {}  # by descriptor
        self._open: tuple[StreamConnection, ...] = ()  # those that have completed the handshake
        self._takers: tuple[StreamConnection, ...] = ()  # of these, those that are sent messages
        self._left: dict[int, float] = {}  # by epoch of a node that took messages: when its last connection was heard
        self._taken = 0  # messages since the sockets were last polled
        self._check_s = 0.0
        self._accept_failed_s = 0.0
        self._urgent: list[None] = []  # one item for each ack or hello that waits for a connection
        self._listeners: dict[int, socket.socket] = {}  # by descriptor
        self._dialer: Dialer | None = None
        self._guard = StreamGuard(f"{self.name} {self.endpoint}", self.options, self.limits_exceeded, self.listening)
        self._epoll = select.epoll()
        try:
            if self.listening:
                self._listen()
            else:
                self._dialer = self.dialer_class(
                    self.endpoint,
                    self.via or self.endpoint,
                    self.options,
                    self._context,
                    self._trusts,
                    self.epoch,
                    self.max_frame,
                    self._buffers,
                    self._on_connected,
                    self.internal_errors,
                )
                self._dialer.start()
        except BaseException as error:  # Ctrl-C as well
            self.close()
            if not isinstance(error, OSError):
                raise
            reason, what = error.strerror or str(error), "listen on" if self.listening else "connect to"
            raise TransportError(f"{self.name} cannot {what} {self.endpoint}: {reason}{advice(reason)}") from error

    def _authenticated(self, watched: "WatchedIdentity") -> "StreamIdentity":
        from .stream_identity import StreamIdentity  # needs a package that other links do without

        options = self.options
        if options.tls or options.tls_certificate or options.tls_private_key or options.tls_trusted:
            raise ConfigurationError(
                "a link with an identity has its certificates: leave out tls, tls_certificate, tls_private_key and "
                "tls_trusted"
            )
        return StreamIdentity(watched, self.listening)

    def _listen(self) -> None:
        for address in listen_addresses(self.endpoint.host):
            bound = listening_socket(address, self.endpoint.port, socket.SOCK_STREAM)
            self._listeners[bound.fileno()] = bound
            bound.setblocking(False)
            bound.listen(BACKLOG)
            self._epoll.register(bound, select.EPOLLIN)

    # Connections

    def _on_connected(self, connection: StreamConnection) -> None:
        """The dialer has connected; called on its thread."""
        if connection.inbox:
            self._unread.append(connection)
        self._add(connection)

    def _add(self, connection: StreamConnection) -> None:
        def on_blocked(blocked: bool) -> None:
            with contextlib.suppress(OSError, ValueError):  # it is closed
                self._epoll.modify(connection.fd, select.EPOLLIN | (select.EPOLLOUT if blocked else 0))

        connection.on_blocked = on_blocked
        with self._table_lock:
            if self._closed:
                connection.abort()
                connection.close()
                return
            self._connections[connection.fd] = connection
            self._epoll.register(connection.fd, select.EPOLLIN)
            self._list_open()

    def _list_open(self) -> None:
        self._open = tuple(one for one in self._connections.values() if one.is_open and not one.ended)
        self._list_takers()

    def _list_takers(self) -> None:
        """With the lock of the table held."""
        self._takers = tuple(one for one in self._open if one.takes_data)

    def _remove(self, connection: StreamConnection, now: float) -> None:
        with self._table_lock:
            del self._connections[connection.fd]
            self._epoll.unregister(connection.fd)
            connection.close()
            self._list_open()
        if connection.epoch is not None and connection.takes_data:
            self._left = {epoch: at for epoch, at in self._left.items() if now - at < RETURN_S}
            self._left[connection.epoch] = connection.heard_s
        if self._dialer is not None:
            self._dialer.lost()
            return
        if not self._is_refused(connection) and connection.is_foreign:
            self.foreign_connections += 1
        if self._identity is not None and (refusal := self._identity.failure(connection)):
            self.refusals.add(refusal)

    def _refuses(self, connection: StreamConnection) -> bool:
        refusal = self._identity.refuses(connection) if self._identity is not None else None
        if refusal is not None:
            self.refusals.add(refusal)
        return refusal is not None

    def _trusts(self, connection: StreamConnection) -> bool:
        return self._identity is None or self._identity.peer_of(connection) is not None

    def tick(self) -> None:
        if self._identity is None:
            needs = self._dialer is not None and self._dialer.needs_tls
            self.authentication_problem = NEEDS_TLS if needs else None
            return
        self._identity.watched.refresh()
        for one in self._open:
            if not self._trusts(one):  # it was revoked, or has expired
                one.abort()
        if self._dialer is not None:
            where = f"the listener at {self.endpoint.host} port {self.endpoint.port}"
            self.authentication_problem = self._identity.problem(where, self._dialer.error, self._dialer.errors)

    def _accept(self, listener: socket.socket, now: float) -> None:
        context = self._context()
        for _ in range(ACCEPTED):
            try:
                opened, _ = listener.accept()
            except BlockingIOError:
                return
            except ConnectionError:  # it has ended already
                continue
            except OSError as error:  # such as no more descriptors
                self._epoll.modify(listener.fileno(), 0)  # until the limits are checked
                if now - self._accept_failed_s > REPORT_S:
                    logger.warning("%s %s: cannot accept a connection: %s", self.name, self.endpoint, error.strerror)
                self._accept_failed_s = now
                return
            try:
                if context is not None:
                    opened = context.wrap_socket(opened, server_side=True, do_handshake_on_connect=False)
                connection = self._accepted(opened, now)
                connection.refuses = partial(self._refuses, connection)
                self._add(connection)
            except OSError:  # it has ended already
                opened.close()

    def _on_open(self, connection: StreamConnection, now: float) -> None:
        """A connection to this listener has completed its handshake."""
        epoch = connection.epoch
        if epoch is not None:
            returns = now - self._left.get(epoch, now - RETURN_S) < RETURN_S
            for one in self._open:
                if one.epoch == epoch:
                    returns |= one.takes_data and now - one.heard_s < RETURN_S
                    one.abort()  # the node has left it
            connection.takes_data = returns
        with self._table_lock:
            self._list_open()

    def joins(self, epoch: int, hears_us: bool) -> bool:
        joining = False
        for one in self._open:
            if one.epoch == epoch:
                joining = not hears_us
                if one.takes_data != hears_us:
                    one.takes_data = hears_us
                    with self._table_lock:
                        self._list_takers()
        return joining

    def parted(self) -> None:
        self._left.clear()
        for one in self._open:
            if one.epoch is not None:
                one.takes_data = False
        with self._table_lock:
            self._list_takers()

    def why_alone(self) -> str | None:
        return self._dialer.failure if self._dialer is not None else None

    def renew(self, patience: int) -> None:
        if self._dialer is not None:
            self._dialer.dial(patience, next(iter(self._open), None), time.monotonic())

    def reached(self, patience: int) -> None:
        self.renew(patience)

    # Sending

    def send(self, topic: bytes, frame: MessageFrame) -> None:
        if not self._open:
            self._serve_unread()
        # Locks are not fair: threads that send continuously would delay acks by seconds.
        if topic[0] == ACK_INITIAL or topic == HELLO_TOPIC:
            try:
                self._urgent.append(None)
                self._transmit(topic, frame, self._open)
            finally:
                self._urgent.pop()
        else:
            while self._urgent:
                time.sleep(0)
            self._transmit(topic, frame, self._takers)

    def offer(self, topic: bytes, frame: MessageFrame) -> None:
        # What waits would be ahead of our hello, and without a peer that acknowledges nothing would limit it.
        self._transmit(topic, frame, [one for one in self._takers if not one.unsent_octets])

    def _transmit(self, topic: bytes, frame: MessageFrame, connections: Sequence[StreamConnection]) -> None:
        if connections and not self._closed:
            parts = self.encode(topic, frame)
            for one in connections:
                one.transmit(parts)

    def _serve_unread(self) -> None:
        """Complete handshakes, if no thread is in `receive`: perhaps none has been yet."""
        if self._serving.acquire(blocking=False):
            try:
                if not self._closed:
                    self._serve(0.0)
            finally:
                self._serving.release()

    # Receiving

    def receive(self, timeout_s: float) -> tuple[bytes, Frame] | None:
        unread = self._unread
        self._taken += 1
        if not unread or (self._taken >= TURN and len(self._open) > 1):
            with self._serving:
                self._serve(0.0 if unread else timeout_s)
            if not unread:
                return None
        connection = unread[0]
        topic, frame = connection.inbox.popleft()
        if connection.inbox:
            unread.rotate(-1)
        else:
            self._guard.unread_octets -= connection.inbox_octets
            connection.inbox_octets = 0
            unread.popleft()
        if self._identity is not None:
            self.sender = self._identity.peer_of(connection)
        return topic, frame

    def _serve(self, timeout_s: float) -> None:
        """Read what has arrived within this time, and write what waits for sockets that take it.

        Where messages of some connections wait, nothing more is read from those, but their ends by `close`.
        """
        self._taken = 0
        ready, some_unread, has_room = self._epoll.poll(timeout_s, READY), bool(self._unread) and not self._closed, True
        now = time.monotonic()
        for fd, events in ready:
            if (connection := self._connections.get(fd)) is not None:
                if events & select.EPOLLOUT:
                    connection.flush()
                if events & ~select.EPOLLOUT and not (some_unread and connection.inbox):
                    has_room = has_room and (
                        self._guard.unread_octets < self.options.unread_octets
                        or self._guard.has_room(list(self._connections.values()), list(self._unread), now)
                    )
                    if has_room or connection.ended:
                        self._read(connection, now)
            elif (listener := self._listeners.get(fd)) is not None:
                self._accept(listener, now)
        if now >= self._check_s:
            self._check_s = now + CHECK_S
            self._guard.check(list(self._connections.values()), now)
            for fd in self._listeners:
                self._epoll.modify(fd, select.EPOLLIN)

    def _read(self, connection: StreamConnection, now: float) -> None:
        was_open, unread_octets = connection.is_open, connection.partial_octets + connection.inbox_octets
        was_unread = bool(connection.inbox)
        connection.read(now)
        if connection.inbox and not was_unread:
            self._unread.append(connection)
        self._guard.unread_octets += connection.partial_octets + connection.inbox_octets - unread_octets
        if connection.is_open and not was_open:
            self._on_open(connection, now)
        if connection.ended:
            self._remove(connection, now)

    # Closing

    def close(self) -> None:
        with self._table_lock:
            self._closed = True
        deadline = time.monotonic() + FAREWELL_S
        if self._dialer is not None:
            self._dialer.stop(FAREWELL_S)
        for listener in self._listeners.values():
            listener.close()
        self._listeners.clear()
        for one in list(self._connections.values()):
            if one.is_open:
                one.say_close()
            else:
                one.abort()
        while self._connections and (left_s := deadline - time.monotonic()) > 0:
            self._serve(left_s)
        for one in self._connections.values():
            one.abort()
            one.close()
        self._open = self._takers = ()
        self._epoll.close()
