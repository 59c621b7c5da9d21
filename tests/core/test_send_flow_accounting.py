"""Outgoing, whatever happens to it: sent = acknowledged + outstanding + lost + conflated at any time."""

from collections.abc import Iterable
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.core.sending import (
    RETENTION,
    TRANSIT,
    WINDOW,
    acknowledge,
    assert_is_one_frame,
    number,
    numbers,
    send,
    taken,
)
from twinlink.protocol.frames import REJECTED, AbandonReason, Kind, parse
from twinlink.protocol.rangeset import RangeSet
from twinlink.protocol.send.congestion import InFlightBudget
from twinlink.protocol.send.flow import SendFlow
from twinlink.protocol.send.flow_control import SLACK_OCTETS
from twinlink.protocol.send.retransmit_buffer import ENTRY_OVERHEAD_OCTETS
from twinlink.protocol.session import FlowOptions

PEERS = st.integers(1, 3)
ANY_PEERS = set(range(10))


class Sending(RuleBasedStateMachine):
    """The fate of every message is followed: which peers still owe an ack for it, and whether it was handed over."""

    overflow = "block"

    def __init__(self) -> None:
        super().__init__()
        self.core = SendFlow("flow", WINDOW, RETENTION, InFlightBudget(TRANSIT), FlowOptions(overflow=self.overflow))  # type: ignore[arg-type]
        self.up: set[int] = set()
        self.absent: set[int] = set()
        self.sizes: list[int] = []
        self.owed: dict[int, set[int]] = {}
        self.acknowledged: set[int] = set()
        self.reported: set[int] = set()
        self.named: set[tuple[int, frozenset[int]]] = set()
        self.owed_when_lost: dict[int, set[int]] = {}
        self.lost_to_some: set[int] = set()  # of what is owed by others
        self.handed_over: list[int] = []  # first transmissions
        self.last_part = b""
        self.doubt: dict[int, set[int]] = {}  # evicted, but handed over to this absent peer
        self.lacked: dict[int, set[int]] = {}  # of them, what this peer has said it lacks

    def note_losses(self) -> set[int]:
        """What is newly lost; a message that is lost to one peer after the other is named for each."""
        losses = self.core.losses.take_unreported(10**6)
        named = {(number, epochs) for first, end, _, epochs in losses for number in range(first, end)}
        assert not {number for number, _ in named & self.named} - self.acknowledged
        self.named |= named
        lost = {number for number, _ in named} - (self.reported - self.acknowledged)
        self.reported |= lost
        for sequence in lost:
            owed = set() if sequence in self.lost_to_some else self.owed.pop(sequence, set())
            self.owed_when_lost[sequence] = owed
        return lost

    @rule(size=st.sampled_from([0, 1, 1000, 40_000, 40_000, WINDOW, 3 * WINDOW]))
    def send(self, size: int) -> None:
        if not self.core.fits(size):
            assert self.overflow == "block"
            assert self.core.unacked.octets + size + ENTRY_OVERHEAD_OCTETS > RETENTION
            return
        sequence, owing = self.core.queue.next_sequence, self.up | self.absent
        direct = send(self.core, size)
        self.sizes.append(size)
        self.note_losses()
        if owing and sequence in self.core.unacked.entries:
            self.owed[sequence] = set(owing)
        if direct and owing:
            self.handed_over.append(sequence)
        if not owing:
            self.owed_when_lost[sequence] = ANY_PEERS
        outstanding = numbers(self.core.outstanding())
        for gone in set(self.owed) - self.core.unacked.entries.keys():
            waiting = self.owed.pop(gone)
            if gone in self.lost_to_some:
                self.lost_to_some.discard(gone)
            elif gone in outstanding:
                for epoch in waiting:
                    self.doubt.setdefault(epoch, set()).add(gone)
            else:
                assert self.overflow == "latest"  # conflated

    @rule(count=st.integers(1, 60))
    def send_in_bulk(self, count: int) -> None:
        for _ in range(count):
            self.send(100)

    @rule(count=st.integers(1, 5))
    def skip(self, count: int) -> None:
        first = self.core.queue.next_sequence
        self.core.skip(count)
        self.sizes += [0] * count
        skipped = {(number, frozenset[int]()) for number in range(first, first + count)}
        losses = self.core.losses.take_unreported(10**6)
        assert {(number, epochs) for start, end, _, epochs in losses for number in range(start, end)} == skipped

    @rule(patient=st.booleans())
    def hand_over_some(self, patient: bool) -> None:
        if several := self.core.queue.next_frame(patient):
            self.went(several)

    @rule()
    def hand_over(self) -> None:
        self.parts_arrive()
        while several := self.core.queue.next_frame():
            self.went(several)
            self.parts_arrive()

    def went(self, several: tuple[Kind, Any]) -> None:
        kind, what = several
        if kind is Kind.FRAGMENT:
            self.last_part = what
            _, _, at, _ = parse(what)
            if at == 0 and what[35] == Kind.DATA and number(what[32:]) not in self.handed_over:  # it may begin anew
                self.handed_over.append(number(what[32:]))
            return
        assert_is_one_frame(*several)
        self.handed_over += map(number, what) if kind is Kind.DATA else []

    def parts_arrive(self) -> None:
        if self.last_part:
            _, _, at, sent_ns = parse(self.last_part)
            for epoch in self.up:
                self.core.queue.fragments.on_progress(epoch, sent_ns, at + len(self.last_part) - 32)

    @rule()
    def look(self) -> None:
        self.core.on_tick(0)

    @precondition(lambda self: self.sizes)
    @rule(epoch=st.integers(1, 5), data=st.data())
    def ack(self, epoch: int, data: st.DataObject) -> None:
        sequences = data.draw(st.lists(st.integers(0, len(self.sizes) + 3), max_size=10))
        expected = self.expected(epoch, sequences)
        assert acknowledge(self.core, epoch, sequences) == expected
        assert self.note_losses() == set()

    @precondition(lambda self: self.sizes)
    @rule(epoch=st.integers(1, 5), data=st.data(), count=st.integers(1, 40), told=st.booleans())
    def ack_row(self, epoch: int, data: st.DataObject, count: int, told: bool) -> None:
        first = data.draw(st.integers(0, len(self.sizes) + 3))
        row = range(first, min(first + count, len(self.sizes) + 5))
        expected = self.expected(epoch, row)
        acked = [ack.sequence for ack in self.core.on_ack_range(epoch, row, 2, 3, 4, 5, told)]
        assert acked == expected if told else set(acked) <= set(expected)
        assert self.note_losses() == set()

    def expected(self, epoch: int, sequences: Iterable[int]) -> list[int]:
        """Of these, what this peer still owed, which now has an ack for it."""
        expected, was_lost = [], numbers(self.core.losses.unflushed)
        for sequence in sequences:
            if epoch in self.owed.get(sequence, set()):
                expected.append(sequence)
                self.settle(epoch, sequence)
            elif sequence in was_lost - self.acknowledged:
                waiting = self.owed_when_lost[sequence]
                if waiting in ({epoch}, ANY_PEERS):
                    self.acknowledged.add(sequence)  # after all
                self.owed_when_lost[sequence] = waiting - {epoch}
            elif sequence in self.in_doubt(epoch):
                self.doubt_is_over({sequence}, epoch)
                self.acknowledged |= {sequence} - self.in_doubt()
        return expected

    def settle(self, epoch: int, sequence: int) -> None:
        self.owed[sequence].discard(epoch)
        if not self.owed[sequence]:
            del self.owed[sequence]
            self.acknowledged |= {sequence} - self.lost_to_some
            self.lost_to_some.discard(sequence)

    @precondition(lambda self: self.owed)
    @rule(data=st.data())
    def refuse(self, data: st.DataObject) -> None:
        sequence = data.draw(st.sampled_from(sorted(self.owed)))
        epoch = data.draw(st.sampled_from(sorted(self.owed[sequence])))
        self.core.on_ack(epoch, [(sequence, 1, REJECTED)], 3, 4, 5)
        known = sequence in self.lost_to_some
        self.lost_to_some.add(sequence)
        self.settle(epoch, sequence)
        assert self.note_losses() == (set() if known else {sequence})

    @precondition(lambda self: self.in_doubt())
    @rule(epoch=PEERS, data=st.data())
    def refuse_what_is_in_doubt(self, epoch: int, data: st.DataObject) -> None:
        """It is known when the peer has been asked."""
        sequence = data.draw(st.sampled_from(sorted(self.in_doubt())))
        self.core.on_ack(epoch, [(sequence, 1, REJECTED)], 3, 4, 5)
        assert self.note_losses() == set()

    @precondition(lambda self: self.up)
    @rule(data=st.data())
    def ask(self, data: st.DataObject) -> None:
        epoch = data.draw(st.sampled_from(sorted(self.up)))
        known = data.draw(st.integers(0, self.core.queue.next_to_send))
        self.asked(epoch, known, data.draw(st.sets(st.integers(0, self.core.queue.next_to_send + 2), max_size=8)))

    def asked(self, epoch: int, known: int, missing: set[int]) -> None:
        ranges = list(RangeSet((number, number + 1) for number in missing))
        there = set(range(known)) - missing
        expected = [sequence for sequence in sorted(self.owed) if sequence in there and epoch in self.owed[sequence]]
        acks = self.core.on_nak(epoch, known, ranges, 3, 4, 5)
        assert [ack.sequence for ack in acks] == expected
        for sequence in expected:
            self.settle(epoch, sequence)
        doubt, lacked = self.doubt.pop(epoch, set()), self.lacked.pop(epoch, set())
        self.doubt[epoch] = doubt - missing - there
        self.lacked[epoch] = (doubt | lacked) & missing | lacked - there
        self.doubt_is_over(lacked & there)
        assert self.note_losses() == lacked & there
        self.acknowledged |= (doubt & there) - self.in_doubt() - self.reported
        for peer in self.doubt:  # all are told that these will not come
            self.lacked[peer] = self.lacked.get(peer, set()) | self.doubt[peer] & missing
            self.doubt[peer] -= missing

    def in_doubt(self, epoch: int | None = None) -> set[int]:
        """What this peer, or any peer, may or may not have."""
        return {
            one
            for of in (self.doubt, self.lacked)
            for peer, sequences in of.items()
            for one in sequences
            if epoch in {peer, None}
        }

    def doubt_is_over(self, sequences: set[int], epoch: int | None = None) -> None:
        for of in (self.doubt, self.lacked):
            for peer in of:
                if epoch in {peer, None}:
                    of[peer] -= sequences

    @rule(epoch=st.integers(1, 5), consumed=st.one_of(st.integers(0, 30), st.integers(0, 2**64 - 1)))
    def consume(self, epoch: int, consumed: int) -> None:
        self.core.on_consumed(epoch, consumed)
        assert self.note_losses() == set()  # a peer that asks for what is missing loses nothing by going on

    @rule(epoch=PEERS)
    def peer_up(self, epoch: int) -> None:
        """Who joins owes what waits to leave for others, up to where something does not."""
        if epoch not in self.up | self.absent:
            self.named = {(number, epochs) for number, epochs in self.named if epoch not in epochs}
            for sequence in range(len(self.sizes) - 1, self.core.queue.next_to_send - 1, -1):
                if not self.owed.get(sequence, set()) & self.up:
                    break
                self.owed[sequence].add(epoch)
        self.core.on_peer_up(epoch, repairs=True)
        self.absent.discard(epoch)
        self.up.add(epoch)

    @precondition(lambda self: self.up)
    @rule(data=st.data(), may_return=st.booleans())
    def peer_down(self, data: st.DataObject, may_return: bool) -> None:
        epoch = data.draw(st.sampled_from(sorted(self.up)))
        self.up.discard(epoch)
        self.core.on_peer_down(epoch, "went", may_return)
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
        self.core.on_peer_ended(epoch, "gone for good")
        self.lose_all_of(epoch)

    def lose_all_of(self, epoch: int) -> None:
        owed = {sequence for sequence, waiting in self.owed.items() if epoch in waiting}
        alone = {sequence for sequence in owed if self.owed[sequence] == {epoch}}
        expected = owed - self.lost_to_some
        for sequence in alone & self.lost_to_some:
            self.settle(epoch, sequence)
        for sequence in owed - alone:
            self.owed[sequence].discard(epoch)
        self.lost_to_some |= owed - alone
        doubt = self.doubt.pop(epoch, set()) | self.lacked.pop(epoch, set())
        self.doubt_is_over(doubt)
        assert self.note_losses() == expected | doubt

    @rule()
    def every_peer_catches_up(self) -> None:
        """With patience everything kept for the peers that are up gets through, whatever was asked for before."""
        same = 0
        while self.up and same < 2:  # what was asked for again may go, and come, without any other change
            before = self.state()
            self.hand_over()
            for epoch in self.up:
                if epoch in self.core.receivers.resuming:
                    self.asked(epoch, self.core.queue.next_to_send, set())
            self.hand_over()
            for epoch in self.up:
                there = [sequence for sequence in self.owed if sequence < self.core.queue.next_to_send]
                acknowledge(self.core, epoch, there)
                for sequence in there:
                    self.settle(epoch, sequence) if epoch in self.owed[sequence] else None
                self.core.on_consumed(epoch, self.core.queue.next_to_send)
            same = same + 1 if before == self.state() else 0
        if self.up:
            assert self.core.queue.next_to_send == self.core.queue.next_sequence
            assert not self.core.queue.has_pending
            assert self.core.flow_control.octets == 0
            assert not any(waiting & self.up for waiting in self.owed.values())
        assert self.note_losses() == set()

    def state(self) -> tuple[object, ...]:
        queue = self.core.queue
        return self.core.stats(), queue.next_to_send, queue.has_pending, list(self.core.in_flight)

    @invariant()
    def the_account_is_right(self) -> None:
        stats = self.core.stats()
        accounted = stats["acknowledged"] + stats["outstanding"] + stats["lost"] + stats["conflated"]
        assert stats["sent"] == accounted == len(self.sizes)
        assert stats["outstanding"] == len(numbers(self.core.outstanding()))
        assert stats["sent_octets"] == sum(self.sizes)
        assert stats["acknowledged"] == len(self.acknowledged)
        assert set(self.core.unacked.entries) == set(self.owed)
        assert list(self.core.unacked.entries) == sorted(self.core.unacked.entries)
        assert numbers(self.core.losses.unflushed) == self.reported - self.acknowledged
        kept = sum(self.sizes[sequence] + ENTRY_OVERHEAD_OCTETS for sequence in self.owed)
        assert stats["kept_octets"] == kept
        assert kept <= RETENTION or len(self.owed) == 1
        assert self.handed_over == sorted(self.handed_over)  # in order, and
        assert len(self.handed_over) == len(set(self.handed_over))  # once
        biggest = max(self.sizes, default=0)
        assert 0 <= stats["in_flight_octets"] <= max(WINDOW, SLACK_OCTETS) + biggest
        assert self.up or self.absent or not self.owed
        assert numbers(self.core.outstanding()) == set(self.owed) - self.lost_to_some | self.in_doubt()


class DroppingOldest(Sending):
    overflow = "drop-oldest"


class DroppingNewest(Sending):
    overflow = "drop-newest"


class KeepingTheLatest(Sending):
    overflow = "latest"


TestSending, TestDroppingOldest = Sending.TestCase, DroppingOldest.TestCase
TestDroppingNewest, TestKeepingTheLatest = DroppingNewest.TestCase, KeepingTheLatest.TestCase
TestSending.settings = settings(max_examples=200, stateful_step_count=30)
TestDroppingOldest.settings = TestDroppingNewest.settings = TestKeepingTheLatest.settings = settings(
    max_examples=120, stateful_step_count=30
)


def test_what_was_announced_because_another_peer_asked_is_not_taken_for_there() -> None:
    """A peer that gave it up for that does not lack it any more, and never had it."""
    core = SendFlow("flow", WINDOW, 10 * (1000 + ENTRY_OVERHEAD_OCTETS), InFlightBudget(TRANSIT))
    core.on_peer_up(1, repairs=True)
    core.on_peer_up(2, repairs=True)
    for _ in range(8):
        send(core, 1000)
    acknowledge(core, 2, list(range(8)))
    core.on_peer_down(1, "silent", may_return=True)
    for sequence in range(8, 18):
        send(core, 1000)
        taken(core)
        acknowledge(core, 2, [sequence])
    assert numbers(core.unconfirmed.all()) == set(range(8))
    core.on_peer_up(3, repairs=True)
    core.on_nak(3, 18, [(0, 8)], 3, 4, 10)
    assert taken(core) == [(AbandonReason.EVICTED, [(0, 8)])]
    core.on_peer_up(1, repairs=True)
    core.on_nak(1, 18, [(8, 18)], 3, 4, 10)
    assert core.stats()["lost"] == 8
    assert core.stats()["acknowledged"] == 0


def test_an_announcement_that_may_be_lost_is_made_up_for_when_the_link_ends() -> None:
    """The last of all was dropped: nothing else would show it."""
    core = SendFlow(
        "flow", WINDOW, 2 * (1000 + ENTRY_OVERHEAD_OCTETS), InFlightBudget(TRANSIT), FlowOptions(overflow="drop-newest")
    )
    core.on_peer_up(1, repairs=True)
    for _ in range(3):
        send(core, 1000)
    assert taken(core) == [(AbandonReason.DROPPED, [(2, 3)])]
    acknowledge(core, 1, [0, 1])
    core.on_consumed(1, 2)
    assert core.final_abandoned() == [(AbandonReason.EVICTED, [])]
    core.on_consumed(1, 3)
    assert core.final_abandoned() == []
