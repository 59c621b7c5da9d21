"""The state machine of the PRB block, on a manual clock."""

import json
from dataclasses import dataclass
from itertools import count

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from twinlink_exporter.block import ACK_WAIT_NS, MS, Blocks, Control, Instant, NotCleared, Outcome, Todo

from twinlink import MalformedPayload
from twinlink.control import E3Control, PrbBlock, PrbBlockResult

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
        else item.content
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


def test_where_controls_have_a_sequence_id_the_result_has_it_with_its_times() -> None:
    blocks = make()
    assert blocks.e3_ready(sequenced=True) == []
    (control,) = blocks.propose(block("a", 5), WALL + 7, at(10))
    assert control == Control(1, (5,), 2, sequence_id=1)
    (installed,) = blocks.acknowledged(1, True, at(12), WALL + 11)
    assert isinstance(installed, Outcome)
    assert installed.result.e3 == E3Control(1, WALL + 7, WALL + 10 * MS, WALL + 12 * MS, WALL + 11)
    assert PrbBlockResult.decode(installed.result.encode()) == installed.result
    blocks.propose(block("a", 5), WALL, at(15))
    (again,) = blocks.acknowledged(2, True, at(16), -1)
    assert isinstance(again, Outcome)
    assert (installed.renews, again.renews) == (False, True)
    assert again.result.e3 == E3Control(2, WALL, WALL + 15 * MS, WALL + 16 * MS)
    blocks.propose(block("b", 6), WALL, at(20))
    rejected, *_ = blocks.acknowledged(3, False, at(21))
    assert isinstance(rejected, Outcome)
    assert rejected.result.e3 == E3Control(3, WALL, WALL + 20 * MS)
    clear, cleared = blocks.clear("expired", at(30))
    assert isinstance(clear, Control)
    assert isinstance(cleared, Outcome)
    assert (clear.sequence_id, cleared.result.e3) == (4, E3Control(2, WALL, WALL + 15 * MS))


@pytest.mark.parametrize(
    "e3",
    [5, [], {}, {"sequence_id": 1}, {"sequence_id": 0, "received_ns": 1, "sent_ns": 1},
     {"sequence_id": 1, "received_ns": 1, "sent_ns": -1}, {"sequence_id": 1, "received_ns": 1, "sent_ns": 1, "x": 1}],
)  # fmt: skip
def test_a_result_with_another_e3_is_refused(e3: object) -> None:
    fields = {"id": "a", "status": "installed", "prbs": [], "time_ns": 1, "reason": "", "e3": e3}
    with pytest.raises(MalformedPayload):
        PrbBlockResult.decode(json.dumps(fields).encode())


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


def test_when_two_lists_in_a_row_are_refused_nothing_stands() -> None:
    for refused in ([2, 3], [3, 2], [3]):  # the answer to the first may come late, or never
        blocks = make()
        blocks.propose(block("a", 5, validity_ms=600), WALL, at(0))
        blocks.acknowledged(1, True, at(1))
        blocks.propose(block("x", 6, validity_ms=8000), WALL, at(100))
        blocks.propose(block("y", 7, validity_ms=8000), WALL, at(120))
        todo = [item for message_id in refused for item in blocks.acknowledged(message_id, False, at(200))]
        assert told(todo) == [(), ("y", "rejected", "refused", ()), ("x", "cleared", "refused", ())]


def test_a_refusal_leaves_what_was_acknowledged_late() -> None:
    blocks = make()
    blocks.propose(block("x", 6), WALL, at(0))
    blocks.propose(block("y", 7), WALL, at(20))
    assert blocks.acknowledged(1, True, at(100)) == []
    assert told(blocks.acknowledged(2, False, at(101))) == [("y", "rejected", "refused", (6,))]
    assert told(blocks.timer(at(2000))) == [(), ("x", "cleared", "expired", ())]


def test_a_clear_that_may_have_been_refused_is_repeated_when_the_next_list_is_refused() -> None:
    blocks = make()
    blocks.propose(block("a", 5), WALL, at(0))
    blocks.acknowledged(1, True, at(1))
    blocks.timer(at(2000))
    blocks.propose(block("b", 6), WALL, at(2001))
    assert blocks.acknowledged(2, False, at(2002)) == []
    assert told(blocks.acknowledged(3, False, at(2003))) == [(), ("b", "rejected", "refused", ())]


def test_a_request_to_clear_that_is_refused_late_is_repeated() -> None:
    blocks = make()
    blocks.propose(block("a", 5), WALL, at(0))
    blocks.acknowledged(1, True, at(1))
    blocks.propose(block("off"), WALL, at(2))
    blocks.timer(at(252))
    assert told(blocks.acknowledged(2, False, at(300))) == [()]


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
        ("a", "installed", "followed", (5,)),
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
    outcome, control = blocks.propose(block("b", 6, 7), WALL, at(20))
    assert told([outcome, control]) == [("a", "installed", "followed", (5,)), (6, 7)]
    assert isinstance(outcome, Outcome)
    assert (outcome.result.time_ns, "next list followed" in outcome.result.reason) == (WALL, True)
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
    assert told(blocks.e3_lost(at(2))) == [("a", "cleared", "e3-lost", ())]  # and no control: the agent is gone
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


DECISION = st.tuples(st.sets(st.integers(0, 20), max_size=3), st.integers(1, 500), st.booleans())


@dataclass
class Told:
    """A list sent to the RAN, and its answer, if received."""

    control: Control
    ends_ms: float
    answer: bool | None = None
    not_cleared: bool = False


class BlocksAgainstRan(RuleBasedStateMachine):
    """For any order of events: the reported block is the last list that the RAN did not refuse, until its end, and
    every ``installed`` has one ``cleared``.
    """

    def __init__(self) -> None:
        super().__init__()
        self.blocks = make()
        self.ms = 0
        self.ran: list[Told] = []
        self.session_began = 0
        self.installed: set[str] = set()
        self.names = count()

    def do(self, todo: list[Todo], validity_ms: int = 0) -> None:
        for item in todo:
            if isinstance(item, Control):
                self.ran.append(Told(item, self.ms + validity_ms))
            elif isinstance(item, NotCleared):
                assert not self.ran[-1].control.content
                self.ran[-1].not_cleared = True
            elif item.result.status == "installed":
                self.installed.add(item.result.id)
            elif item.result.status == "cleared" and item.cause != "requested":
                self.installed.remove(item.result.id)  # KeyError: cleared without having been installed
            elif item.result.status == "cleared":
                self.installed.discard(item.result.id)  # the request itself, or what it cleared

    @rule(decisions=st.lists(DECISION, min_size=1, max_size=3))
    def propose(self, decisions: list[tuple[set[int], int, bool]]) -> None:
        for prbs, validity_ms, renew in decisions:
            name = "same" if renew else f"b{next(self.names)}"
            decision = block(name, *sorted(prbs), validity_ms=validity_ms)
            self.do(self.blocks.propose(decision, WALL, at(self.ms)), validity_ms)

    @rule(answers=st.lists(st.tuples(st.booleans(), st.integers(0, 1)), min_size=1, max_size=3))
    def answer(self, answers: list[tuple[bool, int]]) -> None:
        """The RAN's answers to some of the last lists arrive, in any order; others come later, or never."""
        for positive, back in answers:
            assert self.blocks.acknowledged(10**9, positive, at(self.ms)) == []
            unanswered = [told for told in self.ran[self.session_began :] if told.answer is None]
            if back < len(unanswered):
                told = unanswered[-1 - back]
                told.answer = positive
                self.do(self.blocks.acknowledged(told.control.message_id, positive, at(self.ms)))

    @rule(ms=st.integers(0, 300))
    def wait(self, ms: int) -> None:
        self.ms += ms
        self.do(self.blocks.timer(at(self.ms)))

    @rule()
    def lose_twin(self) -> None:
        self.do(self.blocks.clear("twin-lost", at(self.ms)))

    @rule()
    def lose_agent(self) -> None:
        self.session_began = len(self.ran)
        self.do(self.blocks.e3_lost(at(self.ms)))
        assert len(self.ran) == self.session_began  # the agent is gone
        assert not self.blocks.prbs
        may_stand = any(told.control.content for told in self.may_stand())
        self.do(self.blocks.e3_ready())
        assert not may_stand or len(self.ran) > self.session_began

    def may_stand(self) -> list[Told]:
        """The lists of which one is in force in the RAN: the newest that it does not refuse."""
        last = max((k for k, told in enumerate(self.ran) if told.answer), default=0)
        return [told for told in self.ran[last:] if told.answer is not False]

    @invariant()
    def what_is_said_to_stand_is_what_the_ran_was_told_and_did_not_refuse(self) -> None:
        if self.ran and self.ran[-1].not_cleared:  # that has been said
            assert self.blocks.prbs == ()
            return
        newest = [told.control.content for told in self.ran if told.answer is not False][-1:] or [()]
        assert self.blocks.prbs == newest[0]

    @invariant()
    def no_block_stands_longer_than_it_was_given(self) -> None:
        if self.blocks.prbs:
            timer_ns = self.blocks.next_timer_ns()
            assert timer_ns is not None
            assert timer_ns <= self.may_stand()[-1].ends_ms * MS


BlocksAgainstRan.TestCase.settings = settings(max_examples=200, stateful_step_count=30)
TestBlocksAgainstRan = BlocksAgainstRan.TestCase
