"""How far each peer has read the flows, by the hellos of this side that it confirms.  No I/O, no clock.

A hello says for each flow which number is the next to leave.  What had left before has been read by a peer that
confirms this hello, where nothing overtakes on the way.
"""

from collections.abc import Iterable, Mapping

from .frames import MAX_SEQUENCE
from .liveness import SUSPECT_NS, Peer

MAX_HELLOS = 32  # of more than 0.6 s: those that answer new peers are sent at most 50 times a second


class HelloPositions:
    """What the last hellos of a session said of its flows."""

    def __init__(self) -> None:
        self._flows: dict[int, Mapping[str, int]] = {}  # by number of the hello

    def add(self, number: int, flows: Mapping[str, int]) -> None:
        """A hello is sent; ``flows``: of each, the next number to leave."""
        self._flows[number] = flows
        if len(self._flows) > MAX_HELLOS:
            del self._flows[next(iter(self._flows))]

    def read(self, flow: str, peers: Iterable[Peer], mono_ns: int) -> dict[int, int]:
        """By epoch of the peers that are up, the end of what they have read of a flow.

        A peer has read all if it says that it is behind: it reads the rest when its handler returns.  A peer is left
        out if it has confirmed no hello of the last 0.6 s, or one that was not sent.
        """
        read = {}
        for peer in peers:
            if peer.up and peer.behind and mono_ns - peer.heard_mono_ns < SUSPECT_NS:
                read[peer.epoch] = MAX_SEQUENCE
            elif peer.up and mono_ns - peer.confirmed <= 2 * SUSPECT_NS:
                flows = self._flows.get(peer.confirmed)
                if flows is not None:
                    read[peer.epoch] = flows.get(flow, 0)
        return read
