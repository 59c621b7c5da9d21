"""What wakes a waiting thread, and what is left of it when Ctrl-C comes in between."""

import itertools
import threading

import pytest

from tests.core.interrupting import interrupted
from twinlink.process import wakeup as module
from twinlink.process.wakeup import Bell, Bells
from twinlink.testing.base import in_thread, patience


def test_it_wakes_once_however_often_it_is_rung() -> None:
    bell = Bell()
    assert not bell.wait(0)
    bell.ring()
    bell.ring()
    assert bell.rung
    assert bell.wait()
    assert not bell.rung
    assert not bell.wait(0.001)
    waits = in_thread(lambda: bell.wait(patience()))
    bell.ring()
    assert waits.result()


def test_all_who_have_been_added_are_woken_and_nobody_else() -> None:
    bells = Bells()
    first, gone, second = bells.add(), bells.add(), bells.add()
    bells.remove(gone)
    bells.ring()
    late = bells.add()
    assert [bell.rung for bell in (first, gone, second, late)] == [True, False, True, False]
    bells.remove(first)  # it has been rung
    bells.ring()
    assert late.rung


@pytest.mark.parametrize("what", ["ring", "wait"])
def test_wherever_ctrl_c_comes_it_can_be_rung_and_waited_for_again(what: str) -> None:
    for moment in itertools.count(1):
        bell, bells = Bell(), Bells()
        mine = bells.add()

        def do() -> None:
            if what == "ring":
                bell.ring()  # noqa: B023
                bells.ring()  # noqa: B023
            else:
                bell.wait(0.001)  # noqa: B023
                bells.remove(mine)  # noqa: B023

        came = interrupted(moment, do, module.__file__, threading.__file__)
        late = bells.add()
        bell.wait(0)
        in_thread(bell.ring).result()
        in_thread(bells.ring).result()
        assert bell.wait(patience())
        assert late.wait(patience())
        if not came:
            break
    assert moment > 5
