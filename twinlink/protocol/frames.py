"""The frames on the wire: one header for every message, and the bodies of all that is not data.

Every message is one topic and one frame; the frame is this header and a body (docs/protocol.md)::

     0                   1                   2                   3
     0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    |     'T'       |     'L'       |  version = 1  |     kind      |
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    |                     length of the body                        |
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    |                                                               |
    +                    epoch: session of the sender               +
    |                                                               |
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    |                                                               |
    +                    sequence, per flow from 0                  +
    |                                                               |
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    |                                                               |
    +                    sent: Unix time in ns                      +
    |                                                               |
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+

All integers are unsigned and in network byte order.  32 octets, fixed for ever: another layout is another version.
"""

import json
import re
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import chain, count, repeat
from typing import Any, NamedTuple, final

MAGIC = b"TL"
VERSION = 1
HEADER = struct.Struct("!IIQQQ")  # magic + version + kind as one word, length, epoch, sequence, sent_ns
HEADER_OCTETS = HEADER.size
MAX_PAYLOAD = 16 * 1024 * 1024  # octets; what fits a 4-antenna slot of 273 PRBs (734 KB) many times over

# An ack: what it answers (the data sender's epoch), how far the application has consumed the flow (every sequence
# below is done with), then a record for each message: its sequence, T1 as its header said, T2 when it arrived.
# T3 is the ack's own sent_ns, T4 the sender's clock when the ack arrives (RFC 5905 names).
ACK_HEAD = struct.Struct("!QQ")  # acked epoch, consumed
ACK_RECORD = struct.Struct("!QQQ")  # sequence, T1, T2
ACK_ONE = struct.Struct("!IIQQQ" + "QQ" + "QQQ")  # header and body of an ack with one record, in one call
ACK_ONE_LENGTH = ACK_HEAD.size + ACK_RECORD.size
MAX_ACK_RECORDS = 256
Record = Sequence[int]
# Of messages in a row that arrived together: acked epoch, consumed, first, end (not included), T2 of all.
ACK_RANGE = struct.Struct("!QQQQQ")
MAX_ACK_RANGE = 4096  # messages
MAX_BUNDLED = 16_384  # messages in a bundle; each takes half a kilobyte, beside its octets
# A run: messages in a row, all as long and sent together.  The header has the first one's sequence; in front of the
# payloads, which follow one another, stand how many they are and the octets of each.
RUN_HEAD = struct.Struct("!II")
RUN_AT = HEADER_OCTETS + RUN_HEAD.size  # of the first payload in the frame
MAX_RUN = MAX_ACK_RANGE  # messages: one ack range answers for all
Records = Sequence[Record] | range  # of either: what an ack says has arrived
REJECTED = 0  # in place of T2: it arrived, its flow has no subscription there, and no room is left to hold it

# A nak: these ranges of the data sender's messages are missing; all else below ``known`` has arrived or is given up.
NAK_HEAD = struct.Struct("!QQ")  # nak epoch, known
# An ABANDONED frame: ranges of the sender's own messages that it will not send (any more), and why.  Its header's
# sequence is the first that has not been sent: it travels behind all that were, so what is not there when it arrives is
# missing.
ABANDONED_HEAD = struct.Struct("!Q")  # reason
RANGE = struct.Struct("!QQ")  # first, end (not included)
# A progress: whose frame comes in fragments (epoch, and the frame's own time), and how many octets of it are there.
FRAGMENT_PROGRESS = struct.Struct("!QQQ")
# A refusal: whose messages (epoch), and the first number beyond those that have arrived.
REFUSED = struct.Struct("!QQ")
MAX_RANGES = 256  # of a nak or an ABANDONED frame

Frame = bytes | memoryview
SPLIT_OCTETS = 64 * 1024  # of a payload: below, to copy it takes less time than to pass it by itself

FLOW_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_EPOCH = re.compile(r"[0-9a-f]{16}")
HELLO_TOPIC = b"traffic/_link"  # hellos and byes; users' flow names cannot begin with an underscore
MAX_HELLO = 256 * 1024  # octets of body: room for 1024 flows and 1024 peers
MAX_SEQUENCE = 2**63 - 1  # no sender gets there; what claims to would overflow a neighbour's arithmetic


class Kind(IntEnum):
    """What a frame carries."""

    DATA = 1
    ACK = 2
    HELLO = 3
    BYE = 4
    RETRANSMIT = 5  # data that a nak requested
    NAK = 6
    ABANDONED = 7  # without ranges it only asks what is missing
    BUNDLE = 8  # several data or retransmit frames of one flow
    FRAGMENT = 9  # of a frame that is too long to be sent whole
    FRAGMENT_PROGRESS = 10  # so much of it is there
    ACK_RANGE = 11  # of messages in a row that arrived together
    REFUSED = 12  # messages arrived for which there is no room; they will be requested
    RUN = 13  # data messages in a row, all as long


class AbandonReason(IntEnum):
    """Why a message will not come."""

    EVICTED = 0  # it was not acknowledged, and newer messages needed its place
    DROPPED = 1  # the flow's overflow policy dropped it
    CONFLATED = 2  # a newer one took its place before it was sent


_WORDS = {kind: int.from_bytes(MAGIC + bytes((VERSION, kind))) for kind in Kind}
DATA_WORD, ACK_WORD = _WORDS[Kind.DATA], _WORDS[Kind.ACK]  # the first four octets
RETRANSMIT_WORD, BUNDLE_WORD, FRAGMENT_WORD = _WORDS[Kind.RETRANSMIT], _WORDS[Kind.BUNDLE], _WORDS[Kind.FRAGMENT]
RUN_WORD = _WORDS[Kind.RUN]
RETRANSMIT_OCTETS = RETRANSMIT_WORD.to_bytes(4)  # what such a frame begins with
_KINDS, _REASONS, _BUNDLED = frozenset(Kind), frozenset(AbandonReason), frozenset((DATA_WORD, RETRANSMIT_WORD))

_unpack_header = HEADER.unpack_from


@final
class SplitFrame:
    """A data or retransmit frame whose payload, which never changes, is not copied behind its header.

    Its length is that of both; an index or a slice is one of the header.  Behind the header's `HEADER_OCTETS` is what a
    transport adds at the end of a frame.
    """

    __slots__ = "header", "payload"

    def __init__(self, header: bytes, payload: Frame) -> None:
        self.header = header
        self.payload = payload

    def __len__(self) -> int:
        return len(self.header) + len(self.payload)

    def __getitem__(self, at: Any) -> Any:
        return self.header[at]

    def __bytes__(self) -> bytes:
        """The whole frame: a copy."""
        return b"".join((self.header[:HEADER_OCTETS], self.payload, self.header[HEADER_OCTETS:]))


MessageFrame = bytes | SplitFrame  # as a sender keeps it
AnyFrame = Frame | SplitFrame


def received_split(header: bytes, payload: Frame) -> AnyFrame:
    """What arrived in two pieces, as a frame; whole where it is not a message, for the session to look at."""
    word, length = HEADER.unpack(header)[:2]
    if word in _BUNDLED and length == len(payload):
        return SplitFrame(header, payload)
    return b"".join((header, payload))


def whole(frame: AnyFrame) -> Frame:
    """The frame in one piece."""
    return bytes(frame) if type(frame) is SplitFrame else frame


class MalformedFrame(Exception):
    """The octets are not a twinlink message; ``args[0]`` is the name under which it is counted."""


def frame(kind: Kind, epoch: int, sequence: int, sent_ns: int, body: bytes) -> bytes:
    """Header and body as one octet string."""
    return HEADER.pack(_WORDS[kind], len(body), epoch, sequence, sent_ns) + body


def data_headers(sizes: Sequence[int], epoch: int, first: int, sent_ns: int) -> Iterator[bytes]:
    """The headers of data frames in a row, with payloads of these sizes; ``first`` is the first one's sequence."""
    return map(HEADER.pack, repeat(DATA_WORD), sizes, repeat(epoch), count(first), repeat(sent_ns))


def mark_retransmitted(frame: MessageFrame) -> MessageFrame:
    """A data frame marked as a retransmission, without what a transport added behind it."""
    if type(frame) is SplitFrame:
        return SplitFrame(RETRANSMIT_OCTETS + frame.header[len(RETRANSMIT_OCTETS) :], frame.payload)
    return RETRANSMIT_OCTETS + frame[len(RETRANSMIT_OCTETS) : HEADER_OCTETS + int.from_bytes(frame[4:8])]


def check(octets: bytes | memoryview) -> Kind:
    """The kind of a frame; raises MalformedFrame naming the first thing that is wrong with its header."""
    if len(octets) < HEADER_OCTETS:
        raise MalformedFrame("truncated")
    if octets[:2] != MAGIC:
        raise MalformedFrame("magic")
    if octets[2] != VERSION:
        raise MalformedFrame("version")
    if octets[3] not in _KINDS:
        raise MalformedFrame("kind")
    if HEADER.unpack_from(octets)[1] != len(octets) - HEADER_OCTETS:
        raise MalformedFrame("length")
    return Kind(octets[3])


def sent_at(frame: MessageFrame) -> int:
    """The sent_ns of a frame."""
    sent_ns: int = _unpack_header(frame.header if type(frame) is SplitFrame else frame)[4]
    return sent_ns


def parse(octets: bytes | memoryview) -> tuple[Kind, int, int, int]:
    """Kind, epoch, sequence and sent_ns of a frame.  Raises MalformedFrame."""
    kind = check(octets)
    _, _, epoch, sequence, sent_ns = HEADER.unpack_from(octets)
    return kind, epoch, sequence, sent_ns


def ack_body(acked_epoch: int, consumed: int, records: Sequence[Record]) -> bytes:
    """The body of an ack of at most MAX_ACK_RECORDS messages (0 records: only ``consumed`` has moved)."""
    numbers = chain((acked_epoch, consumed), *records)
    return struct.pack(f"!{2 + 3 * len(records)}Q", *numbers)


def parse_ack(octets: bytes | memoryview) -> tuple[int, int, list[Sequence[int]]]:
    """Acked epoch, consumed and the records of an ack *frame*.  Raises MalformedFrame."""
    size = len(octets) - HEADER_OCTETS - ACK_HEAD.size
    if size < 0 or size % ACK_RECORD.size or size > MAX_ACK_RECORDS * ACK_RECORD.size:
        raise MalformedFrame("ack")
    acked_epoch, consumed = ACK_HEAD.unpack_from(octets, HEADER_OCTETS)
    records: list[Sequence[int]] = list(ACK_RECORD.iter_unpack(octets[HEADER_OCTETS + ACK_HEAD.size :]))
    return acked_epoch, consumed, records


def ack_range_body(acked_epoch: int, consumed: int, first: int, end: int, t2_ns: int) -> bytes:
    """The body of an ack of ``first`` to ``end - 1``, at most MAX_ACK_RANGE messages."""
    return ACK_RANGE.pack(acked_epoch, consumed, first, end, t2_ns)


def parse_ack_range(octets: bytes | memoryview) -> tuple[int, int, range, int]:
    """Acked epoch, consumed, the sequences and T2 of an ack range *frame*.  Raises MalformedFrame."""
    if len(octets) != HEADER_OCTETS + ACK_RANGE.size:
        raise MalformedFrame("ack_range")
    acked_epoch, consumed, first, end, t2_ns = ACK_RANGE.unpack_from(octets, HEADER_OCTETS)
    if not first < end <= MAX_SEQUENCE or end - first > MAX_ACK_RANGE or t2_ns == REJECTED:
        raise MalformedFrame("ack_range")
    return acked_epoch, consumed, range(first, end), t2_ns


def nak_body(nak_epoch: int, known: int, missing: Sequence[tuple[int, int]]) -> bytes:
    """The body of a nak for at most MAX_RANGES half-open ranges."""
    return NAK_HEAD.pack(nak_epoch, known) + b"".join([RANGE.pack(*one) for one in missing])


def parse_nak(octets: bytes | memoryview) -> tuple[int, int, list[tuple[int, int]]]:
    """Asked epoch, known and missing ranges of a nak *frame*.  Raises MalformedFrame."""
    ranges = _ranges(octets, HEADER_OCTETS + NAK_HEAD.size, "nak")
    nak_epoch, known = NAK_HEAD.unpack_from(octets, HEADER_OCTETS)
    return nak_epoch, known, ranges


def fragment_progress_body(epoch: int, sent_ns: int, octets: int) -> bytes:
    """The body of a progress: the data sender's epoch, the time of the whole frame, octets of it that are there."""
    return FRAGMENT_PROGRESS.pack(epoch, sent_ns, octets)


def parse_fragment_progress(octets: bytes | memoryview) -> tuple[int, int, int]:
    """Epoch, time and octets of a progress *frame*.  Raises MalformedFrame."""
    if len(octets) != HEADER_OCTETS + FRAGMENT_PROGRESS.size:
        raise MalformedFrame("fragment_progress")
    epoch, sent_ns, received = FRAGMENT_PROGRESS.unpack_from(octets, HEADER_OCTETS)
    return epoch, sent_ns, received


def abandoned_body(reason: AbandonReason, ranges: Sequence[tuple[int, int]]) -> bytes:
    """The body of an ABANDONED frame of at most MAX_RANGES half-open ranges."""
    return ABANDONED_HEAD.pack(reason) + b"".join([RANGE.pack(*one) for one in ranges])


def parse_abandoned(octets: bytes | memoryview) -> tuple[AbandonReason, list[tuple[int, int]]]:
    """The reason and the ranges of an ABANDONED *frame*.  Raises MalformedFrame."""
    ranges = _ranges(octets, HEADER_OCTETS + ABANDONED_HEAD.size, "abandoned")
    (why,) = ABANDONED_HEAD.unpack_from(octets, HEADER_OCTETS)
    if why not in _REASONS:
        raise MalformedFrame("abandoned")
    return AbandonReason(why), ranges


def refused_body(epoch: int, end: int) -> bytes:
    """The body of a refusal: of the messages of ``epoch``, all that will be here have arrived below ``end``."""
    return REFUSED.pack(epoch, end)


def parse_refused(octets: bytes | memoryview) -> tuple[int, int]:
    """Epoch and end of a refused *frame*.  Raises MalformedFrame."""
    if len(octets) != HEADER_OCTETS + REFUSED.size:
        raise MalformedFrame("refused")
    epoch, end = REFUSED.unpack_from(octets, HEADER_OCTETS)
    if end > MAX_SEQUENCE:
        raise MalformedFrame("refused")
    return epoch, end


class Bundle(NamedTuple):
    """Several messages of one flow and session, field by field: the n-th of each is of the n-th message."""

    words: tuple[int, ...]
    sequences: tuple[int, ...]
    sent_ns: tuple[int, ...]
    payloads: tuple[bytes, ...]


def parse_bundle(octets: bytes | memoryview, epoch: int) -> Bundle:
    """What is in the bundle *frame* of a session.  Raises MalformedFrame.

    Payloads are copies, so that an application that keeps one does not keep them all.
    """
    body = bytes(octets[HEADER_OCTETS:])
    if not body:
        return Bundle((), (), (), ())
    words, _, epochs, sequences, sent_ns, payloads = _parse_equal_lengths(body) or zip(*_parse_each(body), strict=True)
    if not _BUNDLED.issuperset(words) or epochs.count(epoch) != len(epochs):
        raise MalformedFrame("bundle")
    return Bundle(words, sequences, sent_ns, payloads)


def _parse_equal_lengths(body: bytes) -> list[tuple[Any, ...]] | None:
    """The fields of one frame or more that are all as long as the first, as they mostly are in bulk; else None."""
    length = int.from_bytes(body[4:8])
    second = HEADER_OCTETS + length
    if len(body) > MAX_BUNDLED * second:
        return None  # `_parse_each` counts
    if len(body) % second or body[second + 4 : second + 8] not in (b"", body[4:8]):
        return None
    fields = list(zip(*struct.iter_unpack(f"!IIQQQ{length}s", body), strict=True))
    return fields if fields[1].count(length) == len(fields[1]) else None


def _parse_each(body: bytes) -> Iterator[tuple[int, int, int, int, int, bytes]]:
    """The fields of one frame after the other.  Raises MalformedFrame."""
    at, end, left = 0, len(body), MAX_BUNDLED
    while left and at + HEADER_OCTETS <= end:
        header = _unpack_header(body, at)
        yield *header, body[at + HEADER_OCTETS : (at := at + HEADER_OCTETS + header[1])]
        left -= 1
    if at != end:
        raise MalformedFrame("bundle")


def run_header(count: int, size: int, epoch: int, first: int, sent_ns: int) -> bytes:
    """What stands before the payloads of a run of ``count`` messages of ``size`` octets, from ``first`` on."""
    return HEADER.pack(RUN_WORD, RUN_HEAD.size + count * size, epoch, first, sent_ns) + RUN_HEAD.pack(count, size)


def parse_run(octets: bytes | memoryview, first: int) -> tuple[int, int]:
    """How many messages the run *frame* has, ``first`` being its sequence, and their octets.  Raises MalformedFrame."""
    if len(octets) <= RUN_AT:
        raise MalformedFrame("run")
    count, size = RUN_HEAD.unpack_from(octets, HEADER_OCTETS)
    if not 1 <= count <= MAX_RUN or RUN_AT + count * size != len(octets) or first + count - 1 > MAX_SEQUENCE:
        raise MalformedFrame("run")
    return count, size


def _ranges(octets: bytes | memoryview, offset: int, what: str) -> list[tuple[int, int]]:
    """Ascending, disjoint, not empty; from ``offset`` to the end."""
    size = len(octets) - offset
    if size < 0 or size % RANGE.size or size > MAX_RANGES * RANGE.size:
        raise MalformedFrame(what)
    ranges = list(RANGE.iter_unpack(octets[offset:]))
    before = -1
    for first, end in ranges:
        if not before < first < end <= MAX_SEQUENCE:
            raise MalformedFrame(what)
        before = end
    return ranges


def is_node_name(node: object) -> bool:
    """Whether it is a string of 1 to 255 printable characters: it is going to be shown to people."""
    return isinstance(node, str) and 1 <= len(node) <= 255 and node.isprintable()


@dataclass(frozen=True, slots=True)
class Hello:
    """A node's name, the sessions that it hears, and where its flows stand.

    Attributes:
        node: the name given to ``twinlink.open``.
        heard: epochs of the sessions this node hears, with the number of the last hello heard: the way to here worked
            when that one was said.
        flows: the next sequence number to leave on each flow that this node has sent on.
        repairs: whether this node requests what it misses, and retransmits on request.
        runs: whether it reads runs.
        detect: flows on which it does not.
        behind: it has not read all that has arrived, so that ``heard`` is older than this hello.
        max_payload: the longest payload it takes, in octets.
        start_sequences: epochs of sessions that have come up, until they are known to have heard it: for each flow, the
            first sequence number that is owed to them.
    """

    node: str
    heard: dict[int, int]
    flows: dict[str, int]
    repairs: bool = False
    detect: frozenset[str] = frozenset()
    behind: bool = False
    max_payload: int = MAX_PAYLOAD
    start_sequences: dict[int, dict[str, int]] = field(default_factory=dict)
    runs: bool = False

    def encode(self) -> bytes:
        """The body: a JSON object; epochs as 16 hexadecimal digits, since JSON readers lose 64-bit integers."""
        heard = {f"{epoch:016x}": number for epoch, number in sorted(self.heard.items())}
        members: dict[str, Any] = {"node": self.node, "heard": heard, "flows": self.flows}
        if self.max_payload != MAX_PAYLOAD:
            members["max_payload"] = self.max_payload
        if self.behind:
            members["behind"] = True
        if self.repairs:
            members |= {"repairs": True, "detect": sorted(self.detect)}
        if self.runs:
            members["runs"] = True
        if self.start_sequences:
            members["since"] = {f"{epoch:016x}": flows for epoch, flows in sorted(self.start_sequences.items())}
        return json.dumps(members, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, body: bytes | memoryview) -> "Hello":
        """Raises MalformedFrame.  Fields that this version does not know are passed over."""
        if len(body) > MAX_HELLO:
            raise MalformedFrame("hello")
        try:
            fields: dict[str, Any] = json.loads(bytes(body))
            node, flows = fields["node"], fields["flows"]
            repairs, detect = fields.get("repairs", False), frozenset(fields.get("detect", ()))
            heard, behind, runs = fields["heard"], fields.get("behind", False), fields.get("runs", False)
            max_payload, start_sequences = fields.get("max_payload", MAX_PAYLOAD), fields.get("since", {})
            if not all(_EPOCH.fullmatch(epoch) for epoch in (*heard, *start_sequences)) or not is_node_name(node):
                raise MalformedFrame("hello")
            for numbers in (heard, flows, {"max_payload": max_payload}, *start_sequences.values()):
                if not all(type(value) is int and 0 <= value <= MAX_SEQUENCE for value in numbers.values()):
                    raise MalformedFrame("hello")
            if {type(repairs), type(behind), type(runs)} != {bool} or not all(isinstance(one, str) for one in detect):
                raise MalformedFrame("hello")
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise MalformedFrame("hello") from None
        heard = {int(epoch, 16): number for epoch, number in heard.items()}
        start_sequences = {int(epoch, 16): numbers for epoch, numbers in start_sequences.items()}
        return cls(node, heard, flows, repairs, detect, behind, max_payload, start_sequences, runs)
