"""Messages that are longer than this link, or the receiver of their flow, takes.  No I/O, no clock."""

from ..frames import MAX_PAYLOAD, MAX_SEQUENCE
from ..limits import LimitCounters
from ..peers import PeerManager
from .flow import PeerStream, ReceiveFlow
from .flows import FlowTable
from .unclaimed import UnclaimedLimiter
from .window import ReceiveWindow


class PayloadLimit:
    """Rejects the messages that a session does not take for their length."""

    def __init__(
        self,
        peer_manager: PeerManager,
        flow_table: FlowTable,
        window: ReceiveWindow,
        unclaimed: UnclaimedLimiter,
        limit_counters: LimitCounters,
    ) -> None:
        self._peer_manager, self._flow_table = peer_manager, flow_table
        self._window, self._unclaimed = window, unclaimed
        self._limit_counters = limit_counters

    def on_first_fragment(self, receive_flow: ReceiveFlow | None, epoch: int, sequence: int, sent_ns: int) -> None:
        """A message that is too long begins to arrive.

        Where its flow takes less than the link, its sender does not know that, and is sent a rejection.  The
        limit of the link is in the hellos: such a message is a gap.
        """
        if receive_flow is None or self._peer_manager.find(epoch) is None or sequence > MAX_SEQUENCE:
            self._limit_counters.exceeded("max_payload")
            return
        stream = receive_flow.streams.get(epoch) or self._flow_table.add_stream(receive_flow, epoch, sequence)
        if stream.superseded:
            return
        if receive_flow.max_payload < MAX_PAYLOAD:
            self.reject(stream, sequence, sent_ns)
            return
        self._limit_counters.exceeded("max_payload")
        stream.gaps.skip(stream, sequence)

    def reject(self, stream: PeerStream, sequence: int, sent_ns: int) -> None:
        """Drop a message that is longer than its flow takes, and notify its sender."""
        self._limit_counters.exceeded("max_payload")
        if not self._window.is_jump(stream, sequence):
            self._unclaimed.reject(stream, sequence, sent_ns)
