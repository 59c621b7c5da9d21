"""What passes a link, queued for another thread: bounded, and what does not fit is named."""

import time
from collections import deque
from typing import Any, NamedTuple

from ..events import Event
from ..protocol.frames import (
    BUNDLE_WORD,
    DATA_WORD,
    RETRANSMIT_WORD,
    RUN_WORD,
    AnyFrame,
    Kind,
    MalformedFrame,
    MessageFrame,
)
from ..protocol.rangeset import RangeSet
from ..protocol.wire import RECEIVED, SENT, flow_of, messages_of

MAX_STREAMS = 4096  # sessions on a flow; a peer that invents more of them must not take the memory
QUEUE_OCTETS = 64 * 1024 * 1024
ITEM_OCTETS = 256  # what an item takes beside its frame
RESUME = 0.5  # once full, nothing is taken before the queue is down to this part: gaps are few, and whole
MESSAGE_WORDS = frozenset(word.to_bytes(4) for word in (DATA_WORD, RETRANSMIT_WORD, BUNDLE_WORD, RUN_WORD))

FRAGMENT_KIND = bytes((Kind.FRAGMENT,))

LeftOut = dict[tuple[str, bytes, int], RangeSet]


class FrameItem(NamedTuple):
    """A frame; ``now_ns``: when it came in, or was sent."""

    direction: str
    topic: bytes
    frame: AnyFrame
    now_ns: int


class EventItem(NamedTuple):
    """An event."""

    event: Event


class LeftOutItem(NamedTuple):
    """What was not queued: ranges, by direction, topic and epoch; and how many frames without messages, and events."""

    ranges: LeftOut
    others: int
    now_ns: int


Item = FrameItem | EventItem | LeftOutItem


class Capture:
    """A `Tap`: one thread at a time calls it, one other takes what it has queued.

    Attributes:
        limit: octets that wait, at most; twice as many with events, and frames without messages.
        taken_octets: set by the thread that takes.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.items: deque[Item] = deque()
        self.taken_octets = 0
        self._queued_octets = 0
        self._is_full = False
        self._left_out: LeftOut = {}
        self._others_left_out = 0

    def on_received(self, topic: bytes, frame: AnyFrame, now_ns: int) -> None:
        """See `Tap`."""
        if frame[3:4] != FRAGMENT_KIND:  # the whole frame follows
            self._put(FrameItem(RECEIVED, topic, frame, now_ns), len(frame))

    def on_sent(self, flow: str, frame: MessageFrame) -> None:
        """See `Tap`."""
        self._put(FrameItem(SENT, f"traffic/{flow}".encode(), frame, 0), len(frame))

    def on_control_sent(self, frames: list[tuple[bytes, bytes]], now_ns: int) -> None:
        """See `Tap`."""
        for topic, frame in frames:
            self._put(FrameItem(SENT, topic, frame, now_ns), len(frame))

    def on_event(self, event: Event) -> None:
        """See `Tap`."""
        if self._waiting < 2 * self.limit:
            self._queued_octets += ITEM_OCTETS
            self.items.append(EventItem(event))
        else:
            self._others_left_out += 1

    @property
    def _waiting(self) -> int:
        return self._queued_octets - self.taken_octets

    def _put(self, item: FrameItem, size: int) -> None:
        size += ITEM_OCTETS
        waiting = self._queued_octets - self.taken_octets
        if self._is_full:
            if waiting > self.limit * RESUME:
                if self._leave_out(item, waiting):
                    return
            else:
                self._is_full = False
                self.tell_left_out()
        elif waiting + size > self.limit:
            self._is_full = True
            if self._leave_out(item, waiting):
                return
        self._queued_octets += size
        self.items.append(item)

    def _leave_out(self, item: FrameItem, waiting: int) -> bool:
        """Note what is not queued; False: it is to be queued all the same."""
        if bytes(item.frame[:4]) not in MESSAGE_WORDS:
            if waiting < 2 * self.limit:
                return False
            self._others_left_out += 1
            return True
        try:
            for wire in messages_of(item.frame):
                key = item.direction, item.topic, wire.epoch
                ranges = self._left_out.get(key)
                if ranges is None:
                    if len(self._left_out) >= MAX_STREAMS:
                        self._others_left_out += 1
                        continue
                    ranges = self._left_out[key] = RangeSet()
                ranges.add(wire.sequence, wire.sequence + 1)
        except MalformedFrame:
            pass
        return True

    def tell_left_out(self) -> None:
        """Queue what was left out since the last call.  For the thread that calls the tap, or when none does."""
        if self._left_out or self._others_left_out:
            self._queued_octets += ITEM_OCTETS
            self.items.append(LeftOutItem(self._left_out, self._others_left_out, time.time_ns()))
            self._left_out, self._others_left_out = {}, 0


def octets_of(item: Item) -> int:
    """What an item counts for in the queue."""
    return ITEM_OCTETS + len(item.frame) if isinstance(item, FrameItem) else ITEM_OCTETS


def flows_of(left_out: LeftOut) -> list[tuple[str, str, int, RangeSet]]:
    """Direction, flow, epoch and ranges of each flow."""
    return [
        (direction, flow, epoch, ranges)
        for (direction, topic, epoch), ranges in left_out.items()
        if (flow := flow_of(topic)) is not None
    ]


def described(flow: tuple[str, str, int, RangeSet], reason: str) -> dict[str, Any]:
    """What was left out of a flow, as the channel of the recorder has it."""
    direction, name, epoch, ranges = flow
    return {
        "type": "left_out",
        "reason": reason,
        "direction": direction,
        "flow": name,
        "epoch": f"{epoch:016x}",
        "ranges": [list(one) for one in ranges],
    }
