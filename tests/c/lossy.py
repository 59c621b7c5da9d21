"""A C node and a node of twinlink's own core, joined by a simulated path that loses, delays and cuts.

The clock is simulated, too, so a schedule of minutes takes seconds, and a seed gives the same run again.
"""

import ctypes as ct
import random
from dataclasses import dataclass, field

from tests.c.library import ABI, Config, FlowConfig, Node
from tests.traces.node import START_NS
from tests.traces.node import Node as PythonNode
from twinlink.protocol.frames import parse

MS = 1_000_000
C_EPOCH, PYTHON_EPOCH = 0xC001, 0xB001


@dataclass
class Path:
    """One direction.  Frames keep their order, as over one connection; what is sent while it is cut is lost."""

    chance: random.Random
    loss: float
    delay_ms: int
    frames: list[tuple[int, bytes, bytes]] = field(default_factory=list)
    cut: bool = False
    lost: int = 0

    def put(self, ms: int, topic: bytes, frame: bytes) -> None:
        if self.cut or self.chance.random() < self.loss:
            self.lost += 1
            return
        after = self.frames[-1][0] if self.frames else 0
        self.frames.append((max(after, ms + self.chance.randint(0, self.delay_ms)), topic, frame))

    def take(self, ms: int) -> list[tuple[bytes, bytes]]:
        due = [one for one in self.frames if one[0] <= ms]
        self.frames = self.frames[len(due) :]
        return [(topic, frame) for _, topic, frame in due]


class Raw(PythonNode):
    """Collects frames as they are."""

    def __init__(self, settings: dict[str, object]) -> None:
        super().__init__(settings)
        self.frames: list[tuple[bytes, bytes]] = []

    def _transmit(self, topic: bytes, frame: bytes) -> None:
        self.frames.append((topic, frame))


class World:
    """Both nodes and the paths between them; times in ms from the beginning.

    Attributes:
        given: numbers of the messages that the C node's application has handed over.
        arrived, decisions: what the Python node's and the C node's application got, by sequence.
    """

    def __init__(self, library: ct.CDLL, seed: int, loss: float, delay_ms: int, ring_octets: int, repairs: bool = True):
        chance = random.Random(seed)
        self.chance = chance
        self.to_python, self.to_c = Path(chance, loss, delay_ms), Path(chance, loss, delay_ms)
        self.python = Raw({"node": "python", "epoch": f"{PYTHON_EPOCH:016x}"})
        self.python.subscribe("f")
        config = Config(
            abi=ABI, octets=ct.sizeof(Config), node=b"c", epoch=C_EPOCH, receive_flow=b"control",
            in_flight_octets=200_000, receive_slots=8,
        )  # fmt: skip
        flow = FlowConfig(b"f", ring_octets, 256, ring_octets // 8, 0)
        self.c = Node(library, config, [flow], START_NS)
        self.ms, self.given, self.asked = 0, 0, 0

    @property
    def now_ns(self) -> int:
        return START_NS + self.ms * MS

    @property
    def arrived(self) -> list[int]:
        return [int(one["sequence"]) for _, one in self.python.delivered]

    @property
    def decisions(self) -> list[int]:
        return [sequence for _, sequence, _ in self.c.messages]

    def lost_by_c(self) -> set[int]:
        """What the C node's ledger names."""
        events = [one for one in self.c.events if one["event"] == "lost"]
        return {number for one in events for number in range(int(str(one["first"])), int(str(one["end"])))}

    def lost_by_python(self) -> set[int]:
        """The decisions that the Python node's ledger names: sent while no peer was up."""
        events = [one for _, one in self.python.reported if one["event"] == "lost"]
        return {number for one in events for number in range(one["first"], one["end"])}

    def send(self, octets: int) -> None:
        self.c.send(0, bytes(octets), self.now_ns)
        self.given += 1

    def ask(self) -> None:
        """A decision of the Python node."""
        self.python.send("control", b"decision", {})
        self.asked += 1

    def cut(self, cut: bool) -> None:
        self.to_python.cut = self.to_c.cut = cut

    def step(self) -> None:
        """One millisecond."""
        self.ms += 1
        for topic, frame in self.to_c.take(self.ms):
            self.c.receive(topic, frame, self.now_ns)
        self.c.on_time(self.now_ns, self.now_ns)
        for topic, frame in self.c.frames(self.now_ns):
            parse(frame)
            self.to_python.put(self.ms, topic, frame)
        self.python.advance(self.ms)
        for topic, frame in self.to_python.take(self.ms):
            self.python.receive(topic.decode(), frame, False)
        for topic, frame in self.python.frames:
            self.to_c.put(self.ms, topic, frame)
        self.python.frames.clear()

    def settle(self, most_ms: int) -> None:
        """Without loss from now on, until nothing is outstanding; fails after so long."""
        self.to_python.loss = self.to_c.loss = 0.0
        self.cut(False)
        for _ in range(most_ms // 100):
            for _ in range(100):
                self.step()
            stats = self.c.flow_stats(0)
            settled = {*self.arrived, *self.lost_by_c()}, {*self.decisions, *self.lost_by_python()}
            outstanding = stats.outstanding + stats.unconfirmed
            if not outstanding and self.given <= len(settled[0]) and self.asked <= len(settled[1]):
                return
        raise AssertionError(f"not settled: {stats.outstanding} outstanding, {stats.unconfirmed} unconfirmed")
