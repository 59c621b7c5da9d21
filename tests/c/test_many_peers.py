"""A C node with several Python nodes, which lose frames, fall silent and are replaced: its ledger is true of each."""

import ctypes as ct
import random
from dataclasses import dataclass

import pytest

from tests.c.building import SEEDS, needs_compiler
from tests.c.library import ABI, Config, FlowConfig, Node
from tests.c.lossy import MS, Path, Raw
from tests.traces.node import START_NS
from twinlink.protocol.frames import HELLO_TOPIC

pytestmark = needs_compiler
PEERS = 3
MILLISECONDS = 8_000
C_EPOCH = 0xC001


@dataclass
class Peer:
    """A Python node with its two paths.

    Attributes:
        joined: a hello of it that confirms one has arrived; before, a listener's transport gives it no messages.
        killed: it does nothing any more.
    """

    epoch: int
    node: Raw
    there: Path
    back: Path
    joined: bool = False
    killed: bool = False


class Star:
    """The C node in the middle; what it sends reaches every peer."""

    def __init__(self, library: ct.CDLL, seed: int) -> None:
        self.chance = random.Random(seed)
        config = Config(
            abi=ABI, octets=ct.sizeof(Config), node=b"c", epoch=C_EPOCH, in_flight_octets=100_000, receive_slots=1
        )
        self.c = Node(library, config, [FlowConfig(b"f", 48 * 1024, 256, 6000, 0)], START_NS)
        self.ms, self.given, self.epochs = 0, 0, 0
        self.peers = [self.new(index) for index in range(PEERS)]
        self.former: list[Peer] = []

    @property
    def now_ns(self) -> int:
        return START_NS + self.ms * MS

    def new(self, index: int) -> Peer:
        self.epochs += 1
        epoch = 0xB000 + self.epochs
        node = Raw({"node": f"peer{index}", "epoch": f"{epoch:016x}"})
        node.advance(self.ms)
        node.frames.clear()
        node.subscribe("f")
        return Peer(epoch, node, Path(self.chance, 0.03, 10), Path(self.chance, 0.03, 10))

    def disturb(self) -> None:
        index = self.chance.randrange(PEERS)
        peer = self.peers[index]
        if self.chance.random() < 0.2:
            peer.killed = True
            self.former.append(peer)
            self.peers[index] = self.new(index)
        else:
            peer.there.cut = peer.back.cut = not peer.there.cut

    def step(self) -> None:
        self.ms += 1
        for peer in self.peers:
            for topic, frame in peer.back.take(self.ms):
                peer.joined |= f"{C_EPOCH:016x}".encode() in frame
                self.c.receive(topic, frame, self.now_ns)
        self.c.on_time(self.now_ns, self.now_ns)
        frames = self.c.frames(self.now_ns)
        for peer in self.peers:
            for topic, frame in frames:
                if peer.joined or topic == HELLO_TOPIC:
                    peer.there.put(self.ms, topic, frame)
            peer.node.advance(self.ms)
            for topic, frame in peer.there.take(self.ms):
                peer.node.receive(topic.decode(), frame, False)
            for topic, frame in peer.node.frames:
                peer.back.put(self.ms, topic, frame)
            peer.node.frames.clear()

    def settle(self) -> None:
        for peer in self.peers:
            peer.there.cut = peer.back.cut = False
            peer.there.loss = peer.back.loss = 0.0
        for _ in range(130_000):  # suspensions of killed sessions end, too
            self.step()
            stats = self.c.flow_stats(0)
            if self.ms % 500 == 0 and not stats.outstanding and not stats.unconfirmed:
                return
        raise AssertionError(f"{stats.outstanding} outstanding, {stats.unconfirmed} unconfirmed")

    def named_for(self, epoch: int) -> set[int]:
        events = [one for one in self.c.events if one["event"] == "lost" and one["epoch"] in (0, epoch)]
        return {number for one in events for number in range(int(str(one["first"])), int(str(one["end"])))}


def judge(star: Star, peer: Peer) -> None:
    arrived = [int(one["sequence"]) for _, one in peer.node.delivered]
    assert arrived == sorted(set(arrived)), "twice, or out of order"
    named = star.named_for(peer.epoch)
    gaps = {
        number for _, one in peer.node.reported if one["event"] == "gap" for number in range(one["first"], one["end"])
    }
    assert gaps - named == set(), "a gap that the sender does not name"
    if arrived:
        end = arrived[-1] + 1 if peer.killed else star.given
        assert set(range(arrived[0], end)) - set(arrived) - named == set(), "neither delivered nor named"


@pytest.mark.parametrize("seed", range(SEEDS))
def test_each_message_is_delivered_or_named_for_each_peer(library: ct.CDLL, seed: int) -> None:
    star = Star(library, seed)
    for _ in range(MILLISECONDS):
        if star.ms > 300 and star.ms % 7 == 0:
            star.c.send(0, bytes(star.chance.randint(0, 1500)), star.now_ns)
            star.given += 1
        if star.ms > 500 and star.ms % 400 == 0:
            star.disturb()
        star.step()
    star.settle()
    assert any(len(peer.node.delivered) > 100 for peer in star.peers)
    for peer in [*star.peers, *star.former]:
        judge(star, peer)
