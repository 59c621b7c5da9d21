"""Which block stands and when it ends, on a manual clock."""

from itertools import count

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from twinlink_exporter.block import ACK_WAIT_NS, MS, Blocks, Control, Instant, NotCleared, Outcome, Todo

from twinlink.control import PrbBlock, PrbBlockResult

WALL = 1_700_000_000_000_000_000


def at(ms: int) -> Instant:
    return Instant(WALL + ms * MS, ms * MS)


def make() -> Blocks:
    return Blocks(count(1).__next__)


def block(id: str, *prbs: int, validity_ms: int = 2000) -> PrbBlock:
    return PrbBlock(id, prbs, WALL, validity_ms)


def told(todo: list[Todo]) -> list[tuple[object, ...]]:
    """(id, status, cause, prbs that stand after it) of the outcomes; the lists of the controls; else its name."""
    return [
        (item.result.id, item.result.status, item.cause, item.result.prbs)
        if isinstance(item, Outcome)
        else item.prbs
        if isinstance(item, Control)
        else ("not cleared",)
        for item in todo
    ]


def test_a_block_is_handed_over_at_once_and_answered_when_the_ran_acknowledges() -> None:
    blocks = make()
    (control,) = blocks.propose(block("a", 5, 6), WALL + 7, at(10))
    assert control == Control(1, (5, 6), 2)
    assert blocks.acknowledged(99, True, at(11)) == []  # for something else
    (outcome,) = blocks.acknowledged(1, True, at(12))
    assert isinstance(outcome, Outcome)
    assert told([outcome]) == [("a", "installed", "acknowledged", (5, 6))]
    assert (outcome.result.time_ns, outcome.received_ns, outcome.proposed_ns) == (WALL + 12 * MS, WALL + 7, WALL)


def test_without_an_acknowledgement_the_time_is_that_of_handing_over() -> None:
    blocks = make()
    blocks.propose(block("a", 5), WALL, at(10))
    assert blocks.next_timer_ns() == 10 * MS + ACK_WAIT_NS
    assert blocks.timer(at(10 + 249)) == []
    (outcome,) = blocks.timer(at(10 + 250))
    assert isinstance(outcome, Outcome)
    assert told([outcome]) == [("a", "installed", "handed-over", (5,))]
    assert outcome.result.time_ns == WALL + 10 * MS


def test_a_refusal_that_comes_late_clears_what_was_taken_for_installed() -> None:
    blocks = make()
    blocks.propose(block("a", 5), WALL, at(0))
    blocks.timer(at(250))
    assert blocks.acknowledged(99, False, at(300)) == []
    assert blocks.acknowledged(1, True, at(300)) == []
    assert told(blocks.acknowledged(1, False, at(301))) == [(), ("a", "cleared", "refused", ())]
    assert blocks.acknowledged(1, False, at(302)) == []
    blocks.propose(block("b", 6), WALL, at(400))
    blocks.timer(at(650))
    blocks.propose(block("c", 7), WALL, at(700))
    assert blocks.acknowledged(2, False, at(701)) == []  # another one has taken its place


def test_a_refusal_leaves_what_stood() -> None:
    blocks = make()
    blocks.propose(block("a", 5), WALL, at(0))
    blocks.acknowledged(1, True, at(1))
    blocks.propose(block("b", 6), WALL, at(2))
    assert told(blocks.acknowledged(2, False, at(3))) == [("b", "rejected", "refused", (5,))]
    assert told(blocks.timer(at(2000))) == [(), ("a", "cleared", "expired", ())]


def test_a_refusal_to_clear_is_told_once_and_the_next_session_clears() -> None:
    blocks = make()
    blocks.propose(block("a", 5), WALL, at(0))
    blocks.acknowledged(1, True, at(1))
    assert told(blocks.timer(at(2000))) == [(), ("a", "cleared", "expired", ())]
    assert blocks.acknowledged(99, False, at(2001)) == []
    assert told(blocks.acknowledged(2, False, at(2002))) == [("not cleared",)]
    assert blocks.acknowledged(2, False, at(2003)) == []
    assert told(blocks.e3_ready()) == [()]
    assert blocks.acknowledged(3, True, at(2004)) == []
    assert blocks.e3_ready() == []


def test_a_refusal_to_clear_means_nothing_once_another_list_has_replaced_it() -> None:
    blocks = make()
    blocks.e3_ready(clear=True)
    blocks.propose(block("a", 5), WALL, at(0))
    assert blocks.acknowledged(1, False, at(1)) == []
    assert told(blocks.acknowledged(2, True, at(2))) == [("a", "installed", "acknowledged", (5,))]


def test_a_block_ends_with_its_validity_even_before_it_was_answered() -> None:
    blocks = make()
    blocks.propose(block("a", 5, validity_ms=50), WALL, at(0))
    assert blocks.next_timer_ns() == 50 * MS
    assert told(blocks.timer(at(50))) == [
        ("a", "installed", "handed-over", (5,)),
        (),
        ("a", "cleared", "expired", ()),
    ]
    assert blocks.prbs == ()


def test_renewal_with_the_same_id_clears_nothing() -> None:
    blocks = make()
    blocks.propose(block("a", 5), WALL, at(0))
    blocks.acknowledged(1, True, at(1))
    assert told(blocks.propose(block("a", 5), WALL, at(1500))) == [(5,)]
    assert told(blocks.acknowledged(2, True, at(1501))) == [("a", "installed", "acknowledged", (5,))]
    assert blocks.timer(at(3499)) == []
    assert told(blocks.timer(at(3500))) == [(), ("a", "cleared", "expired", ())]


def test_another_block_replaces() -> None:
    blocks = make()
    blocks.propose(block("a", 5), WALL, at(0))
    assert told(blocks.propose(block("b", 6, 7), WALL, at(20))) == [("a", "installed", "handed-over", (5,)), (6, 7)]
    assert told(blocks.acknowledged(2, True, at(21))) == [
        ("b", "installed", "acknowledged", (6, 7)),
        ("a", "cleared", "replaced", (6, 7)),
    ]


def test_an_empty_list_clears_on_request() -> None:
    blocks = make()
    blocks.propose(block("a", 5), WALL, at(0))
    blocks.acknowledged(1, True, at(1))
    assert told(blocks.propose(block("b"), WALL, at(2))) == [()]
    assert told(blocks.acknowledged(2, True, at(3))) == [
        ("b", "cleared", "requested", ()),
        ("a", "cleared", "requested", ()),
    ]
    assert blocks.next_timer_ns() is None


def test_the_reason_of_a_request_is_repeated() -> None:
    blocks = make()
    blocks.propose(PrbBlock("a", (), WALL, 2000, "x" * 1024), WALL, at(0))
    (outcome,) = blocks.acknowledged(1, True, at(1))
    assert isinstance(outcome, Outcome)
    assert PrbBlockResult.decode(outcome.result.encode()).reason.startswith("the twin asked for it: xxx")


def test_the_loss_of_the_last_twin_clears() -> None:
    blocks = make()
    assert blocks.clear("twin-lost", at(0)) == []
    blocks.propose(block("a", 5), WALL, at(0))
    blocks.acknowledged(1, True, at(1))
    assert told(blocks.clear("twin-lost", at(2))) == [(), ("a", "cleared", "twin-lost", ())]


def test_after_the_loss_of_the_agent_the_next_session_begins_by_clearing() -> None:
    blocks = make()
    blocks.propose(block("a", 5), WALL, at(0))
    blocks.acknowledged(1, True, at(1))
    assert told(blocks.e3_lost(at(2))) == [("a", "cleared", "e3-lost", ())]  # and no control: nobody is there
    assert told(blocks.e3_ready()) == [()]
    assert blocks.e3_ready() == []
    assert told(blocks.e3_ready(clear=True)) == [()]


def test_a_clear_that_was_not_acknowledged_before_the_agent_was_lost_is_repeated() -> None:
    blocks = make()
    blocks.e3_ready(clear=True)
    assert blocks.e3_lost(at(1)) == []
    assert told(blocks.e3_ready()) == [()]
    blocks.acknowledged(2, True, at(2))
    blocks.propose(block("off"), WALL, at(3))
    assert told(blocks.e3_lost(at(4))) == [("off", "cleared", "requested", ())]
    assert told(blocks.e3_ready()) == [()]


def test_a_long_validity_fits_the_grammar() -> None:
    (control,) = make().propose(block("a", 5, validity_ms=2**31 - 1), WALL, at(0))
    assert isinstance(control, Control)
    assert control.validity_s == 3600


class BlocksAgainstRan(RuleBasedStateMachine):
    """Whatever comes in whatever order: what we say stands is what the RAN was last told, and answers pair up."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = make()
        self.ms = 0
        self.ran: tuple[int, ...] = ()
        self.before: tuple[int, ...] = ()
        self.last_control: Control | None = None
        self.installed: set[str] = set()
        self.names = count()

    def do(self, todo: list[Todo]) -> None:
        for item in todo:
            if isinstance(item, Control):
                self.before, self.ran, self.last_control = self.ran, item.prbs, item
            elif isinstance(item, NotCleared):
                assert not self.ran  # the last list that the RAN was told, though it refused it
            elif item.result.status == "installed":
                self.installed.add(item.result.id)
            elif item.result.status == "cleared" and item.cause != "requested":
                self.installed.remove(item.result.id)  # KeyError: cleared without having been installed
            elif item.result.status == "cleared":
                self.installed.discard(item.result.id)  # the request itself, or what it cleared

    @rule(prbs=st.sets(st.integers(0, 20), max_size=3), validity_ms=st.integers(1, 500), renew=st.booleans())
    def propose(self, prbs: set[int], validity_ms: int, renew: bool) -> None:
        name = "same" if renew else f"b{next(self.names)}"
        self.do(self.blocks.propose(block(name, *sorted(prbs), validity_ms=validity_ms), WALL, at(self.ms)))

    @rule(positive=st.booleans(), matching=st.booleans())
    def acknowledge(self, positive: bool, matching: bool) -> None:
        if self.last_control is None:
            return
        request_id = self.last_control.message_id if matching else 10**9
        todo = self.blocks.acknowledged(request_id, positive, at(self.ms))
        if any(isinstance(item, Outcome) and item.cause == "refused" for item in todo):
            self.ran = self.before
        self.do(todo)

    @rule(ms=st.integers(0, 300))
    def wait(self, ms: int) -> None:
        self.ms += ms
        self.do(self.blocks.timer(at(self.ms)))

    @rule()
    def lose_twin(self) -> None:
        self.do(self.blocks.clear("twin-lost", at(self.ms)))

    @rule()
    def lose_agent(self) -> None:
        self.do(self.blocks.e3_lost(at(self.ms)))
        self.do(self.blocks.e3_ready())

    @invariant()
    def what_is_said_to_stand_is_what_the_ran_was_told(self) -> None:
        assert self.blocks.prbs == self.ran

    @invariant()
    def nothing_stands_without_an_end(self) -> None:
        timer_ns = self.blocks.next_timer_ns()
        assert (timer_ns is not None and timer_ns - self.ms * MS <= 500 * MS) or not self.ran


BlocksAgainstRan.TestCase.settings = settings(max_examples=100, stateful_step_count=20)
TestBlocksAgainstRan = BlocksAgainstRan.TestCase
