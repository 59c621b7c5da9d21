"""Who is at the other end: sessions that say hello, and whether both directions work.  No I/O, no clock.

| from   | what                                   | to   | event    |
|--------|----------------------------------------|------|----------|
| -      | hello                                  | heard|          |
| heard  | hello that lists our epoch             | up   | PeerUp   |
| heard  | bye, or silence                        | -    |          |
| up     | hello that lists our epoch no more     | heard| PeerDown |
| up     | bye, silence, or a newer session of the same node while this one is silent | - | PeerDown |
"""

from dataclasses import dataclass

from .wire import Hello

HELLO_NS = 250_000_000  # a peer that is up is greeted this often
SEARCH_NS = 50_000_000  # and while nobody is up, this often
LOOK_NS = 50_000_000  # how often to look who has fallen silent
# Longer than TCP takes to get through when it loses the same segment three times (200 + 400 + 800 ms, less a hello).
SILENT_NS = 1_300_000_000
CERTAIN_NS = 6_000_000_000  # silence that no backlog excuses
RESTART_NS = 400_000_000  # a namesake who has missed a hello has been replaced; else two nodes were given one name
MAX_PEERS = 1024


@dataclass(slots=True)
class Peer:
    """One session at the other end."""

    node: str
    epoch: int
    flows: dict[str, int]
    repairs: bool
    detect: frozenset[str]
    up: bool = False


@dataclass(frozen=True, slots=True)
class Change:
    """A peer that came up (``reason`` None) or went; ``successor`` is the epoch that takes its place."""

    peer: Peer
    reason: str | None
    successor: int | None = None


class PeerTable:
    """Feed it hellos, byes and the time; it returns the changes, and knows who is up."""

    def __init__(self, epoch: int) -> None:
        self._epoch = epoch
        self.heard: dict[int, int] = {}  # epoch -> monotonic ns; whoever reads a frame of a known peer sets it
        self._peers: dict[int, Peer] = {}

    def get(self, epoch: int) -> Peer | None:
        """The peer with this epoch, if it has said hello."""
        return self._peers.get(epoch)

    def all(self) -> list[Peer]:
        """Everybody who is heard."""
        return list(self._peers.values())

    def hello(self, epoch: int, hello: Hello, now_mono_ns: int) -> tuple[bool, list[Change]]:
        """Take in a hello; says whether to answer at once, and what changed."""
        changes = []
        for other in self.all():
            if other.node == hello.node and other.epoch != epoch and now_mono_ns - self.heard[other.epoch] > RESTART_NS:
                changes += self._remove(other, "restarted", epoch)
        peer = self._peers.get(epoch)
        if peer is None:
            if len(self._peers) >= MAX_PEERS:
                return False, changes
            peer = self._peers[epoch] = Peer(hello.node, epoch, hello.flows, hello.repairs, hello.detect)
        peer.detect = hello.detect
        self.heard[epoch] = now_mono_ns
        hears_us = self._epoch in hello.heard
        if hears_us and not peer.up:
            peer.up = True
            changes.append(Change(peer, None))
            return True, changes  # so that they learn at once that we hear them
        if peer.up and not hears_us:
            peer.up = False
            changes.append(Change(peer, "deaf"))
        return not hears_us, changes

    def bye(self, epoch: int) -> list[Change]:
        """A peer closes."""
        peer = self._peers.get(epoch)
        return self._remove(peer, "closed") if peer else []

    def expire(self, now_mono_ns: int, emptied_mono_ns: int) -> list[Change]:
        """Take out whoever has been silent for too long.

        What counts is the silence up to when the transport was last read to its end: hellos may wait behind data
        that nobody has got to yet.
        """
        changes = []
        for peer in self.all():
            heard = self.heard[peer.epoch]
            if emptied_mono_ns - heard > SILENT_NS or now_mono_ns - heard > CERTAIN_NS:
                changes += self._remove(peer, "silent")
        return changes

    def excuse(self, now_mono_ns: int) -> None:
        """This side was not listening (stopped, or in a long handler): nobody's silence counts so far."""
        for epoch in self.heard:
            self.heard[epoch] = now_mono_ns

    def _remove(self, peer: Peer, reason: str, successor: int | None = None) -> list[Change]:
        del self._peers[peer.epoch], self.heard[peer.epoch]
        return [Change(peer, reason, successor)] if peer.up else []
