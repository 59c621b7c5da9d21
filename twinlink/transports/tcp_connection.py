"""A TCP connection of a driver, found by its descriptor: its counters, and its end.

libzmq, Zenoh and mosquitto have no call that ends the connection of one peer.
"""

import contextlib
import fcntl
import os
import socket
import struct
import sys
import termios
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

# tcpi_unacked, in segments; tcpi_bytes_acked, tcpi_bytes_received and tcpi_notsent_bytes, in struct tcp_info
INFO = struct.Struct("=24xI92xQQ8xI4x")
Hold = Callable[[int], socket.socket]
QUEUED = struct.Struct("i")
FULL_PART = 8  # of the send buffer


class Counters(NamedTuple):
    """The counters of one connection, at one time."""

    received: int  # octets that the driver has read from it
    written: int  # octets that the driver has written to it, from an unknown origin
    filled: bool  # whether octets wait in the send buffer, as they must while the driver has more to write


class TcpConnection:
    """One connection; only Linux tells its counters.

    The driver owns the descriptor and may close it at any time, after which it may be another file.  So each access
    checks that the peer's address is still the same.  Not for the main thread: interrupted by Ctrl-C, an access could
    close the driver's descriptor.
    """

    def __init__(self, fd: int, hold: Hold | None = None) -> None:
        """Raises OSError if this is no connected TCP socket.

        ``hold``: duplicates a descriptor of another process; None: it is one of this process.
        """
        self.fd, self._hold = fd, hold
        with self._borrowed() as one:
            one.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, INFO.size)  # first: other kinds have no port
            self.peer = one.getpeername()
            self.port = one.getsockname()[1]  # this side's

    @property
    def address(self) -> str:
        """The address of the peer, for messages."""
        host, port = self.peer[:2]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    def counters(self) -> Counters:
        """What has passed it.  Raises OSError once it is closed."""
        with self._borrowed() as one:
            self._check(one)
            segments, acked, received, unsent = INFO.unpack(
                one.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, INFO.size)
            )
            received -= _queued(one, termios.FIONREAD)
            if not segments and not unsent:  # mostly so, and a guard looks twenty times a second at each connection
                return Counters(received, acked, False)
            unacked = _queued(one, termios.TIOCOUTQ)
            filled = unacked > one.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) // FULL_PART
            return Counters(received, acked + unacked, filled)

    def end(self) -> None:
        """End it, if it still is there."""
        hold = self._hold or _duplicate
        with contextlib.suppress(OSError), hold(self.fd) as held:  # cannot become another file while we look
            self._check(held)
            held.shutdown(socket.SHUT_RDWR)

    def _borrowed(self) -> contextlib.AbstractContextManager[socket.socket]:
        return Borrowed(self.fd) if self._hold is None else self._hold(self.fd)

    def _check(self, one: socket.socket) -> None:
        if one.getpeername() != self.peer:
            raise OSError("the descriptor belongs to another connection now")


def tcp_counters_available() -> bool:
    """Whether this system has the counters of `TcpConnection`."""
    return sys.platform == "linux"


def descriptors() -> list[int]:
    """The open files of this process; none if no descriptor is free to find out."""
    try:
        return [int(entry.name) for entry in Path("/proc/self/fd").iterdir()]
    except OSError:
        return []


class Borrowed:
    """The socket with this descriptor, which stays open.  Raises OSError if it is none."""

    def __init__(self, fd: int) -> None:
        self._socket = socket.socket(fileno=fd)

    def __enter__(self) -> socket.socket:
        return self._socket

    def __exit__(self, *_: object) -> None:
        self._socket.detach()


def _duplicate(fd: int) -> socket.socket:
    return socket.socket(fileno=os.dup(fd))


def _queued(one: socket.socket, request: int) -> int:
    (octets,) = QUEUED.unpack(fcntl.ioctl(one, request, bytes(QUEUED.size)))
    return int(octets)
