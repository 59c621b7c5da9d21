"""The newest messages of each topic that passes a link, both ways, for a thread that looks at them some times a second.

Nothing is decoded on the threads of the link.  What is beyond the limits is left out: the newest make a picture.
"""

import contextlib
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from twinlink.events import Event
from twinlink.protocol.frames import (
    BUNDLE_WORD,
    DATA_WORD,
    FLOW_NAME,
    HEADER,
    HEADER_OCTETS,
    RETRANSMIT_WORD,
    Frame,
    MalformedFrame,
    parse_bundle,
)

RECEIVED, SENT = "received", "sent"
KEPT = 16  # frames of a topic, between two looks
MAX_TOPICS = 256  # of which frames are kept
LOOK_OCTETS = 16 * 1024 * 1024  # kept between two looks, and one frame
MAX_EVENTS = 256
ALWAYS = frozenset((b"traffic/control", b"traffic/control-result"))  # decisions are kept while nobody looks, too
_TRAFFIC = b"traffic/"
_MESSAGES = frozenset(word.to_bytes(4) for word in (DATA_WORD, RETRANSMIT_WORD, BUNDLE_WORD))


class Seen(NamedTuple):
    """One message; ``payload`` is a view into its frame."""

    epoch: int
    sequence: int
    sent_ns: int
    payload: bytes | memoryview


class Topic:
    """Frames of one flow and direction.

    Attributes:
        frames: the newest that were not taken yet.
        passed: how many came.
        left_out: how many of them were not kept, or gave way to newer ones.
    """

    __slots__ = "frames", "left_out", "passed"

    def __init__(self) -> None:
        self.frames: deque[Frame] = deque(maxlen=KEPT)
        self.passed = self.left_out = 0

    def take(self) -> tuple[list[Seen], int]:
        """The messages that are kept, oldest first, and how many frames were left out since the last call."""
        frames = self.frames
        messages: list[Seen] = []
        left_out, self.left_out = self.left_out, 0
        while frames:
            with contextlib.suppress(MalformedFrame):  # the session counts it
                messages += messages_of(frames.popleft())
        return messages, left_out


class Newest:
    """A tap (`twinlink.runtime.tap.Tap`): one thread at a time calls it, and one other looks at what it keeps.

    Attributes:
        active: whether somebody looks; else only the topics of `ALWAYS` are kept.
        topics: by direction and flow.
        events: that were not taken yet.
    """

    def __init__(self) -> None:
        self.active = False
        self.topics: dict[tuple[str, str], Topic] = {}
        self.events: deque[Event] = deque(maxlen=MAX_EVENTS)
        self._by_topic: dict[tuple[str, bytes], Topic] = {}
        self._octets = 0  # since the last look

    def on_received(self, topic: bytes, frame: Frame, now_ns: int) -> None:
        """See `Tap`."""
        if (self.active or topic in ALWAYS) and bytes(frame[:4]) in _MESSAGES:
            self._put(RECEIVED, topic, frame)

    def on_sent(self, flow: str, frame: bytes) -> None:
        """See `Tap`."""
        topic = f"traffic/{flow}".encode()
        if self.active or topic in ALWAYS:
            self._put(SENT, topic, frame)

    def on_control_sent(self, frames: list[tuple[bytes, bytes]], now_ns: int) -> None:
        """See `Tap`."""

    def on_event(self, event: Event) -> None:
        """See `Tap`."""
        self.events.append(event)

    def looked(self) -> None:
        """What was kept has been taken."""
        self._octets = 0

    def _put(self, direction: str, name: bytes, frame: Frame) -> None:
        topic = self._by_topic.get((direction, name)) or self._add(direction, name)
        if topic is None:
            return
        topic.passed += 1
        size = len(frame)
        if self._octets + size > LOOK_OCTETS and self._octets:
            topic.left_out += 1
            return
        self._octets += size
        topic.left_out += len(topic.frames) == KEPT
        topic.frames.append(frame)

    def _add(self, direction: str, name: bytes) -> Topic | None:
        flow = name.removeprefix(_TRAFFIC).decode("ascii", "replace")
        if not name.startswith(_TRAFFIC) or not FLOW_NAME.fullmatch(flow) or len(self.topics) >= MAX_TOPICS:
            return None
        topic = self._by_topic[direction, name] = self.topics[direction, flow] = Topic()
        return topic


def messages_of(frame: Frame) -> Iterator[Seen]:
    """The messages of a frame.  Raises MalformedFrame."""
    if len(frame) < HEADER_OCTETS:
        raise MalformedFrame("truncated")
    word, length, epoch, sequence, sent_ns = HEADER.unpack_from(frame)
    end = HEADER_OCTETS + length  # octets of the transport may follow
    if word == BUNDLE_WORD:
        bundle = parse_bundle(frame[:end], epoch)
        for number, sent, payload in zip(bundle.sequences, bundle.sent_ns, bundle.payloads, strict=True):
            yield Seen(epoch, number, sent, payload)
    elif word in (DATA_WORD, RETRANSMIT_WORD):
        yield Seen(epoch, sequence, sent_ns, memoryview(frame)[HEADER_OCTETS:end])
