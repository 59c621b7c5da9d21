"""What wakes a waiting thread, and what is left of it when Ctrl-C comes in between."""

import itertools
import threading

import pytest

from tests.core.interrupting import interrupted
from twinlink.process import wakeup as module
from twinlink.process.wakeup import WaiterList, Wakeup
from twinlink.testing.base import in_thread, patience


def test_it_wakes_once_however_often_it_is_rung() -> None:
    wakeup = Wakeup()
    assert not wakeup.wait(0)
    wakeup.wake()
    wakeup.wake()
    assert wakeup.is_set
    assert wakeup.wait()
    assert not wakeup.is_set
    assert not wakeup.wait(0.001)
    waits = in_thread(lambda: wakeup.wait(patience()))
    wakeup.wake()
    assert waits.result()


def test_all_who_have_been_added_are_woken_and_nobody_else() -> None:
    bells = WaiterList()
    first, gone, second = bells.add(), bells.add(), bells.add()
    bells.remove(gone)
    bells.wake_all()
    late = bells.add()
    assert [wakeup.is_set for wakeup in (first, gone, second, late)] == [True, False, True, False]
    bells.remove(first)  # it has been rung
    bells.wake_all()
    assert late.is_set


@pytest.mark.parametrize("what", ["ring", "wait"])
def test_wherever_ctrl_c_comes_it_can_be_rung_and_waited_for_again(what: str) -> None:
    for moment in itertools.count(1):
        wakeup, bells = Wakeup(), WaiterList()
        mine = bells.add()

        def do() -> None:
            if what == "ring":
                wakeup.wake()  # noqa: B023
                bells.wake_all()  # noqa: B023
            else:
                wakeup.wait(0.001)  # noqa: B023
                bells.remove(mine)  # noqa: B023

        came = interrupted(moment, do, module.__file__, threading.__file__)
        late = bells.add()
        wakeup.wait(0)
        in_thread(wakeup.wake).result()
        in_thread(bells.wake_all).result()
        assert wakeup.wait(patience())
        assert late.wait(patience())
        if not came:
            break
    assert moment > 5
