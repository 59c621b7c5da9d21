"""Outgoing: sent = acknowledged + outstanding + lost + conflated at any time; what is kept, under way, asked for."""

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from twinlink.kept import KEEPING_OCTETS
from twinlink.outgoing import BUNDLE_OCTETS, Outgoing, Overflow
from twinlink.ranges import RangeSet
from twinlink.transit import FRAMING_OCTETS
from twinlink.window import MAX_IN_FLIGHT, SLACK_OCTETS
from twinlink.wire import REFUSED, Kind, Why, frame

WINDOW = 300_000
RETENTION = 2 * WINDOW
TRANSIT = 50_000
FULL = TRANSIT - FRAMING_OCTETS  # of payload
PEERS = st.integers(1, 3)


def numbers(ranges: RangeSet | None) -> set[int]:
    return {sequence for first, end in ranges or () for sequence in range(first, end)}


def send(core: Outgoing, size: int, now: int = 1) -> bool | None:
    return core.send(frame(Kind.DATA, 7, core.next, now, bytes(size)), size, now)


def acknowledge(core: Outgoing, epoch: int, sequences: list[int], now: int = 10) -> list[int]:
    acks = core.acknowledge(epoch, [(sequence, 1, 2) for sequence in sequences], 3, 4, now)
    return [ack.sequence for ack in acks]


def taken(core: Outgoing) -> list[int | tuple[Why, list[tuple[int, int]]]]:
    """All of the backlog that may go now: numbers of messages, announcements of what is gone."""
    out: list[int | tuple[Why, list[tuple[int, int]]]] = []
    while several := core.take():
        assert_is_one_frame(several)
        out += [what if kind is Kind.GONE else number(what) for kind, what in several]
    return out


def number(octets: bytes) -> int:
    return int.from_bytes(octets[16:24])


def assert_is_one_frame(several: list[tuple[Kind, Any]]) -> None:
    """One announcement, one message of any size, or a bundle of messages of the same kind."""
    assert len({kind for kind, _ in several}) == 1
    if len(several) > 1:
        assert several[0][0] is not Kind.GONE
        assert sum(len(octets) for _, octets in several) <= BUNDLE_OCTETS


class Sending(RuleBasedStateMachine):
    """Every message's fate is followed one by one: who still owes an ack for it, and whether it was handed over."""

    overflow = "block"

    def __init__(self) -> None:
        super().__init__()
        self.core = Outgoing("flow", WINDOW, RETENTION, TRANSIT, overflow=self.overflow)  # type: ignore[arg-type]
        self.up: set[int] = set()
        self.absent: set[int] = set()
        self.sizes: list[int] = []
        self.owed: dict[int, set[int]] = {}
        self.acknowledged: set[int] = set()
        self.reported: set[int] = set()
        self.handed_over: list[int] = []  # first transmissions
        self.doubt: dict[int, set[int]] = {}  # evicted, but handed over to this absent peer

    def note_losses(self) -> set[int]:
        lost = set()
        for ranges in self.core.losses.report().values():
            lost |= numbers(ranges)
        assert not lost & (self.reported - self.acknowledged)
        self.reported |= lost
        for sequence in lost:
            self.owed.pop(sequence, None)
        return lost

    @rule(size=st.sampled_from([0, 1, 1000, 40_000, 40_000, WINDOW, 3 * WINDOW]))
    def send(self, size: int) -> None:
        if not self.core.fits(size):
            assert self.overflow == "block"
            assert self.core.kept.octets + size + KEEPING_OCTETS > RETENTION
            return
        sequence, everybody = self.core.next, self.up | self.absent
        direct = send(self.core, size)
        self.sizes.append(size)
        self.note_losses()
        if everybody and sequence in self.core.kept.entries:
            self.owed[sequence] = set(everybody)
        if direct and everybody:
            self.handed_over.append(sequence)
        outstanding = numbers(self.core.outstanding())
        for gone in set(self.owed) - self.core.kept.entries.keys():
            waiting = self.owed.pop(gone)
            if gone in outstanding:
                for epoch in waiting:
                    self.doubt.setdefault(epoch, set()).add(gone)
            else:
                assert self.overflow == "latest"  # conflated

    @rule(count=st.integers(1, 60))
    def send_in_bulk(self, count: int) -> None:
        for _ in range(count):
            self.send(100)

    @rule(alone=st.booleans())
    def hand_over_some(self, alone: bool) -> None:
        if several := self.core.take(alone):
            self.went(several)

    @rule()
    def hand_over(self) -> None:
        while several := self.core.take():
            self.went(several)

    def went(self, several: list[tuple[Kind, Any]]) -> None:
        assert_is_one_frame(several)
        self.handed_over += [number(octets) for kind, octets in several if kind is Kind.DATA]

    @precondition(lambda self: self.sizes)
    @rule(epoch=st.integers(1, 5), data=st.data())
    def ack(self, epoch: int, data: st.DataObject) -> None:
        sequences = data.draw(st.lists(st.integers(0, len(self.sizes) + 3), max_size=10))
        expected, was_lost = [], numbers(self.core.losses.all)
        for sequence in sequences:
            if sequence in was_lost - self.acknowledged:
                self.acknowledged.add(sequence)  # after all
            elif epoch in self.owed.get(sequence, set()):
                expected.append(sequence)
                self.settle(epoch, sequence)
        assert acknowledge(self.core, epoch, sequences) == expected

    def settle(self, epoch: int, sequence: int) -> None:
        self.owed[sequence].discard(epoch)
        if not self.owed[sequence]:
            del self.owed[sequence]
            self.acknowledged.add(sequence)

    @precondition(lambda self: self.up)
    @rule(data=st.data())
    def ask(self, data: st.DataObject) -> None:
        epoch = data.draw(st.sampled_from(sorted(self.up)))
        known = data.draw(st.integers(0, self.core.unsent))
        missing = data.draw(st.sets(st.integers(0, self.core.unsent + 2), max_size=8))
        ranges = list(RangeSet((number, number + 1) for number in missing))
        there = set(range(known)) - missing
        expected = [sequence for sequence in sorted(self.owed) if sequence in there and epoch in self.owed[sequence]]
        acks = self.core.asked(epoch, known, ranges, 3, 4, 5)
        assert [ack.sequence for ack in acks] == expected
        for sequence in expected:
            self.settle(epoch, sequence)
        doubt = self.doubt.pop(epoch, set())
        self.doubt_is_over(doubt & missing)
        assert self.note_losses() == doubt & missing
        if left := doubt - missing - there:
            self.doubt[epoch] = left
        others = set().union(*self.doubt.values())
        self.acknowledged |= (doubt & there) - others - self.reported

    def doubt_is_over(self, lost: set[int]) -> None:
        for epoch in self.doubt:
            self.doubt[epoch] -= lost

    @rule(epoch=st.integers(1, 5), consumed=st.one_of(st.integers(0, 30), st.integers(0, 2**64 - 1)))
    def consume(self, epoch: int, consumed: int) -> None:
        self.core.consume(epoch, consumed)
        assert self.note_losses() == set()  # who asks for what is missing loses nothing by going on

    @rule(epoch=PEERS)
    def peer_up(self, epoch: int) -> None:
        self.core.peer_up(epoch, repairs=True)
        self.absent.discard(epoch)
        self.up.add(epoch)

    @precondition(lambda self: self.up)
    @rule(data=st.data(), may_return=st.booleans())
    def peer_down(self, data: st.DataObject, may_return: bool) -> None:
        epoch = data.draw(st.sampled_from(sorted(self.up)))
        self.up.discard(epoch)
        self.core.peer_down(epoch, "went", may_return)
        if may_return:
            self.absent.add(epoch)
            assert self.note_losses() == set()
        else:
            self.lose_all_of(epoch)

    @precondition(lambda self: self.absent)
    @rule(data=st.data())
    def forget(self, data: st.DataObject) -> None:
        epoch = data.draw(st.sampled_from(sorted(self.absent)))
        self.absent.discard(epoch)
        self.core.forget(epoch, "gone for good")
        self.lose_all_of(epoch)

    def lose_all_of(self, epoch: int) -> None:
        expected = {sequence for sequence, waiting in self.owed.items() if waiting == {epoch}}
        for waiting in self.owed.values():
            waiting.discard(epoch)
        doubt = self.doubt.pop(epoch, set())
        self.doubt_is_over(doubt)
        assert self.note_losses() == expected | doubt

    @rule()
    def everybody_catches_up(self) -> None:
        """With patience everything kept for those who are up gets through, whatever was asked for before."""
        while self.up:
            before = self.core.stats() | {"unsent": self.core.unsent, "backlog": self.core.backlog}
            self.hand_over()
            for epoch in self.up:
                there = [sequence for sequence in self.owed if sequence < self.core.unsent]
                acknowledge(self.core, epoch, there)
                for sequence in there:
                    self.settle(epoch, sequence) if epoch in self.owed[sequence] else None
                self.core.consume(epoch, self.core.unsent)
            if before == self.core.stats() | {"unsent": self.core.unsent, "backlog": self.core.backlog}:
                break
        if self.up:
            assert self.core.unsent == self.core.next
            assert not self.core.backlog
            assert self.core.window.octets == 0
            assert not any(waiting & self.up for waiting in self.owed.values())
        self.note_losses()

    @invariant()
    def the_account_is_right(self) -> None:
        stats = self.core.stats()
        accounted = stats["acknowledged"] + stats["outstanding"] + stats["lost"] + stats["conflated"]
        assert stats["sent"] == accounted == len(self.sizes)
        assert stats["outstanding"] == len(numbers(self.core.outstanding()))
        assert stats["sent_octets"] == sum(self.sizes)
        assert stats["acknowledged"] == len(self.acknowledged)
        assert set(self.core.kept.entries) == set(self.owed)
        assert list(self.core.kept.entries) == sorted(self.core.kept.entries)
        assert numbers(self.core.losses.all) == self.reported - self.acknowledged
        kept = sum(self.sizes[sequence] + KEEPING_OCTETS for sequence in self.owed)
        assert stats["kept_octets"] == kept
        assert kept <= RETENTION or len(self.owed) == 1
        assert self.handed_over == sorted(self.handed_over)  # in order, and
        assert len(self.handed_over) == len(set(self.handed_over))  # once
        biggest = max(self.sizes, default=0)
        assert 0 <= stats["in_flight_octets"] <= max(WINDOW, SLACK_OCTETS) + biggest
        assert self.up or self.absent or not self.owed
        assert numbers(self.core.outstanding()) == set(self.owed).union(*self.doubt.values())


class DroppingOldest(Sending):
    overflow = "drop-oldest"


class DroppingNewest(Sending):
    overflow = "drop-newest"


class KeepingTheLatest(Sending):
    overflow = "latest"


TestSending, TestDroppingOldest = Sending.TestCase, DroppingOldest.TestCase
TestDroppingNewest, TestKeepingTheLatest = DroppingNewest.TestCase, KeepingTheLatest.TestCase
TestSending.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestDroppingOldest.settings = TestDroppingNewest.settings = TestKeepingTheLatest.settings = settings(
    max_examples=30, stateful_step_count=30, deadline=None
)


@pytest.fixture
def core() -> Outgoing:
    core = Outgoing("flow", WINDOW, RETENTION, TRANSIT)
    core.peer_up(1, repairs=True)
    return core


def test_a_window_full_of_tiny_messages_is_bounded() -> None:
    core = Outgoing("flow", WINDOW, 2**40)
    core.peer_up(1, repairs=True)
    while send(core, 0):
        acknowledge(core, 1, [core.next - 1])
    assert core.unsent == MAX_IN_FLIGHT
    core.consume(1, 1)
    assert taken(core) == [MAX_IN_FLIGHT]


def test_a_message_bigger_than_everything_goes_alone(core: Outgoing) -> None:
    assert core.fits(10 * WINDOW)
    assert not send(core, 10 * WINDOW)  # not by the thread that sends: it may have to wait
    assert taken(core) == [0]
    assert not core.fits(1)
    acknowledge(core, 1, [0])
    assert core.fits(1)


def test_the_slowest_peer_holds_up_what_is_handed_over_until_it_goes(core: Outgoing) -> None:
    core.peer_up(2, repairs=True)
    assert send(core, FULL)
    acknowledge(core, 1, [0])
    assert not send(core, 1)
    assert taken(core) == []
    core.peer_down(2, "silent", may_return=True)
    assert taken(core) == [1]


def test_a_late_peer_owes_nothing_for_what_was_sent_before(core: Outgoing) -> None:
    send(core, 10)
    core.peer_up(2, repairs=True)
    assert acknowledge(core, 2, [0]) == []
    assert acknowledge(core, 1, [0]) == [0]
    assert not core.kept.entries


def test_what_a_peer_skipped_is_lost_where_it_cannot_ask(core: Outgoing) -> None:
    core = Outgoing("flow", WINDOW, repair=False)
    core.peer_up(1)
    core.peer_up(2)
    for _ in range(3):
        send(core, 10)
    acknowledge(core, 1, [1, 2])
    core.consume(1, 3)  # peer 1 is past message 0 and never acknowledged it
    acknowledge(core, 2, [0, 1, 2])
    core.consume(2, 3)
    assert numbers(core.outstanding()) == set()
    assert numbers(core.losses.all) == {0}


def test_who_returns_is_asked_what_it_misses_and_gets_the_rest_in_order(core: Outgoing) -> None:
    for _ in range(3):
        assert send(core, 10)
    core.peer_down(1, "silent", may_return=True)
    for _ in range(3):
        assert not send(core, 10)
    assert taken(core) == []
    core.peer_up(1, repairs=True)
    assert taken(core) == [(Why.EVICTED, []), 3, 4, 5]
    assert [ack.sequence for ack in core.asked(1, 1, [(1, 3)], 5, 6, 7)] == [0]  # it was there, its ack was not
    assert taken(core) == [1, 2]
    assert acknowledge(core, 1, [1, 2, 3, 4, 5]) == [1, 2, 3, 4, 5]
    assert core.stats()["repaired"] == 2


def test_who_returns_is_asked_until_it_has_answered(core: Outgoing) -> None:
    send(core, 10)

    def looked() -> list[int | tuple[Why, list[tuple[int, int]]]]:
        core.look()
        return taken(core)

    ask: tuple[Why, list[tuple[int, int]]] = (Why.EVICTED, [])
    core.peer_down(1, "silent", may_return=True)
    assert looked() == []
    core.peer_up(1, repairs=True)
    assert taken(core) == [ask]
    assert [looked() for _ in range(4)] == [[], [ask], [ask], [ask]]
    assert [ack.sequence for ack in core.asked(1, 1, [], 3, 4, 5)] == [0]
    assert looked() == []


def test_what_the_successor_has_acknowledged_is_not_lost_with_its_predecessor(core: Outgoing) -> None:
    send(core, 10)
    core.peer_up(2, repairs=True)
    send(core, 10)
    acknowledge(core, 2, [1])
    core.peer_down(1, "restarted", successor=2)
    assert numbers(core.losses.all) == {0}
    assert core.stats()["acknowledged"] == 1


def test_what_has_left_is_announced_to_who_asks_for_it(core: Outgoing) -> None:
    core.peer_down(1, "silent", may_return=True)
    for _ in range(30):
        send(core, 100_000)
    first = next(iter(core.kept.entries))
    assert numbers(core.losses.all) == set(range(first)) != set()
    core.peer_up(1, repairs=True)
    assert taken(core)[0] == (Why.EVICTED, [(0, first)])


def test_who_has_not_gone_past_what_is_gone_is_asked_though_the_flow_goes_on(core: Outgoing) -> None:
    send(core, 10)
    core.peer_down(1, "silent", may_return=True)
    for _ in range(10):
        send(core, 100_000)
    core.peer_up(1, repairs=True)
    announced, *_ = taken(core)  # and lost on the way
    assert announced == (Why.EVICTED, [(1, 6)])
    core.asked(1, 1, [], 3, 4, 5)

    def asked_while_it_goes_on() -> bool:
        acknowledge(core, 1, list(core.kept.entries))
        send(core, 10)
        core.look()
        return (Why.EVICTED, []) in taken(core)

    assert [asked_while_it_goes_on() for _ in range(3)] == [False, True, True]
    core.consume(1, 6)
    assert [asked_while_it_goes_on() for _ in range(3)] == [False, False, False]


def test_what_was_handed_over_is_lost_only_when_the_peer_says_so(core: Outgoing) -> None:
    for _ in range(4):
        send(core, 10_000)
    core.peer_down(1, "silent", may_return=True)
    for _ in range(80):
        send(core, 10_000)
    assert min(core.kept.entries) > 4
    assert numbers(core.losses.all) == set(range(4, min(core.kept.entries)))
    assert {0, 1, 2, 3} < numbers(core.outstanding())
    core.peer_up(1, repairs=True)
    core.asked(1, 4, [(2, 4)], 3, 4, 5)
    assert {0, 1} & numbers(core.losses.all) == set()
    assert {2, 3} < numbers(core.losses.all)
    assert core.stats()["acknowledged"] == 2


def test_what_is_missing_is_not_under_way(core: Outgoing) -> None:
    """Or what the peer misses would take the room that it needs to be sent again."""
    for _ in range(5):
        send(core, 10_000 - FRAMING_OCTETS)
    core.peer_down(1, "silent", may_return=True)
    for _ in range(5):
        send(core, 10_000 - FRAMING_OCTETS)
    core.peer_up(1, repairs=True)
    assert taken(core) == [(Why.EVICTED, []), 5, 6, 7, 8, 9]
    core.asked(1, 10, [(0, 10)], 3, 4, 5)
    assert taken(core) == [0, 1, 2, 3, 4]


def test_nothing_that_somebody_up_still_owes_makes_room() -> None:
    """Only what is kept for the absent alone gives up its place; ``block`` waits for the others."""
    core = Outgoing("flow", WINDOW, 4 * (FULL + KEEPING_OCTETS), TRANSIT)
    core.peer_up(1, repairs=True)
    core.peer_up(2, repairs=True)
    send(core, FULL)
    acknowledge(core, 2, [0])
    core.peer_down(1, "silent", may_return=True)
    for _ in range(3):
        send(core, FULL)
    assert core.fits(FULL)
    assert not core.fits(FULL + 1)
    send(core, FULL)
    assert not core.fits(1)
    assert list(core.kept.entries) == [1, 2, 3, 4]


@pytest.mark.parametrize(("overflow", "left"), [("latest", [11]), ("drop-oldest", [7, 8, 9, 10, 11])])
def test_what_is_left_of_a_full_flow_is_handed_over(overflow: Overflow, left: list[int]) -> None:
    core = Outgoing("flow", WINDOW, 6 * (FULL + KEEPING_OCTETS), TRANSIT, overflow=overflow)
    core.peer_up(1, repairs=True)
    for _ in range(12):
        send(core, FULL)
    acknowledge(core, 1, [0])
    seen = []
    while several := core.take():
        if several[0][0] is Kind.DATA:
            seen += [number(octets) for _, octets in several]
            acknowledge(core, 1, seen[-len(several) :])
    assert seen == left


def test_what_is_refused_is_lost(core: Outgoing) -> None:
    send(core, 10)
    core.acknowledge(1, [(0, 1, REFUSED)], 3, 4, 5)
    assert numbers(core.losses.all) == {0}


def test_an_ask_for_everything_there_is_is_bounded(core: Outgoing) -> None:
    for _ in range(3):
        send(core, 10)
    core.asked(1, 0, [(0, 2**63 - 1)], 3, 4, 5)
    assert taken(core) == [0, 1, 2]


def test_strangers_leave_no_trace(core: Outgoing) -> None:
    before = core.stats()
    for epoch in range(100, 400):
        acknowledge(core, epoch, [0, 1, 2**64 - 1])
        core.consume(epoch, 2**64 - 1)
        core.asked(epoch, 2**63, [(2**63, 2**63 + 1)], 3, 4, 5)
    assert core.stats() == before
    assert not core.backlog


def test_round_trip_and_offset(core: Outgoing) -> None:
    for number in range(100):
        send(core, 1, 1000 * number)
        # peer's clock 500 ahead, 20 there, 5 in the peer, 30 back
        t1 = 1000 * number
        core.acknowledge(1, [(number, t1, t1 + 520)], t1 + 525, t1 + 55, t1 + 55)
    delays = core.stats()["peers"]["0000000000000001"]
    assert delays["rtt_ns"] == {"n": 100, "min": 55, "p50": 55, "p95": 55, "p99": 55, "max": 55}
    offset, bound = delays["clock_offset_ns"]["offset"], delays["clock_offset_ns"]["bound"]
    assert abs(offset - 500) <= bound == 25
    assert abs(delays["one_way_ns"]["p50"] - 20) <= bound
