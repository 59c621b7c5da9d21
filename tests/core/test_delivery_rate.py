"""How fast a path is, from what got through."""

from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.pair import MS, RETENTION, pair
from tests.core.sending import FlowSender
from twinlink.protocol.frames import Kind
from twinlink.protocol.send.congestion import (
    GIGABIT,
    MAX_ACK_QUEUEING_NS,
    MAX_BDP_OCTETS,
    MAX_QUEUEING_NS,
    MIN_IN_FLIGHT_OCTETS,
    DeliveryRateEstimator,
)
from twinlink.protocol.send.in_flight import FRAMING_OCTETS
from twinlink.protocol.session import FlowOptions, Reliability

MOST = 2 * 1024 * 1024
LOOK_NS = 200_000_000


class Path:
    """What is looked at every 200 ms."""

    def __init__(self) -> None:
        self.delivery_rate = DeliveryRateEstimator()
        self.through = self.now_ns = 0

    def look(self, got: int, waits: bool, under_way: bool = True) -> None:
        self.now_ns += LOOK_NS
        self.through += got
        self.delivery_rate.on_tick(self.now_ns, self.through, waits, under_way)

    def excuse(self, got: int) -> None:
        self.now_ns += LOOK_NS
        self.through += got
        self.delivery_rate.on_receiver_limited(self.now_ns, self.through)


@given(st.floats(1e-4, 10 * GIGABIT), st.integers(0, 5))
def test_a_path_that_is_kept_full_shows_how_fast_it_is(rate: float, idle: int) -> None:
    path = Path()
    for _ in range(idle):
        path.look(0, waits=False, under_way=False)
    for _ in range(3):
        path.look(int(rate * LOOK_NS), waits=True)
    queue = path.delivery_rate.limit_octets(MOST, 0)
    assert queue == pytest.approx(max(MIN_IN_FLIGHT_OCTETS, min(rate * MAX_QUEUEING_NS, MOST)), rel=0.01)
    beside_acks = path.delivery_rate.limit_octets(MOST, 0, MAX_ACK_QUEUEING_NS)
    shorter = min(rate, GIGABIT) * MAX_ACK_QUEUEING_NS
    assert beside_acks == pytest.approx(max(MIN_IN_FLIGHT_OCTETS, shorter), rel=0.01)
    assert path.delivery_rate.is_slow(MOST) == (rate * MAX_QUEUEING_NS < MOST)
    assert path.delivery_rate.bdp_octets(50_000_000) == pytest.approx(
        min(min(rate, GIGABIT) * 50_000_000, MAX_BDP_OCTETS), rel=0.01
    )


def test_what_comes_through_all_at_once_took_its_time() -> None:
    path = Path()
    path.look(0, waits=False, under_way=False)
    for _ in range(4):
        path.look(0, waits=False)
    path.look(1_000_000, waits=False)  # a second, all in all
    assert path.delivery_rate.limit_octets(MOST, 0) == MIN_IN_FLIGHT_OCTETS
    assert path.delivery_rate.is_slow(MOST)


def test_a_path_of_which_nothing_is_known_may_be_slow() -> None:
    delivery_rate = DeliveryRateEstimator()
    assert delivery_rate.is_slow(MOST)
    assert delivery_rate.limit_octets(MOST, 0) == MIN_IN_FLIGHT_OCTETS


def test_a_path_that_takes_all_may_be_faster() -> None:
    path = Path()
    path.look(0, waits=False, under_way=False)
    queues: list[int] = []
    for _ in range(6):
        path.look(max(queues, default=MIN_IN_FLIGHT_OCTETS), waits=False)
        queues.append(path.delivery_rate.limit_octets(MOST, 0))
    assert queues == sorted(queues)
    assert queues[-1] == MOST


@given(st.lists(st.integers(0, 4 * MOST), max_size=20))
def test_no_more_is_ventured_than_twice_what_got_through_at_once(got: list[int]) -> None:
    path = Path()
    for octets in got:
        path.look(octets, waits=False)
        assert path.delivery_rate.limit_octets(MOST, 0) <= max(MIN_IN_FLIGHT_OCTETS, 2 * max(got))


def test_a_cut_says_nothing_of_the_path() -> None:
    path = Path()
    for _ in range(3):
        path.look(int(GIGABIT * LOOK_NS), waits=True)
    for _ in range(300):
        path.look(0, waits=True)
    path.look(100_000, waits=True)  # it came back just before
    assert path.delivery_rate.limit_octets(MOST, 0) == MOST
    for _ in range(2):
        path.look(100_000, waits=True)
    assert path.delivery_rate.limit_octets(MOST, 0) == MIN_IN_FLIGHT_OCTETS


def test_a_peer_that_does_not_get_to_read_makes_a_path_neither_faster_nor_slower() -> None:
    path = Path()
    for _ in range(3):
        path.look(MIN_IN_FLIGHT_OCTETS // 2, waits=True)
    path.excuse(0)
    assert path.delivery_rate.limit_octets(MOST, 0) == MIN_IN_FLIGHT_OCTETS
    path.excuse(MOST)  # it has read all that came meanwhile
    assert path.delivery_rate.limit_octets(MOST, 0) == pytest.approx(MOST / 2, rel=0.01)
    path.excuse(100)
    assert path.delivery_rate.limit_octets(MOST, 0) == pytest.approx(MOST / 2, rel=0.01)


def test_the_limit_grows_with_what_is_delivered_between_ticks() -> None:
    path = Path()
    path.look(0, waits=False, under_way=False)
    limits, delivered = [MIN_IN_FLIGHT_OCTETS], 0
    while limits[-1] < MOST:
        delivered += limits[-1]  # a round trip of a millisecond
        path.now_ns += 1_000_000
        path.delivery_rate.grow(path.now_ns, delivered)
        limits.append(path.delivery_rate.limit_octets(MOST, 0))
        assert limits[-1] <= max(MIN_IN_FLIGHT_OCTETS, delivered)
    assert len(limits) < 8
    assert not path.delivery_rate.is_slow(MOST)


@given(st.floats(1e-4, GIGABIT), st.lists(st.integers(1, LOOK_NS), max_size=50))
def test_between_ticks_no_path_is_taken_for_a_faster_one(rate: float, waits_ns: list[int]) -> None:
    path = Path()
    path.look(0, waits=False, under_way=False)
    began_ns = path.now_ns
    for wait_ns in waits_ns:
        path.now_ns += wait_ns
        path.delivery_rate.grow(path.now_ns, int(rate * (path.now_ns - began_ns)))
        assert path.delivery_rate.limit_octets(MOST, 0) <= max(MIN_IN_FLIGHT_OCTETS, rate * MAX_QUEUEING_NS)


def test_what_was_in_flight_at_a_tick_says_nothing_of_the_time_since() -> None:
    """Acks that were held up come together: the path may have taken a second for it."""
    path = Path()
    path.look(100, waits=True)
    assert not path.delivery_rate.grow(path.now_ns + 1_000_000, path.through + MOST)
    path.excuse(100)
    assert not path.delivery_rate.grow(path.now_ns + 1_000_000, path.through + MOST)
    assert path.delivery_rate.is_slow(MOST)


def test_on_a_quick_path_few_long_messages_leave_in_fragments() -> None:
    """Of 40 MiB; by ticks alone 233 fragments leave before the path is known."""
    made = pair()
    got, near, numbers, fragments = made.far.receive("flow"), made.near, count(), list[bytes]()

    def look(topic: bytes, frame: bytes) -> list[bytes]:
        if frame[3] == Kind.FRAGMENT:
            fragments.append(frame)
        return [frame]

    flow = near.session.open_flow("flow", RETENTION, FlowOptions(), 0)
    sender = FlowSender(near.session, flow, near._transmit, lambda: made.now + next(numbers))
    near.senders["flow"] = sender
    made.run(50 * MS)
    made.tampering[near.epoch] = look
    for _ in range(40):
        sender.send(bytes(2**20))
    made.run_until(lambda: len(got) == 40)
    assert len(fragments) < 30


@pytest.mark.parametrize("reliability", ["repair", "detect"])
def test_what_was_lost_on_the_way_was_not_delivered(reliability: Reliability) -> None:
    """Else a queue on the way that overflows would seem to take all that is sent into it, and be sent more."""
    made = pair()
    got, sender = made.far.receive("flow"), made.near.sender("flow", reliability)
    made.path.loss = 0.3
    for _ in range(300):
        sender.send(bytes(2000))
        made.run(MS)
    made.path.loss = 0.0
    sender.send(bytes(2000))
    made.run_until(lambda: not sender.stats()["outstanding"])
    assert sender.stats()["repaired" if reliability == "repair" else "lost"] > 50
    acked = sender.stats()["acknowledged"]
    assert len(got) >= acked
    assert 0 < sender.core.in_flight.delivered <= acked * (2000 + FRAMING_OCTETS)
