"""What is seen of a link from one of its ends: who is there, which flows, how fast, how old.

An observer is a peer like others: it subscribes to every flow that it learns of, acknowledges what arrives, and is done
with it at once.  What it learns is what its peers send to this side, and what their hellos say: their names, the flows
that they had when they were first heard, and how many sessions they hear.  At the endpoint of a mirror it sees what the
observed node sends and receives.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from twinlink import Link, Message
from twinlink.events import Event, Gap, Reordered
from twinlink.mirror import MIRROR_FLOW, Observation
from twinlink.protocol.session import Peer, PeerState

from .flow_finder import FlowFinder
from .payload_line import HEAD_OCTETS, payload_format

MAX_ROWS = 4096  # flows of peers that are counted; of more, only how many messages came
_STATES = {PeerState.UP: "up", PeerState.HEARD: "joining", PeerState.DEAF: "deaf", PeerState.SILENT: "silent"}


@dataclass(slots=True)
class _Row:
    """One flow of one session: what has arrived; ``before``: messages, octets and missing at the last sample."""

    node: str
    messages: int = 0
    octets: int = 0
    missing: int = 0
    sent: int = 0  # by its sender, as far as is known
    newest_sent_ns: int = 0
    head: bytes | None = None  # of a message since the last sample
    size: int = 0
    format: str = ""
    before: tuple[int, int, int] = (0, 0, 0)


class Observer:
    """Looks at a link from the moment it is made; `sample` says what is seen.

    Attributes:
        observation: what a mirror shows; None: none is there.
        uncounted: messages of flows beyond `MAX_ROWS`.
    """

    def __init__(
        self,
        link: Link,
        on_message: Callable[[Message], None] = lambda message: None,
        on_event: Callable[[Event], None] = lambda event: None,
    ) -> None:
        """``on_message`` and ``on_event`` are called with all that come, on the thread that receives."""
        self.observation: Observation | None = None
        self.uncounted = 0
        self._link = link
        self._pass_message, self._pass_event = on_message, on_event
        self._rows: dict[tuple[str, int], _Row] = {}
        self._sessions: set[int] = set()  # of the peers at the last sample
        self._sampled_s = time.monotonic()
        link.events(handler=self._on_event)
        FlowFinder(link, ("*",), self._subscribe)

    @property
    def flows(self) -> list[str]:
        """Names of the flows that were found."""
        return list(dict.fromkeys(flow for flow, _ in list(self._rows)))

    def _subscribe(self, flow: str) -> None:
        if flow == MIRROR_FLOW:
            self.observation = Observation()
            self._link.receiver(flow, handler=self._on_mirrored)
        else:
            self._link.receiver(flow, handler=self._on_message)

    # On the thread that receives

    def _on_message(self, message: Message) -> None:
        self._count(message)
        self._pass_message(message)

    def _on_mirrored(self, message: Message) -> None:
        for one in self.observation.take(message) if self.observation is not None else ():
            if isinstance(one, Message):
                self._on_message(one)
            else:
                self._on_event(one)

    def _count(self, message: Message) -> None:
        row = self._rows.get((message.flow, message.epoch)) or self._add(message.flow, message.epoch, message.node)
        if row is None:
            self.uncounted += 1
            return
        row.messages += 1
        row.octets += len(message.payload)
        if message.sequence >= row.sent:  # else it comes late
            row.sent, row.newest_sent_ns = message.sequence + 1, message.sent_ns
        row.size = len(message.payload)
        if row.head is None:
            row.head = bytes(message.payload[:HEAD_OCTETS])

    def _on_event(self, event: Event) -> None:
        self._pass_event(event)
        if isinstance(event, Gap) and (row := self._add(event.flow, event.epoch, None)):
            row.missing += event.end - event.first
        elif isinstance(event, Reordered) and (row := self._add(event.flow, event.epoch, None)):
            row.missing -= 1

    def _add(self, flow: str, epoch: int, node: str | None) -> _Row | None:
        """The row of a flow and session; None where there are too many."""
        row = self._rows.get((flow, epoch))
        if row is None and len(self._rows) < MAX_ROWS:
            row = self._rows[flow, epoch] = _Row(node or f"{epoch:016x}")
        return row

    # For people and scripts

    def sample(self) -> dict[str, Any]:
        """What is seen now; rates and loss ratios are of the time since the last sample."""
        now_s = time.monotonic()
        elapsed_s, self._sampled_s = now_s - self._sampled_s, now_s
        sessions = self._link._session.known_peers()
        peers = sorted((peer for peer in sessions if peer.state in _STATES), key=lambda peer: peer.node)
        self._keep_up_with(peers)
        up = sum(peer.up for peer in peers)
        mirrored = self._mirrored_peers()
        rows = sorted(self._rows.items(), key=lambda item: (item[0][0], item[1].node))
        return {
            "type": "sample",
            "node": self._link.node,
            "transport": self._link.transport_name,
            "flows": [_flow(flow, row, elapsed_s) for (flow, _), row in rows],
            "peers": [
                # What a peer hears beside this side and the peers that are up here
                {"node": peer.node, "state": _STATES[peer.state], "unseen": max(0, peer.hears - up)}
                for peer in peers
            ]
            + [{"node": node, "state": "up", "unseen": 0} for node in mirrored],
            "mirror": self.observation.node if self.observation is not None else None,
            "unseen": self.observation.unseen if self.observation is not None else 0,
            "unreadable": self.observation.malformed if self.observation is not None else 0,
        }

    def _mirrored_peers(self) -> list[str]:
        return sorted(self.observation.peers.values()) if self.observation is not None else []

    def _keep_up_with(self, peers: list[Peer]) -> None:
        """Drop the rows of sessions that have ended, and add those that hellos tell of."""
        now = {peer.epoch for peer in peers}
        if self.observation is not None:
            names = self.observation.peers | {self.observation.epoch: self.observation.node}
            now |= names.keys()
            for (_, epoch), known in list(self._rows.items()):
                known.node = names.get(epoch, known.node)
        for key in list(self._rows):
            if key[1] in self._sessions and key[1] not in now:
                del self._rows[key]
        self._sessions = now
        for peer in peers:
            for flow, sent in list(peer.flows.items()):
                if flow != MIRROR_FLOW and (row := self._add(flow, peer.epoch, peer.node)) is not None:
                    row.node, row.sent = peer.node, max(row.sent, sent)


def _flow(flow: str, row: _Row, elapsed_s: float) -> dict[str, Any]:
    head, row.head = row.head, None
    if head is not None:
        row.format = payload_format(head, row.size)
    now = row.messages, row.octets, row.missing
    messages, octets, missing = (value - was for value, was in zip(now, row.before, strict=True))
    row.before, known = now, messages + missing
    return {
        "flow": flow,
        "node": row.node,
        "messages": row.sent,
        "rate_hz": messages / elapsed_s,
        "goodput_mb_s": octets / elapsed_s / 1e6,
        "octets": row.size if row.messages else None,
        "age_ns": time.time_ns() - row.newest_sent_ns if row.messages else None,
        "lost": row.missing,
        "loss_ratio": missing / known if known > 0 else None,
        "format": row.format or None,
    }
