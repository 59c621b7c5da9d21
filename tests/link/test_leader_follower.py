"""Which thread receives, whichever waits, acts or is interrupted: a lead with a pump that nothing comes out of."""

import itertools
import sys
import threading
import time
from collections.abc import Iterator
from types import FrameType

import pytest

from tests.core.interrupting import interrupted
from twinlink.errors import ConfigurationError
from twinlink.runtime import leader_follower as module
from twinlink.runtime.leader_follower import LeaderFollower
from twinlink.testing import patience, wait_until
from twinlink.testing.base import in_thread

ACTS = 40


@pytest.fixture
def leader_follower() -> Iterator[LeaderFollower]:
    given_back = threading.Event()
    made = LeaderFollower("lead", lambda timeout_s: time.sleep(min(timeout_s, 0.002)), given_back.set)
    yield made
    assert made.close(patience())
    assert given_back.is_set()


def test_who_waits_steps_aside_for_who_acts_and_goes_on(leader_follower: LeaderFollower) -> None:
    depths: list[int] = []
    over = threading.Event()

    def done() -> bool:
        frame: FrameType | None = sys._getframe()
        depths.append(0)
        while frame is not None:
            depths[-1] += 1
            frame = frame.f_back
        return over.is_set()

    waiting = in_thread(lambda: leader_follower.wait(done, patience()))
    for _ in range(ACTS):
        seen = len(depths)
        wait_until(lambda: len(depths) > seen + 3)  # noqa: B023
        leader_follower.run_exclusively(lambda: None)
    over.set()
    waiting.result()
    assert max(depths) < min(depths) + ACTS / 2  # each turn is given back where it was taken


def test_a_timeout_that_is_no_number_is_refused(leader_follower: LeaderFollower) -> None:
    with pytest.raises(ConfigurationError, match="NaN"):
        leader_follower.wait(lambda: False, float("nan"))


def test_what_a_handler_waits_for_it_gets_though_somebody_wants_to_act(leader_follower: LeaderFollower) -> None:
    over, acted = threading.Event(), threading.Event()
    ended: list[bool] = []

    def handle() -> bool:
        """What is pumped in a wait may be a handler that waits."""
        if not ended and leader_follower.is_leading:
            ended.append(False)
            leader_follower.wait(over.is_set, patience())
            ended[0] = over.is_set()
        return bool(ended)

    waiting = in_thread(lambda: leader_follower.wait(handle, patience()))
    wait_until(lambda: ended)
    acting = in_thread(lambda: leader_follower.run_exclusively(acted.set))
    wait_until(lambda: leader_follower._exclusive_waiters)
    time.sleep(0.05)  # several turns of the pump
    over.set()
    waiting.result()
    acting.result()
    assert ended == [True]
    assert acted.is_set()


def test_who_closes_leads_while_the_link_is_given_back() -> None:
    """Handlers are called then, and they may wait."""
    held: list[bool] = []

    def give_back() -> None:
        held.append(made.is_leading)
        made.wait(lambda: False, 0.01)

    made = LeaderFollower("lead", lambda timeout_s: time.sleep(min(timeout_s, 0.002)), give_back)
    assert made.close(patience())
    assert held == [True]
    assert not made.is_leading


@pytest.mark.parametrize("acts", [False, True])
def test_nobody_holds_the_lead_after_an_interrupt(leader_follower: LeaderFollower, acts: bool) -> None:
    """Ctrl-C at each call, also of the lock's own, and at each return."""
    for moment in itertools.count(1):
        turns = itertools.count(1)

        def do() -> None:
            if acts:
                leader_follower.run_exclusively(lambda: None)
            else:
                leader_follower.wait(lambda: next(turns) > 2, 0.05)  # noqa: B023

        if not interrupted(moment, do, module.__file__):
            break
        in_thread(lambda: leader_follower.run_exclusively(lambda: None)).result()
        assert not leader_follower._waiting
    assert moment > 10
