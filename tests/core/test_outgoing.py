"""Outgoing: sent = acknowledged + outstanding + lost, and the window, at any time."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from twinlink.outgoing import MAX_IN_FLIGHT, SLACK_OCTETS, Outgoing
from twinlink.ranges import RangeSet

WINDOW = 1024 * 1024
PEERS = st.integers(1, 3)


def numbers(ranges: RangeSet | None) -> set[int]:
    return {number for first, end in ranges or () for number in range(first, end)}


def acknowledge(core: Outgoing, epoch: int, sequences: list[int], now: int = 10) -> list[int]:
    acks = core.acknowledge(epoch, [(sequence, 1, 2) for sequence in sequences], 3, 4, now)
    return [ack.sequence for ack in acks]


class Sending(RuleBasedStateMachine):
    """Every message's fate is followed one by one: who still owes an ack for it."""

    def __init__(self) -> None:
        super().__init__()
        self.core = Outgoing("flow", WINDOW)
        self.up: set[int] = set()
        self.owed: list[set[int]] = []  # of each message; empty: settled
        self.acknowledged: set[int] = set()
        self.reported: set[int] = set()  # as lost, by what the methods return
        self.sizes: list[int] = []
        self.biggest = 0

    @rule(size=st.sampled_from([0, 1, 1000, 100_000, WINDOW, 2 * WINDOW]))
    def send(self, size: int) -> None:
        if not self.core.fits(size):
            assert self.core.in_flight_octets + size > WINDOW
            return
        assert self.core.send(size, 1) == len(self.owed)
        self.owed.append(set(self.up))
        self.sizes.append(size)
        self.biggest = max(self.biggest, size)
        if not self.up:
            self.reported.add(len(self.owed) - 1)

    @precondition(lambda self: self.owed)
    @rule(epoch=st.integers(1, 5), data=st.data())
    def ack(self, epoch: int, data: st.DataObject) -> None:
        sequences = data.draw(st.lists(st.integers(0, len(self.owed) + 3), max_size=10))
        expected, was_lost = [], numbers(self.core.lost)
        for sequence in sequences:
            if sequence < len(self.owed) and sequence not in self.acknowledged and sequence in was_lost:
                self.acknowledged.add(sequence)  # after all
                self.owed[sequence].clear()
            elif sequence < len(self.owed) and epoch in self.owed[sequence] and sequence not in was_lost:
                self.owed[sequence].remove(epoch)
                expected.append(sequence)
                if not self.owed[sequence]:
                    self.acknowledged.add(sequence)
        assert acknowledge(self.core, epoch, sequences) == expected

    @rule(epoch=st.integers(1, 5), consumed=st.one_of(st.integers(0, 30), st.integers(0, 2**64 - 1)))
    def consume(self, epoch: int, consumed: int) -> None:
        lost = numbers(self.core.consume(epoch, consumed))
        assert all(self.owed[sequence] == {epoch} and sequence < consumed for sequence in lost)
        assert not lost & self.reported - self.acknowledged
        self.reported |= lost

    @rule(epoch=PEERS)
    def peer_up(self, epoch: int) -> None:
        self.core.peer_up(epoch)
        self.up.add(epoch)

    @rule(epoch=PEERS)
    def peer_down(self, epoch: int) -> None:
        unsettled = set(range(len(self.owed))) - self.acknowledged - numbers(self.core.lost)
        lost = numbers(self.core.peer_down(epoch))
        self.up.discard(epoch)
        assert lost == {sequence for sequence in unsettled if self.owed[sequence] == {epoch}}
        for sequence in unsettled - lost:
            self.owed[sequence].discard(epoch)
        self.reported |= lost

    @rule()
    def everybody_catches_up(self) -> None:
        for epoch in self.up:
            unsettled = set(range(len(self.owed))) - self.acknowledged - numbers(self.core.lost)
            acknowledge(self.core, epoch, sorted(unsettled))
            for sequence in unsettled:
                if epoch in self.owed[sequence]:
                    self.owed[sequence].remove(epoch)
                    if not self.owed[sequence]:
                        self.acknowledged.add(sequence)
            self.reported |= numbers(self.core.consume(epoch, len(self.owed)))
        assert self.core.in_flight_octets == 0
        assert not self.core.awaited
        assert self.core.fits(WINDOW)

    @invariant()
    def the_account_is_right(self) -> None:
        stats = self.core.stats()
        assert stats["sent"] == stats["acknowledged"] + stats["outstanding"] + stats["lost"] == len(self.owed)
        assert stats["sent_octets"] == sum(self.sizes)
        assert stats["acknowledged"] == len(self.acknowledged)
        lost, outstanding = numbers(self.core.lost), numbers(self.core.outstanding())
        assert not lost & outstanding
        assert lost == self.reported - self.acknowledged  # nothing is lost without having been reported
        assert numbers(self.core.unreported) <= lost
        assert 0 <= stats["in_flight_octets"] <= max(WINDOW, SLACK_OCTETS + self.biggest, self.biggest)
        assert self.up or not outstanding
        assert self.up or stats["in_flight_octets"] == 0


TestSending = Sending.TestCase
TestSending.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)


@pytest.fixture
def core() -> Outgoing:
    core = Outgoing("flow", WINDOW)
    core.peer_up(1)
    return core


def test_a_window_full_of_tiny_messages_is_bounded(core: Outgoing) -> None:
    while core.fits(0):
        core.send(0, 1)
    assert core.next == MAX_IN_FLIGHT
    core.consume(1, 1)
    assert core.fits(0)


def test_a_message_bigger_than_the_window_goes_alone(core: Outgoing) -> None:
    assert core.fits(10 * WINDOW)
    core.send(10 * WINDOW, 1)
    assert not core.fits(1)
    core.consume(1, 1)
    assert core.fits(1)


def test_the_slowest_peer_holds_the_window_until_it_goes(core: Outgoing) -> None:
    core.peer_up(2)
    core.send(WINDOW, 1)
    core.consume(1, 1)
    assert not core.fits(1)
    core.peer_down(2)
    assert core.fits(1)


def test_a_late_peer_owes_nothing_for_what_was_sent_before(core: Outgoing) -> None:
    core.send(10, 1)
    core.peer_up(2)
    assert acknowledge(core, 2, [0]) == []
    assert acknowledge(core, 1, [0]) == [0]
    assert not core.awaited


def test_what_a_peer_skipped_is_lost_even_when_another_answers_later(core: Outgoing) -> None:
    core.peer_up(2)
    for _ in range(3):
        core.send(10, 1)
    acknowledge(core, 1, [1, 2])
    core.consume(1, 3)  # peer 1 is past message 0 and never acknowledged it
    acknowledge(core, 2, [0, 1, 2])
    core.consume(2, 3)
    assert numbers(core.outstanding()) == set()
    assert numbers(core.lost) == {0}


def test_strangers_leave_no_trace(core: Outgoing) -> None:
    before = core.stats()
    for epoch in range(100, 400):
        acknowledge(core, epoch, [0, 1, 2**64 - 1])
        core.consume(epoch, 2**64 - 1)
    assert core.stats() == before


def test_round_trip_and_offset(core: Outgoing) -> None:
    for number in range(100):
        core.send(1, 1000 * number)
        # peer's clock 500 ahead, 20 there, 5 in the peer, 30 back
        t1 = 1000 * number
        core.acknowledge(1, [(number, t1, t1 + 520)], t1 + 525, t1 + 55, t1 + 55)
    delays = core.stats()["peers"]["0000000000000001"]
    assert delays["rtt_ns"] == {"n": 100, "min": 55, "p50": 55, "p95": 55, "p99": 55, "max": 55}
    offset, bound = delays["clock_offset_ns"]["offset"], delays["clock_offset_ns"]["bound"]
    assert abs(offset - 500) <= bound == 25
    assert abs(delays["one_way_ns"]["p50"] - 20) <= bound
