"""From Python's core to the JavaScript node each message arrives once and in order, or both sides name it."""

import random
from typing import Any

import pytest

from tests.c.lossy import Path, Raw
from tests.javascript.running import needs_node
from tests.javascript.traced import Bridge
from twinlink.errors import SendTimeout

pytestmark = needs_node
NODE, PYTHON = "000000000000a001", "000000000000b001"


class World:
    """Both nodes and the paths between them, on a simulated clock."""

    def __init__(self, bridge: Bridge, seed: int, loss: float, delay_ms: int) -> None:
        self.chance = random.Random(seed)
        self.there, self.back = Path(self.chance, loss, delay_ms), Path(self.chance, loss, delay_ms)
        self.python = Raw({"node": "python", "epoch": PYTHON})
        self.bridge = bridge
        self.arrived: list[int] = []
        self.gaps: set[int] = set()
        self.ms = self.given = 0
        self.call("begin", {"node": "browser", "epoch": NODE})
        self.call("subscribe", "f")

    def call(self, name: str, argument: Any) -> None:
        did = self.bridge.call(name, argument)
        self.arrived += [int(message["sequence"]) for _, message in did["delivered"]]
        for _, event in did["reported"]:
            assert event["event"] != "malformed"
            if event["event"] == "gap":
                self.gaps |= set(range(int(event["first"]), int(event["end"])))
        for _, topic, frame in did["transmitted"]:
            self.back.put(self.ms, topic.encode(), bytes.fromhex(frame))

    def send(self, octets: int, **settings: Any) -> None:
        try:
            self.python.send("f", bytes(octets), settings)
        except SendTimeout:  # a peer that is up is waited for
            return
        self.given += int(settings.get("count", 1))

    def cut(self, cut: bool) -> None:
        self.there.cut = self.back.cut = cut

    def step(self) -> None:
        """One millisecond."""
        self.ms += 1
        for topic, frame in self.there.take(self.ms):
            self.call("receive", [topic.decode(), frame.hex(), False])
        self.call("advance", self.ms)
        self.python.advance(self.ms)
        for topic, frame in self.back.take(self.ms):
            self.python.receive(topic.decode(), frame, False)
        for topic, frame in self.python.frames:
            self.there.put(self.ms, topic, frame)
        self.python.frames.clear()

    def settle(self) -> None:
        self.there.loss = self.back.loss = 0.0
        self.cut(False)
        for _ in range(20_000):
            self.step()
            if len(self.arrived) + len(self.gaps) >= self.given and not self.ms % 500:
                return
        raise AssertionError(f"not settled: {len(self.arrived)} of {self.given} arrived, {len(self.gaps)} are gaps")

    def judge(self) -> None:
        assert self.arrived == sorted(set(self.arrived)), "twice, or out of order"
        assert not self.gaps & set(self.arrived)
        assert self.gaps | set(self.arrived) == set(range(self.given)), "neither delivered nor named"


@pytest.mark.parametrize("seed", range(2))
def test_every_message_arrives_over_a_path_that_loses(bridge: Bridge, seed: int) -> None:
    world = World(bridge, seed, loss=0.1, delay_ms=20)
    for _ in range(2000):
        if world.ms > 300 and world.ms % 4 == 0:
            world.send(world.chance.randint(0, 2000))
        if world.ms > 300 and world.ms % 100 == 0:
            world.send(world.chance.randint(1, 200), count=world.chance.randint(2, 50))  # a run
        if world.ms > 300 and world.ms % 700 == 0:
            world.send(200_000)  # in fragments
        world.step()
    world.settle()
    world.judge()
    assert not world.gaps


@pytest.mark.parametrize("seed", range(2))
def test_what_a_cut_costs_is_named(bridge: Bridge, seed: int) -> None:
    """The sender keeps less than is sent while the path is cut for seconds."""
    world = World(bridge, seed, loss=0.02, delay_ms=10)
    for _ in range(5500):
        if world.ms > 300 and world.ms % 5 == 0:
            world.send(world.chance.randint(100, 2000), retention=64 * 1024)
        world.cut(2000 < world.ms < 4000 + 500 * seed)
        world.step()
    world.settle()
    world.judge()
    assert world.gaps
