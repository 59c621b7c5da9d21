"""The calls of an application's handlers: one at a time, in order, none lost and none made twice."""

import itertools
import time

import pytest

from tests.core.interrupting import interrupted
from twinlink import calls
from twinlink.calls import RUN_S, Calls

COUNT = 10


def _slow(made: list[int], number: int) -> None:
    made.append(number)
    time.sleep(RUN_S / 3)


def test_what_there_is_no_time_for_is_called_later_and_before_what_is_due_already() -> None:
    made: list[int] = []
    due = Calls(lambda _: None)

    def handler(number: int) -> None:
        if number == 0:  # it waits, and something arrives meanwhile
            due.call(handler, COUNT, "flow")
        _slow(made, number)

    due.call_each(handler, range(COUNT), "flow")
    assert len(made) < COUNT
    while due.due:
        before = len(made)
        due.run()
        assert before < len(made) < before + COUNT
    assert made == list(range(COUNT + 1))


def test_wherever_ctrl_c_comes_nothing_is_called_twice_and_the_interrupted_call_alone_is_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Before and after each call, in the handler and around it."""
    monkeypatch.setattr(calls, "RUN_S", 0.0)  # there is time for one call
    for moment in itertools.count(1):
        made: list[int] = []
        due = Calls(lambda _: None)
        if not interrupted(moment, lambda: due.call_each(made.append, range(COUNT), "flow"), calls.__file__):  # noqa: B023
            break
        while due.due:
            due.run()
        assert made == sorted(set(made))
        assert len(made) >= (COUNT - 1 if moment > 1 else 0)  # the first is before `call_each` does anything
    assert moment > 10
