"""The TCP connections of a Zenoh listener: found among the descriptors, freed of their linger, and guarded."""

import contextlib
import socket
import struct
import time
from collections import Counter
from collections.abc import Collection
from typing import Any

import zenoh

from . import accept_filter
from .base import Endpoint
from .connection_guard import PublisherGuard
from .tcp_connection import Borrowed, TcpConnection, descriptors, tcp_counters_available
from .zenoh_absent import AbsentSession
from .zenoh_backlog import ZenohBacklog
from .zenoh_config import ZenohOptions

# Zenoh sets SO_LINGER: closing the socket of a peer that vanished blocks the thread, and the connections that it
# serves, for these 10 s.
LINGER = struct.Struct("ii")  # on or off, seconds
ZENOHS_LINGER = LINGER.pack(1, 10)
SCAN_S = 0.25  # between two scans for new connections, of which Zenoh reports only those with a complete handshake
ZMTP_OCTETS = 10, 11  # after which ZMTP's handshake waits for an answer; a Zenoh node begins with more
MESSAGE_OCTETS = 1024  # that Zenoh takes for each message that waits to be read, beside its octets


class ZenohConnections:
    """The connections of one listener; ``backlog`` has those that are in the handshake of TLS.

    ``ended`` counts connections that were ended, by option; ``over_tls``: whether the listener has an identity.
    """

    def __init__(self, endpoint: Endpoint, options: ZenohOptions, ended: Counter[str], over_tls: bool) -> None:
        self._port = endpoint.port
        self._guard = PublisherGuard(
            f"zenoh {endpoint}",
            *(options.connections, options.handshakes, ended),
            unread_octets=options.unread_octets,
            message_octets=MESSAGE_OCTETS,
        )
        self.backlog = ZenohBacklog(f"zenoh {endpoint}", endpoint.port, options.accept_timeout_ms / 1000, ended)
        self._unfiltered: Collection[str] = ()  # where the session listens, until the filter is attached
        self._scan_at = 0.0
        self._available, self._over_tls = tcp_counters_available(), over_tls

    def on_opened(self, places: Collection[str]) -> None:
        """A session listens at these places, written ``tcp/host:port``."""
        self._unfiltered = places
        self.backlog.on_opened()

    def check_handshakes(self, session: zenoh.Session) -> None:
        """End handshakes of TLS that take too long.  Not for the main thread."""
        if not (self._available and self._over_tls) or isinstance(session, AbsentSession):
            return
        if self._unfiltered:
            places, self._unfiltered = self._unfiltered, ()
            accept_filter.attach(places)
        addresses: frozenset[str] = frozenset()
        with contextlib.suppress(zenoh.ZError):
            addresses = frozenset(peer_address(link) for link in session.info.links())
        for fd in self.backlog.check(addresses):
            self._guard.end(fd, time.monotonic(), "accept_timeout_ms", "had not completed the handshake in time")

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
                        accept_filter.detach(fd)
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


def peer_address(link: zenoh.Link) -> str:
    """The address of the other side of a link, ``host:port``."""
    return link.dst.partition("/")[2].partition("?")[0]


def connection_changes(events: Any) -> list[zenoh.SampleKind]:
    """PUT for each connection made, DELETE for each that ended, since the last call."""
    changes: list[zenoh.SampleKind] = []
    with contextlib.suppress(zenoh.ZError):
        while (event := events.try_recv()) is not None:
            changes.append(event.kind)
    return changes


def clear_linger() -> None:
    """Reset SO_LINGER of this process's sockets that have Zenoh's value."""
    for fd in descriptors():
        with contextlib.suppress(OSError), Borrowed(fd) as found:  # not a socket, or closed by now
            if found.getsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER.size) == ZENOHS_LINGER:
                found.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER.pack(0, 0))
