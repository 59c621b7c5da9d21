"""Bounds what one client can cost the others at a private broker.

mosquitto 2.0 waits 90 s for the CONNECT of a client, and queues without a limit for one that does not read.  The guard
duplicates the sockets of the broker's process, which is a child of this one (pidfd_getfd, Linux 5.6), looks at the
kernel's counters, and ends the connections that take too much.
"""

import contextlib
import ctypes
import errno
import logging
import os
import socket
import time
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from .connection_guard import ConnectionGuard, Guarded
from .mqtt_client import MqttOptions
from .tcp_connection import TcpConnection, tcp_counters_available

PIDFD_GETFD = 438  # on every architecture
CHECK_S = 0.1
SCAN_S = 0.25
HANDSHAKE_S = 4.0  # for TLS and CONNECT: three round trips
SOCKET = "socket:"

logger = logging.getLogger("twinlink")


@dataclass
class BrokerConnections(ConnectionGuard):
    """Those of one broker.  What a client publishes, the broker queues for the others that do not read."""

    unsent_octets: int = 0
    unread_octets: int = 0
    _published: int = 0  # octets that were received for any client but the link's

    def check(self, now: float, own: str, waiting: Collection[str], hears_all: bool) -> None:
        """End what exceeds its limits.

        Args:
            now: monotonic, in seconds.
            own: the address of the link's own client, which is never ended.
            waiting: addresses of clients that the broker has not accepted yet.
            hears_all: whether a client hears all others, and not the link alone.
        """
        received = self._received()
        self._limit_numbers(now)
        for one, _ in received:
            if one.tcp.address in waiting and now - one.opened > HANDSHAKE_S:
                self._end(one, now, "handshakes", "had not completed the handshake in time")
        self._published += sum(octets for one, octets in received if hears_all or one.tcp.address == own)
        for one in list(self._guarded.values()):
            if one.tcp.address == own:
                self._limit_unread(one, received, now)
            elif not one.filled:
                one.sent_before, one.written_before = (self._published, 0), one.written
            elif self._published - one.sent_before[0] - (one.written - one.written_before) > self.unsent_octets:
                self._end(one, now, "unsent_octets", "does not read what it is sent")

    def _limit_unread(self, own: Guarded, received: list[tuple[Guarded, int]], now: float) -> None:
        """End the client that sends most, if too much waits for the link's own."""
        if not own.filled:
            own.written_before = own.written
        for one, octets in received:
            one.backlog = one.backlog + octets if own.filled and one is not own else 0.0
        backlog = sum(one.backlog for one in self._guarded.values())
        if backlog - (own.written - own.written_before) > self.unread_octets:
            largest = max(self._guarded.values(), key=lambda one: one.backlog)
            self._end_and_penalise(largest, now, "unread_octets", "sends more than is read")


class MqttBrokerGuard:
    """The guard of the broker on a port; for one thread at a time.

    ``where`` is for messages; ``ended`` counts connections that were ended, by option.
    """

    def __init__(self, where: str, port: int, pid: int, options: MqttOptions, ended: Counter[str]) -> None:
        self._where, self._port, self._pid = where, port, pid
        self._guard = BrokerConnections(
            where,
            *(options.connections, options.handshakes, ended),
            unsent_octets=options.unsent_octets,
            unread_octets=options.unread_octets,
        )
        self._check_at = self._scan_at = 0.0
        self._process: int | None = None
        if tcp_counters_available():
            with contextlib.suppress(OSError):  # it has ended
                self._process = os.pidfd_open(pid)

    def check(self, own: str, waiting: Collection[str], hears_all: bool) -> None:
        """End connections that exceed a limit; as `BrokerConnections.check`."""
        now = time.monotonic()
        if self._process is None or now < self._check_at:
            return
        self._check_at = now + CHECK_S
        try:
            if now >= self._scan_at:
                self._scan_at = now + SCAN_S
                self._scan(now)
            self._guard.check(now, own, waiting, hears_all)
        except PermissionError as error:
            logger.warning(
                "%s: idle clients of the private broker are not ended, and what waits for one that does not read is "
                "not limited: %s; permit pidfd_getfd in this container, or keep strangers from the port",
                *(self._where, error.strerror),
            )
            self.close()

    def close(self) -> None:
        """Free the descriptor."""
        if self._process is not None:
            os.close(self._process)
            self._process = None

    def _scan(self, now: float) -> None:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended
            for entry in Path(f"/proc/{self._pid}/fd").iterdir():
                if not self._guard.known(int(entry.name)):
                    with contextlib.suppress(FileNotFoundError):  # closed by now
                        if str(entry.readlink()).startswith(SOCKET):
                            self._look_at(int(entry.name), now)

    def _look_at(self, fd: int, now: float) -> None:
        try:
            tcp = TcpConnection(fd, self._hold)
        except PermissionError:
            raise
        except OSError:  # no connection, or closed by now
            return
        if tcp.port == self._port:
            self._guard.opened(fd, now, tcp)

    def _hold(self, fd: int) -> socket.socket:
        assert self._process is not None
        duplicate = _libc.syscall(PIDFD_GETFD, self._process, fd, 0)
        if duplicate < 0:
            number = ctypes.get_errno()
            if number == errno.ENOSYS:  # by a filter of system calls, or an older kernel
                number = errno.EPERM
            raise OSError(number, os.strerror(number))
        return socket.socket(fileno=duplicate)


_libc = ctypes.CDLL(None, use_errno=True)
