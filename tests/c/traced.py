"""The C node as a trace drives it: `tests.traces.player.TracedNode`."""

import ctypes as ct
from typing import Any

from tests.c.library import ABI, Config, FlowConfig, Node
from tests.traces.frames import observed

MS = 1_000_000
START_NS = 10**15  # of both clocks
RING_OCTETS = 1 << 22
RECEIVE_MAX_OCTETS = 200_000


class CNode:
    """One node with the flows that its trace names, which it must know from the beginning."""

    def __init__(self, library: ct.CDLL, trace: dict[str, Any]) -> None:
        settings, steps = trace["settings"], trace["steps"]
        sent: dict[str, dict[str, Any]] = {}
        for step in steps:
            if "send" in step:
                sent.setdefault(step["send"]["flow"], step["send"])
        taken = [step.get("subscribe") or step["listen"] for step in steps if "subscribe" in step or "listen" in step]
        self._flows = list(sent)
        first: dict[str, Any] = next(iter(sent.values()), {})
        config = Config(
            abi=ABI, octets=ct.sizeof(Config), node=settings["node"].encode(), epoch=int(settings["epoch"], 16),
            in_flight_octets=first.get("in_flight", 1 << 18), receive_flow=taken[0].encode() if taken else None,
            receive_max_octets=settings.get("max_payload", RECEIVE_MAX_OCTETS), receive_slots=32,
        )  # fmt: skip
        self._now_ns = START_NS
        flows = [self._flow(name, one) for name, one in sent.items()]
        self._node = Node(library, config, flows, self._now_ns)
        self._drained_ns = 0
        self.transmitted: list[tuple[int, dict[str, Any]]] = []
        self.delivered: list[tuple[int, dict[str, Any]]] = []
        self.reported: list[tuple[int, dict[str, Any]]] = []

    @staticmethod
    def _flow(name: str, settings: dict[str, Any]) -> FlowConfig:
        """Room for what the trace keeps: with a retention of two messages, for a third, which is being written."""
        space = -(-(32 + settings.get("payload_octets", 0)) // 16) * 16
        kept = settings["retention"] // space if "retention" in settings else 0
        ring = (kept + 1) * space if kept else RING_OCTETS
        return FlowConfig(name.encode(), ring, 1024, space if kept else 0, settings.get("window", 0))

    @property
    def _now_ms(self) -> int:
        return (self._now_ns - START_NS) // MS

    def advance(self, to_ms: int) -> None:
        while self._now_ms < to_ms:
            self._now_ns += MS
            self._node.on_time(self._now_ns, self._drained_ns or self._now_ns)
            self._note()

    def receive(self, topic: str, frame: bytes, more: bool) -> None:
        self._node.receive(topic.encode(), frame, self._now_ns)
        self._note()

    def send(self, flow: str, payload: bytes, settings: dict[str, Any]) -> None:
        for _ in range(settings.get("count", 1)):
            self._node.send(self._flows.index(flow), payload, self._now_ns)
        self._note()

    def subscribe(self, flow: str) -> None:
        """It takes its one flow from the beginning."""

    listen = take = subscribe

    def backlog(self) -> None:
        self._drained_ns = self._now_ns

    def _note(self) -> None:
        node, ms = self._node, self._now_ms
        for topic, frame in node.frames(self._now_ns):
            self.transmitted += [(ms, one) for one in observed(topic.decode(), frame)]
        for epoch, sequence, _ in node.messages:
            self.delivered.append((ms, {"epoch": f"{epoch:016x}", "sequence": str(sequence)}))
        for event in node.events:
            fields = {**event, "epoch": f"{event['epoch']:016x}"}
            self.reported.append((ms, fields))
        node.messages.clear()
        node.events.clear()
