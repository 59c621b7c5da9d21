"""What a view shows of the link of its own program: both directions, with the counters of ``link.stats()``."""

import time
from typing import Any

import twinlink
from twinlink.protocol.session import PeerState
from twinlink.protocol.wire import RECEIVED, SENT

from .newest import Newest

_STATES = {PeerState.UP: "up", PeerState.HEARD: "joining", PeerState.DEAF: "deaf", PeerState.SILENT: "silent"}


class OwnLink:
    """A `Source` of what passes a link; without a browser, next to nothing is on the way of a message."""

    def __init__(self, link: twinlink.Link) -> None:
        self.newest = Newest()
        self.node = link.node
        self._link = link
        self._before: dict[tuple[str, str], tuple[int, int]] = {}
        self._looked_s = time.monotonic()

        link._driver.add_tap(self.newest)

    def close(self) -> None:
        """See `Source`."""
        self._link._driver.remove_tap(self.newest)

    def names(self) -> dict[int, str]:
        """See `Source`."""
        return {self._link.epoch: self.node} | {peer.epoch: peer.node for peer in self._link._session.known_peers()}

    def read(self) -> dict[str, Any]:
        """See `Source`."""
        now_s = time.monotonic()
        elapsed_s, self._looked_s = now_s - self._looked_s, now_s
        stats, sessions = self._link.stats(), self._link._session.known_peers()
        rows = [self._received(flow, dict(one), elapsed_s) for flow, one in stats["received"].items()]
        rows += [self._sent(flow, dict(one), elapsed_s) for flow, one in stats["sent"].items()]
        named = [peer for peer in sessions if peer.state in _STATES]
        peers = [_peer(peer.node, peer.epoch, _STATES[peer.state], dict(stats["sent"])) for peer in named]
        return {
            "node": stats["node"],
            "transport": stats["transport"],
            "endpoint": stats["endpoint"],
            "listening": self._link.listening,
            "flows": sorted(rows, key=lambda row: (row["direction"], row["flow"])),
            "peers": sorted(peers, key=lambda peer: str(peer["node"])),
        }

    def _received(self, flow: str, one: dict[str, Any], elapsed_s: float) -> dict[str, Any]:
        return self._row(RECEIVED, flow, one["received"], one["received_octets"], elapsed_s) | {
            "lost": one["missing"],
            "repaired": one["repaired"],
            "sync": one["sync"],
        }

    def _sent(self, flow: str, one: dict[str, Any], elapsed_s: float) -> dict[str, Any]:
        return self._row(SENT, flow, one["sent"], one["sent_octets"], elapsed_s) | {
            "lost": one["lost"],
            "repaired": one["repaired"],
            "outstanding": one["outstanding"],
        }

    def _row(self, direction: str, flow: str, messages: int, octets: int, elapsed_s: float) -> dict[str, Any]:
        before = self._before.get((direction, flow), (messages, octets))
        self._before[direction, flow] = messages, octets
        return {
            "flow": flow,
            "direction": direction,
            "messages": messages,
            "octets": octets,
            "rate_hz": (messages - before[0]) / elapsed_s,
            "goodput_mb_s": (octets - before[1]) / elapsed_s / 1e6,
        }


def _peer(node: str, epoch: int, state: str, sent: dict[str, Any]) -> dict[str, Any]:
    """A peer, with the delays of the flow that has the most acks of it."""
    delays = [one["peers"].get(f"{epoch:016x}") for one in sent.values()]
    known = [one for one in delays if one is not None and one["rtt_ns"] is not None]
    best = max(known, key=lambda one: int(one["rtt_ns"]["n"]), default=None)
    return {
        "node": node,
        "state": state,
        "rtt_ns": best and best["rtt_ns"],
        "one_way_ns": best and best["one_way_ns"],
        "clock_offset_ns": best and best["clock_offset_ns"],
    }
