"""The newest messages of each topic that passes a link, both ways, for a thread that looks at them some times a second.

Nothing is decoded on the threads of the link.  What is beyond the limits is left out: the newest make a picture.
"""

import contextlib
from collections import deque
from typing import NamedTuple

from twinlink import Message
from twinlink.block_state import FLOW as BLOCK_STATE
from twinlink.events import Event
from twinlink.protocol.frames import (
    BUNDLE_WORD,
    DATA_WORD,
    HEADER_OCTETS,
    RETRANSMIT_WORD,
    RUN_WORD,
    AnyFrame,
    MalformedFrame,
    MessageFrame,
)
from twinlink.protocol.wire import RECEIVED, SENT, flow_of, messages_of

KEPT = 16  # frames of a topic, between two looks
MAX_TOPICS = 256  # of which frames are kept
LOOK_OCTETS = 16 * 1024 * 1024  # kept between two looks, and one frame
MAX_EVENTS = 256
ALWAYS = frozenset(("control", "control-result", BLOCK_STATE))  # decisions are kept without a browser, too
_TRAFFIC = b"traffic/"
_ALWAYS_TOPICS = frozenset(f"traffic/{flow}".encode() for flow in ALWAYS)
_MESSAGES = frozenset(word.to_bytes(4) for word in (DATA_WORD, RETRANSMIT_WORD, BUNDLE_WORD, RUN_WORD))


class Seen(NamedTuple):
    """One message; ``payload`` may be a view into its frame."""

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
        self.frames: deque[AnyFrame | Message] = deque(maxlen=KEPT)
        self.passed = self.left_out = 0

    def take(self) -> tuple[list[Seen], int]:
        """The messages that are kept, oldest first, and how many frames were left out since the last call."""
        frames = self.frames
        messages: list[Seen] = []
        left_out, self.left_out = self.left_out, 0
        while frames:
            one = frames.popleft()
            if isinstance(one, Message):
                messages.append(Seen(one.epoch, one.sequence, one.sent_ns, one.payload))
                continue
            with contextlib.suppress(MalformedFrame):  # the session counts it
                for _, epoch, sequence, sent_ns, frame in messages_of(one):
                    messages.append(Seen(epoch, sequence, sent_ns, memoryview(frame)[HEADER_OCTETS:]))
        return messages, left_out


class Newest:
    """A tap (`twinlink.runtime.tap.Tap`): one thread at a time calls it, and one other looks at what it keeps.

    Attributes:
        active: whether a browser is there; else only the topics of `ALWAYS` are kept.
        topics: by direction and flow.
        events: that were not taken yet.
    """

    def __init__(self) -> None:
        self.active = False
        self.topics: dict[tuple[str, str], Topic] = {}
        self.events: deque[Event] = deque(maxlen=MAX_EVENTS)
        self._flows: dict[bytes, str] = {}  # by topic of the wire
        self._octets = 0  # since the last look

    def on_received(self, topic: bytes, frame: AnyFrame, now_ns: int) -> None:
        """See `Tap`."""
        if not (self.active or topic in _ALWAYS_TOPICS) or bytes(frame[:4]) not in _MESSAGES:
            return
        if (flow := self._flows.get(topic)) is None:
            flow = flow_of(topic) if topic.startswith(_TRAFFIC) else None
            if flow is None or len(self._flows) >= MAX_TOPICS:
                return
            self._flows[topic] = flow
        self._put(RECEIVED, flow, frame, len(frame))

    def on_sent(self, flow: str, frame: MessageFrame) -> None:
        """See `Tap`."""
        if self.active or flow in ALWAYS:
            self._put(SENT, flow, frame, len(frame))

    def on_message(self, direction: str, message: Message) -> None:
        """As the tap's methods, where there is no frame."""
        if self.active or message.flow in ALWAYS:
            self._put(direction, message.flow, message, len(message.payload))

    def on_control_sent(self, frames: list[tuple[bytes, bytes]], now_ns: int) -> None:
        """See `Tap`."""

    def on_event(self, event: Event) -> None:
        """See `Tap`."""
        self.events.append(event)

    def looked(self) -> None:
        """What was kept has been taken."""
        self._octets = 0

    def _put(self, direction: str, flow: str, one: AnyFrame | Message, size: int) -> None:
        topic = self.topics.get((direction, flow))
        if topic is None:
            if len(self.topics) >= MAX_TOPICS:
                return
            topic = self.topics[direction, flow] = Topic()
        topic.passed += 1
        if self._octets + size > LOOK_OCTETS and self._octets:
            topic.left_out += 1
            return
        self._octets += size
        topic.left_out += len(topic.frames) == KEPT
        topic.frames.append(one)
