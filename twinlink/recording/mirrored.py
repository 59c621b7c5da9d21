"""Recording at a mirror: what it shows is recorded as it passed the observed node (docs/observers.md)."""

from collections.abc import Iterator
from typing import Protocol

from ..mirror.entries import MIRROR_FLOW, Mirrored, Peers, parse
from ..protocol.frames import HEADER_OCTETS, MalformedFrame
from ..protocol.rangeset import RangeSet
from ..protocol.wire import RECEIVED, Wire, messages_of
from ..runtime.capture import MAX_STREAMS, MESSAGE_WORDS, FrameItem, Item, LeftOutItem
from .series import Series

TOPIC = f"traffic/{MIRROR_FLOW}".encode()
MAX_HELD = 4096  # items before the first message

Key = tuple[str, bytes, int]  # direction, topic and epoch


class Sink(Protocol):
    """A trigger, or a series."""

    def take(self, item: Item) -> None:
        """Take in an item of the queue."""


class MirrorFilter:
    """Between the queue and ``sink``.  The first message shows whether this link is an observer's.

    Of one that is, only what the mirror shows is passed on; what came before the first message was not of that.
    """

    def __init__(self, series: Series, sink: Sink) -> None:
        self._series, self._sink = series, sink
        self._held: list[Item] | None = []  # until that is known
        self._observes = False
        self._following = -1  # number of the next message of the mirror
        self._next: dict[Key, int] = {}
        self._unsure = set[Key]()  # streams whose next message may come after some that the mirror has not shown

    @property
    def is_decided(self) -> bool:
        """Whether the sink gets what comes."""
        return self._held is None

    def take(self, item: Item) -> None:
        """Take in an item of the queue."""
        if self._held is not None:
            if not (isinstance(item, FrameItem) and bytes(item.frame[:4]) in MESSAGE_WORDS):
                self._held.append(item)
                if len(self._held) > MAX_HELD:
                    self.decide()
                return
            self._observes = item.direction == RECEIVED and item.topic == TOPIC
            self.decide()
        if not self._observes:
            self._sink.take(item)
        elif isinstance(item, FrameItem) and item.direction == RECEIVED and item.topic == TOPIC:
            self._take_mirrored(item)

    def decide(self) -> None:
        """Nothing is held any more."""
        held, self._held = self._held or [], None
        for item in held if not self._observes else ():
            self._sink.take(item)

    def _take_mirrored(self, item: FrameItem) -> None:
        try:
            for wire in messages_of(item.frame):
                mirrored = self._parsed(wire)
                for entry in mirrored.entries:
                    if isinstance(entry, FrameItem):
                        self._take_frame(entry)
                    elif isinstance(entry, LeftOutItem):
                        self._take_left_out(entry)
                    else:
                        self._forget(entry, mirrored.epoch)
        except MalformedFrame:
            self._unsure = set(self._next)

    def _parsed(self, wire: Wire) -> Mirrored:
        if self._following not in (-1, wire.sequence):
            self._unsure = set(self._next)
        self._following = wire.sequence + 1
        mirrored = parse(memoryview(wire.frame)[HEADER_OCTETS:])
        self._series.observe(mirrored.node, mirrored.epoch)
        return mirrored

    def _take_frame(self, item: FrameItem) -> None:
        if bytes(item.frame[:4]) in MESSAGE_WORDS:
            for key, sequence in self._numbers(item):
                if key in self._unsure:
                    self._unsure.discard(key)
                    if self._next[key] < sequence:
                        missed = {key: RangeSet([(self._next[key], sequence)])}
                        self._sink.take(LeftOutItem(missed, 0, item.now_ns))
                if sequence >= self._next.get(key, 0) and (key in self._next or len(self._next) < MAX_STREAMS):
                    self._next[key] = sequence + 1
        self._sink.take(item)

    def _numbers(self, item: FrameItem) -> Iterator[tuple[Key, int]]:
        for wire in messages_of(item.frame):
            yield (item.direction, item.topic, wire.epoch), wire.sequence

    def _take_left_out(self, item: LeftOutItem) -> None:
        for key, ranges in item.ranges.items():
            for _, end in ranges:
                if key in self._next:
                    self._next[key] = max(self._next[key], end)
        self._sink.take(item)

    def _forget(self, peers: Peers, observed: int) -> None:
        for key in [key for key in self._next if key[2] not in peers.names and key[2] != observed]:
            del self._next[key]
            self._unsure.discard(key)
