"""What a flow does when nothing moves: the peers that it no longer waits for."""

from tests.core.sending import FULL, RETENTION, TRANSIT, WINDOW, acknowledge, numbers, send, taken
from twinlink.protocol.frames import MAX_RANGES, AbandonReason
from twinlink.protocol.send.congestion import InFlightBudget
from twinlink.protocol.send.flow import SendFlow
from twinlink.protocol.send.loss import NOT_ACKED
from twinlink.protocol.send.tail_loss_probe import LOSS_TICKS
from twinlink.protocol.session import FlowOptions


def look_for_two_seconds(core: SendFlow) -> None:
    for _ in range(LOSS_TICKS + 1):
        core.on_tick(0)


def test_what_is_not_acknowledged_where_nothing_is_repaired_makes_way_after_two_seconds_and_is_lost_after_four() -> (
    None
):
    core = SendFlow("flow", WINDOW, RETENTION, InFlightBudget(TRANSIT), FlowOptions("detect"))
    for epoch in (1, 2):
        core.on_peer_up(epoch, repairs=True)
    for _ in range(4):
        send(core, FULL // 3)
    assert list(core.in_flight) == [0, 1]  # all that there is room for
    look_for_two_seconds(core)
    assert core.losses.take_unreported(9) == []  # number 1 may have been sent a moment ago
    assert taken(core)[-2:] == [2, 3]
    for sequence in range(4):
        acknowledge(core, 1, [sequence])
    acknowledge(core, 2, [1])
    look_for_two_seconds(core)
    assert core.losses.take_unreported(9) == [
        (0, 1, NOT_ACKED, frozenset({2}))
    ]  # peer 2 takes nothing, so it does not go past it
    assert list(core.unacked.entries) == [2, 3]
    acknowledge(core, 2, [0])  # it was only late
    assert (core.losses.count, core.acknowledged) == (0, 2)


def test_who_is_back_and_says_as_much_as_an_ask_can_hold_has_said_what_it_misses() -> None:
    core = SendFlow("flow", WINDOW, RETENTION, InFlightBudget(TRANSIT))
    core.on_peer_up(1, repairs=True)
    for _ in range(3 * MAX_RANGES):
        send(core, 1)
    taken(core)
    core.on_peer_down(1, "silent", may_return=True)
    core.on_peer_up(1, repairs=True)
    assert core.in_flight.uncertain
    core.on_nak(1, 5, [(5, 6)], 3, 4, 10)
    assert core.in_flight.uncertain
    missing = [(number, number + 1) for number in range(1, 2 * MAX_RANGES, 2)]
    core.on_nak(1, missing[-1][1], missing, 3, 4, 10)
    assert not core.in_flight.uncertain


def test_who_cannot_ask_is_told_where_a_flow_at_rest_ends() -> None:
    core = SendFlow("flow", WINDOW, 2**26, InFlightBudget(2**21), FlowOptions("detect"))
    core.on_peer_up(1, repairs=True)

    def looked() -> list[int | tuple[AbandonReason, list[tuple[int, int]]]]:
        for _ in range(LOSS_TICKS + 2):
            core.on_tick(0)
        return taken(core)

    for _ in range(3):
        assert send(core, 10)
    acknowledge(core, 1, [0, 1])
    core.on_consumed(1, 2)
    assert looked() == [(AbandonReason.EVICTED, [])]
    assert looked() == [(AbandonReason.EVICTED, [])]  # the answer may be lost as well
    core.on_consumed(1, 3)
    assert numbers(core.losses.unflushed) == {2}
    assert looked() == []


def test_who_consumes_nothing_is_asked_what_it_waits_for_though_the_flow_goes_on(core: SendFlow) -> None:
    asked: list[int | tuple[AbandonReason, list[tuple[int, int]]]] = []
    send(core, 10)
    # and from now on it waits for something that no peer owes it, or its application takes nothing
    core.on_consumed(1, 1)
    for sequence in range(1, 2 * LOSS_TICKS + 6):
        send(core, 10)
        acknowledge(core, 1, [sequence - 1, sequence])
        core.on_tick(0)
        asked += [what for what in taken(core) if not isinstance(what, int)]
    assert asked == [(AbandonReason.EVICTED, []), (AbandonReason.EVICTED, [])]
    core.on_consumed(1, 2 * LOSS_TICKS + 6)
    for _ in range(2 * LOSS_TICKS):
        core.on_tick(0)
    assert taken(core) == []


def test_a_flow_that_repairs_nothing_goes_on_though_what_was_lost_fills_the_window() -> None:
    core = SendFlow("flow", WINDOW, RETENTION, InFlightBudget(2 * WINDOW), FlowOptions("detect"))
    core.on_peer_up(1, repairs=True)
    send(core, WINDOW)  # it is lost
    while send(core, WINDOW // 8):
        pass
    for _ in range(LOSS_TICKS + 2):
        core.on_tick(0)
        send(core, 1)  # the flow is in use all the time
    assert (AbandonReason.EVICTED, []) in taken(core)  # asked, to which the peer answers how far it is
    core.on_consumed(1, core.queue.next_to_send)
    assert taken(core)


def test_who_acknowledges_in_time_loses_nothing_beside_a_peer_that_owes_an_ack_for_long() -> None:
    """What one peer cannot ask for makes way after two seconds, however long another one has stood."""
    core = SendFlow("flow", WINDOW, RETENTION, InFlightBudget(TRANSIT))
    core.on_peer_up(1, repairs=True)
    core.on_peer_up(2, repairs=False)
    sent: dict[int, int] = {}
    for look in range(4 * LOSS_TICKS):
        sequence = core.queue.next_sequence
        sent[sequence] = look
        send(core, 10)
        taken(core)
        if sequence:  # it never acknowledges the first
            acknowledge(core, 1, [sequence])
        acknowledge(core, 2, [number for number, at in sent.items() if look - at == 3])
        core.on_tick(0)
        taken(core)
        assert core.losses.take_unreported(1) == []
