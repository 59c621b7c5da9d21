"""The flows that a session receives, by name and topic, and how many of them peers may name.  No I/O, no clock."""

from collections import Counter, deque

from ..context import Context
from ..frames import FLOW_NAME, MAX_SEQUENCE, MalformedFrame
from ..limits import LimitCounters
from ..peers import PeerManager
from .flow import PeerStream, ReceiveFlow
from .gap_detection import GapDetection
from .nak import SelectiveRepeat
from .window import ReceiveWindow

MAX_FLOWS = 1024  # that a link sends on, and that it takes from one peer
FORGET_INTERVAL_NS = 100_000_000  # between two searches for a flow to forget, where there was none
MAX_STRANGERS = 4096  # streams that are remembered of nodes that have not said hello


def ack_topic(topic: bytes) -> bytes:
    """The topic of the acks of what comes with this one."""
    return b"ack/" + bytes(topic).partition(b"/")[2]


class FlowTable:
    """The flows that one session receives, by name and by topic."""

    def __init__(
        self,
        context: Context,
        peer_manager: PeerManager,
        repair: SelectiveRepeat,
        detection: GapDetection,
        window: ReceiveWindow,
        max_flows: int,
        limit_counters: LimitCounters,
    ) -> None:
        self._context = context
        self._repair, self._detection = repair, detection
        self.flows: dict[str, ReceiveFlow] = {}
        self.by_topic: dict[bytes, ReceiveFlow] = {}
        self._peer_manager = peer_manager
        self._window = window
        self._max_flows = max_flows
        self._limit_counters = limit_counters
        self._named_by: Counter[int] = Counter()  # how many, by peer, and 0 for all that have not said hello
        self._searched_mono_ns = 0  # in vain
        self._strangers: deque[tuple[ReceiveFlow, int]] = deque()  # streams of nodes that had not said hello

    def flow(self, name: str) -> ReceiveFlow:
        """A flow, made when it is first named here or by a peer."""
        receive_flow = self.flows.get(name)
        if receive_flow is None:
            receive_flow = self.flows[name] = self.by_topic[f"traffic/{name}".encode()] = ReceiveFlow(name)
        return receive_flow

    def add(self, topic: bytes, epoch: int) -> ReceiveFlow | None:
        """A flow that a peer has named first; None: it cannot be held.  Raises MalformedFrame."""
        prefix, _, name = bytes(topic).partition(b"/")
        flow = name.decode("ascii", "replace")
        if prefix != b"traffic" or not FLOW_NAME.fullmatch(flow):
            raise MalformedFrame("topic")
        by = epoch if self._peer_manager.find(epoch) is not None else 0
        is_full = len(self.flows) >= self._max_flows and not self._forget_one()
        if is_full or (self._named_by[by] >= MAX_FLOWS and not self._forget_one(by)):
            self._limit_counters.exceeded("flows")
            return None
        self._named_by[by] += 1
        receive_flow = self.flow(flow)
        receive_flow.named_by = by
        return receive_flow

    def _forget_one(self, by: int | None = None) -> bool:
        """Forget a flow without a subscription that no peer that is known uses; whether there was one, named ``by``
        it."""
        now_mono_ns = self._context.mono_ns
        if now_mono_ns - self._searched_mono_ns < FORGET_INTERVAL_NS:
            return False
        for name, receive_flow in list(self.flows.items()):
            in_use = receive_flow.subscribed or receive_flow.sync is not None
            in_use = in_use or any(map(self._is_known, receive_flow.streams))
            if in_use or (by is not None and receive_flow.named_by != by):
                continue
            for stream in receive_flow.streams.values():
                self._window.release(stream)
            self._named_by[receive_flow.named_by] -= 1
            self._limit_counters.exceeded("flows")
            del self.flows[name], self.by_topic[f"traffic/{name}".encode()]
            return True
        self._searched_mono_ns = now_mono_ns
        return False

    def _is_known(self, epoch: int) -> bool:
        """Whether this peer may still expect that its messages are held."""
        peer = self._peer_manager.find(epoch)
        return peer is not None and (peer.is_heard or peer.is_suspended)

    def _add_stranger(self, receive_flow: ReceiveFlow, epoch: int) -> None:
        """A node that has not said hello sends something; of too many of them the oldest is forgotten."""
        while len(self._strangers) >= MAX_STRANGERS:
            oldest, stranger = self._strangers.popleft()
            stream = oldest.streams.get(stranger)
            if stream is not None and self._peer_manager.find(stranger) is None:
                self._window.release(stream)
                oldest.forget(stream)
                self._limit_counters.exceeded("peers")
        self._strangers.append((receive_flow, epoch))

    def add_stream(self, receive_flow: ReceiveFlow, epoch: int, sequence: int, has_arrived: bool = True) -> PeerStream:
        """Begin a sender session on a flow with the message that has come first; or that will, as a probe says."""
        if epoch == self._context.epoch:
            raise MalformedFrame("reflected")
        peers, flow = self._peer_manager, receive_flow.flow
        peer = peers.find(epoch)
        if (evicted := receive_flow.evictable_stream(peers.up)) is not None:
            self._repair.abandon(evicted)
            self._window.release(evicted)
            receive_flow.forget(evicted)
        if peer is None:
            self._add_stranger(receive_flow, epoch)
            return receive_flow.add_stream(epoch, None, None, self._detection)
        first, start_known = peers.start_sequence(epoch, flow), peers.start_known(epoch)
        repairs = peer.repairs and flow not in peer.detect
        if repairs or start_known:
            first = min(first, sequence)  # a hello may overtake data
        elif peer.repairs:
            first = sequence  # what is missing before it shows when the peer has said what it owes this side
        gaps = self._repair if repairs else self._detection
        stream = receive_flow.add_stream(epoch, peer.node, first, gaps)
        if peer.repairs and not start_known:
            stream.first_arrived = sequence if has_arrived else MAX_SEQUENCE
        return stream
