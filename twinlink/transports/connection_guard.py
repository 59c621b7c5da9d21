"""Bounds what one peer can cost the others: the TCP connections of a port, each within its limits, and all of them.

A driver queues what it receives and what it cannot send, without a bound in octets.  A guard looks at the kernel's
counters of each connection, compares them with what the transport has sent and read, and ends the connection that takes
too much.  A peer whose connection is ended connects again, and repair delivers what it misses.
"""

import contextlib
import logging
from collections import Counter
from dataclasses import dataclass, field

from .tcp_connection import TcpConnection

logger = logging.getLogger("twinlink")

CHECK_S = 0.05  # between two looks at all connections
QUICK_CHECK_S = 0.005  # while a connection is new, as a flood begins with it
LEAST_CHECK_S = 0.002
NEW_S = 0.25
OCTETS_PER_S = 4e9  # more than a local peer can send: how soon the next look must come
GREETING_OCTETS = 64  # of ZMTP, and less than Zenoh's handshake: a peer that has sent less is not connected yet
HANDSHAKE_OCTETS = 256  # of a subscriber, with the subscriptions of a node
HEARTBEAT_OCTETS_PER_S = 1024  # of a subscriber, beside its subscriptions
MESSAGE_OCTETS = 192  # that a driver takes for each message in its queue, beside its octets
ALL_SUBSCRIPTIONS = 8  # in all, times the octets of one connection
# After a connection was ended for what it sent, its host may open one connection in each slot, for a while: to clear up
# behind one takes libzmq longer than a stranger to connect again.
PENALTY_S = 1.0
SLOT_S = 0.1
DURING_DRAIN = 0.1  # of the limit: what the others may queue while the backlog of an ended connection is read
SILENT_S = 1.0  # after which a connection that has sent nothing is ended: a peer's first octets come at once
REPORT_S = 1.0
SILENT = "had not begun the handshake after a second"


@dataclass
class EndReports:
    """Counts the connections that were ended for a limit, and logs them, each option at most once a second."""

    where: str  # transport and endpoint, for messages
    ended: Counter[str]  # how many, by the option that says when
    listening: bool = True  # else the connections are this side's own
    _reported: dict[str, tuple[float, int]] = field(default_factory=dict)  # by option: when, and how many by then

    def add(self, address: str, option: str, reason: str, now: float, advice: str = "") -> None:
        """One more; ``reason`` goes on after "which", ``now`` is monotonic, in seconds.

        ``advice``: to a person; empty: to raise the option.
        """
        self.ended[option] += 1
        at, count = self._reported.get(option, (-REPORT_S, 0))
        if now - at >= REPORT_S:
            more = self.ended[option] - count - 1
            self._reported[option] = now, self.ended[option]
            logger.warning(
                "%s: ended the connection %s %s, which %s%s; %s",
                self.where, "of" if self.listening else "to", address, reason,
                f" (and {more} others before)" if more else "",
                advice or f"if it is a peer, raise the option {option}",
            )  # fmt: skip

    @property
    def on_silence(self) -> str:
        """What to do about a connection that was ended for `SILENT`: no option makes it right."""
        if self.listening:
            return "a peer's first octets come at once: see which program that is, or what holds them up on the way"
        return (
            "see that a listener with this transport is at that address, and not a busy or stopped program, or a proxy"
        )


@dataclass
class Guarded:
    """A connection and its account."""

    tcp: TcpConnection
    opened: float
    received: int = 0  # octets that the driver has read from it
    written: int = 0  # octets that the driver has written to it
    foreign: bool = False  # whether it speaks another protocol
    filled: bool = False  # whether its send buffer is filled
    backlog: float = 0.0  # octets of it that the transport has not read yet, at most
    subscribed: int = 0  # octets of subscriptions that it ever sent
    excess: float = -HANDSHAKE_OCTETS  # octets beyond what a subscriber must send, a leaky bucket
    sent_before: tuple[int, int] = (0, 0)  # octets and messages sent when nothing was queued for it
    written_before: int = 0  # its counter then


@dataclass
class ConnectionGuard:
    """The connections of one listening or connecting socket.  One thread calls all methods."""

    where: str  # transport and endpoint, for messages
    connections_limit: int
    handshakes_limit: int
    ended: Counter[str]  # connections that were ended, by the option that says when
    listening: bool = True
    _guarded: dict[int, Guarded] = field(default_factory=dict)  # by descriptor
    _penalties: dict[str, tuple[float, float]] = field(default_factory=dict)  # by host: until when, and its next slot

    def __post_init__(self) -> None:
        self._reports = EndReports(self.where, self.ended, self.listening)

    def opened(self, fd: int, now: float, tcp: TcpConnection | None = None) -> None:
        """The driver has a connection with this descriptor; ``tcp``: it, where it is known."""
        self._guarded.pop(fd, None)
        with contextlib.suppress(OSError):  # it has ended already
            self._guarded[fd] = self._account(tcp or TcpConnection(fd), now)

    def admits(self, host: str, now: float) -> bool:
        """Whether another connection of this host may complete its handshake."""
        until, slot = self._penalties.get(host, (now, now))
        if now < until:
            if now < slot:
                return False
            self._penalties[host] = until, now + SLOT_S
        return True

    def closed(self, fd: int) -> None:
        self._guarded.pop(fd, None)

    def descriptors(self) -> list[int]:
        return list(self._guarded)

    def connection(self, fd: int) -> TcpConnection | None:
        one = self._guarded.get(fd)
        return one.tcp if one is not None else None

    def known(self, fd: int) -> bool:
        """Whether this descriptor belongs to a connection that is guarded."""
        return fd in self._guarded

    def _account(self, tcp: TcpConnection, now: float) -> Guarded:
        return Guarded(tcp, now)

    def _received(self) -> list[tuple[Guarded, int]]:
        """Each connection, and what the driver has read from it since the last look."""
        found = []
        for fd, one in list(self._guarded.items()):
            try:
                received, one.written, one.filled = one.tcp.counters()
            except OSError:
                self.closed(fd)
                continue
            found.append((one, received - one.received))
            one.received = received
        return found

    def mark_foreign(self, octets: tuple[int, ...]) -> int:
        """How many connections have sent exactly so many octets, of those that were not marked before."""
        found = [one for one in self._guarded.values() if not one.foreign and one.received in octets]
        for one in found:
            one.foreign = True
        return len(found)

    def _limit_numbers(self, now: float) -> None:
        """End connections beyond their number: first those without a handshake, the oldest first."""
        pending = sorted(
            (one for one in self._guarded.values() if one.received < GREETING_OCTETS), key=lambda one: one.opened
        )
        for one in [one for one in pending if not one.received and now - one.opened > SILENT_S]:
            pending.remove(one)
            self._end(one, now, "handshakes", SILENT, self._reports.on_silence)
        excess = len(self._guarded) - self.connections_limit
        for one in pending[: max(excess, len(pending) - self.handshakes_limit, 0)]:
            self._end(one, now, "handshakes", "was among too many that had not completed the handshake")
        for _ in range(len(self._guarded) - self.connections_limit):
            hosts = Counter(one.tcp.peer[0] for one in self._guarded.values())
            host = hosts.most_common(1)[0][0]
            last = max((one for one in self._guarded.values() if one.tcp.peer[0] == host), key=lambda one: one.opened)
            self._end(last, now, "connections", "was one too many")

    def end(self, fd: int, now: float, option: str, reason: str) -> None:
        """End a connection for a limit that the caller keeps; ``reason`` as `EndReports.add` takes it."""
        if one := self._guarded.get(fd):
            self._end(one, now, option, reason)

    def _end_and_penalise(self, one: Guarded, now: float, option: str, reason: str) -> None:
        self._penalties = {host: times for host, times in self._penalties.items() if now < times[0]}
        self._penalties[one.tcp.peer[0]] = now + PENALTY_S, now + SLOT_S
        self._end(one, now, option, reason)

    def _end(self, one: Guarded, now: float, option: str, reason: str, advice: str = "") -> None:
        self._guarded.pop(one.tcp.fd, None)
        one.tcp.end()
        self._reports.add(one.tcp.address, option, reason, now, advice)


@dataclass
class SubscriberGuard(ConnectionGuard):
    """Connections on which the driver publishes: subscriptions come in, messages go out."""

    subscription_octets: int = 0
    unsent_octets: int = 0

    def _account(self, tcp: TcpConnection, now: float) -> Guarded:
        return Guarded(tcp, now, sent_before=self._sent)

    _sent: tuple[int, int] = (0, 0)
    _checked: float = 0.0

    def subscribed(self, fd: int, octets: int, now: float) -> None:
        """The connection has subscribed to a topic of so many octets."""
        if one := self._guarded.get(fd):
            one.subscribed += octets
            if one.subscribed > self.subscription_octets:
                self._end_subscriber(one, now)

    def check(self, now: float, sent: tuple[int, int]) -> float:
        """End what exceeds its limits.

        Args:
            now: monotonic, in seconds.
            sent: octets and messages that the transport has sent since it was opened.

        Returns: seconds until the next check.
        """
        drained = HEARTBEAT_OCTETS_PER_S * (now - self._checked)
        self._sent, self._checked = sent, now
        for one, octets in self._received():
            one.excess = max(one.excess - drained, min(one.excess, 0.0)) + octets
        self._limit_numbers(now)
        total = sum(max(0, one.excess) + one.subscribed for one in self._guarded.values())
        for one in sorted(self._guarded.values(), key=lambda one: -one.excess):
            if one.excess <= self.subscription_octets and total <= self._limit_of_all():
                break
            total -= max(0, one.excess) + one.subscribed
            self._end_subscriber(one, now)
        room = self._limit_unsent(now, sent)
        new = any(now - one.opened < NEW_S for one in self._guarded.values())
        return min(QUICK_CHECK_S if new else CHECK_S, room / OCTETS_PER_S)

    def _limit_of_all(self) -> int:
        return ALL_SUBSCRIPTIONS * self.subscription_octets + HANDSHAKE_OCTETS * len(self._guarded)

    def _end_subscriber(self, one: Guarded, now: float) -> None:
        self._end_and_penalise(one, now, "subscription_octets", "sent too many octets of subscriptions")

    def _limit_unsent(self, now: float, sent: tuple[int, int]) -> float:
        """End connections for which too much is queued; returns how much more the fullest queue may take."""
        most = 0.0
        for one in list(self._guarded.values()):
            if not one.filled:
                one.sent_before, one.written_before = sent, one.written
                continue
            octets, messages = sent[0] - one.sent_before[0], sent[1] - one.sent_before[1]
            queued = octets - (one.written - one.written_before)
            taken = queued * (1 + messages * MESSAGE_OCTETS / max(octets, 1))
            if taken > self.unsent_octets:
                self._end(one, now, "unsent_octets", "does not read what it is sent")
            else:
                most = max(most, taken)
        return self.unsent_octets - most


@dataclass
class PublisherGuard(ConnectionGuard):
    """Connections from which the driver receives messages."""

    unread_octets: int = 0
    message_octets: int = MESSAGE_OCTETS
    _read: tuple[int, int] = (0, 0)
    _drained_at: tuple[int, int] = (0, 0)  # what was read when everything was
    _memory: float = 1.0  # that an octet takes in the queue
    _retired: float = 0.0  # the backlog of connections that have ended

    def closed(self, fd: int) -> None:
        """The driver has closed it; what came from it may still be unread."""
        if one := self._guarded.get(fd):
            self._retired += one.backlog
        super().closed(fd)

    def check(self, now: float, read: tuple[int, int], drained: bool) -> float:
        """End what exceeds its limits.

        Args:
            now: monotonic, in seconds.
            read: octets and messages that the transport has read since it was opened.
            drained: whether it has read everything at some time since the last check.

        Returns: seconds until the next check.
        """
        received = self._received()
        for one, octets in received:
            one.backlog += octets
        self._limit_numbers(now)
        if total := self._total():
            # Which connections the octets read came from is unknown: from each in proportion.
            left = max(0.0, 1 - (read[0] - self._read[0]) / total)
            self._retired *= left
            for one in self._guarded.values():
                one.backlog *= left
        if drained:  # at some time since the last check: what was received before it has been read
            self._retired, self._drained_at = 0.0, read
            for one, octets in received:
                one.backlog = min(one.backlog, octets)
        self._read = read
        octets, messages = read[0] - self._drained_at[0], read[1] - self._drained_at[1]
        if octets:  # what waits is taken to be like what was read
            self._memory = 1 + messages * self.message_octets / octets
        limit = self.unread_octets / self._memory
        while (total := self._total()) > limit:
            others = max(limit - self._retired, DURING_DRAIN * limit)
            if total - self._retired <= others:
                break
            largest = max(self._guarded.values(), key=lambda one: one.backlog)
            self._retired += largest.backlog
            self._end_and_penalise(largest, now, "unread_octets", "sends more than is read")
        return min(CHECK_S, (limit - total) / OCTETS_PER_S)

    def _total(self) -> float:
        return self._retired + sum(one.backlog for one in self._guarded.values())
