"""Who is to get what is sent: peers come, fall silent, return and go."""

import itertools
from collections.abc import Callable

import pytest

from tests.core.interrupting import interrupted
from twinlink import recipients
from twinlink.recipients import Recipients

THIS, OTHER = 1, 2


def _two() -> Recipients:
    """One peer that asks for what it misses is up, and one that takes frames whole."""
    these = Recipients()
    these.come(THIS, 10, repairs=True, asks=True)
    these.come(OTHER, 20, repairs=False, asks=False)
    these.consumed[THIS] = 15
    return these


def _absent() -> Recipients:
    these = _two()
    these.go(THIS, may_return=True)
    return these


def test_who_falls_silent_is_kept_for_if_it_will_ask() -> None:
    these = _two()
    assert these.go(THIS, may_return=True)
    assert not these.go(OTHER, may_return=True)
    assert these.all == {THIS}
    assert not these.up
    assert (these.absent, these.unread) == ({THIS: 15}, {OTHER: 20})
    assert THIS in these.since
    assert OTHER not in these.since


def test_who_is_back_goes_on_where_it_was() -> None:
    these = _absent()
    these.come(THIS, 100, repairs=True, asks=True)
    assert (these.consumed[THIS], these.since[THIS]) == (15, 10)
    assert not these.absent


@pytest.mark.parametrize(
    ("before", "change"),
    [
        (_two, lambda these: these.come(3, 30, repairs=True, asks=True)),
        (_absent, lambda these: these.come(THIS, 100, repairs=True, asks=True)),
        (_two, lambda these: these.go(THIS, may_return=True)),
        (_two, lambda these: these.go(THIS, may_return=False)),
        (_two, lambda these: these.go(OTHER, may_return=True)),
        (_absent, lambda these: these.forget(THIS)),
    ],
    ids=["comes", "returns", "falls silent", "goes for good", "falls silent and will not ask", "is forgotten"],
)
def test_wherever_ctrl_c_comes_the_change_can_be_made_again(
    before: Callable[[], Recipients], change: Callable[[Recipients], object]
) -> None:
    """Also after a call into C, such as a dictionary's: there Ctrl-C comes, too."""
    expected = before()
    result = change(expected)
    for moment in itertools.count(1):
        these = before()
        if not interrupted(moment, lambda: change(these), recipients.__file__):  # noqa: B023
            break
        assert change(these) == result
        assert vars(these) == vars(expected)
    assert moment > 4
