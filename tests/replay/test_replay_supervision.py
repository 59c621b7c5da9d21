"""When a block is taken back: by the time without an answer, and by which PRBs carry UE traffic."""

import numpy as np
import pytest
from twinlink_replay.twin.supervision import ANSWER_NS, EFFECT_NS, HARM_NS, MS, Supervision

from twinlink.story import Story

PERIOD_NS = 10 * MS
FIRST_PRB = 20
UES = range(0, 8)  # indices of PRBs with UE traffic


class Run:
    """A carrier of 10 PRBs from number 20 on, a record every 10 ms, and a block of PRBs 24 and 25 at time 0."""

    def __init__(self, installed: bool = True, on_air: bool = True) -> None:
        self.supervision, self.now_ns = Supervision(10, FIRST_PRB), -3000 * MS
        self.records(300, *UES)
        self.now_ns = 0
        self.story = Story("b-1", (24, 25))
        self.supervision.begin(self.story, 0)
        if installed:
            self.story.note("installed", MS, "exporter")
        if on_air:
            self.story.note("on air", 2 * MS, "exporter")

    def records(self, count: int, *ues: int) -> tuple[int, str] | None:
        """Records with UEs there; returns when the block is to be taken back, and why, or None."""
        for _ in range(count):
            self.now_ns += PERIOD_NS
            row = np.zeros(10, np.bool_)
            row[list(ues)] = True
            why = self.supervision.add(row, self.now_ns) or self.supervision.look(self.now_ns)
            if why:
                return self.now_ns, why
        return None


def test_a_block_with_effect_stands() -> None:
    run = Run()
    assert run.records(5, *UES) is None  # UEs that were granted PRBs before
    assert run.records(500, 0, 1, 2, 3, 6, 7) is None
    assert run.supervision.effect_ns == 60 * MS  # the first record of those without


def test_ues_that_go_on_there_end_it_at_the_stated_time() -> None:
    run = Run()
    found = run.records(500, *UES)
    assert found is not None
    assert EFFECT_NS <= found[0] - 2 * MS < EFFECT_NS + 2 * PERIOD_NS
    assert found[1].startswith("no effect: PRBs 24-25 still carry UE traffic")
    assert run.supervision.effect_ns is None


def test_a_single_record_without_ues_is_no_effect_and_one_with_them_no_lack_of_it() -> None:
    run = Run()
    busy = [run.records(9, *UES) or run.records(1, 0, 1) for _ in range(12)]
    assert any(busy)
    run = Run()
    assert all(run.records(19, 0, 1) is None and run.records(1, *UES) is None for _ in range(30))


def test_an_effect_that_ends_ends_the_block() -> None:
    run = Run()
    run.records(100, 0, 1)
    began_ns = run.now_ns
    found = run.records(500, *UES)
    assert found is not None
    assert EFFECT_NS <= found[0] - began_ns < 1.2 * EFFECT_NS


@pytest.mark.parametrize("installed", [False, True])
def test_without_an_answer_in_time_it_is_taken_back(installed: bool) -> None:
    run = Run(installed, on_air=False)
    found = run.records(500, *UES)
    assert found is not None
    assert ANSWER_NS <= found[0] < ANSWER_NS + 2 * PERIOD_NS
    assert ("not on air" if installed else "not installed") in found[1]


def test_a_gnb_that_acknowledges_nothing_is_judged_by_the_effect() -> None:
    run = Run(on_air=False)
    assert run.records(500, 0, 1, 2) is None
    assert run.supervision.effect_ns == 10 * MS


def test_ues_that_are_gone_end_the_block() -> None:
    run = Run()
    run.records(50, 0, 1, 2, 3, 6, 7)
    began_ns = run.now_ns
    found = run.records(500)
    assert found is not None
    assert HARM_NS <= found[0] - began_ns < HARM_NS + 2 * PERIOD_NS
    assert found[1].startswith("harm: UEs had 6 PRBs outside of it before, and 0")
    run = Run()
    run.supervision.end()
    assert run.records(500, *UES) is None


def again(run: Run, number: int, installed: bool = True) -> None:
    """The list changes: the next one is sent, and on air at once."""
    run.story = Story(f"b-{number}", (24, 25 + number % 2))
    run.supervision.begin(run.story, run.now_ns)
    if installed:
        run.story.note("installed", run.now_ns, "exporter")
        run.story.note("on air", run.now_ns, "exporter")


def test_a_list_that_changes_does_not_hide_its_harm() -> None:
    run = Run()
    run.records(50, 0, 1, 2, 3, 6, 7)
    began_ns = run.now_ns
    found = None
    for number in range(2, 12):
        found = found or run.records(50)
        again(run, number)
    assert found is not None
    assert found[0] - began_ns < HARM_NS + 20 * PERIOD_NS
    assert found[1].startswith("harm: UEs had 6 PRBs")


def test_a_list_that_changes_does_not_hide_that_it_has_no_effect() -> None:
    run = Run()
    found = None
    for number in range(2, 12):
        found = found or run.records(50, *UES)
        again(run, number)
    assert found is not None
    assert found[0] < EFFECT_NS + 20 * PERIOD_NS
    assert found[1].startswith("no effect")


def test_a_list_that_changes_does_not_hide_that_none_is_installed() -> None:
    run = Run(installed=False, on_air=False)
    found = None
    for number in range(2, 12):
        found = found or run.records(50, *UES)
        again(run, number, installed=False)
    assert found is not None
    assert ANSWER_NS <= found[0] < ANSWER_NS + 20 * PERIOD_NS


def test_a_list_that_changes_often_and_has_effect_stands() -> None:
    run = Run()
    for number in range(2, 40):
        assert run.records(2, *UES) is None  # granted before
        assert run.records(18, 0, 1, 2, 3, 7) is None
        again(run, number)


def test_before_a_block_is_before_it_also_where_the_last_one_expired() -> None:
    run = Run()
    run.records(50, 0, 1, 2, 3, 6, 7)
    run.story.note("expired", run.now_ns, "exporter")
    run.records(500)  # the UEs have left by themselves, long before the next block
    again(run, 2)
    assert run.records(500) is None
