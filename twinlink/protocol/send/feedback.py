"""Feedback on what this node has sent: acks, naks and progress reach the flow's sender, then `on_ack`.  No I/O."""

from collections.abc import Callable

from ...message import Ack
from ..context import Calls, Context
from ..frames import (
    ACK_ONE,
    MalformedFrame,
    Records,
    parse_ack,
    parse_ack_range,
    parse_fragment_progress,
    parse_nak,
    parse_refused,
)
from ..peers import PeerManager
from .endpoint import SendEndpoint

ACK_ONE_OCTETS = ACK_ONE.size
# Where one message after the other is lost, an event for each would push out all others.
REPORT_INTERVAL_NS = 100_000_000

_unpack_ack_one = ACK_ONE.unpack


class FeedbackDispatcher:
    """Of one session; for the thread that receives, except `add_sender`.

    ``epoch`` is that of the peer that speaks.  All methods that take a frame raise MalformedFrame, and do nothing where
    another node's messages are meant: what a listener sends reaches all its connectors.
    """

    def __init__(self, context: Context, peer_manager: PeerManager, calls: Calls) -> None:
        self._context = context
        self._epoch = context.epoch
        self._peer_manager = peer_manager
        self._sessions = peer_manager.peers.sessions
        self._calls = calls
        self._senders: dict[bytes, SendEndpoint] = {}  # by ack topic
        self._reported_mono_ns = 0

    def add_sender(self, sender: SendEndpoint) -> None:
        """From now on feedback on its flow reaches it."""
        self._senders[f"ack/{sender.flow}".encode()] = sender

    def on_ack(self, topic: bytes, frame: bytes | memoryview, epoch: int, t3_ns: int, is_range: bool = False) -> None:
        """A peer has messages, or its application has consumed more; ``is_range``: it is an ack range."""
        context = self._context
        t4_ns, mono_ns = context.now_ns, context.mono_ns
        records: Records
        t2_ns = 0
        if is_range:
            acked_epoch, consumed, records, t2_ns = parse_ack_range(frame)
        elif len(frame) == ACK_ONE_OCTETS:
            _, _, _, _, _, acked_epoch, consumed, sequence, t1_ns, at_ns = _unpack_ack_one(frame)
            records = ((sequence, t1_ns, at_ns),)
        else:
            acked_epoch, consumed, records = parse_ack(frame)
        if acked_epoch != self._epoch:
            return
        peer = self._sessions.get(epoch)
        if records and peer is not None:  # without records it may tell of a message of long ago
            peer.confirmed_mono_ns = mono_ns
        sender = self._senders.get(topic)
        if sender is None:
            raise MalformedFrame("topic")
        acks = sender.ack_received(epoch, consumed, records, t2_ns, t3_ns, t4_ns, mono_ns)
        if sender.on_ack is not None:
            self._call_on_ack(sender, sender.on_ack, acks)
        if sender.losses.unreported and mono_ns - self._reported_mono_ns > REPORT_INTERVAL_NS:
            self._reported_mono_ns = mono_ns
            self._peer_manager.report_losses()

    def on_nak(self, topic: bytes, frame: bytes | memoryview, epoch: int, t3_ns: int) -> None:
        """A peer says what it misses."""
        nak_epoch, known, missing = parse_nak(frame)
        if (sender := self._sender_for(topic, nak_epoch)) is None:
            return
        acks = sender.nak_received(epoch, known, missing, t3_ns, self._context.now_ns, self._context.mono_ns)
        if sender.on_ack is not None:
            self._call_on_ack(sender, sender.on_ack, acks)

    def on_refused(self, topic: bytes, frame: bytes | memoryview, epoch: int) -> None:
        """A peer has no room for messages that arrived."""
        to_epoch, end = parse_refused(frame)
        if (sender := self._sender_for(topic, to_epoch)) is not None:
            sender.refused_received(epoch, end, self._context.mono_ns)

    def on_fragment_progress(self, topic: bytes, frame: bytes | memoryview, epoch: int) -> None:
        """A peer says how much it has of a frame that leaves in fragments."""
        to_epoch, sent_ns, octets = parse_fragment_progress(frame)
        if (sender := self._sender_for(topic, to_epoch)) is None:
            return
        if (peer := self._sessions.get(epoch)) is not None:
            peer.confirmed_mono_ns = self._context.mono_ns
        sender.fragment_progress_received(epoch, sent_ns, octets)

    def calls_done(self) -> None:
        """No call is due: an interrupt (Ctrl-C) cut off those of `on_ack` that have not been made."""
        for sender in [one for one in list(self._senders.values()) if one.on_ack_called != one.on_ack_scheduled]:
            sender.on_ack_done(sender.on_ack_scheduled)

    def _sender_for(self, topic: bytes, epoch: int) -> SendEndpoint | None:
        """The sender with this ack topic; None when another node's is meant."""
        if epoch != self._epoch:
            return None
        if topic not in self._senders:
            raise MalformedFrame("topic")
        return self._senders[topic]

    def _call_on_ack(self, sender: SendEndpoint, on_ack: Callable[[Ack], None], acks: list[Ack]) -> None:
        if acks:
            self._calls.enqueue(on_ack, acks, sender.flow)
        if self._calls.pending:
            sender.on_ack_deferred()
            self._calls.enqueue(sender.on_ack_done, (sender.on_ack_scheduled,), sender.flow)
        else:
            sender.on_ack_called = sender.on_ack_scheduled
