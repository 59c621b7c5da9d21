"""Replicas of a state joined by simulated links, on clocks that the test moves: no thread, no socket, no sleep.

What a link promises is modelled: while two nodes are up for each other, messages arrive in order and are acknowledged;
what was under way when they lose sight of each other arrives late when they meet again, or never.
"""

from collections import deque
from dataclasses import dataclass, field
from random import Random

from twinlink.state.record import DESIRED, Slot, Stamp
from twinlink.state.replica import Replica
from twinlink.state.values import Change

MS, S = 1_000_000, 1_000_000_000
START_NS = 1_700_000_000 * S
RETURN_NS = 120 * S


@dataclass
class Node:
    """A node; ``replica`` and ``epoch`` are replaced when it restarts.

    Attributes:
        offset_ns: of its wall clock.
        seen: the newest stamp of each slot that its replica ever had.
    """

    name: str
    replica: Replica
    epoch: int
    offset_ns: int = 0
    next_sequence: int = 0
    changes: list[Change] = field(default_factory=list)
    seen: dict[Slot, Stamp] = field(default_factory=dict)


@dataclass
class Way:
    """Messages from one node to another: when each arrives, number, its time stamp, and octets."""

    messages: deque[tuple[int, int, int, bytes]] = field(default_factory=deque)
    acks: deque[tuple[int, int]] = field(default_factory=deque)


class Network:
    """A star, whose first node listens, or a mesh, as through a router.

    Attributes:
        now_ns: on the monotonic clock that all nodes share.
        up: pairs of nodes that are up for each other.
    """

    def __init__(self, random: Random, size: int, *, mesh: bool = False, delay_ns: int = 5 * MS) -> None:
        self.random, self.mesh, self.delay_ns = random, mesh, delay_ns
        self.now_ns = 10**15
        self.nodes: list[Node] = []
        self.up: set[tuple[int, int]] = set()
        self.apart_since: dict[tuple[int, int], int] = {}
        self.ways = {(a, b): Way() for a in range(size) for b in range(size) if a != b}
        self.sent = 0  # messages, each to all
        for number in range(size):
            self.nodes.append(self._new(number, f"node-{number}"))
        self.pairs = [(a, b) for a in range(size) for b in range(a + 1, size) if mesh or a == 0]

    def _new(self, number: int, name: str) -> Node:
        epoch = self.random.getrandbits(64)
        return Node(name, Replica(name, epoch, relays=number == 0 and not self.mesh), epoch)

    def wall_ns(self, number: int) -> int:
        """A node's wall clock."""
        return START_NS + self.now_ns - 10**15 + self.nodes[number].offset_ns

    # What happens to nodes and paths

    def meet(self, a: int, b: int) -> None:
        """Two nodes are up for each other."""
        pair = min(a, b), max(a, b)
        if pair in self.up:
            return
        apart_ns = self.now_ns - self.apart_since.get(pair, 0)
        self.up.add(pair)
        for this, other in self.random.sample([(a, b), (b, a)], 2):
            way = self.ways[this, other]
            # What was under way is retransmitted, or given up.
            kept = [] if apart_ns > RETURN_NS else [one for one in way.messages if self.random.random() < 0.7]
            way.messages = deque((self.now_ns + self.delay_ns, *one[1:]) for one in kept)
            way.acks.clear()
            node = self.nodes[this]
            node.replica.on_peer_up(self.nodes[other].epoch, self.nodes[other].name, self.now_ns)
            self.transmit(this)

    def part(self, a: int, b: int) -> None:
        """Two nodes lose sight of each other."""
        pair = min(a, b), max(a, b)
        if pair not in self.up:
            return
        self.up.remove(pair)
        self.apart_since[pair] = self.now_ns
        for this, other in ((a, b), (b, a)):
            self.nodes[this].replica.on_peer_down(self.nodes[other].epoch, True, self.now_ns)
            self.transmit(this)

    def restart(self, number: int) -> None:
        """A node loses all that it knew, and meets those again that it saw."""
        old = self.nodes[number]
        met = [pair for pair in self.pairs if number in pair and pair in self.up]
        self.nodes[number] = self._new(number, old.name)
        self.nodes[number].offset_ns = old.offset_ns
        for other in range(len(self.nodes)):
            if other != number:
                self.ways[number, other], self.ways[other, number] = Way(), Way()
                self.nodes[other].replica.on_peer_down(old.epoch, False, self.now_ns)
        self.up -= set(met)
        for pair in met:
            self.meet(*pair)

    def write(self, number: int, slot: Slot, payload: bytes | None, lifetime_ns: int | None = None) -> int:
        """A node sets a value."""
        replica = self.nodes[number].replica
        version = replica.write(slot, payload, self.wall_ns(number), self.now_ns, lifetime_ns=lifetime_ns)
        self.transmit(number)
        return version

    # Time

    def transmit(self, number: int) -> None:
        """Send what a node has to send."""
        node = self.nodes[number]
        while (octets := node.replica.poll_transmit(self.now_ns)) is not None:
            node.replica.on_sent(node.next_sequence, self.now_ns)
            self.sent += 1
            for other in range(len(self.nodes)):
                if other == number or ((min(number, other), max(number, other)) not in self.pairs):
                    continue
                arrives = self.now_ns + self.delay_ns + self.random.randrange(self.delay_ns)
                way = self.ways[number, other]
                arrives = max(arrives, way.messages[-1][0] if way.messages else 0)
                way.messages.append((arrives, node.next_sequence, self.wall_ns(number), octets))
            node.next_sequence += 1

    def run(self, for_ns: int) -> None:
        """Let time pass."""
        end = self.now_ns + for_ns
        while (due := self._next()) is not None and due <= end:
            self.now_ns = max(self.now_ns, due)
            self._deliver()
        self.now_ns = end

    def _next(self) -> int | None:
        due = [node.replica.next_timeout() for node in self.nodes]
        for (a, b), way in self.ways.items():
            if (min(a, b), max(a, b)) in self.up:
                due += [way.messages[0][0] if way.messages else None, way.acks[0][0] if way.acks else None]
        return min((one for one in due if one is not None), default=None)

    def _deliver(self) -> None:
        for (a, b), way in self.ways.items():
            if (min(a, b), max(a, b)) not in self.up:
                continue
            while way.messages and way.messages[0][0] <= self.now_ns:
                _, sequence, sent_ns, octets = way.messages.popleft()
                self._receive(a, b, sent_ns, octets)
                self.ways[b, a].acks.append((self.now_ns + self.delay_ns, sequence))
            while way.acks and way.acks[0][0] <= self.now_ns:
                self.nodes[b].replica.on_ack(self.nodes[a].epoch, way.acks.popleft()[1], self.now_ns)
                self.transmit(b)
        for number, node in enumerate(self.nodes):
            if (due := node.replica.next_timeout()) is not None and due <= self.now_ns:
                node.changes += node.replica.on_timeout(self.now_ns)
                self.transmit(number)

    def _receive(self, sender: int, receiver: int, sent_ns: int, octets: bytes) -> None:
        node, now_ns = self.nodes[receiver], self.wall_ns(receiver)
        node.changes += node.replica.receive(
            self.nodes[sender].epoch,
            octets,
            may_desire=True,
            sent_ns=sent_ns,
            received_ns=now_ns,
            now_ns=now_ns,
            mono_ns=self.now_ns,
        )
        self.check(node)
        self.transmit(receiver)

    # What is to hold

    def check(self, node: Node) -> None:
        """No value was replaced by an older one."""
        for slot, entry in node.replica._entries.items():
            assert entry.stamp >= node.seen.get(slot, entry.stamp), (slot, "an older value has won")
            node.seen[slot] = entry.stamp

    def values(self, number: int) -> dict[Slot, tuple[Stamp, bytes]]:
        """What stands at a node."""
        node = self.nodes[number]
        found = {}
        for slot in node.replica.slots():
            value = node.replica.value(slot, self.now_ns)
            if value is not None:
                found[slot] = node.replica._entries[slot].stamp, value.payload
        return found


def desired(key: str) -> Slot:
    """Where the desired value of a key stands."""
    return Slot(key, DESIRED)
