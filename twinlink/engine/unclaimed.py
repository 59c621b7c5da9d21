"""Admission control of unclaimed flows: what there is no room to hold is rejected, and both sides name it."""

import time
from collections.abc import Callable, Mapping

from .. import events as ev
from ..events import Event
from ..process.signals import defer_signals
from ..protocol.frames import MAX_SEQUENCE, REJECTED, MalformedFrame
from ..protocol.receive.flow import MESSAGE_OVERHEAD_OCTETS, PeerStream, ReceiveFlow
from ..protocol.receive.sequence import MAX_GAPS
from .acks import AckSender
from .delivery_checks import GapReporter
from .nak import SelectiveRepeat
from .peers import PeerManager

REPORT_INTERVAL_NS = 1_000_000_000

_monotonic_ns, _time_ns = time.monotonic_ns, time.time_ns


class UnclaimedLimiter:
    """Of one link; for the thread that leads."""

    def __init__(
        self,
        flows: Mapping[str, ReceiveFlow],
        limit: int,
        peer_manager: PeerManager,
        gap_reporter: GapReporter,
        repair: SelectiveRepeat,
        ack_sender: AckSender,
        report: Callable[[Event], None],
    ) -> None:
        """At most ``limit`` octets are held, on all ``flows`` that nobody has asked for together."""
        self._flows = flows
        self._limit = limit
        self._octets = 0  # held: at least as many
        self._reported_mono_ns = 0
        self._peer_manager = peer_manager
        self._gap_reporter = gap_reporter
        self._repair = repair
        self._ack_sender = ack_sender
        self._report = report

    def admit(self, octets: int) -> bool:
        """Whether a payload of so many octets can be held; then it counts."""
        octets += MESSAGE_OVERHEAD_OCTETS
        if self._octets + octets > self._limit:  # of flows that have been asked for meanwhile, too
            held = [receive_flow for receive_flow in list(self._flows.values()) if not receive_flow.subscribed]
            self._octets = sum(one.queued_octets + MESSAGE_OVERHEAD_OCTETS * len(one.queue) for one in held)
            if self._octets + octets > self._limit:
                return False
        self._octets += octets
        return True

    @defer_signals
    def reject(
        self, receive_flow: ReceiveFlow, ack_topic: bytes, stream: PeerStream, sequence: int, sent_ns: int
    ) -> bool:
        """Drop a message and tell its sender, if that can know what it means; False where the message is here already.

        Raises MalformedFrame.
        """
        if sequence > MAX_SEQUENCE:
            raise MalformedFrame("sequence")
        if stream.repairs:
            skipped = self._repair.reject(receive_flow, ack_topic, stream, sequence)
        else:
            skipped = self._gap_reporter.reject(receive_flow, stream, sequence)
        if not skipped:
            return False
        if sequence not in stream.rejected:
            stream.rejected.add(sequence, sequence + 1)
            if not stream.repairs and len(stream.rejected) > MAX_GAPS:  # no nak is going to name them
                stream.rejected.drop_first_range()
            if sequence not in stream.tracker.missing:  # else a gap has named it
                self._count(receive_flow, stream, sequence)
        self._ack_sender.send_batch()
        stream.consumed = stream.acked = max(stream.consumed, sequence + 1)
        peer = self._peer_manager.find(stream.epoch)
        records = [(sequence, sent_ns, REJECTED)] if peer is not None and peer.repairs else []
        self._ack_sender.send(ack_topic, stream, records)
        return True

    def _count(self, receive_flow: ReceiveFlow, stream: PeerStream, sequence: int) -> None:
        stream.rejected_count += 1
        receive_flow.rejected.add(stream.epoch, sequence)
        if receive_flow.sync is not None:
            receive_flow.sync.missed(1, _monotonic_ns())

    def on_tick(self, now_mono_ns: int) -> None:
        """Report what has been rejected; once a second, as a peer may send for ever what nobody asks for."""
        if now_mono_ns - self._reported_mono_ns >= REPORT_INTERVAL_NS:
            self._reported_mono_ns = now_mono_ns
            self.report()

    @defer_signals
    def report(self) -> None:
        """Report what has been rejected and not been reported."""
        for receive_flow in list(self._flows.values()):
            for epoch, first, end in receive_flow.rejected.take():
                self._report(ev.Unclaimed(_time_ns(), receive_flow.flow, epoch, first, end))
