"""What peers say about what this node has sent: acks, asks and progress reach the flow's sender, then `on_ack`."""

import time
from collections.abc import Callable

from ..message import Ack
from ..protocol.frames import ACK_ONE, Malformed, Records, parse_ack, parse_ack_row, parse_ask, parse_progress
from ..transports.base import Frame
from .callbacks import Calls
from .peers import Company
from .sender import Sender

ACK_ONE_OCTETS = ACK_ONE.size
TELL_NS = 100_000_000  # where one message after the other is lost, an event for each would push out all others

_time_ns, _unpack_ack_one = time.time_ns, ACK_ONE.unpack


class Feedback:
    """Of one link; called by the thread that leads, except `add_sender`.

    ``epoch`` is that of the peer that speaks, ``mono_ns`` when its frame arrived.  All methods that take a frame raise
    Malformed, and do nothing where another node's messages are meant: what a listener says reaches all its connectors.
    """

    def __init__(self, epoch: int, company: Company, calls: Calls) -> None:
        self._epoch = epoch
        self._company = company
        self._hears_us = company.peers.hears_us
        self._calls = calls
        self._senders: dict[bytes, Sender] = {}  # by ack topic
        self._told_mono_ns = 0

    def add_sender(self, sender: Sender) -> None:
        """From now on what is said about its flow reaches it."""
        self._senders[f"ack/{sender.flow}".encode()] = sender

    def ack(self, topic: bytes, frame: Frame, epoch: int, t3_ns: int, mono_ns: int, in_row: bool = False) -> None:
        """A peer has messages, or its application has consumed more; ``in_row``: an ack row says so."""
        t4_ns = _time_ns()
        records: Records
        t2_ns = 0
        if in_row:
            acked_epoch, consumed, records, t2_ns = parse_ack_row(frame)
        elif len(frame) == ACK_ONE_OCTETS:
            _, _, _, _, _, acked_epoch, consumed, sequence, t1_ns, at_ns = _unpack_ack_one(frame)
            records = ((sequence, t1_ns, at_ns),)
        else:
            acked_epoch, consumed, records = parse_ack(frame)
        if acked_epoch != self._epoch:
            return
        if records and epoch in self._hears_us:  # what is only consumed may have come long ago
            self._hears_us[epoch] = mono_ns
        sender = self._senders.get(topic)
        if sender is None:
            raise Malformed("topic")
        acks = sender.acknowledged(epoch, consumed, records, t2_ns, t3_ns, t4_ns, mono_ns)
        if sender.on_ack is not None:
            self._call_on_ack(sender, sender.on_ack, acks)
        if sender.losses.unreported and mono_ns - self._told_mono_ns > TELL_NS:
            self._told_mono_ns = mono_ns
            self._company.report_losses()

    def ask(self, topic: bytes, frame: Frame, epoch: int, t3_ns: int, mono_ns: int) -> None:
        """A peer says what it misses."""
        asked_epoch, known, missing = parse_ask(frame)
        if (sender := self._sender_for(topic, asked_epoch)) is None:
            return
        acks = sender.asked(epoch, known, missing, t3_ns, _time_ns(), mono_ns)
        if sender.on_ack is not None:
            self._call_on_ack(sender, sender.on_ack, acks)

    def progress(self, topic: bytes, frame: Frame, epoch: int, mono_ns: int) -> None:
        """A peer says how much it has of a frame that leaves in parts."""
        to_epoch, sent_ns, octets = parse_progress(frame)
        if (sender := self._sender_for(topic, to_epoch)) is None:
            return
        if epoch in self._hears_us:
            self._hears_us[epoch] = mono_ns
        sender.progressed(epoch, sent_ns, octets)

    def nothing_is_due(self) -> None:
        """What `on_ack` was to be called with, it has been; the rest is gone with an interrupted call (Ctrl-C)."""
        for sender in list(self._senders.values()):
            sender.on_ack_done(sender.on_ack_turn)

    def _sender_for(self, topic: bytes, epoch: int) -> Sender | None:
        """Our sender of this topic; None when another node's is meant."""
        if epoch != self._epoch:
            return None
        if topic not in self._senders:
            raise Malformed("topic")
        return self._senders[topic]

    def _call_on_ack(self, sender: Sender, on_ack: Callable[[Ack], None], acks: list[Ack]) -> None:
        self._calls.call_each(on_ack, acks, sender.flow)
        if self._calls.due:
            sender.on_ack_later()
            self._calls.later(sender.on_ack_done, sender.on_ack_turn, sender.flow)
        else:
            sender.on_ack_told = sender.on_ack_turn
