"""The messages of a frame as they travelled: one, those of a bundle or a run, or none.  Bytes in, bytes out."""

from collections.abc import Iterator
from typing import NamedTuple

from .frames import (
    BUNDLE_WORD,
    DATA_WORD,
    FLOW_NAME,
    HEADER,
    HEADER_OCTETS,
    MAX_BUNDLED,
    MAX_SEQUENCE,
    RETRANSMIT_WORD,
    RUN_AT,
    RUN_WORD,
    AnyFrame,
    Frame,
    MalformedFrame,
    data_headers,
    parse_run,
    whole,
)

SENT, RECEIVED = "sent", "received"  # directions, as this side sees them

_unpack_header = HEADER.unpack_from


class Wire(NamedTuple):
    """A message as it travelled; one of a run in a frame of its own."""

    word: int
    epoch: int
    sequence: int
    sent_ns: int
    frame: Frame


def flow_of(topic: bytes) -> str | None:
    """The flow of a topic of the wire; None: of none."""
    try:
        kind, _, flow = topic.decode("ascii").partition("/")
    except UnicodeDecodeError:
        return None
    return flow if kind in ("traffic", "ack") and FLOW_NAME.fullmatch(flow) else None


def messages_of(frame: AnyFrame) -> Iterator[Wire]:
    """The messages of a frame of the wire: one, or those of a bundle or a run; none of a frame that has no message.

    Raises MalformedFrame.
    """
    frame = whole(frame)
    if len(frame) < HEADER_OCTETS:
        raise MalformedFrame("truncated")
    word, length, epoch, sequence, sent_ns = _unpack_header(frame)
    if word in (DATA_WORD, RETRANSMIT_WORD):
        if sequence > MAX_SEQUENCE or len(frame) < HEADER_OCTETS + length:
            raise MalformedFrame("length")
        end = HEADER_OCTETS + length  # octets of the transport may follow
        yield Wire(word, epoch, sequence, sent_ns, frame if len(frame) == end else frame[:end])
    elif word == RUN_WORD:
        run = memoryview(frame)[: HEADER_OCTETS + length]
        count, size = parse_run(run, sequence)
        for place, header in enumerate(data_headers([size] * count, epoch, sequence, sent_ns)):
            at = RUN_AT + place * size
            yield Wire(DATA_WORD, epoch, sequence + place, sent_ns, header + run[at : at + size])
    elif word == BUNDLE_WORD:
        body = memoryview(frame)[HEADER_OCTETS : HEADER_OCTETS + length]
        at, count = 0, 0
        while at < len(body):
            count += 1
            if len(body) - at < HEADER_OCTETS or count > MAX_BUNDLED:
                raise MalformedFrame("bundle")
            word, length, its_epoch, sequence, sent_ns = _unpack_header(body, at)
            end = at + HEADER_OCTETS + length
            if end > len(body) or its_epoch != epoch or word not in (DATA_WORD, RETRANSMIT_WORD):
                raise MalformedFrame("bundle")
            if sequence > MAX_SEQUENCE:
                raise MalformedFrame("bundle")
            yield Wire(word, epoch, sequence, sent_ns, body[at:end])
            at = end
