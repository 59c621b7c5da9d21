"""The bridge's outputs to an MGEN listener: UDP datagrams, and a TCP connection that reconnects.

Of a host with several addresses they use one, and go on to the next when it does not take a message.
"""

import contextlib
import errno
import fcntl
import os
import socket
import struct
import termios
import time
from collections import deque
from collections.abc import Callable

from twinlink.appkit.mgen_message import Address
from twinlink.errors import TransportError
from twinlink.process.ip_address import family_of
from twinlink.process.readiness import is_writable
from twinlink.process.resolver import addresses

RESOLVE_S = 5.0  # time-out of the resolver
RETRY_S = 0.1  # between attempts to connect to all addresses
CONNECT_S = 3.0  # for one attempt
PATIENCE_S = 0.1  # for one message, before others have their turn

Say = Callable[[str], None]


class _Host:
    """The addresses of a host, and which of them is in use."""

    def __init__(self, to: Address) -> None:
        """Raises TransportError: the host name does not resolve."""
        try:
            self.addresses = addresses(to.host, RESOLVE_S)
        except OSError as error:
            raise TransportError(f"{to.host} does not resolve: {error.strerror or error}") from error
        self.address = self.addresses[0]
        self._to = to

    def __str__(self) -> str:
        return f"{self._to}" + (f" ({self.address})" if self.is_several else "")

    @property
    def is_several(self) -> bool:
        """Whether there is another address to try."""
        return len(self.addresses) > 1

    def connecting(self, kind: int) -> socket.socket:
        """A socket, not blocking, that is being connected to the address in use.  Raises OSError."""
        made = socket.socket(family_of(self.address), kind)
        made.setblocking(False)
        if kind == socket.SOCK_STREAM:
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        code = made.connect_ex((self.address, self._to.port))
        if code not in (0, errno.EINPROGRESS):
            made.close()
            raise OSError(code, os.strerror(code))
        return made

    def go_on(self) -> bool:
        """Use the next address; whether all have had their turn."""
        following = (self.addresses.index(self.address) + 1) % len(self.addresses)
        self.address = self.addresses[following]
        return following == 0


class Datagrams:
    """The UDP output."""

    settled = True

    def __init__(self, to: Address, say: Say) -> None:
        self.forwarded = 0
        self.refused = 0
        self.failed = 0
        self._say = say
        self._host = _Host(to)
        self._socket: socket.socket | None = None

    def send(self, octets: memoryview) -> None:
        """Send a datagram, to the next address where the host does not take it, or count the failure."""
        problem: OSError | None = None
        for _ in self._host.addresses:
            try:
                self._send(octets)
            except OSError as error:
                problem = error
                self._go_on()
            else:
                return
        assert problem is not None
        if isinstance(problem, ConnectionRefusedError):
            self._count_refused()
            return
        self.failed += 1
        if self.failed == 1:
            self._say(f"a datagram of {len(octets)} octets to {self._host} cannot be sent: {problem.strerror}")

    def look(self) -> None:
        """Check whether the last datagram was refused."""
        if self._is_refused():
            self._take_back()

    def _send(self, octets: memoryview) -> None:
        """Raises OSError; of a refusal that the host knows at once only if another address can be tried."""
        try:
            self._connected().send(octets)
        except ConnectionRefusedError:  # of an earlier one; this one was not sent
            self._take_back()
            self._connected().send(octets)
        if self._host.is_several and self._is_refused():  # over loopback
            raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
        self.forwarded += 1

    def _connected(self) -> socket.socket:
        if self._socket is None:
            self._socket = self._host.connecting(socket.SOCK_DGRAM)  # connected, so that refusals are reported
            self._socket.setblocking(True)
        return self._socket

    def _is_refused(self) -> bool:
        """Whether a datagram was refused since the last call."""
        opened = self._socket
        return opened is not None and opened.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == errno.ECONNREFUSED

    def _take_back(self) -> None:
        self.forwarded -= 1
        self._count_refused()
        self._go_on()

    def _count_refused(self) -> None:
        self.refused += 1
        if self.refused == 1:
            self._say(f"nothing listens at UDP {self._host}")

    def _go_on(self) -> None:
        if self._host.is_several:
            self.close()
            self._host.go_on()

    def close(self) -> None:
        """Close the socket."""
        if self._socket:
            self._socket.close()
        self._socket = None


class Connection:
    """The TCP output: one connection, made again when it breaks."""

    def __init__(self, to: Address, say: Say) -> None:
        self.resent = 0
        self.held_octets = 0
        self._say = say
        self._host = _Host(to)
        self._socket: socket.socket | None = None
        self._connected = False
        self._retry_at = self._give_up_at = 0.0
        self._told = ""
        self._messages: deque[memoryview] = deque()  # not sent completely
        self._position = 0  # within the first message
        self._unacknowledged: deque[tuple[int, memoryview]] = (
            deque()
        )  # sent messages, with their end as a count of octets sent
        self._sent_octets = 0  # over this connection
        self._accepted = 0  # messages passed to `send`

    @property
    def settled(self) -> bool:
        """Whether TCP has taken everything."""
        return not self._messages and self._connected

    @property
    def held(self) -> int:
        """Messages that the listener's host has not acknowledged."""
        acknowledged = self._acknowledged_octets()
        return len(self._messages) + sum(end > acknowledged for end, _ in list(self._unacknowledged))

    @property
    def forwarded(self) -> int:
        """Messages that the listener's host has acknowledged."""
        return self._accepted - self.held

    def send(self, octets: memoryview) -> None:
        """Send a message, or as much of it as TCP takes at once."""
        self._messages.append(octets)
        self._accepted += 1
        self.held_octets += len(octets)
        self.push()
        if self._connected and self._messages:
            self.wait(PATIENCE_S)

    def push(self) -> None:
        """Connect and send as far as possible without blocking."""
        if self._connected and not self._messages and self._has_ended():
            self._break("closed the connection")
        if not self._connected and not self._connect():
            return
        assert self._socket is not None
        try:
            while self._messages:
                octets = self._messages[0]
                count = self._socket.send(octets[self._position :])
                self._position += count
                self._sent_octets += count
                if self._position == len(octets):
                    self._messages.popleft()
                    self._position = 0
                    self.held_octets -= len(octets)
                    self._unacknowledged.append((self._sent_octets, octets))
                    self._forget_acknowledged()
        except BlockingIOError:
            pass
        except OSError as error:
            self._break(f"is gone ({error.strerror})")

    def wait(self, seconds: float) -> None:
        """Push for up to ``seconds``, until TCP has taken everything."""
        until = time.monotonic() + seconds
        while not self.settled and (left := until - time.monotonic()) > 0:
            if self._socket is None:
                time.sleep(min(left, RETRY_S))
            else:
                is_writable(self._socket.fileno(), left)
            self.push()

    def finish(self, seconds: float) -> None:
        """Wait up to ``seconds`` until the listener's host has acknowledged everything."""
        until = time.monotonic() + seconds
        self.wait(seconds)
        while self.held and self._connected and time.monotonic() < until:
            time.sleep(0.002)
            self.push()

    def close(self) -> None:
        """Close the connection."""
        if self._socket:
            self._socket.close()
        self._socket = None
        self._connected = False

    def _connect(self) -> bool:
        now, code = time.monotonic(), 0
        if self._socket is None:
            if now < self._retry_at:
                return False
            self._retry_at = now + RETRY_S
            self._give_up_at = now + CONNECT_S
            try:
                self._socket = self._host.connecting(socket.SOCK_STREAM)
            except OSError as error:
                code = error.errno or errno.EADDRNOTAVAIL
        if self._socket is not None:
            writable = is_writable(self._socket.fileno())
            code = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) if writable else errno.EINPROGRESS
        if code == errno.EINPROGRESS:
            if now < self._give_up_at:
                return False
            code = errno.ETIMEDOUT
        if not code and self._is_to_itself():
            code = errno.ECONNREFUSED
        if code:
            self.close()
            where = f"{self._host}"
            if self._host.go_on():
                self._tell(f"no connection to TCP {where}: {os.strerror(code)}; tries again and again")
            else:
                self._retry_at = 0.0  # the next address at once
            return False
        self._connected = True
        self._sent_octets = 0
        self._tell(f"connected to TCP {self._host}")
        return True

    def _is_to_itself(self) -> bool:
        """Whether TCP connected the port to itself, as it may without a listener at an ephemeral port."""
        assert self._socket is not None
        try:
            return bool(self._socket.getsockname() == self._socket.getpeername())
        except OSError:
            return False  # it has broken already, as the first send will show

    def _has_ended(self) -> bool:
        """Whether the listener has closed the connection; MGEN never sends on it, and any data are discarded."""
        assert self._socket is not None
        try:
            return self._socket.recv(65536) == b""
        except BlockingIOError:
            return False
        except OSError:
            return True

    def _break(self, how: str) -> None:
        self._forget_acknowledged()
        again = [octets for _, octets in self._unacknowledged]
        self._unacknowledged.clear()
        self._messages.extendleft(reversed(again))
        self.held_octets += sum(map(len, again))
        self.resent += len(again) + (self._position > 0)
        self._position = 0
        self.close()
        self._tell(f"the listener at TCP {self._host} {how}; {len(self._messages)} messages wait for a new connection")

    def _forget_acknowledged(self) -> None:
        acknowledged = self._acknowledged_octets()
        while self._unacknowledged and self._unacknowledged[0][0] <= acknowledged:
            self._unacknowledged.popleft()

    def _acknowledged_octets(self) -> int:
        """Octets of this connection that the listener's host has acknowledged; callable from any thread."""
        if self._unacknowledged and self._socket is not None:
            with contextlib.suppress(OSError, ValueError):  # ValueError: it was closed meanwhile
                sent = self._sent_octets
                (queued,) = struct.unpack("=i", fcntl.ioctl(self._socket, termios.TIOCOUTQ, b"\0\0\0\0"))
                return int(sent - queued)
        return 0

    def _tell(self, text: str) -> None:
        if text != self._told:  # not at every attempt
            self._told = text
            self._say(text)
