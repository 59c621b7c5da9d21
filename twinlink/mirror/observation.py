"""What a mirror shows, restored: messages as they came to the observed node or left it.  No I/O, no clock."""

from collections.abc import Iterator

from ..events import Gap, Reordered
from ..message import Message
from ..protocol.frames import HEADER, HEADER_OCTETS, HELLO_TOPIC, Frame, Hello, Kind, MalformedFrame, whole
from ..protocol.rangeset import RangeSet
from ..protocol.wire import SENT, Wire, flow_of, messages_of
from ..runtime.capture import MAX_STREAMS, FrameItem, LeftOutItem
from .entries import MIRROR_FLOW, Peers, parse

__all__ = ["MIRROR_FLOW", "Observation"]

MAX_RANGES = 4096  # of a stream; beyond it the oldest is forgotten


class Observation:
    """Fed with the messages of the flow `MIRROR_FLOW` of one link, in order.

    Each message of the observed link comes out once, with its own sender, number and times.  What the observed node has
    not received is a `Gap`, and `Reordered` where it comes after all.  What did not get here through the mirror is
    neither: it is ``unseen``.

    Attributes:
        node, epoch: the observed node and its session; "" and 0: nothing has come yet.
        peers: names by epoch of the peers that are up there, as it said last.
        unseen: messages of the observed link that its mirror left out, or that were lost on the way from there.
        malformed: messages of the mirror that could not be read.
    """

    def __init__(self) -> None:
        self.node, self.epoch = "", 0
        self.peers: dict[int, str] = {}
        self.unseen = self.malformed = 0
        self._names: dict[int, str] = {}
        self._streams: dict[tuple[str, int], _Stream] = {}
        self._unsure = set[tuple[str, int]]()  # streams whose next message may come after some that are unseen
        self._following: dict[int, int] = {}  # by epoch of a mirror's session, the number of its next message

    def take(self, message: Message) -> Iterator[Message | Gap | Reordered]:
        """What one message of the mirror shows, in order."""
        if self._following.get(message.epoch, message.sequence) != message.sequence:
            self._unsure = set(self._streams)
        self._following = {message.epoch: message.sequence + 1}
        try:
            mirrored = parse(message.payload)
            self.node, self.epoch = mirrored.node, mirrored.epoch
            for entry in mirrored.entries:
                if isinstance(entry, FrameItem):
                    yield from self._frame(entry)
                elif isinstance(entry, LeftOutItem):
                    yield from self._left_out(entry)
                else:
                    self._up(entry)
        except MalformedFrame:
            self.malformed += 1
            self._unsure = set(self._streams)

    def _up(self, peers: Peers) -> None:
        self.peers = dict(peers.names)
        self._names |= self.peers
        kept = self.peers.keys() | {self.epoch}
        for key in [key for key in self._streams if key[1] not in kept]:  # of sessions that have ended
            del self._streams[key]
        self._names = {epoch: name for epoch, name in self._names.items() if epoch in kept}

    def _frame(self, item: FrameItem) -> Iterator[Message | Gap | Reordered]:
        direction, topic, frame, now_ns = item
        if topic == HELLO_TOPIC:
            self._hello(whole(frame))
            return
        flow = flow_of(topic) if topic.startswith(b"traffic/") else None
        if flow is None or len(frame) < HEADER_OCTETS:
            return
        for wire in messages_of(frame):
            yield from self._message(flow, wire, now_ns if direction != SENT else wire.sent_ns)

    def _hello(self, frame: Frame) -> None:
        if len(frame) >= HEADER_OCTETS and frame[3] == Kind.HELLO and len(self._names) < MAX_STREAMS:
            self._names[HEADER.unpack_from(frame)[2]] = Hello.decode(memoryview(frame)[HEADER_OCTETS:]).node

    def _message(self, flow: str, wire: Wire, now_ns: int) -> Iterator[Message | Gap | Reordered]:
        key = flow, wire.epoch
        stream = self._streams.get(key)
        if stream is None:
            if len(self._streams) >= MAX_STREAMS:
                self.unseen += 1
                return
            stream = self._streams[key] = _Stream(wire.sequence)
        if key in self._unsure:
            self._unsure.discard(key)
            self.unseen += stream.pass_over(wire.sequence)
        following, number = stream.following, wire.sequence
        if number >= following:
            stream.following = number + 1
            if following < number:
                stream.missing.add(following, number)
                yield Gap(now_ns, flow, wire.epoch, following, number)
        elif stream.missing.remove(number):
            yield Reordered(now_ns, flow, wire.epoch, number)
        elif stream.unseen.remove(number):
            self.unseen -= 1
        elif not stream.before.remove(number):
            return  # it is here already
        node = self.node if wire.epoch == self.epoch else self._names.get(wire.epoch)
        payload = memoryview(wire.frame)[HEADER_OCTETS:]
        yield Message(payload, flow, wire.sequence, wire.epoch, node, wire.sent_ns, now_ns)

    def _left_out(self, item: LeftOutItem) -> Iterator[Gap]:
        for (_, topic, epoch), ranges in item.ranges.items():
            key = flow_of(topic) or "", epoch
            stream = self._streams.get(key)
            for first, end in ranges:
                if stream is None or stream.following >= end:
                    self.unseen += end - first
                    continue
                if key in self._unsure:
                    self._unsure.discard(key)
                    self.unseen += stream.pass_over(first)
                if (following := stream.following) < first:
                    stream.following = first
                    stream.missing.add(following, first)
                    yield Gap(item.now_ns, key[0], epoch, following, first)
                self.unseen += stream.pass_over(end)


class _Stream:
    """The messages of one session on one flow; ``first``: the one that was shown first.

    Attributes:
        following: one more than the highest number.
        missing: the observed node lacks these.
        unseen: these may have reached it.
        before: these were sent before the first that was shown, and may still come.
    """

    def __init__(self, first: int) -> None:
        self.following = first
        self.missing, self.unseen, self.before = RangeSet(), RangeSet(), RangeSet([(0, first)])

    def pass_over(self, end: int) -> int:
        """The numbers up to ``end`` are unseen; returns how many."""
        following = self.following
        if following >= end:
            return 0
        self.following = end
        self.unseen.add(following, end)
        for ranges in (self.unseen, self.missing):
            if len(ranges) > MAX_RANGES:
                ranges.drop_first_range()
        return end - following
