"""What leaves in parts: as much at a time as the path may hold, and until everybody has it."""

from typing import Any

import pytest

from tests.core.sending import RETENTION, TRANSIT, WINDOW, acknowledge, send, taken
from twinlink.protocol.frames import Kind, Why, parse
from twinlink.protocol.send.congestion import Budget
from twinlink.protocol.send.flow import Outgoing
from twinlink.protocol.send.queue import STUCK_LOOKS

LONG = 3 * TRANSIT


@pytest.fixture
def core() -> Outgoing:
    made = Outgoing("flow", WINDOW, RETENTION, Budget(TRANSIT))
    made.peer_up(1, repairs=True)
    return made


def handed_over(core: Outgoing) -> list[tuple[int, bytes]]:
    """Parts that may go now: octets that came before, and these."""
    parts = []
    while several := core.backlog.take():
        kind, what = several
        assert kind is Kind.PART
        parts.append((parse(what)[2], what[32:]))
    return parts


def test_no_more_is_under_way_than_may_be(core: Outgoing) -> None:
    send(core, LONG, now=77)
    first = handed_over(core)
    assert 0 < sum(len(octets) for _, octets in first) <= TRANSIT
    assert core.backlog.take() is None
    core.backlog.progress(1, 77, len(first[0][1]))
    second = handed_over(core)
    assert len(second) == 1
    whole = b"".join(octets for _, octets in first + second)
    assert [at for at, _ in first + second] == [len(first[0][1]) * n for n in range(len(first) + 1)]
    core.backlog.progress(1, 77, len(whole))
    while parts := handed_over(core):
        whole += b"".join(octets for _, octets in parts)
        core.backlog.progress(1, 77, len(whole))
    assert whole == core.kept.entries[0][2]
    assert acknowledge(core, 1, [0]) == [0]
    assert not core.transit


def test_the_slowest_of_those_who_are_to_have_it_counts(core: Outgoing) -> None:
    core.peer_up(2, repairs=True)
    send(core, LONG, now=77)
    first = handed_over(core)
    core.peer_up(3, repairs=True)  # after it was sent: it is not for this one
    core.backlog.progress(1, 77, len(first[0][1]))
    assert core.backlog.take() is None
    core.backlog.progress(2, 77, len(first[0][1]))
    assert len(handed_over(core)) == 1


def test_when_nothing_gets_through_what_is_not_there_leaves_again(core: Outgoing) -> None:
    send(core, LONG, now=77)
    first = handed_over(core)
    for _ in range(STUCK_LOOKS):
        core.look()
        assert core.backlog.take() is None
    core.backlog.progress(1, 77, len(first[0][1]))  # something does
    core.look()
    later = handed_over(core)
    assert later[0][0] == sum(len(octets) for _, octets in first)
    for _ in range(STUCK_LOOKS):
        core.look()
    assert handed_over(core) == first[1:] + later


def test_a_strangers_word_is_nothing(core: Outgoing) -> None:
    send(core, LONG, now=77)
    first = handed_over(core)
    for epoch in range(2, 100):
        core.backlog.progress(epoch, 77, len(first[0][1]))
    assert core.backlog.take() is None
    for _ in range(STUCK_LOOKS + 1):
        core.backlog.progress(2, 77, len(first[0][1]))
        core.look()
    assert handed_over(core) == first


def test_who_returns_has_not_had_the_beginning(core: Outgoing) -> None:
    send(core, LONG, now=77)
    first = handed_over(core)
    core.peer_up(2, repairs=True)
    core.peer_down(1, "silent", may_return=True)
    assert core.backlog.take() is None  # nobody who is up waits for it
    core.peer_up(1, repairs=True)
    assert taken(core) == [(Why.EVICTED, [])]
    core.asked(1, 1, [(0, 1)], 3, 4, 5)
    again = handed_over(core)
    assert [at for at, _ in again] == [at for at, _ in first]
    assert again[0][1][3] == Kind.AGAIN
    assert again[0][1][4:] == first[0][1][4:]
    assert again[1:] == first[1:]


def test_what_two_ask_for_leaves_once(core: Outgoing) -> None:
    core.peer_up(2, repairs=True)
    send(core, LONG, now=77)
    handed_over(core)
    for epoch in (1, 2):
        core.peer_down(epoch, "silent", may_return=True)
    for epoch in (1, 2):
        core.peer_up(epoch, repairs=True)
    assert taken(core) == [(Why.EVICTED, [])]
    core.asked(1, 1, [(0, 1)], 3, 4, 5)
    first = handed_over(core)
    core.asked(2, 1, [(0, 1)], 3, 4, 5)
    assert core.backlog.take() is None
    there = sum(len(octets) for _, octets in first)
    while there < LONG + 32:
        for epoch in (1, 2):
            core.backlog.progress(epoch, 77, there)
        parts = handed_over(core)
        assert parts[0][0] == there
        there += sum(len(octets) for _, octets in parts)
    assert core.backlog.take() is None


def test_what_is_announced_goes_behind_the_last_part(core: Outgoing) -> None:
    send(core, LONG, now=77)
    there = sum(len(octets) for _, octets in handed_over(core))
    core.backlog.ask()
    while there < LONG + 32:
        core.backlog.progress(1, 77, there)
        several: Any = core.backlog.take()
        assert several[0] is Kind.PART
        there += len(several[1]) - 32
    assert core.backlog.take() == (Kind.GONE, (Why.EVICTED, []))
    assert core.backlog.unsent == 1


def test_who_says_nothing_of_repair_gets_it_whole(core: Outgoing) -> None:
    core.peer_up(2)
    send(core, LONG)
    several: Any = core.backlog.take()
    assert several == (Kind.DATA, [core.kept.entries[0][2]])
