"""What nobody here has asked for, and there is no room to hold: it is refused, and both sides name it."""

import time
from collections.abc import Callable, Mapping

from .. import events as ev
from ..events import Event
from ..process.signals import undisturbed
from ..protocol.frames import MAX_SEQUENCE, REFUSED, Malformed
from ..protocol.receive.flow import MESSAGE_OCTETS, Incoming, Stream
from ..protocol.receive.sequence import MAX_GAPS
from .acks import Acks
from .delivery_checks import Gaps
from .nak import Repair
from .peers import Company

TELL_NS = 1_000_000_000

_monotonic_ns, _time_ns = time.monotonic_ns, time.time_ns


class Refusals:
    """Of one link; for the thread that leads."""

    def __init__(
        self,
        flows: Mapping[str, Incoming],
        limit: int,
        company: Company,
        gaps: Gaps,
        repair: Repair,
        acks: Acks,
        report: Callable[[Event], None],
    ) -> None:
        """At most ``limit`` octets are held, on all ``flows`` that nobody has asked for together."""
        self._flows = flows
        self._limit = limit
        self._octets = 0  # held: at least as many
        self._told_mono_ns = 0
        self._company = company
        self._gaps = gaps
        self._repair = repair
        self._acks = acks
        self._report = report

    def has_room(self, octets: int) -> bool:
        """Whether a payload of so many octets can be held; then it counts."""
        octets += MESSAGE_OCTETS
        if self._octets + octets > self._limit:  # of flows that have been asked for meanwhile, too
            held = [incoming for incoming in list(self._flows.values()) if not incoming.claimed]
            self._octets = sum(one.queued_octets + MESSAGE_OCTETS * len(one.queue) for one in held)
            if self._octets + octets > self._limit:
                return False
        self._octets += octets
        return True

    @undisturbed
    def refuse(self, incoming: Incoming, ack_topic: bytes, stream: Stream, sequence: int, sent_ns: int) -> bool:
        """Drop a message and tell its sender, if that can know what it means; False where the message is here already.

        Raises Malformed.
        """
        if sequence > MAX_SEQUENCE:
            raise Malformed("sequence")
        if stream.repairs:
            went_past = self._repair.decline(incoming, ack_topic, stream, sequence)
        else:
            went_past = self._gaps.decline(incoming, stream, sequence)
        if not went_past:
            return False
        if sequence not in stream.declined:
            stream.declined.add(sequence, sequence + 1)
            if not stream.repairs and len(stream.declined) > MAX_GAPS:  # no ask is going to name them
                stream.declined.drop_first_range()
            if sequence not in stream.tracker.missing:  # else a gap has named it
                self._count(incoming, stream, sequence)
        self._acks.send_batch()
        stream.consumed = stream.acked = max(stream.consumed, sequence + 1)
        peer = self._company.known(stream.epoch)
        records = [(sequence, sent_ns, REFUSED)] if peer is not None and peer.repairs else []
        self._acks.send(ack_topic, stream, records)
        return True

    def _count(self, incoming: Incoming, stream: Stream, sequence: int) -> None:
        stream.refused += 1
        incoming.refused.add(stream.epoch, sequence)
        if incoming.sync is not None:
            incoming.sync.missed(1, _monotonic_ns())

    def look(self, now_mono_ns: int) -> None:
        """Report what has been refused; once a second, as a peer may send for ever what nobody asks for."""
        if now_mono_ns - self._told_mono_ns >= TELL_NS:
            self._told_mono_ns = now_mono_ns
            self.tell()

    @undisturbed
    def tell(self) -> None:
        """Report what has been refused and not been reported."""
        for incoming in list(self._flows.values()):
            for epoch, first, end in incoming.refused.take():
                self._report(ev.Unclaimed(_time_ns(), incoming.flow, epoch, first, end))
