"""What several flows have in flight together, whichever begins."""

from collections import deque
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.core.sending import acknowledge, number, send
from twinlink.protocol.fragmentation import FragmentReassembler
from twinlink.protocol.frames import Kind, parse
from twinlink.protocol.liveness import HELLO_INTERVAL_NS, PEER_TIMEOUT_NS
from twinlink.protocol.send.congestion import InFlightBudget
from twinlink.protocol.send.flow import SendFlow
from twinlink.protocol.send.in_flight import FRAMING_OCTETS, InFlight
from twinlink.protocol.send.queue import BUNDLE_OCTETS
from twinlink.protocol.session import FlowOptions

FLOWS = 12
LIMIT = 100_000
PLENTY = 2**30
MANY = 40  # so many wait for more room than a few
MESSAGES = st.sampled_from([(0, 1), (100, MANY), (1000, MANY), (20_000, 1), (47_000, 1), (150_000, 1), (400_000, 1)])


class Path:
    """Flows that share a budget, and a peer that answers for what arrives, in order.

    Messages are handed over when a flow says after an answer that it goes on, or the budget that there is room again,
    and at no other time, as on a link between two looks of its heartbeat thread.
    """

    def __init__(self, sharing: int) -> None:
        self.budget = InFlightBudget(LIMIT)
        self.budget.divide(LIMIT, LIMIT // 2, BUNDLE_OCTETS, sharing, 0)
        self.budget.on_room = self.wake
        self.flows = [SendFlow(f"flow-{n}", PLENTY, PLENTY, self.budget) for n in range(FLOWS)]
        self.parts = [FragmentReassembler(PLENTY) for _ in self.flows]
        for flow in self.flows:
            flow.on_peer_up(1, repairs=True)
        self.under_way: deque[tuple[int, Kind, Any]] = deque()
        self.woken = False
        self.now = self.turn = 0

    def wake(self) -> None:
        self.woken = True

    def send(self, n: int, size: int) -> None:
        flow = self.flows[n]
        self.now += 1
        if send(flow, size, self.now):
            self.under_way.append((n, Kind.DATA, [flow.unacked.entries[flow.queue.next_sequence - 1][2]]))
        else:
            self.wake()
        self.is_bounded()

    def hand_over(self) -> None:
        """In turns, as the transmit thread does."""
        self.woken = False
        self.turn += 1
        for turn in range(self.turn, self.turn + FLOWS):
            n, flow = turn % FLOWS, self.flows[turn % FLOWS]
            while taken := flow.queue.next_frame():
                self.under_way.append((n, *taken))
                self.is_bounded()

    def arrives(self) -> None:
        n, kind, what = self.under_way.popleft()
        flow = self.flows[n]
        if kind is Kind.FRAGMENT:
            there = self.parts[n].receive(b"", what, True)
            if isinstance(there, int):
                flow.queue.fragments.on_progress(1, parse(what)[3], there)
            else:
                acknowledge(flow, 1, [number(bytes(there))])
        else:
            acknowledge(flow, 1, [number(frame) for frame in what])
        self.woken = self.woken or flow.queue.can_send

    def is_bounded(self) -> None:
        """Together no more than the limit, and one message that began when there was room."""
        whole = self.budget.unfragmented
        under_way = sum(len(what) if kind is Kind.FRAGMENT else sum(map(len, what)) for _, kind, what in self.under_way)
        assert under_way <= self.budget.in_flight < LIMIT + whole + FRAMING_OCTETS


@given(
    st.integers(1, FLOWS),
    st.lists(st.tuples(st.integers(0, FLOWS - 1), MESSAGES, st.booleans(), st.booleans()), max_size=60),
)
@example(FLOWS, [(n, (400_000, 1), False, False) for n in range(FLOWS)])  # in fragments
@example(1, [*5 * [(0, (20_000, 1), True, False)], (1, (1000, MANY), False, False)])  # behind others
def test_all_flows_together_keep_to_it_and_none_is_forgotten(
    sharing: int, messages: list[tuple[int, tuple[int, int], bool, bool]]
) -> None:
    path = Path(sharing)
    for n, (size, count), hands_over, arrives in messages:
        for _ in range(count):
            path.send(n, size)
        if path.woken and hands_over:
            path.hand_over()
        if path.under_way and arrives:
            path.arrives()
    while path.woken or path.under_way:
        if path.woken:
            path.hand_over()
        else:
            path.arrives()
    for flow in path.flows:
        assert not flow.unacked.entries
    assert path.budget.in_flight == 0


def test_who_begins_while_others_fill_the_path_has_its_turn() -> None:
    path = Path(FLOWS)
    for n in range(FLOWS - 1):
        for _ in range(20):
            path.send(n, 20_000)
    path.hand_over()
    assert path.budget.room <= 0
    beginner = FLOWS - 1
    path.send(beginner, 40_000)
    path.arrives()
    path.turn = beginner - 1
    path.hand_over()
    assert path.budget.room <= 0
    assert path.flows[beginner].queue.next_to_send == 1


def test_what_is_given_up_leaves_room() -> None:
    path = Path(1)
    for n in range(FLOWS):
        path.send(n, 20_000)
    path.hand_over()
    assert path.budget.room <= 0
    for flow in path.flows:
        flow.on_peer_down(1, "gone")
    assert path.woken
    assert path.budget.in_flight == 0


@pytest.mark.parametrize("others", [0, 1])
def test_what_a_peer_that_cannot_ask_did_not_get_leaves_room(others: int) -> None:
    """A connection that is cut takes it with it, and is made anew before any peer counts as gone."""
    budget = InFlightBudget(LIMIT)
    flow = SendFlow("flow", PLENTY, PLENTY, budget, FlowOptions("repair" if others else "detect"))
    flow.on_peer_up(1)
    for epoch in range(2, 2 + others):
        flow.on_peer_up(epoch, repairs=True)
    while send(flow, 1000, flow.queue.next_sequence):
        pass
    flow.queue.next_frame()
    sent = flow.queue.next_to_send
    for epoch in range(2, 2 + others):
        acknowledge(flow, epoch, list(range(sent)))
    looks = 0
    while budget.in_flight and looks < 100:
        assert flow.queue.next_to_send == sent
        flow.on_tick(0)
        looks += 1
    assert looks * HELLO_INTERVAL_NS > PEER_TIMEOUT_NS
    assert not budget.in_flight
    assert flow.queue.next_frame() is not None


def test_who_can_ask_is_waited_for() -> None:
    budget = InFlightBudget(LIMIT)
    flow = SendFlow("flow", PLENTY, PLENTY, budget)
    flow.on_peer_up(1, repairs=True)
    send(flow, 1000)
    under_way = budget.in_flight
    for _ in range(100):
        flow.on_tick(0)
    assert budget.in_flight == under_way


def test_whether_a_part_goes_may_be_asked_while_its_message_is_given_up() -> None:
    """Who takes in an ack asks it without a lock, beside a thread that sends and drops the oldest."""
    in_flight = InFlight(InFlightBudget(LIMIT), single=False, uncertain=set())
    in_flight.add(0, FRAMING_OCTETS)
    in_flight.remove([0])
    assert in_flight.has_room_for_fragment(0)
