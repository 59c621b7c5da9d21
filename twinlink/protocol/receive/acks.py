"""Acknowledgements: of each message at once, or of several together.  No I/O, no clock."""

from collections import deque
from collections.abc import Sequence

from ..frames import (
    ACK_ONE,
    ACK_ONE_LENGTH,
    ACK_WORD,
    MAX_ACK_RANGE,
    REJECTED,
    Kind,
    Record,
    ack_body,
    ack_range_body,
    fragment_progress_body,
)
from ..frames import frame as make_frame
from .flow import CREDIT_UPDATE_OCTETS, PeerStream

MAX_BATCH = 64  # messages in an ack that arrived in frames of their own: such messages are long, and soon waited for

_pack_one = ACK_ONE.pack


class AckQueue:
    """The acks of one session.

    Attributes:
        sent: how many frames.
        due: acks that are to be sent: stream, records (or sequences in a row), T2 of the latter.
        batch_for: whose messages a batch is of that has begun; None: none has.
    """

    def __init__(self, epoch: int) -> None:
        self.sent = 0
        self.due: deque[tuple[PeerStream, Sequence[Record] | range, int]] = deque()
        self._epoch = epoch
        self._batch: list[Record] = []
        self.batch_for: PeerStream | None = None

    def add(self, stream: PeerStream, record: Record, batched: bool) -> None:
        """Acknowledge one message: sequence, T1, T2; ``batched``: with others, when they are `MAX_BATCH`, or at
        `flush`."""
        if not batched:
            if self.batch_for is not None:  # it is older
                self.flush()
            self.due.append((stream, (record,), 0))
            return
        if self.batch_for is not stream:
            self.flush()
            self.batch_for = stream
        self._batch.append(record)
        if len(self._batch) >= MAX_BATCH:
            self.flush()

    def add_range(self, stream: PeerStream, sequences: range, received_ns: int) -> None:
        """Acknowledge messages in a row that arrived together, at most MAX_ACK_RANGE."""
        self.flush()
        self.due.append((stream, sequences, received_ns))

    def add_credit_update(self, stream: PeerStream) -> None:
        """Say how far a stream is consumed."""
        self.flush()
        self.due.append((stream, (), 0))

    def flush(self) -> None:
        """Make the batch due."""
        if self.batch_for is not None:
            stream, records, self._batch, self.batch_for = self.batch_for, self._batch, [], None
            self.due.append((stream, records, 0))

    def frames(self, now_ns: int) -> list[tuple[bytes, bytes]]:
        """Topic and frame of each ack that is due.

        They must leave before any `credit_update` that is made later.
        """
        due, frames = self.due, []
        while due:
            stream, records, t2_ns = due.popleft()
            number = self.sent
            self.sent = number + 1
            if len(records) == 1 and type(records) is tuple:
                sequence, sent_ns, received_ns = records[0]
                acked, consumed = stream.acked, stream.consumed
                if sequence >= acked:
                    acked = sequence + 1
                if received_ns == REJECTED and consumed <= sequence:
                    consumed = stream.consumed = sequence + 1
                if consumed > acked:  # as in `_consumed_to_report`
                    consumed = acked
                else:
                    stream.unreported_octets = 0
                frame = _pack_one(
                    ACK_WORD, ACK_ONE_LENGTH, self._epoch, number, now_ns,
                    stream.epoch, consumed, sequence, sent_ns, received_ns,
                )  # fmt: skip
            elif isinstance(records, range):
                acked = max(stream.acked, records.stop)
                consumed = _consumed_to_report(stream, acked)
                body = ack_range_body(stream.epoch, consumed, records.start, records.stop, t2_ns)
                frame = make_frame(Kind.ACK_RANGE, self._epoch, number, now_ns, body)
            else:
                acked = max([stream.acked, *[record[0] + 1 for record in records]])  # the last may be a repeat
                rejected = [record[0] + 1 for record in records if record[2] == REJECTED]
                stream.consumed = max([stream.consumed, *rejected])
                frame = self._ack(stream, records, acked, number, now_ns)
            frames.append((stream.receive_flow.ack_topic, frame))
            stream.acked = acked
            # What the application consumed before its ack was out could not be announced then.
            if records and stream.unreported_octets >= CREDIT_UPDATE_OCTETS:
                due.appendleft((stream, (), 0))
        return frames

    def credit_update(self, stream: PeerStream, now_ns: int) -> bytes:
        """A frame that says how far a stream is consumed."""
        number = self.sent
        self.sent = number + 1
        return self._ack(stream, (), stream.acked, number, now_ns)

    def fragment_progress(self, epoch: int, sent_ns: int, octets: int, now_ns: int) -> bytes:
        """A frame that says how many octets have arrived of a frame that comes in fragments."""
        number = self.sent
        self.sent = number + 1
        body = fragment_progress_body(epoch, sent_ns, octets)
        return make_frame(Kind.FRAGMENT_PROGRESS, self._epoch, number, now_ns, body)

    def _ack(self, stream: PeerStream, records: Sequence[Record], acked: int, number: int, now_ns: int) -> bytes:
        body = ack_body(stream.epoch, _consumed_to_report(stream, acked), records)
        return make_frame(Kind.ACK, self._epoch, number, now_ns, body)


def _consumed_to_report(stream: PeerStream, acked: int) -> int:
    """How far the stream is consumed, as an ack of all below ``acked`` may say.

    A consuming thread may be ahead of the acks.  What it consumed is not announced before it is acknowledged, or the
    sender would take it for lost.
    """
    consumed = stream.consumed
    if consumed > acked:
        return acked
    stream.unreported_octets = 0
    return consumed


def end_of_run(words: tuple[int, ...], sequences: tuple[int, ...], at: int) -> int:
    """The index behind the run that begins at this one: same kind, numbers in a row, at most MAX_ACK_RANGE."""
    word, first, count = words[at], sequences[at], len(words)
    end = min(count, MAX_ACK_RANGE)
    if at == 0 and sequences[:end] == tuple(range(first, first + end)) and words[:end].count(word) == end:
        return end  # mostly a bundle is one run
    end = at + 1
    while end < count and words[end] == word and sequences[end] == first + end - at and end - at < MAX_ACK_RANGE:
        end += 1
    return end
