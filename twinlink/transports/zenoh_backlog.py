"""Connections of a Zenoh listener that are in the handshake of TLS, or have failed in it.

Zenoh 1.10 accepts all connections at once, takes the failed handshakes one after the other, and does nothing for 0.1 s
after each.  So a hundred that fail together keep every new peer out for ten seconds; only another session ends that.
"""

import contextlib
import logging
import os
import socket
import time
from collections import Counter

from .tcp_connection import Borrowed, descriptors

ESTABLISHED, LISTEN = 1, 10  # tcpi_state, the first octet of struct tcp_info; with any other a connection ends
MOST = 4  # failed handshakes, which keep new peers out for 0.4 s
LOOK_S = 0.1
# Another session interrupts the peers that are up for some tens of milliseconds, so strangers must not cause it often.
ALONE_S, BUSY_S = 0.5, 5.0

logger = logging.getLogger("twinlink")


class ZenohBacklog:
    """The backlog of one listener.

    Args:
        where: transport and endpoint, for messages.
        port: on which it listens.
        handshake_s: what a handshake may take.
        ended: counts connections that were ended, by option.

    Attributes:
        is_long: whether the session is to be replaced by another.
    """

    def __init__(self, where: str, port: int, handshake_s: float, ended: Counter[str]) -> None:
        self.is_long = False
        self._where, self._port, self._handshake_s, self._ended = where, port, handshake_s, ended
        self._long_s, self._look_at = -BUSY_S, 0.0  # when it was long
        self._up: set[int] = set()  # inodes of the sockets over which peers are or were up
        self._begun: dict[int, float] = {}  # when a handshake was first seen, by the inode of its socket

    def on_opened(self) -> None:
        """There is another session."""
        self.is_long = False

    def check(self, addresses: frozenset[str]) -> list[int]:
        """Look at all; returns the descriptors of those whose handshake takes too long.

        ``addresses``: of the peers that are up.
        """
        now = time.monotonic()
        if now < self._look_at:
            return []
        self._look_at = now + LOOK_S
        failed, up, begun = 0, set[int](), dict[int, float]()
        late = []
        for fd, state, inode, address in _connections(self._port):
            if inode in self._up or address in addresses:
                up.add(inode)
            elif state != ESTABLISHED:
                failed += 1
            else:
                begun[inode] = self._begun.get(inode, now)
                if now - begun[inode] > self._handshake_s:
                    late.append(fd)
        self._up, self._begun = up, begun
        if failed > MOST and not self.is_long and now - self._long_s > (BUSY_S if addresses else ALONE_S):
            self.is_long, self._long_s = True, now
            self._ended["handshakes"] += failed
            logger.warning(
                "%s: %d connections failed in the handshake, and keep new peers out: it listens anew, and the peers "
                "that are up connect again; `ss -tn 'sport = :%d'` shows which hosts connect",
                *(self._where, failed, self._port),
            )
        return late


def _connections(port: int) -> list[tuple[int, int, int, str]]:
    """Those that this process has accepted on a port: descriptor, state, inode, and the peer as Zenoh writes it."""
    found = []
    for fd in descriptors():
        with contextlib.suppress(OSError), Borrowed(fd) as one:  # not a socket, or closed by now
            state = one.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]
            if state != LISTEN and one.getsockname()[1] == port:
                found.append((fd, state, os.fstat(fd).st_ino, _peer(one) if state == ESTABLISHED else ""))
    return found


def _peer(one: socket.socket) -> str:
    host, port = one.getpeername()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
