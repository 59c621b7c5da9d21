"""The JavaScript node as a trace drives it: `tests.traces.player.TracedNode`."""

import json
import subprocess
from pathlib import Path
from typing import Any

from tests.javascript.running import MODULE, NODE
from tests.traces.frames import observed


class Bridge:
    """A process of node that `bridge.js` runs in."""

    def __init__(self) -> None:
        assert NODE is not None
        self._process = subprocess.Popen(
            [NODE, str(Path(__file__).with_name("bridge.js")), MODULE.as_uri()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def call(self, name: str, argument: Any = None) -> dict[str, Any]:
        """What the node did."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([name, argument]) + "\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer

    def close(self) -> None:
        self._process.communicate()


class JavaScriptNode:
    """One node; it sends no messages."""

    def __init__(self, bridge: Bridge, settings: dict[str, Any]) -> None:
        self._bridge = bridge
        self.transmitted: list[tuple[int, dict[str, Any]]] = []
        self.delivered: list[tuple[int, dict[str, Any]]] = []
        self.reported: list[tuple[int, dict[str, Any]]] = []
        self._call("begin", settings)

    def advance(self, to_ms: int) -> None:
        self._call("advance", to_ms)

    def receive(self, topic: str, frame: bytes, more: bool) -> None:
        self._call("receive", [topic, frame.hex(), more])

    def send(self, flow: str, payload: bytes, settings: dict[str, Any]) -> None:
        """It sends no messages."""

    def subscribe(self, flow: str) -> None:
        self._call("subscribe", flow)

    def listen(self, flow: str) -> None:
        self._call("listen", flow)

    def take(self, flow: str) -> None:
        self._call("take", flow)

    def backlog(self) -> None:
        self._call("backlog")

    def _call(self, name: str, argument: Any = None) -> None:
        did = self._bridge.call(name, argument)
        for ms, topic, frame in did["transmitted"]:
            self.transmitted += [(ms, one) for one in observed(topic, bytes.fromhex(frame))]
        self.delivered += [(ms, one) for ms, one in did["delivered"]]
        for ms, event in did["reported"]:
            numbers = {key: int(event[key]) for key in ("first", "end") if key in event}
            self.reported.append((ms, {**event, **numbers}))
