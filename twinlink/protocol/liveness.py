"""Failure detection: which sessions say hello, and whether both directions work.  No I/O, no clock.

Hellos are numbered, and a hello says for each session that it hears the number of the last hello heard.  Ours are
numbered by our own monotonic clock, so a number that comes back tells when the hello left that got there.  It is
*news* when it is above all before it: then the peer hears us still.

| from   | what                                            | to    | event    |
|--------|-------------------------------------------------|-------|----------|
| -      | hello                                           | heard |          |
| heard  | hello with news: of one that left since it went down | up | PeerUp |
| heard  | bye, or silence                                 | -     |          |
| up     | hello that lists our epoch no more; or words but no news for PEER_TIMEOUT_NS | heard | PeerDown (deaf) |
| up     | bye, no news and no word, or a newer session of the same node while this one is silent | - | PeerDown |
"""

from dataclasses import dataclass

from .frames import Hello

HELLO_INTERVAL_NS = 200_000_000  # a peer that is up is greeted this often
SEARCH_INTERVAL_NS = 50_000_000  # and while nobody is up, or somebody is quiet, this often
SUSPECT_NS = 300_000_000  # from a peer that is up one is overdue; it is without news for twice as long at most
TICK_NS = 50_000_000  # how often to look who has fallen silent: no oftener, and where nothing comes half as often
# No news for so long, and a peer is down: with 0.1 s until somebody looks, within the 1.5 s that are promised.  While
# all is well, what is known is at most a round trip and two hellos old: one until the peer speaks, one until it speaks
# again.  What is left, 0.9 s less the round trip (at least 0.7 s), is for TCP: it takes 0.6 s to get through when it
# loses a segment twice, and 0.2 s when it loses one on the way back as well.
PEER_TIMEOUT_NS = 1_300_000_000
HARD_TIMEOUT_NS = 6_000_000_000  # silence that no backlog excuses
BEHIND_NS = 300_000_000  # who has not read to the end for so long says so; looking for it takes 0.15 s at most
# a peer of the same name who has missed a hello has been replaced; else two nodes were given one name
RESTART_NS = 400_000_000
MAX_PEERS = 1024


@dataclass(slots=True)
class Peer:
    """One session at the other end.

    ``hello_number`` and ``hello_sent_ns`` are those of its last hello; what it says of ours is news when it is above
    ``confirmed``.  ``rtt_bound_ns`` is how old the last news was: at least a round trip.  A peer that is ``joining``
    does not get our messages yet: it is not up, and is not told that we hear it.  ``start_sent`` is the number of the
    first of our hellos that said what we owe it from where on; ``start_known``: it has said what it owes us, or has
    heard us and not said it for long: in ``hellos_without_start`` hellos since ``without_start_mono_ns``.
    """

    node: str
    epoch: int
    flows: dict[str, int]
    repairs: bool
    detect: frozenset[str]
    confirmed: int
    max_payload: int
    hello_number: int = 0
    hello_sent_ns: int = 0
    rtt_bound_ns: int = 0
    up: bool = False
    behind: bool = False  # by its last hello
    joining: bool = False
    start_sent: int = 0
    start_known: bool = False
    hellos_without_start: int = 0
    without_start_mono_ns: int = 0
    interrupted: bool = False  # until its last hello, its own or ours did not get through for a while

    def is_later_than(self, number: int, sent_ns: int) -> bool:
        """Whether its last hello is later than this one by both clocks: one alone may have been set, or begun anew."""
        return self.hello_number > number and self.hello_sent_ns > sent_ns


@dataclass(frozen=True, slots=True)
class PeerTransition:
    """A peer that came up (``reason`` None) or went; ``successor`` is the epoch that takes its place."""

    peer: Peer
    reason: str | None
    successor: int | None = None


class PeerTable:
    """Feed it hellos, byes and the time; it returns the changes, and knows who is up.

    Attributes:
        heard_mono_ns: epoch -> monotonic ns; whoever reads a frame of a known peer sets it.
        confirmed_mono_ns: epoch -> monotonic ns when the peer still heard us; whoever reads an ack of a known peer sets
            it.
    """

    def __init__(self, epoch: int, now_mono_ns: int) -> None:
        self._epoch = epoch
        self._started_mono_ns = now_mono_ns  # no hello of ours has a number from before
        self.heard_mono_ns: dict[int, int] = {}
        self.confirmed_mono_ns: dict[int, int] = {}
        self._peers: dict[int, Peer] = {}
        self._timed_out: dict[int, int] = {}  # epoch -> monotonic ns

    def get(self, epoch: int) -> Peer | None:
        """The peer with this epoch, if it has said hello."""
        return self._peers.get(epoch)

    def all(self) -> list[Peer]:
        """Everybody who is heard."""
        return list(self._peers.values())

    def any_suspect(self, now_mono_ns: int) -> bool:
        """Whether somebody who is up should have been heard, or should have heard us, by now: the path may be cut."""
        least = now_mono_ns - SUSPECT_NS
        return any(
            peer.up
            and (
                self.heard_mono_ns.get(peer.epoch, least) < least
                or self.confirmed_mono_ns.get(peer.epoch, least) < least - SUSPECT_NS
            )
            for peer in self.all()
        )

    def on_hello(
        self, epoch: int, number: int, sent_ns: int, hello: Hello, now_mono_ns: int, joining: bool = False
    ) -> tuple[bool, list[PeerTransition]]:
        """Take in a hello; says whether to answer at once, and what changed.

        ``joining``: it does not get our messages yet.  What it says of ours does not count, and it is answered once.
        """
        transitions = []
        for other in self.all():
            if (
                other.node != hello.node
                or other.epoch == epoch
                or now_mono_ns - self.heard_mono_ns[other.epoch] <= RESTART_NS
            ):
                continue
            # ZeroMQ hands out in turns what came over several connections: the last hello of a process that was killed
            # may be read long after the first of the next.
            if not other.is_later_than(number, sent_ns):
                transitions += self._remove(other, "restarted", epoch)
        peer, new = self._peers.get(epoch), epoch not in self._peers
        if peer is None:
            if len(self._peers) >= MAX_PEERS:
                return False, transitions
            known = self._timed_out.pop(epoch, self._started_mono_ns)
            peer = self._peers[epoch] = Peer(
                hello.node, epoch, hello.flows, hello.repairs, hello.detect, known, hello.max_payload
            )
            self.confirmed_mono_ns[epoch] = 0
        peer.detect, peer.behind, peer.joining = hello.detect, hello.behind, joining
        confirmed_now = None if joining else hello.heard.get(self._epoch)
        peer.interrupted = peer.up and (
            number - peer.hello_number > SUSPECT_NS
            or (confirmed_now is not None and confirmed_now - peer.confirmed > 2 * SUSPECT_NS)
        )
        peer.hello_number, peer.hello_sent_ns = number, sent_ns
        self.heard_mono_ns[epoch] = now_mono_ns
        if confirmed_now is None:
            if peer.up:
                peer.up, peer.confirmed = False, now_mono_ns
                transitions.append(PeerTransition(peer, "deaf"))
        elif peer.confirmed < confirmed_now <= now_mono_ns:
            peer.confirmed, peer.rtt_bound_ns = confirmed_now, now_mono_ns - confirmed_now
            # On a long path, or behind data, a hello is old by the time it is confirmed; that it is confirmed is news.
            self.confirmed_mono_ns[epoch] = max(
                self.confirmed_mono_ns[epoch], confirmed_now, now_mono_ns - HELLO_INTERVAL_NS
            )
            if not peer.up:
                peer.up = True
                transitions.append(PeerTransition(peer, None))
                return True, transitions  # so that they learn at once that we hear them
        elif hello.behind:
            self.confirmed_mono_ns[epoch] = now_mono_ns
        return (not peer.up and (new or not joining)) or peer.interrupted, transitions

    def on_bye(self, epoch: int) -> list[PeerTransition]:
        """A peer closes."""
        peer = self._peers.get(epoch)
        return self._remove(peer, "closed") if peer else []

    def expire(self, now_mono_ns: int, drained_mono_ns: int) -> list[PeerTransition]:
        """Take out whoever has been silent, and put down whoever has not heard us, for too long.

        What counts is the time up to when the transport was last read to its end: hellos may wait behind data that
        nobody has got to yet.
        """
        transitions = []
        for peer in self.all():
            heard = self.heard_mono_ns[peer.epoch]
            good = self.confirmed_mono_ns[peer.epoch] if peer.up else heard
            if drained_mono_ns - good <= PEER_TIMEOUT_NS and now_mono_ns - heard <= HARD_TIMEOUT_NS:
                continue
            if peer.up and heard - good > 2 * HELLO_INTERVAL_NS:  # it went on speaking, and had no news
                peer.up, peer.confirmed = False, now_mono_ns
                transitions.append(PeerTransition(peer, "deaf"))
            else:
                transitions += self._remove(peer, "silent")
                self._timed_out[peer.epoch] = now_mono_ns
                if len(self._timed_out) > MAX_PEERS:
                    del self._timed_out[next(iter(self._timed_out))]
        return transitions

    def restart_timers(self, now_mono_ns: int) -> None:
        """This side was not listening (stopped, or in a long handler): nobody's silence counts so far."""
        for epoch in self.heard_mono_ns:
            self.heard_mono_ns[epoch] = self.confirmed_mono_ns[epoch] = now_mono_ns

    def _remove(self, peer: Peer, reason: str, successor: int | None = None) -> list[PeerTransition]:
        del self._peers[peer.epoch], self.heard_mono_ns[peer.epoch], self.confirmed_mono_ns[peer.epoch]
        return [PeerTransition(peer, reason, successor)] if peer.up else []
