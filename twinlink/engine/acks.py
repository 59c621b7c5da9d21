"""Acknowledgements: of each message at once, or of several together."""

import time
from contextlib import suppress

from ..errors import TransportError
from ..protocol.frames import ACK_ONE, ACK_ONE_LENGTH, ACK_WORD, Kind, ack_body, ack_range_body, fragment_progress_body
from ..protocol.frames import frame as make_frame
from ..protocol.receive.flow import CREDIT_UPDATE_OCTETS, PeerStream
from ..transports import Transport

Record = tuple[int, int, int]  # sequence, T1, T2

MAX_BATCH = 64  # in an ack: messages that came each in a frame of its own are long, and soon waited for

_time_ns, _pack_one = time.time_ns, ACK_ONE.pack


class AckSender:
    """For the leading thread; `send` without records for any.

    Attributes:
        sent: how many frames.
    """

    def __init__(self, transport: Transport, epoch: int) -> None:
        self.sent = 0
        self._transport = transport
        self._epoch = epoch
        self._batch: list[Record] = []
        self._batch_for: tuple[bytes, PeerStream] | None = None

    def send_now(self, topic: bytes, stream: PeerStream, sequence: int, sent_ns: int, received_ns: int) -> None:
        """Acknowledge one message."""
        if self._batch_for is not None:  # of a batch whose handler waits: older than this one
            self.send_batch()
        stream.unreported_octets = 0
        number = self.sent
        self.sent = number + 1
        self._transport.send(
            topic,
            _pack_one(
                ACK_WORD, ACK_ONE_LENGTH, self._epoch, number, _time_ns(),
                stream.epoch, stream.consumed, sequence, sent_ns, received_ns,
            ),
        )  # fmt: skip
        if sequence >= stream.acked:
            stream.acked = sequence + 1
        if stream.unreported_octets:  # consumed while its ack was on the way
            self._send_rest(topic, stream)

    def add_to_batch(self, topic: bytes, stream: PeerStream, record: Record) -> None:
        """Acknowledge with others, when there are enough of them or `send_batch` is called."""
        if self._batch_for is None or self._batch_for[1] is not stream:
            self.send_batch()
            self._batch_for = (topic, stream)
        self._batch.append(record)
        if len(self._batch) >= MAX_BATCH:
            self.send_batch()

    def send_range(self, topic: bytes, stream: PeerStream, first: int, end: int, received_ns: int) -> None:
        """Acknowledge messages in a row that arrived together, MAX_ACK_RANGE at most."""
        self.send_batch()
        acked = max(stream.acked, end)
        body = ack_range_body(stream.epoch, self._consumed_to_report(stream, acked), first, end, received_ns)
        self._send(topic, Kind.ACK_RANGE, body)
        stream.acked = acked
        self._send_rest(topic, stream)

    def send_batch(self) -> None:
        """Send what was held back."""
        if self._batch_for is not None:
            topic, stream = self._batch_for
            records, self._batch, self._batch_for = self._batch, [], None
            self.send(topic, stream, records)

    def send(self, topic: bytes, stream: PeerStream, records: list[Record]) -> None:
        """Acknowledge messages of a stream, and say how far it has been consumed."""
        acked = max(stream.acked, max(records)[0] + 1) if records else stream.acked  # the last may have come again
        self._send(topic, Kind.ACK, ack_body(stream.epoch, self._consumed_to_report(stream, acked), records))
        if records:  # by the leading thread only
            stream.acked = acked
            self._send_rest(topic, stream)

    def send_consumed(self, topic: bytes, stream: PeerStream) -> None:
        """Say how far a stream has been consumed; where the transport fails the sender asks for it later."""
        with suppress(TransportError, OSError):
            self.send(topic, stream, [])

    def send_fragment_progress(self, topic: bytes, epoch: int, sent_ns: int, octets: int) -> None:
        """Say how much of a frame is there that comes in fragments."""
        self._send(topic, Kind.FRAGMENT_PROGRESS, fragment_progress_body(epoch, sent_ns, octets))

    def _send(self, topic: bytes, kind: Kind, body: bytes) -> None:
        number = self.sent
        self.sent = number + 1
        self._transport.send(topic, make_frame(kind, self._epoch, number, _time_ns(), body))

    @staticmethod
    def _consumed_to_report(stream: PeerStream, acked: int) -> int:
        """How far the stream is consumed, as the sender is going to be told with an ack of all below ``acked``.

        A consuming thread may be ahead of the acks: what it consumed is not announced before it is acknowledged, or
        the sender would take it for lost.
        """
        consumed = stream.consumed
        if consumed > acked:
            return acked
        stream.unreported_octets = 0
        return consumed

    def _send_rest(self, topic: bytes, stream: PeerStream) -> None:
        """What the application consumed before its ack was out could not be announced then."""
        if stream.unreported_octets >= CREDIT_UPDATE_OCTETS:
            self.send(topic, stream, [])
