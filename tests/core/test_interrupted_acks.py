"""Ctrl-C while an ack of many messages is taken in."""

import itertools

import pytest

from tests.core.interrupting import interrupted
from tests.core.sending import RETENTION, WINDOW, send
from twinlink import outgoing
from twinlink.budget import Budget
from twinlink.outgoing import Outgoing

SENT = 40


@pytest.mark.parametrize("peers", [(1,), (1, 2)])
def test_each_is_counted_once(peers: tuple[int, ...]) -> None:
    for moment in itertools.count(1):
        core = Outgoing("flow", WINDOW, RETENTION, Budget(2**20))
        for peer in peers:
            core.peer_up(peer, repairs=True)
        for sequence in range(SENT):
            send(core, sequence % 7)
        while core.backlog.take():
            pass
        core.peer_down(2, "gone")  # what it owed is lost, and still kept for the other
        records = [(sequence, 1, 2) for sequence in range(SENT)]
        if not interrupted(moment, lambda: core.acknowledge(1, records, 3, 4, 5), outgoing.__file__):  # noqa: B023
            break
        core.mend()
        counted = core.stats()
        assert counted["acknowledged"] + counted["outstanding"] + counted["lost"] == SENT
        assert counted["kept_octets"] == core.kept.octets
        assert core.transit.sequences() == list(core.kept.entries)
    assert moment > SENT
