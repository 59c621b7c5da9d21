"""The calls of an application's handlers: one at a time, in order, none lost and none made twice."""

import itertools
import time
from collections import deque
from collections.abc import Callable
from typing import cast

import pytest

from tests.core.interrupting import interrupted
from twinlink.events import Event, PeerDown, PeerUp
from twinlink.runtime import callbacks, receiver
from twinlink.runtime.callbacks import RUN_S, CallbackQueue, Driver


def queue_of_calls() -> CallbackQueue:
    return CallbackQueue(deque(), cast(Driver, None))  # only messages are delivered


COUNT = 10


def _slow(made: list[int], number: int) -> None:
    made.append(number)
    time.sleep(RUN_S / 3)


def test_what_there_is_no_time_for_is_called_later_and_before_what_is_due_already() -> None:
    made: list[int] = []
    due = queue_of_calls()

    def handler(number: int) -> None:
        if number == 0:  # it waits, and something arrives meanwhile
            due.enqueue(handler, (COUNT,), "flow")
        _slow(made, number)

    due.enqueue(handler, range(COUNT), "flow")
    due.run()
    assert len(made) < COUNT
    while due.pending:
        before = len(made)
        due.run()
        assert before < len(made) < before + COUNT
    assert made == list(range(COUNT + 1))


def test_wherever_ctrl_c_comes_nothing_is_called_twice_and_the_interrupted_call_alone_is_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Before and after each call, in the handler and around it."""
    monkeypatch.setattr(callbacks, "RUN_S", 0.0)  # there is time for one call
    for moment in itertools.count(1):
        made: list[int] = []
        due = queue_of_calls()
        due.enqueue(made.append, range(COUNT), "flow")
        if not interrupted(moment, due.run, callbacks.__file__):
            break
        while due.pending:
            due.run()
        assert made == sorted(set(made))
        assert len(made) >= COUNT - 1
    assert moment > 1


class Unused:
    """Nothing is waited for."""

    closed = False

    def wait(self, done: Callable[[], object], timeout: float | None) -> None:
        raise AssertionError(done, timeout)


def test_wherever_ctrl_c_comes_the_next_event_brings_what_was_left() -> None:
    for moment in itertools.count(1):
        due, got = queue_of_calls(), list[Event]()
        events = deque[Event]()
        stream = receiver.EventStream(Unused(), due, events)
        stream._set_handler(got.append)
        first, last = PeerUp(1, "far", 1), PeerDown(2, "far", 1, "closed")
        events.append(first)
        stream._on_events()
        came = interrupted(moment, due.run, callbacks.__file__, receiver.__file__)
        events.append(last)
        stream._on_events()
        while due.pending:
            due.run()
        assert got in ([first, last], [last])  # or the interrupted call is gone
        assert came or got == [first, last]
        if not came:
            break
    assert moment > 4


def test_a_call_that_has_just_begun_after_an_idle_time_is_not_taken_for_one_that_takes_long() -> None:
    due = queue_of_calls()
    while due.is_watched:
        assert not due.look()
    looks: list[bool] = []
    due.enqueue(lambda _: looks.extend([due.look(), due.look()]), (0,), "flow")
    due.run()
    assert looks == [False, True]
