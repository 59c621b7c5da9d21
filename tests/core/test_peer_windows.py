"""A sender learns from refusals how large the window of a peer is."""

import pytest

from tests.core.sending import acknowledge, send, taken
from twinlink.protocol.send.congestion import InFlightBudget
from twinlink.protocol.send.flow import SendFlow
from twinlink.protocol.send.flow_control import SLACK_OCTETS
from twinlink.protocol.send.pace import GROWTH
from twinlink.protocol.send.queue import BUNDLE_OCTETS
from twinlink.protocol.session import FlowOptions

SIZE = 10_000
MOST = 1000 * SIZE  # the sender's window; the peer's holds 100 messages
IN_BUNDLE = BUNDLE_OCTETS // SIZE  # messages that count together


@pytest.fixture
def core() -> SendFlow:
    made = SendFlow("flow", MOST, 2**30, InFlightBudget(200 * SIZE), FlowOptions(pace="slowest"))
    made.on_peer_up(1, repairs=True)
    for _ in range(600):
        send(made, SIZE)
    taken(made)
    acknowledge(made, 1, list(range(100)))
    while taken(made):  # what room the acks have made
        pass
    return made


def test_what_was_refused_is_not_in_flight_and_no_more_leaves(core: SendFlow) -> None:
    end = core.queue.next_to_send
    assert end > 200
    core.pace_keeper.on_refused(1, end)
    assert core.in_flight.budget.in_flight == 0
    assert taken(core) == []
    core.on_nak(1, 110, [(100, 110)], 1, 1, 1)
    assert taken(core) == list(range(100, 110))
    acknowledge(core, 1, list(range(100, 110)))
    assert taken(core) == []


def test_as_much_leaves_as_the_peer_has_consumed(core: SendFlow) -> None:
    end = core.queue.next_to_send
    core.pace_keeper.on_refused(1, end)
    core.on_nak(1, end, [(100, end)], 1, 1, 1)
    acknowledge(core, 1, [one for one in taken(core) if isinstance(one, int)])
    core.on_consumed(1, end - 100)
    assert [one for one in taken(core) if isinstance(one, int)] == []  # as many as its window holds are there
    core.on_consumed(1, end - 50)
    assert 50 - IN_BUNDLE < len(taken(core)) <= 50


def test_a_window_whose_content_has_been_consumed_may_have_grown(core: SendFlow) -> None:
    end = core.queue.next_to_send
    core.pace_keeper.on_refused(1, end)
    core.on_tick(0)
    assert taken(core) == []  # nothing has been consumed
    acknowledge(core, 1, list(range(100, end)))
    core.on_consumed(1, end)
    assert 100 - IN_BUNDLE < len(taken(core)) <= 100
    acknowledge(core, 1, list(range(end, end + 100)))
    core.on_consumed(1, end + 50)
    core.on_tick(0)
    assert 50 < len(taken(core)) <= 50 + 100 // GROWTH


def test_when_a_peer_that_refused_is_gone_its_window_does_not_count(core: SendFlow) -> None:
    core.on_peer_up(2, repairs=True)
    core.pace_keeper.on_refused(1, core.queue.next_to_send)
    assert taken(core) == []
    core.on_peer_down(1, "gone", may_return=False)
    core.on_tick(0)
    assert taken(core)


def test_a_peer_without_any_room_is_sent_what_never_blocks(core: SendFlow) -> None:
    end = core.queue.next_to_send
    core.on_consumed(1, 100)
    core.pace_keeper.on_refused(1, end)
    core.on_nak(1, end, [(100, end)], 1, 1, 1)
    acknowledge(core, 1, [one for one in taken(core) if isinstance(one, int)])
    core.on_consumed(1, end)
    assert 0 < len(taken(core)) * SIZE <= SLACK_OCTETS + BUNDLE_OCTETS


def test_the_refusal_of_a_peer_that_is_not_up_changes_nothing(core: SendFlow) -> None:
    before = core.in_flight.budget.in_flight
    core.pace_keeper.on_refused(9, core.queue.next_to_send)
    assert core.in_flight.budget.in_flight == before
    assert [peer.refused for peer in core.receivers.of.values()] == [0]


def test_no_more_is_refused_than_was_sent(core: SendFlow) -> None:
    core.pace_keeper.on_refused(1, 2**62)
    assert core.receivers.of[1].refused == core.queue.next_to_send
