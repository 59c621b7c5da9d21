"""A sender and two receivers, and paths between them that lose any frame: in the end everything is accounted for."""

from random import Random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from tests.core.pair import MS, End, Pair, Path, mute
from twinlink import SendTimeout
from twinlink.events import Gap
from twinlink.protocol.frames import HELLO_TOPIC
from twinlink.protocol.send.retransmit_buffer import ENTRY_OVERHEAD_OCTETS

RETENTION = 20 * (1000 + ENTRY_OVERHEAD_OCTETS)
TRANSIT = 4000  # what is longer goes in fragments of 1000

TWIN = st.integers(1, 2)
SOME = st.integers(1, 10)


def gaps(twin: End) -> set[int]:
    found = [range(event.first, event.end) for event in twin.told(Gap)]  # type: ignore[attr-defined]
    assert sum(map(len, found)) == len(set().union(*found))  # told once
    return set().union(*found)


class LossyPath(RuleBasedStateMachine):
    """Three sessions between which the test delivers or loses each frame; which peers are up is decided here."""

    overflow = "block"
    pace = "fastest"
    retention = RETENTION
    transit = TRANSIT
    window = 2**20
    looks = 12  # several in a row may be needed: something waits for the same as at the look before

    def __init__(self) -> None:
        super().__init__()
        self.pair = made = Pair(Path(Random(1)), window=2**20)
        made.add("another")
        self.real_world, *self.twins = self.ends = made.ends
        self.delivered = [self.read(twin) for twin in self.twins]
        self.is_up = [True, True]
        self.sender = self.real_world.sender(
            "flow",
            window=self.window,
            retention=self.retention,
            in_flight=self.transit,
            overflow=self.overflow,
            pace=self.pace,
        )
        made.run_until(lambda: all(twin.is_up for twin in self.twins))
        made.run(5 * MS)  # the twins know where the flow begins
        for end in self.ends:
            end.arriving.clear()
            made.tampering[end.epoch] = mute(HELLO_TOPIC)
        self.core = self.sender.core
        assert self.core.receivers.up == {twin.epoch for twin in self.twins}

    def read(self, twin: End) -> list[int]:
        """Have a twin take what comes; the sequence numbers are in the list that this returns."""
        delivered: list[int] = []
        receive_flow = twin.session.receive_flow("flow")
        receive_flow.subscribed = True
        receive_flow.handler = lambda message: delivered.append(message.sequence)
        return delivered

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

    @rule(twin=TWIN, count=SOME, at_once=st.booleans())
    def arrive(self, twin: int, count: int, at_once: bool) -> None:
        self.pass_on(self.real_world, self.ends[twin], count, at_once)

    @rule(twin=TWIN, count=SOME)
    def answer(self, twin: int, count: int) -> None:
        self.pass_on(self.ends[twin], self.real_world, count, True)

    def pass_on(self, sender: End, receiver: End, count: int, at_once: bool) -> None:
        for topic, octets in receiver.take_off(sender.epoch, count):
            receiver.take_in(topic, octets, not at_once)
        receiver.session.flush_acks()
        receiver.send_due()

    @rule(twin=TWIN, count=SOME)
    def lose_on_the_way_out(self, twin: int, count: int) -> None:
        self.ends[twin].take_off(self.real_world.epoch, count)

    @rule(twin=TWIN, count=SOME)
    def lose_on_the_way_back(self, twin: int, count: int) -> None:
        self.real_world.take_off(self.ends[twin].epoch, count)

    @rule()
    def look(self) -> None:
        self.pair.now += MS
        self.core.on_tick(self.pair.now)

    @rule(twin=TWIN)
    def fall_silent_or_come_back(self, twin: int) -> None:
        epoch = self.ends[twin].epoch
        self.is_up[twin - 1] = not self.is_up[twin - 1]
        if self.is_up[twin - 1]:
            self.core.on_peer_up(epoch, repairs=True)
        else:
            self.core.on_peer_down(epoch, "silent", True, None)

    @rule(goes_on=st.booleans())
    def everything_gets_through(self, goes_on: bool) -> None:
        """As soon as nothing is lost any more, whether or not the flow ``goes_on``."""
        for twin in (1, 2):
            if not self.is_up[twin - 1]:
                self.fall_silent_or_come_back(twin)
        for number in range(self.looks):
            if goes_on and number < self.looks - 2:
                self.send(0, 1)
            self.look()
            self.pass_all_on()
        assert not self.core.queue.has_pending
        assert not self.core.outstanding()
        lost = {sequence for first, end in self.core.losses.unflushed for sequence in range(first, end)}
        missed: set[int] = set()
        for end, delivered in zip(self.twins, self.delivered, strict=True):
            missing = gaps(end)
            missed |= missing
            assert delivered == sorted(set(delivered))
            assert not missing & set(delivered)
            conflated = end.session.receive_flow("flow").stats()["conflated"]
            assert len(delivered) + len(missing) + conflated == self.core.queue.next_sequence
        if self.overflow == "drop-oldest":  # what was dropped when it had been handed over may have arrived
            assert missed <= lost
        else:
            assert missed == lost

    def pass_all_on(self) -> None:
        """Until nothing more leaves."""
        self.hand_over()
        while any(end.arriving for end in self.ends):
            for twin in (1, 2):
                self.arrive(twin, len(self.ends[twin].arriving), at_once=False)
                self.answer(twin, len(self.real_world.arriving))
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
