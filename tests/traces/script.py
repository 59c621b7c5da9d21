"""How traces are written: calls that append the steps of one."""

from typing import Any

NODE, PEER, OTHER, SUCCESSOR = "000000000000a001", "000000000000b001", "000000000000c001", "000000000000b002"
NAMES = {NODE: "node", PEER: "peer", OTHER: "other", SUCCESSOR: "peer"}
START_NS = 10**15  # of both clocks of the node, when a trace begins
MS = 1_000_000


class Trace:
    """One rule, and what shows it."""

    def __init__(self, *rules: str, **settings: Any) -> None:
        """``rules``: sentences of docs/protocol.md; ``settings``: of the node."""
        self.rules = rules
        self.settings = {"node": "node", "epoch": NODE, **settings}
        self.steps: list[dict[str, Any]] = []
        self.ms = 1

    def as_json(self) -> dict[str, Any]:
        return {"rules": list(self.rules), "settings": self.settings, "steps": self.steps}

    def _step(self, **step: Any) -> None:
        self.steps.append({"ms": self.ms, **step})

    def wait(self, ms: int) -> None:
        self.ms += ms

    # What the node is given

    def receive(self, kind: str, topic: str, peer: str = PEER, **fields: Any) -> None:
        self._step(receive={"topic": topic, "kind": kind, "epoch": peer, "sent_ns": str(self.now_ns), **fields})

    def with_more_behind(self) -> None:
        """The frame that was last received has others close behind it, so acks may wait for them."""
        self.steps[-1]["more"] = True

    @property
    def now_ns(self) -> int:
        return START_NS + self.ms * MS

    @property
    def hello_number(self) -> int:
        """Of a hello of the peer that leaves now."""
        return (self.ms + 1) * MS

    def hello(self, peer: str = PEER, confirms: Any = "$hello", **body: Any) -> None:
        """The peer's hello; it confirms the last one of the node, or this one; None: it does not list the node."""
        heard = {} if confirms is None else {NODE: confirms}
        members = {"node": NAMES[peer], "heard": heard, "flows": {}, "repairs": True, "detect": [], **body}
        self.receive("hello", "traffic/_link", peer, sequence=str(self.hello_number), body=members)

    def up(self, peer: str = PEER, **body: Any) -> None:
        """The peer comes up, and says that it owes nothing from before."""
        self.hello(peer, None, **body)
        self.wait(1)
        self.hello(peer, **{"since": {NODE: {}}, **body})
        self.wait(1)

    def stay_up(self, ms: int, peer: str = PEER, **body: Any) -> None:
        """So long the peer's hellos come as they should."""
        end = self.ms + ms
        while self.ms + 100 < end:
            self.wait(100)
            self.hello(peer, **body)
        self.ms = end

    def data(self, flow: str, sequence: int, peer: str = PEER, kind: str = "data", octets: int = 4) -> None:
        self.receive(kind, f"traffic/{flow}", peer, sequence=str(sequence), payload_octets=octets)

    def ack(self, flow: str, *sequences: int, peer: str = PEER, consumed: int = 0, t2_ns: int | None = None) -> None:
        arrived = str(self.now_ns if t2_ns is None else t2_ns)
        records = [{"sequence": str(one), "t1_ns": str(self.now_ns), "t2_ns": arrived} for one in sequences]
        self.receive("ack", f"ack/{flow}", peer, of_epoch=NODE, consumed=str(consumed), records=records)

    def nak(self, flow: str, known: int, *ranges: tuple[int, int], peer: str = PEER) -> None:
        named = [[str(first), str(end)] for first, end in ranges]
        self.receive("nak", f"ack/{flow}", peer, of_epoch=NODE, known=str(known), ranges=named)

    def abandoned(self, flow: str, next_to_send: int, *ranges: tuple[int, int], reason: str = "evicted") -> None:
        named = [[str(first), str(end)] for first, end in ranges]
        self.receive("abandoned", f"traffic/{flow}", sequence=str(next_to_send), reason=reason, ranges=named)

    def send(self, flow: str, octets: int = 4, **settings: Any) -> None:
        """``count``: so many such messages as one batch."""
        self._step(send={"flow": flow, "payload_octets": octets, **settings})

    def subscribe(self, flow: str) -> None:
        self._step(subscribe=flow)

    def listen(self, flow: str) -> None:
        self._step(listen=flow)

    def backlog(self) -> None:
        """From now on the transport always holds more than the node has read."""
        self._step(backlog=True)

    def take(self, flow: str, count: int = 1) -> None:
        for _ in range(count):
            self._step(take=flow)

    # What it must do

    def transmits(self, *frames: dict[str, Any], within_ms: int = 0) -> None:
        """These, in this order; others may come between."""
        self._step(transmits=list(frames), within_ms=within_ms)

    def withholds(self, frame: dict[str, Any], within_ms: int = 0) -> None:
        """It transmits nothing else of this kind."""
        self._step(withholds=frame, within_ms=within_ms)

    def delivers(self, *sequences: int, within_ms: int = 0) -> None:
        """These and no others, in this order."""
        self._step(delivers=[{"sequence": str(one)} for one in sequences], within_ms=within_ms)

    def reports(self, *events: dict[str, Any], of: tuple[str, ...], within_ms: int = 0) -> None:
        """Of these kinds, these and no others, in this order."""
        self._step(reports=list(events), of=list(of), within_ms=within_ms)


def data(flow: str, sequence: int, **fields: Any) -> dict[str, Any]:
    return {"topic": f"traffic/{flow}", "kind": "data", "sequence": str(sequence), "epoch": NODE, **fields}


def run(flow: str, first: int, count: int) -> dict[str, Any]:
    return {**data(flow, first), "kind": "run", "count": count}


def retransmit(flow: str, sequence: int, **fields: Any) -> dict[str, Any]:
    return {**data(flow, sequence, **fields), "kind": "retransmit"}


def ack(flow: str, *sequences: int, **fields: Any) -> dict[str, Any]:
    return {"topic": f"ack/{flow}", "of_epoch": PEER, "acknowledges": [str(one) for one in sequences], **fields}


def nak(flow: str, *ranges: tuple[int, int], **fields: Any) -> dict[str, Any]:
    named = [[str(first), str(end)] for first, end in ranges]
    return {"topic": f"ack/{flow}", "kind": "nak", "of_epoch": PEER, "ranges": named, **fields}


def abandoned(flow: str, *ranges: tuple[int, int], **fields: Any) -> dict[str, Any]:
    named = [[str(first), str(end)] for first, end in ranges]
    return {"topic": f"traffic/{flow}", "kind": "abandoned", "ranges": named, **fields}


HELLO = {"topic": "traffic/_link", "kind": "hello"}
PEER_EVENTS = ("peer_up", "peer_down", "restarted")
