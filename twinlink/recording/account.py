"""What a recording holds, and what it lacks: fed with what is recorded, while that is written and when it is read."""

from collections.abc import Iterable
from dataclasses import asdict
from fnmatch import fnmatchcase
from typing import Any

from ..events import Event
from ..protocol.frames import (
    ACK_HEAD,
    FLOW_NAME,
    HEADER,
    HEADER_OCTETS,
    HELLO_TOPIC,
    MAX_SEQUENCE,
    REJECTED,
    RETRANSMIT_WORD,
    Frame,
    Hello,
    Kind,
    MalformedFrame,
    check,
    parse_abandoned,
    parse_ack,
    parse_ack_range,
)
from ..protocol.rangeset import RangeSet
from ..protocol.session import SKIPPED
from ..protocol.wire import RECEIVED, SENT, Wire, flow_of
from ..runtime.capture import MAX_STREAMS

MAX_PEERS = 1024  # whose acks are kept for a flow
MAX_CARRIED = 4096  # ranges of a stream, from file to file
MAX_RANGES = 65_536  # of all streams, before the next file begins: a manifest is read whole

Ranges = list[list[int]]


class Stream:
    """The messages of one session on one flow.

    Attributes:
        first, end: the numbers that were sent while this file was the open one, as far as known; first: None before
            the first is known.
        is_guess: ``first`` is what came first, or where the sender stood in its first hello: it has not said yet from
            where on it owes us messages.
        carried: what an earlier file lacks, and may still come.
        written: in the file.
        pending: in the open chunk.
        left_out: by the recorder, by reason.
        abandoned: the sender has said that these will not come; of this side, it has skipped them.
        given_up: this side has reported that these did not come (`Gap`).
        lost: the events `Lost` of what this side sent.
        acked, rejected: by the peer's epoch.
        repaired, duplicates, octets: counts; of messages that came on request, of those that came again and stand in
            the recording once, and of payload that is in the file.
        pending_octets: of payload in the open chunk.
    """

    def __init__(self, direction: str, flow: str, epoch: int, first: int | None, is_guess: bool = False) -> None:
        self.direction, self.flow, self.epoch = direction, flow, epoch
        self.first, self.end, self.is_guess = first, first or 0, is_guess
        self.carried, self.written, self.pending = RangeSet(), RangeSet(), RangeSet()
        self.left_out: dict[str, RangeSet] = {}
        self.abandoned, self.given_up = RangeSet(), RangeSet()
        self.lost: list[dict[str, Any]] = []
        self.acked: dict[int, RangeSet] = {}
        self.rejected: dict[int, RangeSet] = {}
        self.repaired = self.duplicates = self.octets = self.pending_octets = 0

    def leave_out(self, reason: str, ranges: Iterable[tuple[int, int]]) -> None:
        """The recorder does not hold these."""
        of = self.left_out.setdefault(reason, RangeSet())
        for first, end in ranges:
            self.extend(first, end)
            of.add(first, end)

    def extend(self, first: int, end: int) -> None:
        """Numbers below ``end`` have been sent, and ``first`` is one of them."""
        if self.first is None or (self.is_guess and first < self.first):
            self.first, self.is_guess = first, True
        self.end = max(self.end, end)

    def missing(self) -> RangeSet:
        """Sent, as far as is known, and neither written nor left out."""
        ranges = RangeSet([*self.carried, (self.first or 0, self.end)])
        for held in (self.written, self.pending, *self.left_out.values()):
            _subtract(ranges, held)
        return ranges

    @property
    def range_count(self) -> int:
        """How many ranges it takes to say all this."""
        sets = self.written, self.abandoned, self.given_up, *self.left_out.values(), *self.acked.values()
        return sum(map(len, sets)) + len(self.lost)

    def missing_by_side(self) -> dict[str, RangeSet]:
        """`missing`, by the side that lost it; ``open``: it may have been on its way when the file ended."""
        left = self.missing()
        sender = _take(left, self.abandoned)
        if self.direction == SENT:
            return {"sender": sender, "recorder": left}
        path = _take(left, self.given_up)
        return {"sender": sender, "path": path, "open": left}


def _subtract(ranges: RangeSet, taken: RangeSet) -> None:
    for first, end in taken:
        ranges.take(first, end)


def _take(ranges: RangeSet, wanted: RangeSet) -> RangeSet:
    return RangeSet([taken for first, end in wanted for taken in ranges.take(first, end)])


class Account:
    """The streams of a recording.

    Attributes:
        epoch: of the side that records.
        nodes: names of sessions, as far as they were said.
        unaccounted: messages that are not recorded, as there were too many sessions.
    """

    def __init__(self, epoch: int, flows: Iterable[str] = ("*",)) -> None:
        self.epoch = epoch
        self.nodes: dict[int, str] = {}
        self.streams: dict[tuple[str, str, int], Stream] = {}
        self.unaccounted = 0
        self._patterns = tuple(flows)
        self._wanted: dict[str, bool] = {}

    def wants(self, flow: str) -> bool:
        """Whether a flow is to be recorded."""
        wanted = self._wanted.get(flow)
        if wanted is None:
            if len(self._wanted) >= MAX_STREAMS:
                self._wanted.clear()
            wanted = self._wanted[flow] = any(fnmatchcase(flow, pattern) for pattern in self._patterns)
        return wanted

    def stream(self, direction: str, flow: str, epoch: int, first: int | None = None) -> Stream | None:
        """The stream, which begins here if there is none; None: there are too many."""
        key = direction, flow, epoch
        found = self.streams.get(key)
        if found is None:
            if len(self.streams) >= MAX_STREAMS:
                return None
            found = self.streams[key] = Stream(direction, flow, epoch, first)
        return found

    def message(self, direction: str, flow: str, wire: Wire) -> bool:
        """A message is to be recorded; False: it is not, as it is there already."""
        stream = self.streams.get((direction, flow, wire.epoch)) or self.stream(direction, flow, wire.epoch)
        if stream is None:
            self.unaccounted += 1
            return False
        sequence = wire.sequence
        if sequence < stream.end and (sequence in stream.written or sequence in stream.pending):
            stream.duplicates += 1
            return False
        stream.extend(sequence, sequence + 1)
        stream.pending.add(sequence, sequence + 1)
        stream.pending_octets += len(wire.frame) - HEADER_OCTETS
        stream.repaired += wire.word == RETRANSMIT_WORD
        return True

    def commit(self) -> None:
        """The open chunk is in the file."""
        for stream in self.streams.values():
            if stream.pending:
                for first, end in stream.pending:
                    stream.written.add(first, end)
                stream.pending = RangeSet()
                stream.octets += stream.pending_octets
                stream.pending_octets = 0

    def discard(self, reason: str) -> None:
        """The open chunk is not in the file."""
        for stream in self.streams.values():
            if stream.pending:
                dropped, stream.pending = stream.pending, RangeSet()
                stream.pending_octets = 0
                stream.leave_out(reason, dropped)

    @property
    def range_count(self) -> int:
        """How many ranges its manifest will have."""
        return sum(stream.range_count for stream in self.streams.values())

    # What frames without messages, and events, say of the streams

    def control(self, direction: str, topic: bytes, frame: Frame) -> bool:
        """Take in a frame without a message; whether it is to be recorded.  Never raises."""
        try:
            kind = check(frame)
            if topic == HELLO_TOPIC:
                if kind is Kind.HELLO and direction == RECEIVED:
                    self._hello(frame)
                return kind in (Kind.HELLO, Kind.BYE)
            flow = flow_of(topic)
            if flow is None or not self.wants(flow) or kind in (Kind.FRAGMENT, Kind.HELLO, Kind.BYE):
                return False
            if direction == RECEIVED and kind is Kind.ABANDONED:
                self._abandoned(flow, frame)
            elif direction == RECEIVED and kind in (Kind.ACK, Kind.ACK_RANGE):
                self._ack(kind, flow, frame)
            return True
        except MalformedFrame:
            return False

    def _hello(self, frame: Frame) -> None:
        epoch = HEADER.unpack_from(frame)[2]
        hello = Hello.decode(memoryview(frame)[HEADER_OCTETS:])
        if len(self.nodes) < MAX_STREAMS:
            self.nodes[epoch] = hello.node
        owed = hello.start_sequences.get(self.epoch, {})
        for flow, number in hello.flows.items():
            if not FLOW_NAME.fullmatch(flow) or not self.wants(flow):
                continue
            is_new = (RECEIVED, flow, epoch) not in self.streams
            stream = self.stream(RECEIVED, flow, epoch, number)
            if stream is None:
                continue
            stream.is_guess |= is_new
            if stream.is_guess and (first := owed.get(flow)) is not None:
                stream.first, stream.is_guess = first, False
            stream.end = max(stream.end, number)

    def _abandoned(self, flow: str, frame: Frame) -> None:
        _, _, epoch, end, _ = HEADER.unpack_from(frame)
        if end > MAX_SEQUENCE or (stream := self.streams.get((RECEIVED, flow, epoch))) is None:
            return
        stream.end = max(stream.end, end)
        for first, last in parse_abandoned(frame)[1]:
            stream.abandoned.add(first, last)

    def _ack(self, kind: Kind, flow: str, frame: Frame) -> None:
        epoch = HEADER.unpack_from(frame)[2]
        acked_epoch = ACK_HEAD.unpack_from(frame, HEADER_OCTETS)[0] if len(frame) >= HEADER_OCTETS + 8 else None
        stream = self.streams.get((SENT, flow, self.epoch))
        if acked_epoch != self.epoch or stream is None or len(stream.acked) > MAX_PEERS:
            return
        acked = stream.acked.setdefault(epoch, RangeSet())
        if kind is Kind.ACK_RANGE:
            numbers = parse_ack_range(frame)[2]
            acked.add(numbers.start, numbers.stop)
            return
        for sequence, _, t2_ns in parse_ack(frame)[2]:
            if sequence <= MAX_SEQUENCE:
                of = acked if t2_ns != REJECTED else stream.rejected.setdefault(epoch, RangeSet())
                of.add(sequence, sequence + 1)

    def event(self, event: dict[str, Any]) -> None:
        """Take in an event, as `described` gives it."""
        kind, flow = event.get("type"), event.get("flow")
        if kind == "PeerUp" and len(self.nodes) < MAX_STREAMS:
            self.nodes[int(event["epoch"], 16)] = event["node"]
        elif kind == "Lost" and (stream := self.streams.get((SENT, str(flow), self.epoch))) is not None:
            if event["reason"] == SKIPPED:
                stream.abandoned.add(event["first"], event["end"])
                stream.extend(event["first"], event["end"])
            else:
                stream.lost.append({key: event[key] for key in ("first", "end", "reason", "peers")})
        elif kind in ("Gap", "Reordered"):
            stream = self.streams.get((RECEIVED, str(flow), int(event["epoch"], 16)))
            if stream is not None and kind == "Gap":
                stream.given_up.add(event["first"], event["end"])
                stream.end = max(stream.end, event["end"])
            elif stream is not None:
                stream.given_up.remove(event["sequence"])

    # As JSON

    def beginning(self) -> list[dict[str, Any]]:
        """Where the streams stand as the next file begins: what this one lacks may come in that."""
        begun = []
        for stream in self.streams.values():
            begun.append(_key(stream) | {"first": stream.end, "carried": _carried(stream)})
        return begun

    def begin(self, streams: list[dict[str, Any]]) -> None:
        """The streams stand where `beginning` said."""
        for one in streams[:MAX_STREAMS]:
            stream = Stream(one["direction"], one["flow"], int(one["epoch"], 16), one["first"])
            stream.carried = RangeSet((first, end) for first, end in one["carried"])
            self.streams[stream.direction, stream.flow, stream.epoch] = stream

    def described(self, continues: bool = False) -> list[dict[str, Any]]:
        """Each stream as it stands in a manifest; ``continues``: what may still come belongs to the next file."""
        return [self._described(stream, continues) for stream in self.streams.values()]

    def _described(self, stream: Stream, continues: bool) -> dict[str, Any]:
        missing = {side: listed(ranges) for side, ranges in stream.missing_by_side().items() if ranges}
        carried = _carried(stream) if continues else []
        if carried:
            missing["open"] = missing["open"][: -len(carried)]
        made: dict[str, Any] = _key(stream) | {
            "node": self.nodes.get(stream.epoch),
            "first": stream.first,
            "end": stream.end,
            "carried": listed(stream.carried),
            "recorded": listed(stream.written),
            "messages": stream.written.count(),
            "octets": stream.octets,
            "left_out": {reason: listed(ranges) for reason, ranges in stream.left_out.items() if ranges},
            "to_next_file": carried,
            "missing": {side: ranges for side, ranges in missing.items() if ranges},
        }
        if stream.direction == SENT:
            peers = {*stream.acked, *stream.rejected}
            return made | {"lost": stream.lost, "peers": [self._peer(stream, epoch) for epoch in sorted(peers)]}
        return made | {"repaired": stream.repaired, "duplicates": stream.duplicates}

    def _peer(self, stream: Stream, epoch: int) -> dict[str, Any]:
        acked, rejected = stream.acked.get(epoch, RangeSet()), stream.rejected.get(epoch, RangeSet())
        named = {"epoch": f"{epoch:016x}", "node": self.nodes.get(epoch)}
        return named | {"acked": listed(acked), "rejected": listed(rejected)}


def listed(ranges: RangeSet) -> Ranges:
    """Half-open ranges as JSON has them."""
    return [[first, end] for first, end in ranges]


def _carried(stream: Stream) -> Ranges:
    """What may still come into the next file."""
    return [] if stream.direction == SENT else listed(stream.missing_by_side()["open"])[-MAX_CARRIED:]


def _key(stream: Stream) -> dict[str, Any]:
    return {"direction": stream.direction, "flow": stream.flow, "epoch": f"{stream.epoch:016x}"}


def event_fields(event: Event) -> dict[str, Any]:
    """An event as JSON: its type and its fields, epochs as 16 hexadecimal digits."""
    fields = {
        name: f"{value:016x}" if name in ("epoch", "old_epoch") else list(value) if isinstance(value, tuple) else value
        for name, value in asdict(event).items()
    }
    return {"type": type(event).__name__, **fields}
