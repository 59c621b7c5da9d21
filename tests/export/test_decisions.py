"""What a recording says of decisions, whichever way the twin has taken."""

from twinlink_export.decisions import Decisions
from twinlink_export.source import Message

from twinlink.control import PrbBlock
from twinlink.state.record import HEAD, Record, Slot, Stamp

BLOCK = PrbBlock("b-1", (3, 4, 9), 1, 100).encode()
MS = 1_000_000


def message(flow: str, payload: bytes) -> Message:
    return Message("received", flow, 7, "twin-1", 0, 0, MS, False, payload, None)


def of_state(column: str, payload: bytes) -> bytes:
    return HEAD + Record(Slot("gnb-1", column), Stamp(1, "twin-1", 7), 1, 0, 1000, payload).encode()


def test_a_block_that_is_desired_counts_as_one_on_the_flow() -> None:
    on_flow, in_state = Decisions(), Decisions()
    assert on_flow.take(message("control", BLOCK))
    assert not in_state.take(message("state.prb-block", of_state("desired", BLOCK)))  # it is exported as any message
    for decisions in (on_flow, in_state):
        assert decisions.detected(50 * MS) == frozenset({3, 4, 9})
        assert decisions.detected(101 * MS) == frozenset()


def test_what_else_a_state_says_is_no_decision() -> None:
    decisions = Decisions()
    for payload in (of_state("installed", BLOCK), of_state("desired", b"{}"), b"no state"):
        decisions.take(message("state.prb-block", payload))
    assert decisions.detected(0) is None
