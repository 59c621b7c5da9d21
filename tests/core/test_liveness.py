"""PeerTable as a state machine: whatever is said in whatever order, changes alternate and the table stays true."""

from dataclasses import dataclass

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from twinlink.protocol.frames import Hello
from twinlink.protocol.liveness import (
    HARD_TIMEOUT_NS,
    HELLO_INTERVAL_NS,
    MAX_REMEMBERED,
    PEER_TIMEOUT_NS,
    RESTART_NS,
    SUSPECT_NS,
    PeerState,
    PeerTable,
    PeerTransition,
)

OURS = 1
EPOCHS = st.integers(2, 6)
NODES = st.sampled_from(["gnb", "twin"])
CONFIRMED = st.sampled_from(["nothing", "never said", "known", "a little more", "the last", "to come"])


@dataclass
class Model:
    """What is to be known of a session that is heard."""

    node: str
    heard: int
    hears: int = 0
    known: int = 0
    up: bool = False
    number: int = 0


class Peers(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.table = PeerTable(OURS, 0)
        self.now = 10**9
        self.up: set[int] = set()  # told by the changes alone
        self.suspended: set[int] = set()  # likewise
        self.model: dict[int, Model] = {}
        self.fell_silent: dict[int, int] = {}
        self.names: dict[int, str] = {}
        self.replaced: set[int] = set()

    def take(self, changes: list[PeerTransition]) -> None:
        for change in changes:
            epoch = change.peer.epoch
            if change.ended:
                assert epoch in self.suspended
                self.suspended.remove(epoch)
                continue
            if change.reason is None:
                assert epoch not in self.up
                self.up.add(epoch)
                self.suspended.discard(epoch)
            else:
                assert epoch in self.up
                self.up.remove(epoch)
                if change.peer.is_suspended:
                    self.suspended.add(epoch)
            assert (change.successor is not None) == (change.reason == "restarted")

    @rule(
        epoch=EPOCHS,
        node=NODES,
        what=CONFIRMED,
        behind=st.booleans(),
        others=st.frozensets(EPOCHS),
        joins=st.booleans(),
    )
    def hello(self, epoch: int, node: str, what: str, behind: bool, others: frozenset[int], joins: bool) -> None:
        if epoch in self.replaced:
            return
        node = self.names.setdefault(epoch, node)  # a session keeps its name
        new = epoch not in self.model
        for other in {*self.model, *self.suspended} - {epoch}:
            model = self.model.get(other)
            missed = model is None or self.now - model.heard > RESTART_NS
            if self.names[other] == node and (missed or (other in self.suspended and new)):
                if other in self.suspended or (model is not None and model.up):
                    self.replaced.add(other)
                else:
                    self.fell_silent[other] = self.now
                self.model.pop(other, None)
        peer = self.model.setdefault(epoch, Model(node, 0, known=self.fell_silent.pop(epoch, 0)))
        before, peer.heard = peer.up, self.now
        joins = joins and not peer.up  # a peer that is up is not asked for a hello
        silent, peer.number = self.now - peer.number > SUSPECT_NS, self.now
        number = {
            "nothing": None, "never said": 0, "known": peer.known, "a little more": min(peer.known + 1, self.now),
            "the last": self.now, "to come": self.now + 1,
        }[what]  # fmt: skip
        heard = dict.fromkeys(others, 7) | ({} if number is None else {OURS: number})
        answer, changes = self.table.on_hello(
            epoch, self.now, self.now, Hello(peer.node, heard, {}, behind=behind), self.now, joins
        )
        number = None if joins else number
        self.take(changes)
        assert {change.successor for change in changes} <= {None, epoch}
        assert {change.reason for change in changes if not change.ended} <= {None, "restarted", "deaf"}
        interrupted = before and (silent or (number is not None and number - peer.known > 2 * SUSPECT_NS))
        if number is None and peer.up:
            peer.up, peer.known = False, self.now
        elif number is not None and peer.known < number <= self.now:
            peer.up, peer.known = True, number
            peer.hears = max(peer.hears, number, self.now - HELLO_INTERVAL_NS)
        elif number is not None and behind:
            peer.hears = self.now
        if joins:
            assert answer == new
        else:
            assert answer == (not peer.up or not before or interrupted)  # answered until both sides know
        entry = self.table.get(epoch)
        assert entry is not None
        assert (entry.interrupted, entry.joining) == (interrupted, joins)

    @rule(epoch=EPOCHS)
    def bye(self, epoch: int) -> None:
        changes = self.table.on_bye(epoch)
        assert [change.reason for change in changes if not change.ended] == (["closed"] if epoch in self.up else [])
        self.take(changes)
        self.model.pop(epoch, None)
        self.fell_silent.pop(epoch, None)
        self.replaced.discard(epoch)

    @rule(epoch=EPOCHS)
    def data(self, epoch: int) -> None:
        """Or any other frame."""
        if (peer := self.table.get(epoch)) is not None:
            peer.heard_mono_ns = self.model[epoch].heard = self.now

    @rule(epoch=EPOCHS)
    def ack(self, epoch: int) -> None:
        self.data(epoch)
        if (peer := self.table.get(epoch)) is not None:
            peer.confirmed_mono_ns = self.model[epoch].hears = self.now

    @rule(
        passed_ns=st.sampled_from(
            [
                1,
                HELLO_INTERVAL_NS,
                RESTART_NS,
                RESTART_NS + 1,
                2 * SUSPECT_NS,
                PEER_TIMEOUT_NS,
                PEER_TIMEOUT_NS + 1,
                HARD_TIMEOUT_NS,
            ]
        ),
        unread_ns=st.sampled_from([0, PEER_TIMEOUT_NS, HARD_TIMEOUT_NS]),
    )
    def time_passes(self, passed_ns: int, unread_ns: int) -> None:
        """``unread_ns``: for how long hellos may have been waiting behind data."""
        self.now += passed_ns
        changes = self.table.expire(self.now, self.now - unread_ns)
        assert {change.reason for change in changes if not change.ended} <= {"silent", "deaf"}
        self.take(changes)
        reasons = {change.peer.epoch: change.reason for change in changes if not change.ended}
        for epoch, peer in list(self.model.items()):
            good = peer.hears if peer.up else peer.heard
            over = self.now - unread_ns - good > PEER_TIMEOUT_NS or self.now - peer.heard > HARD_TIMEOUT_NS
            assert over or epoch not in reasons
            if over and reasons.get(epoch) == "deaf":
                assert peer.heard - peer.hears > 2 * HELLO_INTERVAL_NS
                peer.up, peer.known = False, self.now
            elif over:
                del self.model[epoch]
                self.fell_silent[epoch] = self.now

    @rule()
    def this_side_was_not_listening(self) -> None:
        self.table.restart_timers(self.now)
        for peer in self.model.values():
            peer.heard = peer.hears = self.now

    @rule()
    def peers_that_are_up_are_quiet_or_not(self) -> None:
        quiet = [peer for peer in self.model.values() if peer.up and self.now - peer.heard > SUSPECT_NS]
        deaf = [peer for peer in self.model.values() if peer.up and self.now - peer.hears > 2 * SUSPECT_NS]
        assert self.table.any_suspect(self.now) == bool(quiet or deaf)

    @invariant()
    def the_table_is_true(self) -> None:
        assert {peer.epoch: (peer.node, peer.up) for peer in self.table.all()} == {
            epoch: (peer.node, peer.up) for epoch, peer in self.model.items()
        }
        for peer in self.table.all():
            assert (peer.heard_mono_ns, peer.confirmed_mono_ns) == (
                self.model[peer.epoch].heard,
                self.model[peer.epoch].hears,
            )
        assert {peer.epoch for peer in self.table.suspended()} == self.suspended
        assert {
            epoch for epoch, peer in self.table.sessions.items() if peer.state is PeerState.REPLACED
        } == self.replaced
        assert {epoch for epoch, peer in self.model.items() if peer.up} == self.up
        assert all((self.table.get(epoch) is not None) == (epoch in self.model) for epoch in range(2, 7))


TestPeers = Peers.TestCase
TestPeers.settings = settings(max_examples=60, stateful_step_count=40)


def confirming(node: str, now: int) -> Hello:
    """A hello of a peer that has heard all that was said."""
    return Hello(node, {OURS: now}, {})


def test_two_living_nodes_of_one_name_are_no_restart() -> None:
    table = PeerTable(OURS, 0)
    changes: list[PeerTransition] = []
    for turn in range(20):
        now = 1 + turn * HELLO_INTERVAL_NS // 2
        changes += table.on_hello(2 + turn % 2, turn, turn, confirming("gnb", now), now)[1]
        changes += table.expire(now, now)
    assert [(change.peer.epoch, change.reason) for change in changes] == [(2, None), (3, None)]


def test_a_quick_restart_is_seen_when_the_old_one_misses_its_hello() -> None:
    table = PeerTable(OURS, 0)
    table.on_hello(2, 0, 0, confirming("gnb", 1), 1)
    changes: list[PeerTransition] = []
    for turn in range(1, 6):
        now = 1 + turn * HELLO_INTERVAL_NS // 2
        changes += table.on_hello(3, turn, turn, confirming("gnb", now), now)[1]
    assert [(c.peer.epoch, c.reason, c.successor) for c in changes] == [(3, None, None), (2, "restarted", 3)]


def test_a_cut_is_noticed_by_both_once_it_is_over_though_nobody_was_down() -> None:
    ours, theirs = 1, 2
    tables = {ours: PeerTable(ours, 0), theirs: PeerTable(theirs, 0)}
    for here, there in ((ours, theirs), (theirs, ours)):
        tables[here].on_hello(there, 1, 1, Hello(f"n{there}", {here: 1}, {}), 1)
    healed = 4 * SUSPECT_NS  # what was said meanwhile did not get through
    interrupted: list[bool] = []
    here, there, confirmed, answers = theirs, ours, 1, True
    while answers:
        now = healed + len(interrupted)
        answers, changes = tables[here].on_hello(there, now, now, Hello(f"n{there}", {here: confirmed}, {}), now)
        assert not changes
        (peer,) = tables[here].all()
        interrupted.append(peer.interrupted)
        here, there, confirmed = there, here, now
    # Not heard for long; that, and not confirmed for long; not confirmed for long; and no peer needs to say more.
    assert interrupted == [True, True, True, False]


def test_who_confirms_what_was_said_before_there_was_anybody_to_say_it_is_not_up() -> None:
    table = PeerTable(OURS, 1000)
    assert table.on_hello(2, 1, 1, confirming("stranger", 1000), 2000)[1] == []
    assert [change.reason for change in table.on_hello(2, 2, 2, confirming("stranger", 1001), 2001)[1]] == [None]


def test_a_flood_of_hellos_is_bounded() -> None:
    table = PeerTable(OURS, 0)
    for wave in range(3):
        now = wave * 2 * PEER_TIMEOUT_NS
        for epoch in range(2, 1100):
            table.on_hello(wave * 10_000 + epoch, 1, 1, Hello(f"n{epoch}", {OURS: now}, {}), now)
        assert len(table.all()) == 1024
        table.expire(now + PEER_TIMEOUT_NS + 1, now + PEER_TIMEOUT_NS + 1)
        assert table.all() == []
    assert len(table.sessions) <= MAX_REMEMBERED + 1024


@pytest.mark.parametrize("up_ns", [0, 1, 2**50 - 1, 2**53, 2**55 + 12345, 2**62])
def test_numbers_of_hellos_are_exact_doubles_for_91_days(up_ns: int) -> None:
    """As those of one host are compared, they count from one origin, unless it was passed in between."""
    table, later = PeerTable(OURS, up_ns), PeerTable(OURS, up_ns + 1)
    after_91_days = up_ns + 91 * 24 * 3600 * 10**9
    assert 0 <= table.number(up_ns) < table.number(after_91_days) < 2**53
    assert up_ns == 2**50 - 1 or table.number(up_ns + 2) == later.number(up_ns + 2)


def test_a_number_that_came_back_as_a_double_is_news() -> None:
    """Of a session that is older than that."""
    table = PeerTable(OURS, 12345)
    now = 2**54 + 12345
    for _ in range(10):
        now += HELLO_INTERVAL_NS
        told = int(float(table.number(now - 1_000_001)))
        table.on_hello(2, now, now, confirming("gnb", told), now)
        assert table.expire(now, now) == []
        assert [peer.node for peer in table.all() if peer.up] == ["gnb"]
