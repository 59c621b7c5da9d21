"""As in test_lossy_path, with readers that take their time: what they have no room for they refuse, and request later.

The sender's window is larger than theirs, and how much the path takes changes meanwhile.
"""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import rule

from tests.core.test_lossy_path import TWIN, TWINS, LossyPath, Twin
from twinlink.protocol.session import Pace

SIZES = st.sampled_from([0, 1000, 9000, 60_000])
LIMITS = st.sampled_from([50_000, 200_000, 1_000_000])


class SlowTwin(Twin):
    """Its application takes nothing until it is told to."""

    def __init__(self, epoch: int) -> None:
        super().__init__(epoch)
        self.receive_flow = self.driver.session.messages.flow("flow")
        self.receive_flow.handler = None

    def take(self, count: int) -> None:
        while count and (taken := self.receive_flow.next_message()) is not None:
            message, stream = taken
            self.deliver(message)
            if stream is not None:
                self.driver._send_credit_update("flow", stream)
            count -= 1


class LossyPathToSlowReaders(LossyPath):
    """Both are slow, and one of them perhaps slower."""

    retention = 2**23
    transit = 1_000_000
    window = 2**24
    looks = 100  # each lets a reader request some more
    pace: Pace = "fastest"

    def __init__(self) -> None:
        self.slow_twins = {epoch: SlowTwin(epoch) for epoch in TWINS}
        super().__init__()
        self.core.pace_keeper.pace = self.pace

    def twin(self, epoch: int) -> Twin:
        return self.slow_twins[epoch]

    @rule(size=SIZES, count=st.integers(1, 60))
    def send_more(self, size: int, count: int) -> None:
        self.send(size, count)

    @rule(limit=LIMITS)
    def path_changes(self, limit: int) -> None:
        self.core.in_flight.budget.divide(limit, limit, limit, 1, 0)

    @rule(epoch=TWIN, count=st.integers(1, 100))
    def take(self, epoch: int, count: int) -> None:
        self.slow_twins[epoch].take(count)
        self.tick(epoch)

    @rule(epoch=TWIN)
    def tick(self, epoch: int) -> None:
        driver = self.twins[epoch].driver
        driver.session.messages.on_tick()
        driver.flush_acks()

    @rule(size=SIZES, count=st.integers(1, 60))
    def arrive_unread(self, size: int, count: int) -> None:
        self.send(size, count)
        super().pass_all_on()

    def pass_all_on(self) -> None:
        super().pass_all_on()
        for epoch in TWINS:
            self.take(epoch, 2**20)
        super().pass_all_on()


class LossyPathAtTheSlowestsPace(LossyPathToSlowReaders):
    pace = "slowest"


TestSlowReaders, TestSlowestsPace = LossyPathToSlowReaders.TestCase, LossyPathAtTheSlowestsPace.TestCase
TestSlowReaders.settings = TestSlowestsPace.settings = settings(max_examples=40, stateful_step_count=40)
