"""Outgoing, case by case: what is kept, in flight, acknowledged, asked for again, lost."""

import pytest

from tests.core.sending import FULL, RETENTION, TRANSIT, WINDOW, acknowledge, number, numbers, send, taken
from twinlink.protocol import rtt
from twinlink.protocol.frames import HEADER_OCTETS, REJECTED, AbandonReason, Kind, frame
from twinlink.protocol.send.congestion import InFlightBudget
from twinlink.protocol.send.flow import SendFlow
from twinlink.protocol.send.flow_control import MAX_UNCONSUMED
from twinlink.protocol.send.in_flight import FRAMING_OCTETS
from twinlink.protocol.send.queue import BULK_MESSAGES
from twinlink.protocol.send.retransmit_buffer import ENTRY_OVERHEAD_OCTETS
from twinlink.protocol.session import FlowOptions, Overflow


def test_a_window_full_of_tiny_messages_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("twinlink.protocol.send.flow_control.MAX_UNCONSUMED", 10_000)
    core = SendFlow("flow", WINDOW, 2**40, InFlightBudget(2**21))
    core.on_peer_up(1, repairs=True)
    while send(core, 0):
        acknowledge(core, 1, [core.queue.next_sequence - 1])
    assert core.queue.next_to_send == 10_000
    core.on_consumed(1, 1)
    assert taken(core) == [10_000]


def test_a_window_full_of_tiny_messages_that_share_frames_is_bounded() -> None:
    core = SendFlow("flow", WINDOW, 2**40, InFlightBudget(2**21))
    core.on_peer_up(1, repairs=True)
    for _ in range(MAX_UNCONSUMED + 2000):
        send(core, 0)
    acknowledge(core, 1, list(range(core.queue.next_to_send)))
    bundles = 0
    while several := core.queue.next_frame():
        acknowledge(core, 1, list(map(number, several[1])))
        bundles += 1
    assert bundles > 1
    assert MAX_UNCONSUMED <= core.queue.next_to_send < MAX_UNCONSUMED + 2000
    core.on_consumed(1, core.queue.next_to_send)
    assert core.queue.next_frame() is not None


def test_what_shares_a_frame_is_in_flight_until_all_of_it_is_consumed(core: SendFlow) -> None:
    for _ in range(BULK_MESSAGES + 8):
        send(core, 100)
    together = core.queue.next_frame()
    assert together is not None
    assert len(together[1]) > 1
    core.on_consumed(1, core.queue.next_sequence - 1)
    assert core.flow_control.octets == 100 * len(together[1])
    core.on_consumed(1, core.queue.next_sequence)
    assert core.flow_control.octets == 0


def test_a_message_bigger_than_everything_goes_alone(core: SendFlow) -> None:
    assert core.fits(10 * WINDOW)
    assert not send(core, 10 * WINDOW)  # not by the thread that sends: it may have to wait
    assert taken(core) == [0]
    assert not core.fits(1)
    acknowledge(core, 1, [0])
    assert core.fits(1)


def test_what_a_transport_adds_to_a_frame_takes_no_room() -> None:
    core = SendFlow("flow", WINDOW, RETENTION, InFlightBudget(TRANSIT), framing_octets=HEADER_OCTETS + 8)
    core.on_peer_up(1, repairs=True)
    core.send(frame(Kind.DATA, 7, 0, 1, bytes(1000)) + bytes(8), 1000, 1)
    assert (core.unacked.octets, core.flow_control.octets) == (1000 + ENTRY_OVERHEAD_OCTETS, 1000)
    acknowledge(core, 1, [0])
    assert core.unacked.octets == 0


def test_the_slowest_peer_holds_up_what_is_handed_over_until_it_goes(core: SendFlow) -> None:
    core.on_peer_up(2, repairs=True)
    assert send(core, FULL)
    acknowledge(core, 1, [0])
    assert not send(core, 1)
    assert taken(core) == []
    core.on_peer_down(2, "silent", may_return=True)
    assert taken(core) == [1]


def test_who_fell_silent_may_clog_the_transport_for_a_while(core: SendFlow) -> None:
    budget = core.in_flight.budget
    core.on_peer_up(2, repairs=True)
    budget.apply_backpressure(FULL // 2, until_mono_ns=10)
    core.on_peer_down(2, "silent", may_return=True)
    for now in (5, 9):  # the sending thread must not wait, and the others get no more at once than the transport takes
        assert not send(core, FULL // 3)
        assert not send(core, FULL // 3)
        assert len(taken(core)) == 1
        acknowledge(core, 1, list(range(core.queue.next_to_send)))
        assert len(taken(core)) == 1
        acknowledge(core, 1, list(range(core.queue.next_to_send)))
        budget.divide(TRANSIT, FULL // 2, TRANSIT, 1, now)
    budget.divide(TRANSIT, TRANSIT, TRANSIT, 1, 10)
    assert send(core, FULL)


def test_a_late_peer_owes_nothing_for_what_was_sent_before(core: SendFlow) -> None:
    send(core, 10)
    core.on_peer_up(2, repairs=True)
    assert acknowledge(core, 2, [0]) == []
    assert acknowledge(core, 1, [0]) == [0]
    assert not core.unacked.entries


def test_what_a_peer_skipped_is_lost_where_it_cannot_ask(core: SendFlow) -> None:
    core = SendFlow("flow", WINDOW, 2**26, InFlightBudget(2**21), FlowOptions("detect"))
    core.on_peer_up(1)
    core.on_peer_up(2)
    for _ in range(3):
        send(core, 10)
    acknowledge(core, 1, [1, 2])
    core.on_consumed(1, 3)  # peer 1 is past message 0 and never acknowledged it
    acknowledge(core, 2, [0, 1, 2])
    core.on_consumed(2, 3)
    assert numbers(core.outstanding()) == set()
    assert numbers(core.losses.unflushed) == {0}


def test_who_returns_is_asked_what_it_misses_and_gets_the_rest_in_order(core: SendFlow) -> None:
    for _ in range(3):
        assert send(core, 10)
    core.on_peer_down(1, "silent", may_return=True)
    for _ in range(3):
        assert not send(core, 10)
    assert taken(core) == []
    core.on_peer_up(1, repairs=True)
    assert taken(core) == [(AbandonReason.EVICTED, []), 3, 4, 5]
    assert [ack.sequence for ack in core.on_nak(1, 1, [(1, 3)], 5, 6, 7)] == [0]  # it was there, its ack was not
    assert taken(core) == [1, 2]
    assert acknowledge(core, 1, [1, 2, 3, 4, 5]) == [1, 2, 3, 4, 5]
    assert core.stats()["repaired"] == 2


def test_who_returns_is_asked_until_it_has_answered(core: SendFlow) -> None:
    send(core, 10)

    def looked() -> list[int | tuple[AbandonReason, list[tuple[int, int]]]]:
        core.on_tick(0)
        return taken(core)

    ask: tuple[AbandonReason, list[tuple[int, int]]] = (AbandonReason.EVICTED, [])
    core.on_peer_down(1, "silent", may_return=True)
    assert looked() == []
    core.on_peer_up(1, repairs=True)
    assert taken(core) == [ask]
    assert [looked() for _ in range(4)] == [[], [ask], [ask], [ask]]
    assert [ack.sequence for ack in core.on_nak(1, 1, [], 3, 4, 5)] == [0]
    assert looked() == []


def test_what_the_successor_has_acknowledged_is_not_lost_with_its_predecessor(core: SendFlow) -> None:
    send(core, 10)
    core.on_peer_up(2, repairs=True)
    send(core, 10)
    acknowledge(core, 2, [1])
    core.on_peer_down(1, "restarted", successor=2)
    assert numbers(core.losses.unflushed) == {0}
    assert core.stats()["acknowledged"] == 1


def test_what_has_left_is_announced_to_who_asks_for_it(core: SendFlow) -> None:
    core.on_peer_down(1, "silent", may_return=True)
    for _ in range(30):
        send(core, 100_000)
    first = next(iter(core.unacked.entries))
    assert numbers(core.losses.unflushed) == set(range(first)) != set()
    core.on_peer_up(1, repairs=True)
    assert taken(core)[0] == (AbandonReason.EVICTED, [(0, first)])


def test_who_has_not_gone_past_what_is_gone_is_asked_though_the_flow_goes_on(core: SendFlow) -> None:
    send(core, 10)
    core.on_peer_down(1, "silent", may_return=True)
    for _ in range(19):
        send(core, 40_000)
    core.on_peer_up(1, repairs=True)
    announced, *_ = taken(core)  # and lost on the way
    assert announced == (AbandonReason.EVICTED, [(1, 6)])
    core.on_nak(1, 1, [], 3, 4, 5)

    def asked_while_it_goes_on() -> bool:
        acknowledge(core, 1, list(core.unacked.entries))
        send(core, 10)
        core.on_tick(0)
        return (AbandonReason.EVICTED, []) in taken(core)

    assert [asked_while_it_goes_on() for _ in range(3)] == [False, True, True]
    core.on_consumed(1, 6)
    assert [asked_while_it_goes_on() for _ in range(3)] == [False, False, False]


def test_what_was_handed_over_is_lost_only_when_the_peer_has_given_it_up(core: SendFlow) -> None:
    """What it lacks when it is asked it may be about to read."""
    for _ in range(4):
        send(core, 10_000)
    core.on_peer_down(1, "silent", may_return=True)
    for _ in range(80):
        send(core, 10_000)
    assert min(core.unacked.entries) > 4
    assert numbers(core.losses.unflushed) == set(range(4, min(core.unacked.entries)))
    assert {0, 1, 2, 3} < numbers(core.outstanding())
    core.on_peer_up(1, repairs=True)
    core.on_nak(1, 4, [(2, 4)], 3, 4, 5)
    assert {0, 1, 2, 3} & numbers(core.losses.unflushed) == set()
    assert {2, 3} < numbers(core.outstanding())
    acknowledge(core, 1, [2])
    assert (AbandonReason.EVICTED, [(2, min(core.unacked.entries))]) in taken(core)  # it hears that they will not come,
    for _ in range(3):
        core.on_tick(0)
    assert (AbandonReason.EVICTED, []) in taken(core)  # is asked again, and
    core.on_nak(1, 4, [], 3, 4, 5)  # lacks nothing any more
    assert {0, 1, 2, 3} & numbers(core.losses.unflushed) == {3}
    assert core.stats()["acknowledged"] == 3


def test_what_is_missing_is_not_under_way(core: SendFlow) -> None:
    """Or what the peer misses would take the room that it needs to be sent again."""
    for _ in range(5):
        send(core, 10_000 - FRAMING_OCTETS)
    core.on_peer_down(1, "silent", may_return=True)
    for _ in range(5):
        send(core, 10_000 - FRAMING_OCTETS)
    core.on_peer_up(1, repairs=True)
    assert taken(core) == [(AbandonReason.EVICTED, []), 5, 6, 7, 8, 9]
    core.on_nak(1, 10, [(0, 10)], 3, 4, 5)
    assert taken(core) == [0, 1, 2, 3, 4]


def test_nothing_that_somebody_up_still_owes_makes_room() -> None:
    """Only what is kept for the absent alone gives up its place; ``block`` waits for the others."""
    core = SendFlow("flow", WINDOW, 4 * (FULL + ENTRY_OVERHEAD_OCTETS), InFlightBudget(TRANSIT))
    core.on_peer_up(1, repairs=True)
    core.on_peer_up(2, repairs=True)
    send(core, FULL)
    acknowledge(core, 2, [0])
    core.on_peer_down(1, "silent", may_return=True)
    for _ in range(3):
        send(core, FULL)
    assert core.fits(FULL)
    assert not core.fits(FULL + 1)
    send(core, FULL)
    assert not core.fits(1)
    assert list(core.unacked.entries) == [1, 2, 3, 4]


@pytest.mark.parametrize(("overflow", "left"), [("latest", [11]), ("drop-oldest", [7, 8, 9, 10, 11])])
def test_what_is_left_of_a_full_flow_is_handed_over(overflow: Overflow, left: list[int]) -> None:
    core = SendFlow(
        "flow", WINDOW, 6 * (FULL + ENTRY_OVERHEAD_OCTETS), InFlightBudget(TRANSIT), FlowOptions(overflow=overflow)
    )
    core.on_peer_up(1, repairs=True)
    for _ in range(12):
        send(core, FULL)
    acknowledge(core, 1, [0])
    seen: list[int] = []
    while several := core.queue.next_frame():
        kind, what = several
        if kind is Kind.DATA:
            seen += map(number, what)
            acknowledge(core, 1, seen[-len(what) :])
    assert seen == left


def test_what_is_refused_is_lost(core: SendFlow) -> None:
    send(core, 10)
    core.on_ack(1, [(0, 1, REJECTED)], 3, 4, 5)
    assert numbers(core.losses.unflushed) == {0}


def test_what_one_refuses_is_lost_and_still_kept_for_the_other(core: SendFlow) -> None:
    core.on_peer_up(2, repairs=True)
    send(core, 10)
    core.on_ack(1, [(0, 1, REJECTED)], 3, 4, 5)
    core.on_nak(2, 0, [(0, 1)], 3, 4, 5)
    assert taken(core) == [0]
    acknowledge(core, 2, [0])
    assert numbers(core.losses.unflushed) == {0}


def test_what_one_has_refused_does_not_leave_again_for_it(core: SendFlow) -> None:
    """It names what it refused whenever it is asked, and the other may be away for an hour."""
    core.on_peer_up(2, repairs=True)
    send(core, 10)
    core.on_ack(1, [(0, 1, REJECTED)], 3, 4, 5)
    core.on_peer_down(2, "silent", may_return=True)
    core.on_nak(1, 1, [(0, 1)], 3, 4, 5)
    assert taken(core) == []
    core.on_peer_up(2, repairs=True)
    core.on_nak(2, 0, [(0, 1)], 3, 4, 5)
    assert [one for one in taken(core) if isinstance(one, int)] == [0]


def test_an_ack_of_one_peer_does_not_find_what_another_misses(core: SendFlow) -> None:
    core.on_peer_up(2, repairs=True)
    send(core, 10)
    acknowledge(core, 2, [0])
    core.on_peer_down(1, "closed")
    assert numbers(core.losses.unflushed) == {0}
    acknowledge(core, 2, [0])  # again: it came twice
    assert numbers(core.losses.unflushed) == {0}
    acknowledge(core, 1, [0])  # in flight when the peer closed
    assert numbers(core.losses.unflushed) == set()


def test_an_ask_for_everything_there_is_is_bounded(core: SendFlow) -> None:
    for _ in range(3):
        send(core, 10)
    core.on_nak(1, 0, [(0, 2**63 - 1)], 3, 4, 5)
    assert taken(core) == [0, 1, 2]


def test_strangers_leave_no_trace(core: SendFlow) -> None:
    before = core.stats()
    for epoch in range(100, 400):
        acknowledge(core, epoch, [0, 1, 2**64 - 1])
        core.on_consumed(epoch, 2**64 - 1)
        core.on_nak(epoch, 2**63, [(2**63, 2**63 + 1)], 3, 4, 5)
    assert core.stats() == before
    assert not core.queue.has_pending


def test_round_trip_and_offset(core: SendFlow) -> None:
    for sequence in range(100):
        send(core, 1, 1000 * sequence)
        # peer's clock 500 ahead, 20 there, 5 in the peer, 30 back
        t1 = 1000 * sequence
        core.on_ack(1, [(sequence, t1, t1 + 520)], t1 + 525, t1 + 55, t1 + 55)
    found = rtt.stats(core.rtt.acks())["0000000000000001"]
    assert found["rtt_ns"] == {"n": 100, "min": 55, "p50": 55, "p95": 55, "p99": 55, "max": 55}
    offset, bound = found["clock_offset_ns"]["offset"], found["clock_offset_ns"]["bound"]
    assert abs(offset - 500) <= bound == 25
    assert abs(found["one_way_ns"]["p50"] - 20) <= bound


def test_who_sends_hands_over_nothing_that_it_might_have_to_wait_for(core: SendFlow) -> None:
    """On a long path more may be in flight than the transport takes at once: the transmit thread waits for that."""
    core.in_flight.budget.divide(10_000, 1000, 10_000, 1, 0)
    while core.queue.next_to_send == core.queue.next_sequence:
        send(core, 100)
    assert 1000 - 2 * (100 + FRAMING_OCTETS) < sum(100 + FRAMING_OCTETS for _ in list(core.in_flight)) <= 1000
    core.queue.probe()
    assert core.queue.next_frame(may_block=False) is not None  # there is room for that
    assert taken(core) == [core.queue.next_sequence - 1]


def test_what_is_sent_waits_until_who_is_back_has_said_what_it_misses(core: SendFlow) -> None:
    """The transport may be full of what was in flight when the peer fell silent."""
    send(core, 10)
    core.on_peer_down(1, "silent", may_return=True)
    core.on_peer_up(1, repairs=True)
    assert taken(core) == [(AbandonReason.EVICTED, [])]
    send(core, 10)
    assert core.queue.next_to_send == 1
    assert taken(core) == [1]
    core.on_nak(1, 2, [], 3, 4, 5)
    send(core, 10)
    assert core.queue.next_to_send == 3


@pytest.mark.parametrize("again", [False, True])
def test_where_nothing_is_on_its_way_one_message_goes_and_no_bundle_that_is_too_long(again: bool) -> None:
    core = SendFlow("flow", WINDOW, RETENTION, InFlightBudget(2**21))
    core.on_peer_up(1, repairs=True)
    for _ in range(3):
        assert send(core, 1000)
    if again:
        core.on_nak(1, 3, [(0, 3)], 3, 4, 10)
    else:
        acknowledge(core, 1, [0, 1, 2])
        core.in_flight.budget.inline = 0
        for _ in range(3):
            send(core, 1000)
    core.in_flight.budget.limit = 900
    several = core.queue.next_frame()
    assert several is not None
    assert len(several[1]) == 1
    assert core.queue.next_frame() is None


def test_what_was_lost_before_a_message_in_parts_is_asked_for_though_it_has_all_their_room(core: SendFlow) -> None:
    assert send(core, FULL // 2)
    assert not send(core, 2 * TRANSIT)
    while core.queue.next_frame():
        pass
    core.in_flight.budget.divide(TRANSIT // 4, TRANSIT // 4, TRANSIT // 4, 1, 0)  # the path has become a slow one
    asked = False
    for _ in range(20):  # all that went is lost
        core.on_tick(0)
        asked |= (AbandonReason.EVICTED, []) in taken(core)
    assert asked
    core.on_nak(1, 0, [(0, 2)], 3, 4, 10)
    assert taken(core) == [1, 0]


def test_what_a_peer_that_cannot_ask_went_past_is_lost_beside_one_that_can(core: SendFlow) -> None:
    core.on_peer_up(2)
    for _ in range(3):
        send(core, 10)
    acknowledge(core, 1, [0, 1, 2])
    acknowledge(core, 2, [0, 2])
    core.on_consumed(2, 3)
    assert core.is_resolved_below(3)
    assert core.losses.take_unreported(10) == [(1, 2, "the peer went past it without acknowledging it", frozenset({2}))]


def test_what_two_peers_ask_for_leaves_again_though_the_second_goes(core: SendFlow) -> None:
    core.on_peer_up(2, repairs=True)
    send(core, 10)
    for epoch in (1, 2):
        core.on_nak(epoch, 1, [(0, 1)], 1, 2, 3)
    core.on_peer_down(2, "silent", may_return=True)
    assert taken(core) == [0]


def test_who_comes_does_not_owe_what_is_longer_than_it_takes(core: SendFlow) -> None:
    core.flow_control.admit(1, 1, WINDOW)  # so that all of them wait
    for size in (10, 500, 20, 30):
        send(core, size)
    core.on_peer_up(2, repairs=True, max_payload=100)
    assert core.receivers.of[2].first_owed == 2
    assert acknowledge(core, 2, [0, 1, 2, 3]) == [2, 3]


def test_the_window_of_who_was_away_holds_what_it_has_not_read_yet() -> None:
    core = SendFlow("flow", WINDOW, RETENTION, InFlightBudget(2 * WINDOW), FlowOptions("detect"))
    core.on_peer_up(1, repairs=True)
    send(core, WINDOW)
    acknowledge(core, 1, [0])
    core.on_peer_down(1, "silent", may_return=True)
    core.on_peer_up(1, repairs=True)
    assert not send(core, WINDOW)
    core.on_consumed(1, 1)
    assert taken(core) == [(AbandonReason.EVICTED, []), 1]  # the peer is to say what arrived
    core.on_peer_down(1, "silent", may_return=True)
    core.on_peer_ended(1, "it will not return")
    assert core.flow_control.octets == 0
