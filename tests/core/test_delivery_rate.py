"""How fast a path is, from what got through."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinlink.protocol.send.congestion import (
    GIGABIT,
    MAX_ACK_QUEUEING_NS,
    MAX_BDP_OCTETS,
    MAX_QUEUEING_NS,
    MIN_IN_FLIGHT_OCTETS,
    DeliveryRateEstimator,
)

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
