"""Ctrl-C while many messages are handed over, and while their ack is taken in."""

import itertools
from collections.abc import Callable

import pytest

from tests.core.interrupting import interrupted
from tests.core.sending import RETENTION, WINDOW, acknowledge, send, taken
from twinlink.protocol import frames
from twinlink.protocol.send import flow as send_flow
from twinlink.protocol.send import in_flight, record, retransmit_buffer
from twinlink.protocol.send import queue as send_queue
from twinlink.protocol.send.congestion import InFlightBudget
from twinlink.protocol.send.flow import SendFlow

SENT = 40


def in_row(core: SendFlow) -> None:
    core.on_ack_range(1, range(SENT), 2, 3, 4, 5, every_ack=False)


def one_by_one(core: SendFlow) -> None:
    core.on_ack(1, [(sequence, 1, 2) for sequence in range(SENT)], 3, 4, 5)


@pytest.mark.parametrize("acknowledge", [in_row, one_by_one])
@pytest.mark.parametrize("peers", [(1,), (1, 2)])
def test_each_is_counted_once(peers: tuple[int, ...], acknowledge: Callable[[SendFlow], None]) -> None:
    for moment in itertools.count(1):
        core = SendFlow("flow", WINDOW, RETENTION, InFlightBudget(2**20))
        for peer in peers:
            core.on_peer_up(peer, repairs=True)
        for sequence in range(SENT):
            send(core, sequence % 7)
        while core.queue.next_frame():
            pass
        core.on_peer_down(2, "gone")  # what it owed is lost, and still kept for the other
        files = send_flow.__file__, record.__file__, retransmit_buffer.__file__, frames.__file__
        if not interrupted(moment, lambda: acknowledge(core), *files):  # noqa: B023
            break
        core.recover_after_interrupt()
        counted = core.stats()
        assert counted["acknowledged"] + counted["outstanding"] + counted["lost"] == SENT
        assert counted["kept_octets"] == core.unacked.octets
        assert list(core.in_flight) == list(core.unacked.entries)
    assert moment > (SENT // 2 if len(peers) > 1 or acknowledge is one_by_one else 4)  # a row takes few calls


def test_nothing_stays_under_way_for_ever() -> None:
    for moment in itertools.count(1):
        core = SendFlow("flow", WINDOW, RETENTION, InFlightBudget(2**20))
        core.on_peer_up(1, repairs=True)
        core.on_peer_down(1, "silent", may_return=True)
        for _ in range(SENT):
            send(core, 100)
        core.on_peer_up(1, repairs=True)
        cut_off = interrupted(moment, lambda: taken(core), send_queue.__file__, in_flight.__file__)  # noqa: B023
        if cut_off:
            core.recover_after_interrupt()
        taken(core)
        acknowledge(core, 1, list(range(SENT)))
        assert core.in_flight.budget.in_flight == 0
        if not cut_off:
            break
    assert moment > 20
