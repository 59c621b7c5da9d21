"""A sender and a receiver with a path between them that loses any frame: in the end everything is accounted for."""

import time
from collections import deque
from types import SimpleNamespace
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from twinlink import SendTimeout
from twinlink.events import Event, Gap
from twinlink.kept import KEEPING_OCTETS
from twinlink.message import Message
from twinlink.outgoing import Outgoing
from twinlink.reception import Reception
from twinlink.sender import Sender
from twinlink.transports import Endpoint, Transport
from twinlink.transports.base import Frame, Options
from twinlink.wire import HELLO_TOPIC, Hello, Kind, frame

REAL_WORLD, TWIN = 1, 2
RETENTION = 20 * (1000 + KEEPING_OCTETS)
LOOKS = 6  # several in a row may be needed: something waits for the same as at the look before


class Way(Transport):
    """What is sent lies here until somebody delivers or loses it."""

    def __init__(self) -> None:
        super().__init__(Endpoint("way", 1), False, 0, Options())
        self.frames: deque[tuple[bytes, bytes]] = deque()

    def open(self) -> None: ...

    def send(self, topic: bytes, frame: bytes) -> None:
        if topic != HELLO_TOPIC:
            self.frames.append((topic, frame))

    def receive(self, timeout_s: float) -> tuple[bytes, Frame] | None:
        return None

    def close(self) -> None: ...


def met(way: Way, ours: int, theirs: int, reported: list[Event]) -> Reception:
    """A reception whose one peer is up."""
    reception = Reception(way, f"node-{ours}", ours, 2**20, 2**16, reported.append)
    now = time.monotonic_ns()
    body = Hello(f"node-{theirs}", {ours: now - 1}, {"flow": 0}, True).encode()
    reception.handle(HELLO_TOPIC, frame(Kind.HELLO, theirs, now, 1, body), now, True)
    assert reception.company.up
    return reception


class LossyPath(RuleBasedStateMachine):
    """The real sender and the real reception; who is up is decided here."""

    overflow = "block"

    def __init__(self) -> None:
        super().__init__()
        self.out, self.back = Way(), Way()
        self.reported: list[Event] = []
        self.delivered: list[int] = []
        acks = met(self.out, REAL_WORLD, TWIN, [])
        self.twin = met(self.back, TWIN, REAL_WORLD, self.reported)
        incoming = self.twin.flow("flow")
        incoming.claimed, incoming.handler = True, self.deliver
        self.core = Outgoing("flow", 2**20, RETENTION, overflow=self.overflow)  # type: ignore[arg-type]
        link: Any = SimpleNamespace(
            epoch=REAL_WORLD,
            max_payload=2**16,
            endpoint="way",
            sending_ends=False,
            send_timeout=0.0,
            peers=list,
            wait=lambda *_: None,
            hand_over_backlog=lambda: None,
        )
        self.sender = Sender(link, self.out, self.core, "normal")
        acks.add_sender(self.sender)
        self.acks = acks
        if not self.core.window.consumed:
            self.sender.peer_up(TWIN, repairs=True)
        self.up = True

    def deliver(self, message: Message) -> None:
        self.delivered.append(message.sequence)

    @rule(size=st.sampled_from([0, 1000]), count=st.integers(1, 40))
    def send(self, size: int, count: int) -> None:
        for _ in range(count):
            try:
                self.sender.send(bytes(size))
            except SendTimeout:
                return

    @rule()
    def hand_over(self) -> None:
        self.sender.hand_over(lambda: False)

    @rule(count=st.integers(1, 10), at_once=st.booleans())
    def arrive(self, count: int, at_once: bool) -> None:
        self.pass_on(self.out, self.twin, count, at_once)

    @rule(count=st.integers(1, 10))
    def answer(self, count: int) -> None:
        self.pass_on(self.back, self.acks, count, True)

    def pass_on(self, way: Way, reception: Reception, count: int, at_once: bool) -> None:
        for _ in range(min(count, len(way.frames))):
            topic, octets = way.frames.popleft()
            reception.handle(topic, octets, time.monotonic_ns(), at_once)
        reception.send_batch()

    @rule(count=st.integers(1, 10))
    def lose_on_the_way_out(self, count: int) -> None:
        for _ in range(min(count, len(self.out.frames))):
            self.out.frames.popleft()

    @rule(count=st.integers(1, 10))
    def lose_on_the_way_back(self, count: int) -> None:
        for _ in range(min(count, len(self.back.frames))):
            self.back.frames.popleft()

    @rule()
    def look(self) -> None:
        self.sender.look_after()

    @precondition(lambda self: self.up)
    @rule()
    def fall_silent(self) -> None:
        self.sender.peer_down(TWIN, "silent", True, None)
        self.up = False

    @precondition(lambda self: not self.up)
    @rule()
    def come_back(self) -> None:
        self.sender.peer_up(TWIN, repairs=True)
        self.up = True

    @rule(goes_on=st.booleans())
    def everything_gets_through(self, goes_on: bool) -> None:
        """As soon as nothing is lost any more, whether or not the flow ``goes_on``."""
        if not self.up:
            self.come_back()
        for number in range(LOOKS):
            if goes_on and number < LOOKS - 2:
                self.send(0, 1)
            self.look()
            self.hand_over()
            while self.out.frames or self.back.frames:
                self.arrive(len(self.out.frames), at_once=False)
                self.answer(len(self.back.frames))
                self.hand_over()
        assert not self.core.backlog.waits
        assert not self.core.outstanding()
        gaps = {
            sequence for event in self.reported if isinstance(event, Gap) for sequence in range(event.first, event.end)
        }
        assert self.delivered == sorted(set(self.delivered))
        assert not gaps & set(self.delivered)
        lost = {sequence for first, end in self.core.losses.all for sequence in range(first, end)}
        assert gaps == lost if self.overflow != "drop-oldest" else gaps <= lost <= gaps | set(self.delivered)
        assert len(self.delivered) + len(gaps) + self.core.conflated == self.core.backlog.next


class LossyPathDroppingOldest(LossyPath):
    """What was dropped after it had been handed over counts as lost, unless an ack says otherwise."""

    overflow = "drop-oldest"


class LossyPathKeepingTheLatest(LossyPath):
    overflow = "latest"


TestLossyPath, TestLossyPathDroppingOldest = LossyPath.TestCase, LossyPathDroppingOldest.TestCase
TestLossyPathKeepingTheLatest = LossyPathKeepingTheLatest.TestCase
TestLossyPath.settings = TestLossyPathDroppingOldest.settings = TestLossyPathKeepingTheLatest.settings = settings(
    max_examples=80, stateful_step_count=40, deadline=None
)
