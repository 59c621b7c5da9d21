"""Bounds what one connection can cost the others, and finds those that have lost the other side."""

from collections import Counter
from collections.abc import Sequence

from .connection_guard import SILENT, SILENT_S, EndReports
from .stream_connection import StreamConnection
from .stream_options import StreamOptions


class StreamGuard:
    """The connections of a node.  One thread calls all methods.

    Args:
        where: transport and endpoint, for messages.
        ended: connections that were ended, by the option that says when.
        listening: the side.

    Attributes:
        unread_octets: of messages that are incomplete, or wait for the link, on all connections; the transport counts
            them, and `has_room` counts anew.
    """

    def __init__(self, where: str, options: StreamOptions, ended: Counter[str], listening: bool) -> None:
        self._options = options
        self._reports = EndReports(where, ended, listening)
        self.unread_octets = 0

    def check(self, connections: Sequence[StreamConnection], now: float) -> None:
        """End connections beyond the limits; ping those that are silent.  ``now`` is monotonic, in seconds."""
        for one in connections:
            one.limit_wait(now)
            if one.overflowed:
                self._end(one, "unsent_octets", "does not read what it is sent", now)
            elif not one.is_open or one.finished_s is not None:
                self._limit_handshake(one, now)
            else:
                self._limit_silence(one, now)
        self._limit_numbers([one for one in connections if not one.ended], now)

    def has_room(self, connections: Sequence[StreamConnection], unread: Sequence[StreamConnection], now: float) -> bool:
        """Whether more may be read.

        Where incomplete messages alone take too much, the connections with the longest are ended.

        Args:
            connections: all of them.
            unread: those with messages that wait for the link, also of ended ones.
            now: monotonic, in seconds.
        """
        self._limit_partial([one for one in connections if not one.ended], now)
        partial = sum(one.partial_octets for one in connections)
        self.unread_octets = partial + sum(one.inbox_octets for one in unread)
        return self.unread_octets < self._options.unread_octets

    def _limit_handshake(self, one: StreamConnection, now: float) -> None:
        """The opening handshake, or what is left of the closing one."""
        limit_s = self._options.handshake_ms / 1000
        if one.finished_s is not None:
            if now - one.finished_s > limit_s:
                one.abort()
        elif now - one.opened_s > limit_s:
            self._end(one, "handshake_ms", "had not completed the handshake in its time", now)
        elif not one.begins and not one.is_secure and now - one.opened_s > SILENT_S:
            self._end(one, "handshakes", SILENT, now, self._reports.on_silence)

    def _limit_silence(self, one: StreamConnection, now: float) -> None:
        if one.pinged_s > one.heard_s:
            if (now - one.pinged_s) * 1000 > self._options.heartbeat_timeout_ms:
                self._end(one, "heartbeat_timeout_ms", "has not answered a ping", now)
        elif (now - one.heard_s) * 1000 > self._options.heartbeat_ms:
            one.ping(now)

    def _limit_numbers(self, connections: list[StreamConnection], now: float) -> None:
        """End connections beyond their number: first those without a handshake, the oldest first."""
        pending = sorted((one for one in connections if not one.is_open), key=lambda one: one.opened_s)
        excess = max(len(connections) - self._options.connections, len(pending) - self._options.handshakes)
        for one in pending[: max(excess, 0)]:
            self._end(one, "handshakes", "was among too many that had not completed the handshake", now)
        left = [one for one in connections if not one.ended]
        for _ in range(len(left) - self._options.connections):
            host = Counter(one.host for one in left).most_common(1)[0][0]
            last = max((one for one in left if one.host == host), key=lambda one: one.opened_s)
            left.remove(last)
            self._end(last, "connections", "was one too many", now)

    def _limit_partial(self, connections: list[StreamConnection], now: float) -> None:
        """End the connections with the longest incomplete messages while these take too much memory."""
        total = sum(one.partial_octets for one in connections)
        for one in sorted(connections, key=lambda one: -one.partial_octets):
            if total < self._options.unread_octets:
                return
            total -= one.partial_octets
            self._end(one, "unread_octets", "had sent too much of a message without its end", now)

    def _end(self, one: StreamConnection, option: str, reason: str, now: float, advice: str = "") -> None:
        one.abort()
        self._reports.add(one.address, option, reason, now, advice)
