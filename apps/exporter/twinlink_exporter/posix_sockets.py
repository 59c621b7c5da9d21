"""The dApp's end of the three E3 channels, on POSIX stream sockets (`twinlink_e3.frames`)."""

import errno
import fcntl
import socket
import struct
import termios
import time
from collections import deque
from contextlib import suppress

import zmq
from twinlink_e3 import Endpoints, FrameReader, MalformedPdu, connecting, posix_address

from twinlink.errors import TransportError

from .sockets import FILE_CHECK_NS, LINGER_S, S, file_identity

MS = 1_000_000
RECONNECT_NS = 250 * MS
READ_OCTETS = 256 * 1024
LAST_READS = 16  # of a connection that is lost
# The RAN takes one read for one PDU.  On a Unix socket the kernel tells when it has read the last.  On TCP it tells
# when the RAN's kernel has acknowledged it, which may be 200 ms later, so PDUs keep a distance there.
POLL_NS = 1 * MS
TCP_GAP_NS = 20 * MS
STALLED_NS = 3 * S  # a RAN that reads nothing for so long hangs
KEEPALIVE = {socket.TCP_KEEPIDLE: 1, socket.TCP_KEEPINTVL: 1, socket.TCP_KEEPCNT: 2, socket.TCP_USER_TIMEOUT: 3000}
_UNDER_WAY = (errno.EINPROGRESS, errno.EALREADY)


class Connection:
    """A stream socket that connects in the background.  Raises OSError if it cannot be connected."""

    def __init__(self, endpoint: str, poller: zmq.Poller) -> None:
        family, self._address = posix_address(endpoint)
        self._poller = poller
        self._socket = socket.socket(family, socket.SOCK_STREAM)
        self._socket.setblocking(False)
        self.is_tcp = family != socket.AF_UNIX
        if self.is_tcp:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for option, value in KEEPALIVE.items():
                self._socket.setsockopt(socket.IPPROTO_TCP, option, value)
        self.connected = False
        self.descriptor = self._socket.fileno()
        try:
            if not self.advance():
                poller.register(self.descriptor, zmq.POLLOUT)
        except OSError:
            self._socket.close()
            raise

    def advance(self) -> bool:
        """Go on connecting; returns whether it is connected."""
        if not self.connected:
            code = self._socket.connect_ex(self._address)
            if code in _UNDER_WAY:
                return False
            if code not in (0, errno.EISCONN):
                raise OSError(code, "cannot be connected")
            self.connected = True
            self._poller.register(self.descriptor, zmq.POLLIN)
        return True

    def receive(self) -> bytes | None:
        """What has arrived, or None.  Raises OSError, also at the end of the stream."""
        try:
            octets = self._socket.recv(READ_OCTETS)
        except BlockingIOError:
            return None
        if not octets:
            raise ConnectionResetError("the E3 agent closed the connection")
        return octets

    def send(self, octets: bytes) -> None:
        """Send all of it, as what precedes has been read.  Raises OSError."""
        if self._socket.send(octets, socket.MSG_NOSIGNAL) != len(octets):
            raise BlockingIOError("the E3 agent does not read")

    def unread_octets(self) -> int:
        """Octets that the peer has not read; over TCP those that its kernel has not acknowledged."""
        (count,) = struct.unpack("i", fcntl.ioctl(self.descriptor, termios.TIOCOUTQ, bytes(4)))
        return int(count)

    def close(self) -> None:
        """Close it."""
        with suppress(KeyError):
            self._poller.unregister(self.descriptor)
        self._socket.close()


def check_connectable(endpoints: Endpoints) -> None:
    """Raises TransportError if an endpoint is none of one host."""
    for endpoint in (endpoints.setup, endpoints.to_dapp, endpoints.from_dapp):
        if endpoint.startswith("tcp://*"):
            text = "give the agent's address: an endpoint reads ipc:///path or tcp://address:port"
            raise TransportError(f"the E3 endpoint {endpoint} cannot be connected to; {text}")


class PosixSockets:
    """A connection for each channel; see `E3Sockets`."""

    def __init__(self, endpoints: Endpoints, poller: zmq.Poller | None = None) -> None:
        self.endpoints = self._agent = endpoints
        self.link = endpoints.link
        self.poller = poller or zmq.Poller()
        self._setup: Connection | None = None
        self._request: bytes | None = None  # until it is sent
        self._replies = FrameReader()
        self._in: Connection | None = None
        self._out: Connection | None = None
        self._frames = FrameReader()
        self._pdus: deque[bytes] = deque()  # read from the RAN, and not taken
        self._outgoing: deque[bytes] = deque()
        self._sent_ns = 0
        self._next_flush_ns = 0
        self._lost = False
        self._next_setup_ns = 0  # when to try again to connect
        self._next_channels_ns = 0
        self._next_check_ns = 0
        self._file: tuple[int, int, int] | None = None
        check_connectable(endpoints)

    @property
    def from_ran(self) -> int | None:
        """See `E3Sockets`."""
        return self._in.descriptor if self._in else None

    @property
    def connected(self) -> bool:
        """See `E3Sockets`."""
        return bool(self._in and self._in.connected and self.can_send)

    @property
    def can_send(self) -> bool:
        """See `E3Sockets`."""
        return bool(self._out and self._out.connected)

    def send_setup(self, octets: bytes) -> None:
        """See `E3Sockets`."""
        self._drop_setup()
        self._request, self._replies = octets, FrameReader()
        self._next_setup_ns = 0
        self._advance_setup(time.monotonic_ns())

    def send_setup_over(self, connection: Connection, agent: Endpoints, octets: bytes) -> None:
        """As `send_setup`, over a connection to the setup channel of the agent at these addresses."""
        self._drop_setup()
        self._request, self._replies = octets, FrameReader()
        self._setup, self._agent = connection, agent
        self._advance_setup(time.monotonic_ns())

    def withdraw_setup(self) -> bool:
        """See `E3Sockets`."""
        if self._request is None:
            return False
        self._drop_setup()
        return True

    def receive_setup(self) -> bytes | None:
        """See `E3Sockets`.  Raises MalformedPdu."""
        if self._setup is None or self._request is not None:
            return None
        try:
            reply = next(self._replies.feed(self._setup.receive() or b""), None)
        except OSError:
            self._drop_setup()
            return None
        except MalformedPdu:
            self._drop_setup()
            raise
        if reply is not None:
            self._drop_setup()
        return reply

    def send(self, octets: bytes) -> None:
        """See `E3Sockets`."""
        if self.can_send:
            self._outgoing.append(octets)
            self._flush(time.monotonic_ns())

    def receive(self) -> bytes | None:
        """See `E3Sockets`.  Raises MalformedPdu."""
        if not self._pdus and self._in is not None and self._in.connected:
            try:
                self._pdus.extend(self._frames.feed(self._in.receive() or b""))
            except OSError:
                self._disconnect()
            except MalformedPdu:
                self._disconnect()
                raise
        return self._pdus.popleft() if self._pdus else None

    @property
    def has_more(self) -> bool:
        """See `E3Sockets`."""
        return bool(self._pdus)

    def tick(self, now_ns: int) -> bool:
        """See `E3Sockets`."""
        self._advance_setup(now_ns)
        self._advance_channels(now_ns)
        self._flush(now_ns)
        if now_ns >= self._next_check_ns:
            self._next_check_ns = now_ns + FILE_CHECK_NS
            file = file_identity(self.endpoints.to_dapp)
            if self.connected and file not in (None, self._file):
                self._disconnect()  # another agent has bound the same path
        lost, self._lost = self._lost, False
        return lost

    def next_tick_ns(self, now_ns: int) -> int:
        """See `E3Sockets`."""
        times = [self._next_check_ns]
        if self._request is not None and self._setup is None:
            times.append(self._next_setup_ns)
        if self._in is None or self._out is None:
            times.append(self._next_channels_ns)
        if self._outgoing:
            times.append(self._next_flush_ns)
        return min(times)

    def close(self) -> None:
        """See `E3Sockets`."""
        until_ns = time.monotonic_ns() + int(LINGER_S * S)
        while self._out and time.monotonic_ns() < until_ns and (self._outgoing or self._has_unread()):
            self._flush(time.monotonic_ns())
            time.sleep(POLL_NS / S)
        self._drop_setup()
        self._disconnect()

    def _advance_setup(self, now_ns: int) -> None:
        """Connect the setup channel, and send the request at once: an agent waits for it and serves no other dApp."""
        if self._request is None:
            return
        try:
            if self._setup is None:
                if now_ns < self._next_setup_ns:
                    return
                self._agent = connecting(self.endpoints)
                self._setup = Connection(self._agent.setup, self.poller)
            if self._setup.advance():
                self._setup.send(self._request)
                self._request = None
        except OSError:
            request = self._request
            self._drop_setup()
            self._request, self._next_setup_ns = request, now_ns + RECONNECT_NS

    def _drop_setup(self) -> None:
        self._request = None
        if self._setup:
            self._setup.close()
            self._setup = None

    def _advance_channels(self, now_ns: int) -> None:
        if self.connected or ((self._in is None or self._out is None) and now_ns < self._next_channels_ns):
            return
        # One that is connected is kept while the other is not: an agent of libe3 up to 0.0.7 accepts each only once.
        self._in = self._advance(self._in, self._agent.to_dapp)
        self._out = self._advance(self._out, self._agent.from_dapp)
        if self.connected:
            self._file = file_identity(self.endpoints.to_dapp)
        elif self._in is None or self._out is None:
            self._next_channels_ns = now_ns + RECONNECT_NS

    def _advance(self, connection: Connection | None, endpoint: str) -> Connection | None:
        """Begin or go on to connect; None if that failed."""
        try:
            connection = connection or Connection(endpoint, self.poller)
            connection.advance()
        except OSError:
            if connection:
                connection.close()
            return None
        return connection

    def _disconnect(self) -> None:
        self._read_rest()
        self._lost = self._lost or self._in is not None or self._out is not None
        for connection in (self._in, self._out):
            if connection:
                connection.close()
        self._in = self._out = None
        self._frames = FrameReader()
        self._outgoing.clear()
        self._next_channels_ns = time.monotonic_ns() + RECONNECT_NS
        self._next_check_ns = 0  # `tick` is due, to report it

    def _read_rest(self) -> None:
        """Read what the agent sent before the connection was lost."""
        with suppress(OSError, MalformedPdu):
            for _ in range(LAST_READS):
                if not (self._in and self._in.connected and (octets := self._in.receive())):
                    return
                self._pdus.extend(self._frames.feed(octets))

    def _flush(self, now_ns: int) -> None:
        """Send the next PDU, if the RAN has read the last."""
        self._next_flush_ns = now_ns + POLL_NS
        if self._out is None or not self._out.connected:
            return
        try:
            self._out.receive()  # the RAN sends nothing here; raises if it has closed its end
            is_unread, since_ns = self._out.unread_octets() > 0, now_ns - self._sent_ns
            if is_unread and since_ns > STALLED_NS:
                self._disconnect()
            elif self._outgoing and (since_ns >= TCP_GAP_NS if self._out.is_tcp else not is_unread):
                self._out.send(self._outgoing.popleft())
                self._sent_ns = now_ns
        except OSError:
            self._disconnect()

    def _has_unread(self) -> bool:
        try:
            return self._out is not None and self._out.unread_octets() > 0
        except OSError:
            return False
