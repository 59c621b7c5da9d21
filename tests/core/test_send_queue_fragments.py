"""What leaves in fragments: as much at a time as the path may hold, and until every peer has it."""

from typing import Any

import pytest

from tests.core.sending import RETENTION, TRANSIT, WINDOW, acknowledge, send, taken
from twinlink.protocol.frames import AbandonReason, Kind, parse
from twinlink.protocol.send.congestion import InFlightBudget
from twinlink.protocol.send.flow import SendFlow
from twinlink.protocol.send.fragments import STALL_TICKS

LONG = 3 * TRANSIT


@pytest.fixture
def core() -> SendFlow:
    made = SendFlow("flow", WINDOW, RETENTION, InFlightBudget(TRANSIT))
    made.on_peer_up(1, repairs=True)
    return made


def handed_over(core: SendFlow) -> list[tuple[int, bytes]]:
    """Parts that may go now: octets that came before, and these."""
    parts = []
    while several := core.queue.next_frame():
        kind, what = several
        assert kind is Kind.FRAGMENT
        parts.append((parse(what)[2], what[32:]))
    return parts


def test_no_more_is_under_way_than_may_be(core: SendFlow) -> None:
    send(core, LONG, now=77)
    first = handed_over(core)
    assert 0 < sum(len(octets) for _, octets in first) <= TRANSIT
    assert core.queue.next_frame() is None
    core.queue.fragments.on_progress(1, 77, len(first[0][1]))
    second = handed_over(core)
    assert len(second) == 1
    whole = b"".join(octets for _, octets in first + second)
    assert [at for at, _ in first + second] == [len(first[0][1]) * n for n in range(len(first) + 1)]
    core.queue.fragments.on_progress(1, 77, len(whole))
    while parts := handed_over(core):
        whole += b"".join(octets for _, octets in parts)
        core.queue.fragments.on_progress(1, 77, len(whole))
    assert whole == core.unacked.entries[0][2]
    assert acknowledge(core, 1, [0]) == [0]
    assert not core.in_flight


def test_the_slowest_of_those_who_are_to_have_it_counts(core: SendFlow) -> None:
    core.on_peer_up(2, repairs=True)
    send(core, LONG, now=77)
    first = handed_over(core)
    core.on_peer_up(3, repairs=True)  # after it was sent: it is not for this one
    core.queue.fragments.on_progress(1, 77, len(first[0][1]))
    assert core.queue.next_frame() is None
    core.queue.fragments.on_progress(2, 77, len(first[0][1]))
    assert len(handed_over(core)) == 1


def test_when_nothing_gets_through_what_is_not_there_leaves_again(core: SendFlow) -> None:
    send(core, LONG, now=77)
    first = handed_over(core)
    for _ in range(STALL_TICKS):
        core.on_tick(0)
        assert core.queue.next_frame() is None
    core.queue.fragments.on_progress(1, 77, len(first[0][1]))  # something does
    core.on_tick(0)
    later = handed_over(core)
    assert later[0][0] == sum(len(octets) for _, octets in first)
    for _ in range(STALL_TICKS):
        core.on_tick(0)
    assert handed_over(core) == first[1:] + later


def test_a_strangers_word_is_nothing(core: SendFlow) -> None:
    send(core, LONG, now=77)
    first = handed_over(core)
    for epoch in range(2, 100):
        core.queue.fragments.on_progress(epoch, 77, len(first[0][1]))
    assert core.queue.next_frame() is None
    for _ in range(STALL_TICKS + 1):
        core.queue.fragments.on_progress(2, 77, len(first[0][1]))
        core.on_tick(0)
    assert handed_over(core) == first


def test_who_returns_has_not_had_the_beginning(core: SendFlow) -> None:
    send(core, LONG, now=77)
    first = handed_over(core)
    core.on_peer_up(2, repairs=True)
    core.on_peer_down(1, "silent", may_return=True)
    assert core.queue.next_frame() is None  # no peer that is up waits for it
    core.on_peer_up(1, repairs=True)
    assert taken(core) == [(AbandonReason.EVICTED, [])]
    core.on_nak(1, 1, [(0, 1)], 3, 4, 5)
    again = handed_over(core)
    assert [at for at, _ in again] == [at for at, _ in first]
    assert again[0][1][3] == Kind.RETRANSMIT
    assert again[0][1][4:] == first[0][1][4:]
    assert again[1:] == first[1:]


def test_what_two_ask_for_leaves_once(core: SendFlow) -> None:
    core.on_peer_up(2, repairs=True)
    send(core, LONG, now=77)
    handed_over(core)
    for epoch in (1, 2):
        core.on_peer_down(epoch, "silent", may_return=True)
    for epoch in (1, 2):
        core.on_peer_up(epoch, repairs=True)
    assert taken(core) == [(AbandonReason.EVICTED, [])]
    core.on_nak(1, 1, [(0, 1)], 3, 4, 5)
    first = handed_over(core)
    core.on_nak(2, 1, [(0, 1)], 3, 4, 5)
    assert core.queue.next_frame() is None
    there = sum(len(octets) for _, octets in first)
    while there < LONG + 32:
        for epoch in (1, 2):
            core.queue.fragments.on_progress(epoch, 77, there)
        parts = handed_over(core)
        assert parts[0][0] == there
        there += sum(len(octets) for _, octets in parts)
    assert core.queue.next_frame() is None


def test_what_is_announced_goes_behind_the_last_part(core: SendFlow) -> None:
    send(core, LONG, now=77)
    there = sum(len(octets) for _, octets in handed_over(core))
    core.queue.probe()
    while there < LONG + 32:
        core.queue.fragments.on_progress(1, 77, there)
        several: Any = core.queue.next_frame()
        assert several[0] is Kind.FRAGMENT
        there += len(several[1]) - 32
    assert core.queue.next_frame() == (Kind.ABANDONED, (AbandonReason.EVICTED, []))
    assert core.queue.next_to_send == 1


def test_who_says_nothing_of_repair_gets_it_whole(core: SendFlow) -> None:
    core.on_peer_up(2)
    send(core, LONG)
    several: Any = core.queue.next_frame()
    assert several == (Kind.DATA, [core.unacked.entries[0][2]])
