"""A sender and two receivers, and paths between them that lose any frame: in the end everything is accounted for."""

import time
from collections import deque
from collections.abc import Iterable

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from tests.core.receiving import driver_on
from tests.core.sending import FlowSender, adopt
from twinlink import SendTimeout
from twinlink.events import Event, Gap
from twinlink.message import Message
from twinlink.protocol.frames import HELLO_TOPIC, Hello, Kind, frame
from twinlink.protocol.send.congestion import InFlightBudget
from twinlink.protocol.send.flow import SendFlow
from twinlink.protocol.send.retransmit_buffer import ENTRY_OVERHEAD_OCTETS
from twinlink.protocol.session import FlowOptions
from twinlink.runtime.driver import SessionDriver
from twinlink.transports import Endpoint, Transport
from twinlink.transports.base import Frame, Options

REAL_WORLD, TWINS = 1, (2, 3)
RETENTION = 20 * (1000 + ENTRY_OVERHEAD_OCTETS)
TRANSIT = 4000  # what is longer goes in fragments of 1000


class Way(Transport):
    """What is sent lies here until the test delivers or loses it."""

    def __init__(self) -> None:
        super().__init__(Endpoint("way", 1), False, 2**16, Options())
        self.frames: deque[tuple[bytes, bytes]] = deque()

    def open(self) -> None: ...

    def send(self, topic: bytes, frame: bytes) -> None:
        if topic != HELLO_TOPIC:
            self.frames.append((topic, frame))

    def receive(self, timeout_s: float) -> tuple[bytes, Frame] | None:
        return None

    def close(self) -> None: ...


def met(way: Way, ours: int, theirs: Iterable[int], reported: list[Event]) -> SessionDriver:
    """A reception whose peers are up."""
    driver = driver_on(way, f"node-{ours}", ours, 2**20, 2**16, reported.append)
    now = time.monotonic_ns()
    for epoch in theirs:
        body = Hello(f"node-{epoch}", {ours: now - 1}, {"flow": 0}, True).encode()
        driver.receive(HELLO_TOPIC, frame(Kind.HELLO, epoch, now, 1, body), now, False)
    return driver


class Twin:
    """A receiver, and its way to and from the sender."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.out, self.back = Way(), Way()
        self.reported: list[Event] = []
        self.delivered: list[int] = []
        self.driver = met(self.back, epoch, [REAL_WORLD], self.reported)
        receive_flow = self.driver.session.messages.flow("flow")
        receive_flow.subscribed, receive_flow.handler = True, self.deliver
        self.up = True

    def deliver(self, message: Message) -> None:
        self.delivered.append(message.sequence)

    def gaps(self) -> set[int]:
        found = [range(event.first, event.end) for event in self.reported if isinstance(event, Gap)]
        assert sum(map(len, found)) == len(set().union(*found))  # told once
        return set().union(*found)


class Fork(Way):
    """What is sent goes to every twin."""

    def __init__(self, twins: list[Twin]) -> None:
        super().__init__()
        self.twins = twins

    def send(self, topic: bytes, frame: bytes) -> None:
        for twin in self.twins:
            twin.out.send(topic, frame)


TWIN = st.sampled_from(TWINS)
SOME = st.integers(1, 10)


class LossyPath(RuleBasedStateMachine):
    """The real sender and the real receptions; which peers are up is decided here."""

    overflow = "block"
    retention = RETENTION
    transit = TRANSIT
    window = 2**20
    looks = 12  # several in a row may be needed: something waits for the same as at the look before

    def __init__(self) -> None:
        super().__init__()
        self.twins = {epoch: self.twin(epoch) for epoch in TWINS}
        fork = Fork(list(self.twins.values()))
        self.acks = met(fork, REAL_WORLD, TWINS, [])
        budget = InFlightBudget(self.transit)
        options = FlowOptions(overflow=self.overflow)  # type: ignore[arg-type]
        self.core = SendFlow("flow", self.window, self.retention, budget, options, epoch=REAL_WORLD)
        session = self.acks.session
        self.sender = FlowSender(session, adopt(session, self.core), fork.send, time.monotonic_ns)
        assert self.core.receivers.up == set(TWINS)

    def twin(self, epoch: int) -> Twin:
        return Twin(epoch)

    @rule(size=st.sampled_from([0, 1000, 9000]), count=st.integers(1, 40))
    def send(self, size: int, count: int) -> None:
        for _ in range(count):
            try:
                self.sender.send(bytes(size))
            except SendTimeout:
                return

    @rule()
    def hand_over(self) -> None:
        self.sender.transmit()

    @rule(epoch=TWIN, count=SOME, at_once=st.booleans())
    def arrive(self, epoch: int, count: int, at_once: bool) -> None:
        self.pass_on(self.twins[epoch].out, self.twins[epoch].driver, count, at_once)

    @rule(epoch=TWIN, count=SOME)
    def answer(self, epoch: int, count: int) -> None:
        self.pass_on(self.twins[epoch].back, self.acks, count, True)

    def pass_on(self, way: Way, driver: SessionDriver, count: int, at_once: bool) -> None:
        for _ in range(min(count, len(way.frames))):
            topic, octets = way.frames.popleft()
            driver.receive(topic, octets, time.monotonic_ns(), not at_once)
        driver.flush_acks()

    @rule(epoch=TWIN, count=SOME)
    def lose_on_the_way_out(self, epoch: int, count: int) -> None:
        self.lose(self.twins[epoch].out, count)

    @rule(epoch=TWIN, count=SOME)
    def lose_on_the_way_back(self, epoch: int, count: int) -> None:
        self.lose(self.twins[epoch].back, count)

    def lose(self, way: Way, count: int) -> None:
        for _ in range(min(count, len(way.frames))):
            way.frames.popleft()

    @rule()
    def look(self) -> None:
        self.core.on_tick(time.monotonic_ns())

    @rule(epoch=TWIN)
    def fall_silent_or_come_back(self, epoch: int) -> None:
        twin = self.twins[epoch]
        twin.up = not twin.up
        if twin.up:
            self.core.on_peer_up(epoch, repairs=True)
        else:
            self.core.on_peer_down(epoch, "silent", True, None)

    @rule(goes_on=st.booleans())
    def everything_gets_through(self, goes_on: bool) -> None:
        """As soon as nothing is lost any more, whether or not the flow ``goes_on``."""
        twins = self.twins.values()
        for twin in twins:
            if not twin.up:
                self.fall_silent_or_come_back(twin.epoch)
        for number in range(self.looks):
            if goes_on and number < self.looks - 2:
                self.send(0, 1)
            self.look()
            self.pass_all_on()
        assert not self.core.queue.has_pending
        assert not self.core.outstanding()
        lost = {sequence for first, end in self.core.losses.unflushed for sequence in range(first, end)}
        missed: set[int] = set()
        for twin in twins:
            gaps = twin.gaps()
            missed |= gaps
            assert twin.delivered == sorted(set(twin.delivered))
            assert not gaps & set(twin.delivered)
            conflated = twin.driver.session.messages.flow("flow").stats()["conflated"]
            assert len(twin.delivered) + len(gaps) + conflated == self.core.queue.next_sequence
        if self.overflow == "drop-oldest":  # what was dropped when it had been handed over may have arrived
            assert missed <= lost
        else:
            assert missed == lost

    def pass_all_on(self) -> None:
        """Until nothing more leaves."""
        twins = self.twins.values()
        self.hand_over()
        while any(twin.out.frames or twin.back.frames for twin in twins):
            for twin in twins:
                self.arrive(twin.epoch, len(twin.out.frames), at_once=False)
                self.answer(twin.epoch, len(twin.back.frames))
            self.hand_over()


class LossyPathDroppingOldest(LossyPath):
    overflow = "drop-oldest"


class LossyPathKeepingTheLatest(LossyPath):
    overflow = "latest"


TestLossyPath, TestLossyPathDroppingOldest = LossyPath.TestCase, LossyPathDroppingOldest.TestCase
TestLossyPathKeepingTheLatest = LossyPathKeepingTheLatest.TestCase
TestLossyPath.settings = TestLossyPathDroppingOldest.settings = TestLossyPathKeepingTheLatest.settings = settings(
    max_examples=60, stateful_step_count=40
)
