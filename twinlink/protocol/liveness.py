"""Who is at the other end: sessions that say hello, and whether both directions work.  No I/O, no clock.

Hellos are numbered, and a hello says for each session that it hears the number of the last hello heard.  Ours are
numbered by our own monotonic clock, so a number that comes back tells when the hello left that got there.  It is
*news* when it is above all before it: then the peer hears us still.

| from   | what                                            | to    | event    |
|--------|-------------------------------------------------|-------|----------|
| -      | hello                                           | heard |          |
| heard  | hello with news: of one that left since it went down | up | PeerUp |
| heard  | bye, or silence                                 | -     |          |
| up     | hello that lists our epoch no more; or it speaks, without news for SILENT_NS | heard | PeerDown (deaf) |
| up     | bye, no news and no word, or a newer session of the same node while this one is silent | - | PeerDown |
"""

from dataclasses import dataclass

from .frames import Hello

HELLO_NS = 200_000_000  # a peer that is up is greeted this often
SEARCH_NS = 50_000_000  # and while nobody is up, or somebody is quiet, this often
QUIET_NS = 300_000_000  # from a peer that is up one is overdue; it is without news for twice as long at most
LOOK_NS = 50_000_000  # how often to look who has fallen silent: no oftener, and where nothing comes half as often
# No news for so long, and a peer is down: with 0.1 s until somebody looks, within the 1.5 s that are promised.  While
# all is well, what is known is at most a round trip and two hellos old: one until the peer speaks, one until it speaks
# again.  What is left, 0.9 s less the round trip (at least 0.7 s), is for TCP: it takes 0.6 s to get through when it
# loses a segment twice, and 0.2 s when it loses one on the way back as well.
SILENT_NS = 1_300_000_000
CERTAIN_NS = 6_000_000_000  # silence that no backlog excuses
BEHIND_NS = 300_000_000  # who has not read to the end for so long says so; looking for it takes 0.15 s at most
RESTART_NS = 400_000_000  # a namesake who has missed a hello has been replaced; else two nodes were given one name
MAX_PEERS = 1024


@dataclass(slots=True)
class Peer:
    """One session at the other end.

    ``number`` and ``sent_ns`` are those of its last hello; what it says of ours is news when it is above ``known``.
    ``trip_ns`` is how old the last news was: at least a round trip.  Who ``joins`` does not get our messages yet: it is
    not up, and is not told that we hear it.  ``told`` is the number of the first of our hellos that said what we owe it
    from where on; ``placed``: it has said what it owes us, or has heard us and not said it for long:
    in ``mute`` hellos since ``mute_mono_ns``.
    """

    node: str
    epoch: int
    flows: dict[str, int]
    repairs: bool
    detect: frozenset[str]
    known: int
    max_payload: int
    number: int = 0
    sent_ns: int = 0
    trip_ns: int = 0
    up: bool = False
    behind: bool = False  # by its last hello
    joins: bool = False
    told: int = 0
    placed: bool = False
    mute: int = 0
    mute_mono_ns: int = 0
    interrupted: bool = False  # until its last hello, its own or ours did not get through for a while

    def spoke_after(self, number: int, sent_ns: int) -> bool:
        """Whether its last hello is later than this one by both clocks: one alone may have been set, or begun anew."""
        return self.number > number and self.sent_ns > sent_ns


@dataclass(frozen=True, slots=True)
class Change:
    """A peer that came up (``reason`` None) or went; ``successor`` is the epoch that takes its place."""

    peer: Peer
    reason: str | None
    successor: int | None = None


class PeerTable:
    """Feed it hellos, byes and the time; it returns the changes, and knows who is up.

    Attributes:
        heard: epoch -> monotonic ns; whoever reads a frame of a known peer sets it.
        hears_us: epoch -> monotonic ns when the peer still heard us; whoever reads an ack of a known peer sets it.
    """

    def __init__(self, epoch: int, now_mono_ns: int) -> None:
        self._epoch = epoch
        self._began_mono_ns = now_mono_ns  # no hello of ours has a number from before
        self.heard: dict[int, int] = {}
        self.hears_us: dict[int, int] = {}
        self._peers: dict[int, Peer] = {}
        self._fell_silent: dict[int, int] = {}  # epoch -> monotonic ns

    def get(self, epoch: int) -> Peer | None:
        """The peer with this epoch, if it has said hello."""
        return self._peers.get(epoch)

    def all(self) -> list[Peer]:
        """Everybody who is heard."""
        return list(self._peers.values())

    def quiet(self, now_mono_ns: int) -> bool:
        """Whether somebody who is up should have been heard, or should have heard us, by now: the path may be cut."""
        least = now_mono_ns - QUIET_NS
        return any(
            peer.up
            and (self.heard.get(peer.epoch, least) < least or self.hears_us.get(peer.epoch, least) < least - QUIET_NS)
            for peer in self.all()
        )

    def hello(
        self, epoch: int, number: int, sent_ns: int, hello: Hello, now_mono_ns: int, joins: bool = False
    ) -> tuple[bool, list[Change]]:
        """Take in a hello; says whether to answer at once, and what changed.

        ``joins``: it does not get our messages yet.  What it says of ours does not count, and it is answered once.
        """
        changes = []
        for other in self.all():
            if other.node != hello.node or other.epoch == epoch or now_mono_ns - self.heard[other.epoch] <= RESTART_NS:
                continue
            # ZeroMQ hands out in turns what came over several connections: the last hello of a process that was killed
            # may be read long after the first of the next.
            if not other.spoke_after(number, sent_ns):
                changes += self._remove(other, "restarted", epoch)
        peer, new = self._peers.get(epoch), epoch not in self._peers
        if peer is None:
            if len(self._peers) >= MAX_PEERS:
                return False, changes
            known = self._fell_silent.pop(epoch, self._began_mono_ns)
            peer = self._peers[epoch] = Peer(
                hello.node, epoch, hello.flows, hello.repairs, hello.detect, known, hello.max_payload
            )
            self.hears_us[epoch] = 0
        peer.detect, peer.behind, peer.joins = hello.detect, hello.behind, joins
        confirmed = None if joins else hello.heard.get(self._epoch)
        peer.interrupted = peer.up and (
            number - peer.number > QUIET_NS or (confirmed is not None and confirmed - peer.known > 2 * QUIET_NS)
        )
        peer.number, peer.sent_ns = number, sent_ns
        self.heard[epoch] = now_mono_ns
        if confirmed is None:
            if peer.up:
                peer.up, peer.known = False, now_mono_ns
                changes.append(Change(peer, "deaf"))
        elif peer.known < confirmed <= now_mono_ns:
            peer.known, peer.trip_ns = confirmed, now_mono_ns - confirmed
            # On a long path, or behind data, a hello is old by the time it is confirmed; that it is confirmed is news.
            self.hears_us[epoch] = max(self.hears_us[epoch], confirmed, now_mono_ns - HELLO_NS)
            if not peer.up:
                peer.up = True
                changes.append(Change(peer, None))
                return True, changes  # so that they learn at once that we hear them
        elif hello.behind:
            self.hears_us[epoch] = now_mono_ns
        return (not peer.up and (new or not joins)) or peer.interrupted, changes

    def bye(self, epoch: int) -> list[Change]:
        """A peer closes."""
        peer = self._peers.get(epoch)
        return self._remove(peer, "closed") if peer else []

    def expire(self, now_mono_ns: int, emptied_mono_ns: int) -> list[Change]:
        """Take out whoever has been silent, and put down whoever has not heard us, for too long.

        What counts is the time up to when the transport was last read to its end: hellos may wait behind data that
        nobody has got to yet.
        """
        changes = []
        for peer in self.all():
            heard = self.heard[peer.epoch]
            good = self.hears_us[peer.epoch] if peer.up else heard
            if emptied_mono_ns - good <= SILENT_NS and now_mono_ns - heard <= CERTAIN_NS:
                continue
            if peer.up and heard - good > 2 * HELLO_NS:  # it went on speaking, and had no news
                peer.up, peer.known = False, now_mono_ns
                changes.append(Change(peer, "deaf"))
            else:
                changes += self._remove(peer, "silent")
                self._fell_silent[peer.epoch] = now_mono_ns
                if len(self._fell_silent) > MAX_PEERS:
                    del self._fell_silent[next(iter(self._fell_silent))]
        return changes

    def excuse(self, now_mono_ns: int) -> None:
        """This side was not listening (stopped, or in a long handler): nobody's silence counts so far."""
        for epoch in self.heard:
            self.heard[epoch] = self.hears_us[epoch] = now_mono_ns

    def _remove(self, peer: Peer, reason: str, successor: int | None = None) -> list[Change]:
        del self._peers[peer.epoch], self.heard[peer.epoch], self.hears_us[peer.epoch]
        return [Change(peer, reason, successor)] if peer.up else []
