"""PeerTable as a state machine: whatever is said in whatever order, changes alternate and the table stays true."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from twinlink.peers import CERTAIN_NS, HELLO_NS, MAX_PEERS, RESTART_NS, SILENT_NS, Change, PeerTable
from twinlink.wire import Hello

OURS = 1
EPOCHS = st.integers(2, 6)
NODES = st.sampled_from(["gnb", "twin"])


class Peers(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.table = PeerTable(OURS)
        self.now = 0
        self.up: set[int] = set()  # told by the changes alone
        self.heard: dict[int, tuple[str, int]] = {}  # epoch -> node, last hello

    def take(self, changes: list[Change]) -> None:
        for change in changes:
            epoch = change.peer.epoch
            if change.reason is None:
                assert epoch not in self.up
                self.up.add(epoch)
            else:
                assert epoch in self.up
                self.up.remove(epoch)
            assert (change.successor is not None) == (change.reason == "restarted")

    @rule(epoch=EPOCHS, node=NODES, hears_us=st.booleans(), others=st.frozensets(EPOCHS))
    def hello(self, epoch: int, node: str, hears_us: bool, others: frozenset[int]) -> None:
        before = set(self.up)
        known = self.heard.get(epoch)
        node = known[0] if known else node  # a session keeps its name
        heard = others | {OURS} if hears_us else others
        answer, changes = self.table.hello(epoch, Hello(node, heard, {}), self.now)
        self.take(changes)
        assert {change.successor for change in changes} <= {None, epoch}
        assert {change.reason for change in changes} <= {None, "restarted", "deaf"}
        for other, (name, at) in list(self.heard.items()):
            if name == node and other != epoch and self.now - at > RESTART_NS:
                del self.heard[other]
                assert other not in self.up
        self.heard[epoch] = (node, self.now)
        assert (epoch in self.up) == hears_us
        assert answer == (not hears_us or epoch not in before)  # answered until both sides know

    @rule(epoch=EPOCHS)
    def bye(self, epoch: int) -> None:
        changes = self.table.bye(epoch)
        assert [change.reason for change in changes] == (["closed"] if epoch in self.up else [])
        self.take(changes)
        self.heard.pop(epoch, None)

    @rule(
        passed_ns=st.sampled_from([1, RESTART_NS, RESTART_NS + 1, SILENT_NS, SILENT_NS + 1, CERTAIN_NS]),
        unread_ns=st.sampled_from([0, SILENT_NS, CERTAIN_NS]),
    )
    def time_passes(self, passed_ns: int, unread_ns: int) -> None:
        """``unread_ns``: for how long hellos may have been waiting behind data."""
        self.now += passed_ns
        changes = self.table.expire(self.now, self.now - unread_ns)
        assert {change.reason for change in changes} <= {"silent"}
        self.take(changes)
        for epoch, (_, at) in list(self.heard.items()):
            if self.now - unread_ns - at > SILENT_NS or self.now - at > CERTAIN_NS:
                del self.heard[epoch]

    @rule()
    def this_side_was_not_listening(self) -> None:
        self.table.excuse(self.now)
        self.heard = {epoch: (node, self.now) for epoch, (node, _) in self.heard.items()}

    @invariant()
    def the_table_is_true(self) -> None:
        assert {peer.epoch: peer.node for peer in self.table.all()} == {e: node for e, (node, _) in self.heard.items()}
        assert self.table.heard == {epoch: at for epoch, (_, at) in self.heard.items()}
        assert {peer.epoch for peer in self.table.all() if peer.up} == self.up
        assert all((self.table.get(epoch) is not None) == (epoch in self.heard) for epoch in range(2, 7))


TestPeers = Peers.TestCase
TestPeers.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def test_two_living_nodes_of_one_name_are_no_restart() -> None:
    table = PeerTable(OURS)
    hello = Hello("gnb", frozenset([OURS]), {})
    changes: list[Change] = []
    for turn in range(20):
        changes += table.hello(2 + turn % 2, hello, turn * HELLO_NS // 2)[1]
        changes += table.expire(turn * HELLO_NS // 2, turn * HELLO_NS // 2)
    assert [(change.peer.epoch, change.reason) for change in changes] == [(2, None), (3, None)]


def test_a_quick_restart_is_seen_when_the_old_one_misses_its_hello() -> None:
    table = PeerTable(OURS)
    hello = Hello("gnb", frozenset([OURS]), {})
    table.hello(2, hello, 0)
    changes: list[Change] = []
    for turn in range(1, 5):
        changes += table.hello(3, hello, turn * HELLO_NS // 2)[1]
    assert [(c.peer.epoch, c.reason, c.successor) for c in changes] == [(3, None, None), (2, "restarted", 3)]


def test_a_flood_of_hellos_is_bounded() -> None:
    table = PeerTable(OURS)
    for epoch in range(2, 2 * MAX_PEERS):
        table.hello(epoch, Hello(f"n{epoch}", frozenset([OURS]), {}), 0)
    assert len(table.all()) == MAX_PEERS
    table.expire(SILENT_NS + 1, SILENT_NS + 1)
    assert table.all() == []
