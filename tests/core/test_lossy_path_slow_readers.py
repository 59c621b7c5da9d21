"""As in test_lossy_path, with readers that take their time: what they have no room for they refuse, and request later.

The sender's window is larger than theirs, and how much the path takes changes meanwhile.
"""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import rule

from tests.core.pair import End
from tests.core.test_lossy_path import TWIN, LossyPath

SIZES = st.sampled_from([0, 1000, 9000, 60_000])
LIMITS = st.sampled_from([50_000, 200_000, 1_000_000])


class LossyPathToSlowReaders(LossyPath):
    """Their applications take nothing until they are told to; both are slow, and one of them perhaps slower."""

    retention = 2**23
    transit = 1_000_000
    window = 2**24
    looks = 100  # each lets a reader request some more

    def read(self, twin: End) -> list[int]:
        twin.session.receive_flow("flow").subscribed = True
        return []

    @rule(size=SIZES, count=st.integers(1, 60))
    def send_more(self, size: int, count: int) -> None:
        self.send(size, count)

    @rule(limit=LIMITS)
    def path_changes(self, limit: int) -> None:
        self.core.in_flight.budget.divide(limit, limit, limit, 1, 0)

    @rule(twin=TWIN, count=st.integers(1, 100))
    def take(self, twin: int, count: int) -> None:
        end = self.ends[twin]
        while count and (message := end.take("flow")) is not None:
            self.delivered[twin - 1].append(message.sequence)
            count -= 1
        self.tick(twin)

    @rule(twin=TWIN)
    def tick(self, twin: int) -> None:
        end = self.ends[twin]
        end.session.messages.on_tick()
        end.session.flush_acks()
        end.send_due()

    @rule(size=SIZES, count=st.integers(1, 60))
    def arrive_unread(self, size: int, count: int) -> None:
        self.send(size, count)
        super().pass_all_on()

    def pass_all_on(self) -> None:
        super().pass_all_on()
        for twin in (1, 2):
            self.take(twin, 2**20)
        super().pass_all_on()


class LossyPathAtTheSlowestsPace(LossyPathToSlowReaders):
    pace = "slowest"


TestSlowReaders, TestSlowestsPace = LossyPathToSlowReaders.TestCase, LossyPathAtTheSlowestsPace.TestCase
TestSlowReaders.settings = TestSlowestsPace.settings = settings(max_examples=40, stateful_step_count=40)
