"""An ack of many messages does what as many acks of one do."""

import itertools
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.core.interrupting import interrupted
from tests.core.receiving import Kept
from tests.core.sending import RETENTION, WINDOW, acknowledge, send, sender_on
from twinlink import outgoing
from twinlink.budget import Budget
from twinlink.message import Ack
from twinlink.outgoing import MANY_RECORDS, SAMPLED_RECORDS, Outgoing
from twinlink.wire import REFUSED

SENT = 3 * MANY_RECORDS
ALL = list(range(SENT))
Records = list[tuple[int, int, int]]  # sequence, T1, T2
ROW: Records = [(one, 1000 + one, 2000 + one) for one in ALL]


def core_with(second_from: int, gone: list[int]) -> Outgoing:
    """Messages on their way to peer 1, and from a number on to peer 2; of these peer 1 has some already."""
    core = Outgoing("flow", WINDOW, RETENTION, Budget(2**20))
    core.peer_up(1, repairs=True)
    for sequence in ALL:
        if sequence == second_from:
            core.peer_up(2, repairs=True)
        send(core, sequence % 7, now=sequence)
    while core.backlog.take():
        pass
    acknowledge(core, 1, gone)
    return core


def state(core: Outgoing) -> tuple[Any, ...]:
    return core.stats(), core.kept.entries, core.transit.sequences(), core.transit.through, core.losses.report(SENT)


@st.composite
def many(draw: st.DrawFn) -> Records:
    """A row, mostly; or anything."""
    first, end = sorted((draw(st.integers(0, SENT // 2)), draw(st.integers(SENT // 2, SENT + 5))))
    sequences = list(range(first, end)) + draw(st.lists(st.integers(0, SENT + 5), max_size=3))
    refused = draw(st.sets(st.sampled_from(ALL), max_size=2))
    return [(one, 1000 + one, REFUSED if one in refused else 2000 + one) for one in sequences]


@given(many(), st.sampled_from([SENT, SENT, 0, SENT // 2]), st.lists(st.sampled_from(ALL), max_size=2))
@example(ROW, SENT, [])
@example(ROW, SENT // 2, [])
@example(ROW, 0, [])
def test_it_makes_no_difference_how_many_acks_come_together(records: Records, second: int, gone: list[int]) -> None:
    together, apart = core_with(second, gone), core_with(second, gone)
    acks = together.acknowledge(1, records, 3, 4, 500)
    assert acks == [ack for record in records for ack in apart.acknowledge(1, [record], 3, 4, 500)]
    assert state(together) == state(apart)
    assert together.delays.acks() == apart.delays.acks()


@given(many(), st.sampled_from([SENT, SENT, 0, SENT // 2]))
@example(ROW, SENT)
def test_nor_whether_somebody_wants_each(records: Records, second: int) -> None:
    wanted, unwanted = core_with(second, []), core_with(second, [])
    every = wanted.acknowledge(1, records, 3, 4, 500)
    some = unwanted.acknowledge(1, records, 3, 4, 500, each=False)
    assert state(wanted) == state(unwanted)
    assert unwanted.delays.acks().get(1, []) == some
    assert set(some) <= set(every)
    assert some[-1:] == every[-1:]  # it has waited least for the others


def test_where_nobody_wants_each_some_tell_how_long_they_took() -> None:
    some = core_with(SENT, []).acknowledge(1, ROW, 3, 4, 500, each=False)
    assert SAMPLED_RECORDS // 2 < len(some) <= SAMPLED_RECORDS


def test_who_does_not_want_each_is_given_none() -> None:
    told: list[Ack] = []
    for on_ack, count in ((None, 0), (told.append, SENT)):
        core = core_with(SENT, [])
        sender = sender_on(Kept(), core, 7)
        sender.on_ack = on_ack
        assert len(sender.acknowledged(1, 0, ROW, 3, 4, 500)) == count
        assert core.acknowledged == SENT


@pytest.mark.parametrize("second", [SENT, 0])
def test_ctrl_c_loses_none_of_them_and_counts_none_twice(second: int) -> None:
    for moment in itertools.count(1):
        core = core_with(second, [])
        core.peer_down(2, "gone")  # what it owed is lost, and still kept for the other
        if not interrupted(moment, lambda: core.acknowledge(1, ROW, 3, 4, 500), outgoing.__file__):  # noqa: B023
            break
        core.mend()
        counted = core.stats()
        assert counted["acknowledged"] + counted["outstanding"] + counted["lost"] == SENT
        assert counted["kept_octets"] == core.kept.octets
        assert core.transit.sequences() == list(core.kept.entries)
    assert moment > 5
