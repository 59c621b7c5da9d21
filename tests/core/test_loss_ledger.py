"""What a sender has lost."""

from tests.core.sending import numbers
from twinlink.protocol.send.loss import ANY_PEER, MAX_REMEMBERED, WITHHOLD_NS, LossLedger, UnconfirmedEvictions

OVERLOADED = 3 * MAX_REMEMBERED  # messages of which each second one is dropped


def test_memory_is_bounded_and_the_count_is_right_in_lasting_overload() -> None:
    losses, told = LossLedger(), 0
    for sequence in range(0, 2 * OVERLOADED, 2):
        losses.add(sequence, sequence + 1, "dropped", {1})
        told += sum(end - first for first, end, *_ in losses.take_unreported(2))
    assert losses.count == told == OVERLOADED
    assert len(losses.unflushed) == MAX_REMEMBERED
    assert losses.on_late_ack(2 * OVERLOADED - 2, 1)
    assert not losses.on_late_ack(0, 1)  # the price: of the oldest it is no longer known which peers may have them
    assert losses.count == OVERLOADED - 1


def test_of_very_many_ranges_some_are_told_at_a_time() -> None:
    losses = LossLedger()
    for sequence in range(0, 10, 2):
        losses.add(sequence, sequence + 1, "dropped")
    losses.add(20, 30, "refused")
    assert [loss[:3] for loss in losses.take_unreported(3)] == [(0, 1, "dropped"), (2, 3, "dropped"), (4, 5, "dropped")]
    losses.add(10, 12, "dropped")
    told = [loss[:3] for loss in losses.take_unreported(3)]
    assert told == [(6, 7, "dropped"), (8, 9, "dropped"), (10, 12, "dropped")]
    assert losses.take_unreported(3) == [(20, 30, "refused", frozenset())]
    assert not losses.unreported


def test_what_anybody_may_have_arrived_when_somebody_says_so() -> None:
    losses = LossLedger()
    losses.add(0, 3, "no peer was up", ANY_PEER)
    assert losses.on_late_ack(1, 7)
    assert not losses.on_late_ack(1, 7)
    assert (losses.count, list(losses.unflushed)) == (2, [(0, 1), (2, 3)])


def test_what_one_peer_lacks_another_may_have_and_both_are_told_apart() -> None:
    unconfirmed = UnconfirmedEvictions()
    for sequence in range(4):
        unconfirmed.add((1, 2, 3), sequence, lost=False)
    assert unconfirmed.on_nak(1, 4, [(0, 2)]) == ([], [])
    assert unconfirmed.on_nak(1, 4, []) == ([(0, 2, False)], [])
    assert numbers(unconfirmed.all()) == {2, 3}
    assert not unconfirmed.on_ack(2, 0)  # it has it, and the first does not
    assert unconfirmed.on_nak(2, 4, [(1, 3)]) == ([], [])
    assert unconfirmed.on_nak(2, 4, []) == ([(1, 2, True), (2, 3, False)], [])
    assert not any(unconfirmed.on_ack(3, sequence) for sequence in (0, 1, 2))
    assert unconfirmed.on_ack(3, 3)
    assert not unconfirmed.open


def test_a_peer_is_asked_what_it_has_before_it_is_told_that_it_will_not_come() -> None:
    unconfirmed = UnconfirmedEvictions()
    for sequence in range(4):
        unconfirmed.add((1, 2), sequence, lost=False)
    unconfirmed.on_nak(1, 6, [(0, 6)])
    assert unconfirmed.answerable([(0, 6)], {2}, 1) == [(4, 6)]  # 4 and 5 have not been evicted
    unconfirmed.on_nak(2, 6, [(2, 4)])
    assert unconfirmed.answerable([(0, 6)], {2}, 2) == [(0, 6)]
    unconfirmed.on_abandoned(0, 6)
    assert unconfirmed.on_nak(2, 6, []) == ([(2, 4, False)], [])  # the first two it has
    assert unconfirmed.on_nak(1, 6, []) == ([(2, 4, True), (0, 2, False)], [])


def test_a_peer_that_does_not_answer_is_not_waited_for() -> None:
    unconfirmed = UnconfirmedEvictions()
    unconfirmed.add((1, 2), 0, lost=False)
    unconfirmed.on_nak(1, 1, [(0, 1)])
    assert unconfirmed.answerable([(0, 1)], {2}, 1) == []
    assert unconfirmed.answerable([(0, 1)], {2}, 2 + WITHHOLD_NS) == [(0, 1)]
    assert unconfirmed.answerable([(0, 1)], set(), 1) == [(0, 1)]  # it is not up
