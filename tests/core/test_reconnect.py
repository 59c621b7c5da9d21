"""When to connect anew, and with how much patience; the clock is the test's."""

import pytest

from twinlink.protocol.reconnect import RESCAN_NS, RETRY_NS, SHORT_RTT_NS, STEP_NS, TIMEOUT_FACTORS, ReconnectPolicy

LOOK_NS = 50_000_000


class Connector:
    """Looks twenty times a second."""

    def __init__(self) -> None:
        self.now_ns = 0
        self.patience = ReconnectPolicy(0)

    def wait(self, ns: int, alone: bool) -> list[tuple[int, int]]:
        """Each time it connects anew: how long after the time before, with how much patience."""
        then_ns, end_ns = self.now_ns, self.now_ns + ns
        told = []
        while self.now_ns < end_ns:
            self.now_ns += LOOK_NS
            if (patience := self.patience.on_tick(alone, self.now_ns)) is not None:
                told.append((self.now_ns - then_ns, patience))
                then_ns = self.now_ns
        return told

    def find(self, trip_ns: int) -> None:
        self.patience.on_peer_up(trip_ns)
        self.wait(LOOK_NS, alone=False)


def test_who_has_met_nobody_is_patient_in_turns() -> None:
    one = Connector()
    told = one.wait(3 * sum(TIMEOUT_FACTORS) * STEP_NS, alone=True)
    assert [patience for _, patience in told[:6]] == [*TIMEOUT_FACTORS[1:], *TIMEOUT_FACTORS, TIMEOUT_FACTORS[0]][:6]
    for (waited_ns, _), patience in zip(told, TIMEOUT_FACTORS, strict=False):
        assert STEP_NS * patience < waited_ns <= STEP_NS * patience + LOOK_NS


@pytest.mark.parametrize(
    ("trip_ns", "kept"),
    [
        (SHORT_RTT_NS, 1),
        (SHORT_RTT_NS + 1, 4),
        (4 * SHORT_RTT_NS, 4),
        (10 * SHORT_RTT_NS, 10),
        (20 * SHORT_RTT_NS, 30),
    ],
)
def test_what_worked_is_kept_or_less_where_the_path_is_short(trip_ns: int, kept: int) -> None:
    one = Connector()
    assert one.wait((sum(TIMEOUT_FACTORS[:-1]) + 1) * STEP_NS, alone=True)[-1][1] == TIMEOUT_FACTORS[-1]
    one.find(trip_ns)
    told = one.wait(RESCAN_NS // 2, alone=True)
    assert {patience for _, patience in told} == {kept}
    assert all(RETRY_NS * kept < waited_ns <= RETRY_NS * kept + LOOK_NS for waited_ns, _ in told)


def test_who_has_been_alone_for_long_takes_turns_again_and_tries_what_worked_for_as_long_each_time() -> None:
    one = Connector()
    one.find(SHORT_RTT_NS)
    told = [patience for _, patience in one.wait(3 * RESCAN_NS, alone=True)]
    assert set(told) == set(TIMEOUT_FACTORS)
    assert told.count(TIMEOUT_FACTORS[0]) * RETRY_NS > 0.8 * 2 * RESCAN_NS
    assert told[0] == TIMEOUT_FACTORS[0]


def test_who_is_not_alone_leaves_its_connection_as_it_is() -> None:
    one = Connector()
    one.find(10 * SHORT_RTT_NS)
    assert one.wait(2 * RESCAN_NS, alone=False) == []


@pytest.mark.parametrize(
    ("trip_ns", "tried"), [(1, 1), (SHORT_RTT_NS + 1, 4), (5 * SHORT_RTT_NS, 10), (40 * SHORT_RTT_NS, 30)]
)
def test_who_answers_is_connected_to_with_the_patience_that_its_path_needs(trip_ns: int, tried: int) -> None:
    one = Connector()
    one.wait(LOOK_NS, alone=True)
    assert one.patience.escalate_for(trip_ns) == (tried > 1)
    assert one.patience.on_connect(one.now_ns) == tried
    waited_ns, _ = one.wait(STEP_NS * (TIMEOUT_FACTORS[-1] + 1), alone=True)[0]
    assert waited_ns > STEP_NS * tried  # it has its time before the next turn


def test_who_answers_soon_may_be_a_tunnel_to_a_long_path() -> None:
    one = Connector()
    one.wait((1 + TIMEOUT_FACTORS[1] + 1) * STEP_NS, alone=True)
    assert not one.patience.escalate_for(1)
    assert one.patience.on_connect(one.now_ns) == TIMEOUT_FACTORS[2]
