"""The TCP connections of a Zenoh listener: found among the descriptors, freed of their linger, and guarded."""

import contextlib
import socket
import struct
import time
from collections import Counter
from collections.abc import Collection
from pathlib import Path
from typing import Any

import zenoh

from .connection_guard import PublisherGuard
from .tcp_connection import TcpConnection, tcp_counters_available
from .zenoh_absent import AbsentSession

# Zenoh sets SO_LINGER: closing the socket of a peer that vanished blocks the thread, and the connections that it
# serves, for these 10 s.
LINGER = struct.Struct("ii")  # on or off, seconds
ZENOHS_LINGER = LINGER.pack(1, 10)
SCAN_S = 0.25  # between two scans for new connections, of which Zenoh reports only those with a complete handshake
ZMTP_OCTETS = 10, 11  # after which ZMTP's handshake waits for an answer; a Zenoh node begins with more
MESSAGE_OCTETS = 1024  # that Zenoh takes for each message that waits to be read, beside its octets


class ZenohConnections:
    """Those of one listener.

    Args:
        where: transport and endpoint, for messages.
        port: on which it listens.
        limits: numbers of connections, and of those without a handshake; unread octets.
        ended: counts connections that were ended, by option.
    """

    def __init__(self, where: str, port: int, limits: tuple[int, int, int], ended: Counter[str]) -> None:
        self._port = port
        self._guard = PublisherGuard(where, *limits[:2], ended, unread_octets=limits[2], message_octets=MESSAGE_OCTETS)
        self._scan_at = 0.0
        self._available = tcp_counters_available()

    def check(self, read: tuple[int, int], drained: bool, changed: bool) -> int:
        """End connections that exceed a limit; returns how many more have begun the handshake of ZMTP, not Zenoh's.

        Args:
            read: octets and messages that the transport has read since it was opened.
            drained: whether it has read everything at some time since the last check.
            changed: whether Zenoh has reported a connection.
        """
        now = time.monotonic()
        if not self._available:
            return 0
        if changed or now >= self._scan_at:
            self._scan_at = now + SCAN_S
            self._scan(now)
        self._guard.check(now, read, drained)
        return self._guard.mark_foreign(ZMTP_OCTETS)

    def _scan(self, now: float) -> None:
        for fd in descriptors():
            if not self._guard.known(fd):
                with contextlib.suppress(OSError):  # another file, or closed by now
                    if TcpConnection(fd).port == self._port:
                        self._guard.opened(fd, now)


def count_connections(session: zenoh.Session, to_routers: bool, names: Collection[str] | None = None) -> int:
    """How many peers, or routers, a session is connected to.

    ``names``: count only those with one of these names in the certificate.  A connector over TLS also trusts the Web's
    public authorities (Zenoh 1.10).
    """
    if isinstance(session, AbsentSession):
        return 0
    with contextlib.suppress(zenoh.ZError):
        if names is not None:
            return sum(link.auth_identifier in names for link in session.info.links())
        return len(session.info.routers_zid() if to_routers else session.info.peers_zid())
    return 0


def connection_changes(events: Any) -> list[zenoh.SampleKind]:
    """PUT for each connection made, DELETE for each that ended, since the last call."""
    changes: list[zenoh.SampleKind] = []
    with contextlib.suppress(zenoh.ZError):
        while (event := events.try_recv()) is not None:
            changes.append(event.kind)
    return changes


def descriptors() -> list[int]:
    """The open files of this process; none if no descriptor is free to find out."""
    try:
        return [int(entry.name) for entry in Path("/proc/self/fd").iterdir()]
    except OSError:
        return []


def clear_linger() -> None:
    """Reset SO_LINGER of this process's sockets that have Zenoh's value."""
    for fd in descriptors():
        with contextlib.suppress(OSError):  # not a socket, or closed by now
            found = socket.socket(fileno=fd)
            try:
                if found.getsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER.size) == ZENOHS_LINGER:
                    found.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER.pack(0, 0))
            finally:
                found.detach()
