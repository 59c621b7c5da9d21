"""Failure detection: which sessions say hello, and whether both directions work.  No I/O, no clock.

Hellos are numbered, and a hello says for each session that it hears the number of the last hello heard.  A side numbers
its hellos by its own monotonic clock, so a number that comes back tells when the hello left that got there.  It is
*news* when it is above all before it: then the peer still hears this side.  The clock's highest bits are left out, so
that a number is exact as a double of JSON: it stays below 2^53 on a host of any age, until a session is 91 days old.

| from         | input                                                        | to        | transition       |
|--------------|--------------------------------------------------------------|-----------|------------------|
| -, LOST      | hello                                                        | HEARD     |                  |
| SILENT       | hello                                                        | DEAF      |                  |
| HEARD, DEAF  | hello with news: of one that left since the session went down | UP       | up               |
| UP           | hello that does not list this side; frames without news for PEER_TIMEOUT_NS | DEAF | down (deaf) |
| UP           | no frame and no news for PEER_TIMEOUT_NS                     | SILENT    | down (silent)    |
| DEAF, HEARD  | no frame for PEER_TIMEOUT_NS                                 | SILENT, LOST |               |
| UP           | bye                                                          | -         | down (closed)    |
| UP           | hello of a newer session of its node, while it misses its own | REPLACED | down (restarted) |
| REPLACED     | hellos for REVIVAL_NS: two nodes have the same name          | -         |                  |
| DEAF, SILENT | the same                                                     | REPLACED  | ended            |
| DEAF, SILENT | bye; SUSPENDED_NS since it went down                         | -; HEARD, LOST | ended       |
"""

from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from .frames import Hello
from .limits import MAX_PEERS

HELLO_INTERVAL_NS = 200_000_000  # between hellos while every peer is up
SEARCH_INTERVAL_NS = 50_000_000  # and while none is, or one is suspect
SUSPECT_NS = 300_000_000  # then a hello of a peer that is up is overdue; news of it, after twice as long
TICK_NS = 50_000_000  # between two calls of `PeerTable.expire`; half as often where nothing arrives
# Without news for so long, a peer is down: with 0.1 s until the next tick, within the 1.5 s that are promised.  While
# all is well, what is known is at most a round trip and two hellos old: one until the peer says hello, one until it
# does so again.  What is left, 0.9 s less the round trip (at least 0.7 s), is for TCP: it takes 0.6 s to get through
# when it loses a segment twice, and 0.2 s when it loses one on the way back as well.
PEER_TIMEOUT_NS = 1_300_000_000
# Sessions of one host whose numbers are to be compared count from the same origin: its clock at a multiple of this.
NUMBER_PERIOD_NS = 1 << 50
HARD_TIMEOUT_NS = 6_000_000_000  # silence that no backlog excuses
BEHIND_NS = 300_000_000  # a side that has not read to the end for so long says so; to find out takes 0.15 s at most
# A session that misses a hello beside a newer one of its node has been replaced; else two nodes have the same name.
RESTART_NS = 400_000_000
REVIVAL_NS = 3_000_000_000  # more than hellos of a process that was killed take to be read
SUSPENDED_NS = 120_000_000_000  # a session that has been down for so long will not return
MAX_REMEMBERED = 2048  # sessions that are not heard
MAX_HELLO_OCTETS = 4 * 1024 * 1024  # of the hellos of all peers whose flows are remembered


class PeerState(Enum):
    """What is known of a session."""

    HEARD = "heard"  # it says hello; whether it hears this side is not known
    UP = "up"  # both directions work
    DEAF = "deaf"  # it was up, and says hello, but does not hear this side as far as is known
    SILENT = "silent"  # it was up, and is not heard
    LOST = "lost"  # it was not up, and is not heard
    REPLACED = "replaced"  # its node has begun a newer session: what still comes of it is stale


# Tuples: an enumeration's member takes longer to hash than to compare.
_HEARD = (PeerState.HEARD, PeerState.UP, PeerState.DEAF)
_SUSPENDED = (PeerState.DEAF, PeerState.SILENT)


@dataclass(slots=True)
class Peer:
    """One session of a peer.

    Attributes:
        node, epoch, repairs, runs, detect, max_payload: as its hellos say.
        flows: for each of its flows, the next number to leave when it was first heard.
        confirmed: when the newest hello of this side left that it has confirmed, or when it went down.
        heard_mono_ns: when its last frame came.
        confirmed_mono_ns: when it still heard this side.
        state_mono_ns: since when it is suspended or replaced.
        hello_number, hello_sent_ns: of its last hello.
        rtt_bound_ns: how old the last news was: at least a round trip.
        behind: by its last hello, it has not read all that has arrived.
        hears: how many sessions it hears, by its last hello.
        joining: it does not get messages yet.  It is not up, and is not listed in hellos.
        start_sent: the number of the first hello that said what this side owes it, from where on, since it came up; 0:
            none has.
        start_known: it has said what it owes this side; or it has read that this side hears it, and has not said it for
            long: in ``hellos_without_start`` hellos since ``without_start_mono_ns``.
        hello_octets: of the hello with which it was first heard, whose flows are remembered.
        interrupted: until its last hello, hellos did not get through for a while.
    """

    node: str
    epoch: int
    confirmed: int
    state: PeerState = PeerState.HEARD
    flows: dict[str, int] = field(default_factory=dict)
    repairs: bool = False
    runs: bool = False
    detect: frozenset[str] = frozenset()
    max_payload: int = 0
    heard_mono_ns: int = 0
    confirmed_mono_ns: int = 0
    state_mono_ns: int = 0
    hello_number: int = 0
    hello_sent_ns: int = 0
    rtt_bound_ns: int = 0
    behind: bool = False
    hears: int = 0
    joining: bool = False
    start_sent: int = 0
    start_known: bool = False
    hellos_without_start: int = 0
    without_start_mono_ns: int = 0
    hello_octets: int = 0
    interrupted: bool = False

    @property
    def up(self) -> bool:
        """Whether both directions work."""
        return self.state is PeerState.UP

    @property
    def is_heard(self) -> bool:
        """Whether it says hello."""
        return self.state in _HEARD

    @property
    def is_suspended(self) -> bool:
        """Whether it was up and may come up again: messages are kept for it."""
        return self.state in _SUSPENDED

    def is_later_than(self, number: int, sent_ns: int) -> bool:
        """Whether its last hello is later than this one by both clocks: one alone may have been set, or begun anew."""
        return self.hello_number > number and self.hello_sent_ns > sent_ns


class PeerTransition(NamedTuple):
    """A change that the flows and the application get.

    Attributes:
        peer: the session, in its new state.
        reason: why it went down; None where it came up.
        successor: the epoch that takes its place.
        ended: it was suspended, and will not return.
    """

    peer: Peer
    reason: str | None
    successor: int | None = None
    ended: bool = False


class PeerTable:
    """Feed it hellos, byes and the time; it returns the transitions.

    Attributes:
        sessions: by epoch.  The caller sets `Peer.heard_mono_ns` with each frame of a session, and
            `Peer.confirmed_mono_ns` with each ack.
    """

    def __init__(self, epoch: int, now_mono_ns: int, max_peers: int = MAX_PEERS) -> None:
        self._epoch = epoch
        self._max_peers = max_peers
        self._shared_names: set[str] = set()  # of several nodes each
        self._started_mono_ns = now_mono_ns  # no hello of this side has a number from before
        self._number_origin_ns = now_mono_ns - now_mono_ns % NUMBER_PERIOD_NS
        self.sessions: dict[int, Peer] = {}

    def number(self, mono_ns: int) -> int:
        """The number of a hello that leaves at this time."""
        return mono_ns - self._number_origin_ns

    def get(self, epoch: int) -> Peer | None:
        """The session with this epoch, if it is heard."""
        peer = self.sessions.get(epoch)
        return peer if peer is not None and peer.is_heard else None

    def all(self) -> list[Peer]:
        """Every session that is heard.  May be called by any thread."""
        return [peer for peer in list(self.sessions.values()) if peer.is_heard]

    def suspended(self) -> list[Peer]:
        """Every session that was up and may come up again.  May be called by any thread."""
        return [peer for peer in list(self.sessions.values()) if peer.is_suspended]

    def any_suspect(self, now_mono_ns: int) -> bool:
        """Whether a hello of a peer that is up, or news of it, is overdue: the path may be cut."""
        return any(
            peer.up
            and (now_mono_ns - peer.heard_mono_ns > SUSPECT_NS or now_mono_ns - peer.confirmed_mono_ns > 2 * SUSPECT_NS)
            for peer in self.all()
        )

    def on_hello(
        self,
        epoch: int,
        number: int,
        sent_ns: int,
        hello: Hello,
        now_mono_ns: int,
        joining: bool = False,
        octets: int = 0,
    ) -> tuple[bool, list[PeerTransition]]:
        """Take in a hello of a session that is not REPLACED; returns whether to answer at once, and what changed.

        ``joining``: it does not get messages yet.  What it says of this side's hellos does not count, and it is
        answered once.  ``octets``: of the hello.  A session that there is no room for is not heard.
        """
        peer = self.sessions.get(epoch)
        new = peer is None or not peer.is_heard
        transitions = self._replace_predecessors(epoch, number, sent_ns, hello.node, now_mono_ns, new)
        if peer is None or peer.state is PeerState.LOST:
            if not self._make_room(octets):
                return False, transitions
            confirmed = self._started_mono_ns if peer is None else peer.confirmed
            self.sessions.pop(epoch, None)  # the youngest is the last
            peer = self.sessions[epoch] = Peer(hello.node, epoch, confirmed, flows=hello.flows, hello_octets=octets)
        elif peer.state is PeerState.SILENT:
            peer.state, peer.confirmed_mono_ns = PeerState.DEAF, 0
        peer.repairs, peer.runs, peer.max_payload = hello.repairs, hello.runs, hello.max_payload
        peer.detect, peer.behind, peer.joining = hello.detect, hello.behind, joining
        peer.hears = len(hello.heard)
        confirmed_now = None if joining else hello.heard.get(self._epoch)
        if confirmed_now is not None:
            confirmed_now += self._number_origin_ns  # when it left
        peer.interrupted = peer.up and (
            number - peer.hello_number > SUSPECT_NS
            or (confirmed_now is not None and confirmed_now - peer.confirmed > 2 * SUSPECT_NS)
        )
        peer.hello_number, peer.hello_sent_ns = number, sent_ns
        peer.heard_mono_ns = now_mono_ns
        if confirmed_now is None:
            if peer.up:
                transitions.append(self._suspend(peer, PeerState.DEAF, now_mono_ns))
        elif peer.confirmed < confirmed_now <= now_mono_ns:
            peer.confirmed, peer.rtt_bound_ns = confirmed_now, now_mono_ns - confirmed_now
            # On a long path, or behind data, a hello is old by the time it is confirmed; that it is confirmed is news.
            peer.confirmed_mono_ns = max(peer.confirmed_mono_ns, confirmed_now, now_mono_ns - HELLO_INTERVAL_NS)
            if not peer.up:
                peer.state = PeerState.UP
                transitions.append(PeerTransition(peer, None))
                return True, transitions  # so that the peer learns at once that it is heard
        elif hello.behind:
            peer.confirmed_mono_ns = now_mono_ns
        return (not peer.up and (new or not joining)) or peer.interrupted, transitions

    def _make_room(self, octets: int) -> bool:
        """Whether one more session can be heard; the oldest of those that have never been up makes room."""
        heard = len(self.all())
        remembered = sum(peer.hello_octets for peer in self.sessions.values())
        for peer in list(self.sessions.values()):
            if heard < self._max_peers and remembered + octets <= MAX_HELLO_OCTETS:
                break
            if peer.state not in (PeerState.LOST, PeerState.HEARD):
                continue
            heard -= peer.is_heard
            remembered -= peer.hello_octets
            del self.sessions[peer.epoch]
        return heard < self._max_peers and remembered + octets <= MAX_HELLO_OCTETS

    def _replace_predecessors(
        self, epoch: int, number: int, sent_ns: int, node: str, now_mono_ns: int, new: bool
    ) -> list[PeerTransition]:
        """End the sessions of this node that a hello of another one of its sessions shows to be over.

        ZeroMQ hands out in turns what came over several connections: the last hello of a process that was killed may be
        read long after the first of the next.  So a session with a later hello stays.
        """
        transitions: list[PeerTransition] = []
        for other in list(self.sessions.values()) if node not in self._shared_names else ():
            if other.node != node or other.epoch == epoch or other.is_later_than(number, sent_ns):
                continue
            missed = now_mono_ns - other.heard_mono_ns > RESTART_NS
            if other.is_suspended and (missed or new or other.state is PeerState.SILENT):
                reason = f"peer {node} was restarted"
                transitions.append(self._end(other, PeerState.REPLACED, reason, now_mono_ns, epoch))
            elif other.up and missed:
                other.state, other.state_mono_ns = PeerState.REPLACED, now_mono_ns
                transitions.append(PeerTransition(other, "restarted", epoch))
            elif other.state is PeerState.HEARD and missed:
                self._lose(other, now_mono_ns)
        return transitions

    def revive(self, epoch: int, number: int, now_mono_ns: int) -> bool:
        """Take a session for a node of its own that still says hello long after a newer one has replaced it."""
        peer = self.sessions.get(epoch)
        if (
            peer is None
            or peer.state is not PeerState.REPLACED
            or min(now_mono_ns - peer.state_mono_ns, number - peer.hello_number) < REVIVAL_NS
        ):
            return False
        del self.sessions[epoch]
        if len(self._shared_names) < self._max_peers:
            self._shared_names.add(peer.node)
        return True

    def on_bye(self, epoch: int, reason: str = "closed") -> list[PeerTransition]:
        """A peer closes, or does not count any more for this ``reason``."""
        peer = self.sessions.pop(epoch, None)
        if peer is None or not (peer.up or peer.is_suspended):
            return []
        was_up, peer.state = peer.up, PeerState.LOST
        return [PeerTransition(peer, reason if was_up else f"peer {peer.node} {reason}", ended=not was_up)]

    def expire(self, now_mono_ns: int, drained_mono_ns: int) -> list[PeerTransition]:
        """Suspend peers that have been silent, or have not heard this side, for too long; end those that stay away.

        What counts is the time up to when the transport was last read to its end: hellos may wait behind data that has
        not been read.
        """
        transitions = []
        for peer in self.all():
            good = peer.confirmed_mono_ns if peer.up else peer.heard_mono_ns
            if drained_mono_ns - good <= PEER_TIMEOUT_NS and now_mono_ns - peer.heard_mono_ns <= HARD_TIMEOUT_NS:
                continue
            if peer.up:
                speaks = peer.heard_mono_ns - good > 2 * HELLO_INTERVAL_NS
                transitions.append(self._suspend(peer, PeerState.DEAF if speaks else PeerState.SILENT, now_mono_ns))
            elif peer.state is PeerState.DEAF:
                peer.state, peer.confirmed = PeerState.SILENT, now_mono_ns
            else:
                self._lose(peer, now_mono_ns)
        for peer in self.suspended():
            if now_mono_ns - peer.state_mono_ns > SUSPENDED_NS:
                state = PeerState.HEARD if peer.state is PeerState.DEAF else PeerState.LOST
                reason = f"peer {peer.node} was silent for {SUSPENDED_NS // 1_000_000_000} s"
                transitions.append(self._end(peer, state, reason, now_mono_ns))
        self._forget_oldest()
        return transitions

    def restart_timers(self, now_mono_ns: int) -> None:
        """This side was not listening (stopped, or in a long handler): silence so far does not count."""
        for peer in self.all():
            peer.heard_mono_ns = peer.confirmed_mono_ns = now_mono_ns

    @staticmethod
    def _suspend(peer: Peer, state: PeerState, now_mono_ns: int) -> PeerTransition:
        peer.state, peer.state_mono_ns, peer.confirmed = state, now_mono_ns, now_mono_ns
        peer.start_sent = 0  # it is said anew when the peer comes up again: those hellos may have been lost
        return PeerTransition(peer, state.value)

    @staticmethod
    def _end(
        peer: Peer, state: PeerState, reason: str, now_mono_ns: int, successor: int | None = None
    ) -> PeerTransition:
        peer.state, peer.state_mono_ns = state, now_mono_ns
        return PeerTransition(peer, reason, successor, ended=True)

    @staticmethod
    def _lose(peer: Peer, now_mono_ns: int) -> None:
        peer.state, peer.confirmed = PeerState.LOST, now_mono_ns

    def _forget_oldest(self) -> None:
        """Forget the oldest sessions that will not return, beyond `MAX_REMEMBERED`."""
        if len(self.sessions) > MAX_REMEMBERED:
            over = len(self.sessions) - MAX_REMEMBERED
            gone = [peer for peer in self.sessions.values() if peer.state in {PeerState.LOST, PeerState.REPLACED}]
            for peer in gone[:over]:
                del self.sessions[peer.epoch]
