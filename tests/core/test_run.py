"""What waits while nobody is up is kept as bundles, and leaves as it was sent."""

import itertools

import pytest

from tests.core.interrupting import interrupted
from tests.core.sending import RETENTION, WINDOW, acknowledge, number, split, taken
from twinlink import backlog, kept, outgoing, run, transit
from twinlink.backlog import BUNDLE_OCTETS, LONGEST_RUN
from twinlink.budget import Budget
from twinlink.kept import KEEPING_OCTETS
from twinlink.losses import TAKES_NOTHING
from twinlink.outgoing import Outgoing
from twinlink.transit import FRAMING_OCTETS
from twinlink.wire import HEADER_OCTETS, REFUSED, Kind, frame

SIZE = 100
RUN = BUNDLE_OCTETS // (SIZE + FRAMING_OCTETS)  # messages
SENT = 2 * RUN + 9
SEAL = b"sealed"
FILES = outgoing.__file__, kept.__file__, run.__file__


def sent_frame(sequence: int, size: int = SIZE) -> bytes:
    return frame(Kind.DATA, 7, sequence, sequence + 1, bytes([sequence % 256]) * size)


def waiting(seal: bytes = b"", retention: int = RETENTION) -> Outgoing:
    """SENT messages, message n at n ns, for peer 1, which is down."""
    core = Outgoing("flow", WINDOW, retention, Budget(2**20), framing_octets=HEADER_OCTETS + len(seal))
    core.peer_up(1, repairs=True)
    core.peer_down(1, "silent", may_return=True)
    for sequence in range(SENT):
        core.send(sent_frame(sequence) + seal, SIZE, sequence)
    assert core.kept.runs == 2
    return core


def test_no_more_of_a_run_leaves_than_there_is_room_for() -> None:
    core = waiting()
    budget = core.transit.budget
    budget.under_way = budget.limit - 10 * (SIZE + FRAMING_OCTETS)  # of other flows
    core.peer_up(1, repairs=True)
    there = [one for one in taken(core) if isinstance(one, int)]
    assert 0 < len(there) <= 10


def test_who_reads_no_bundles_gets_one_message_at_a_time() -> None:
    core = waiting()
    core.peer_up(1, repairs=False)
    while several := core.backlog.take():
        kind, what = several
        assert kind is Kind.GONE or (kind is Kind.DATA and len(what) == 1)
    assert core.backlog.unsent == SENT


def test_what_two_peers_are_to_get_is_kept_one_by_one() -> None:
    core = Outgoing("flow", WINDOW, RETENTION, Budget(2**20))
    for peer in (1, 2):
        core.peer_up(peer, repairs=True)
        core.peer_down(peer, "silent", may_return=True)
    for sequence in range(SENT):
        core.send(sent_frame(sequence), SIZE, sequence)
    assert core.kept.runs == 0


@pytest.mark.parametrize("seal", [b"", SEAL])
def test_whoever_returns_gets_every_message_as_it_was_sent(seal: bytes) -> None:
    core = waiting(seal)
    core.peer_up(1, repairs=True)
    frames: list[bytes] = []
    while several := core.backlog.take():
        kind, what = split(*several)
        if kind is Kind.DATA:
            frames += [one[: HEADER_OCTETS + SIZE] for one in what]
    assert frames == [sent_frame(sequence) for sequence in range(SENT)]
    assert core.transit.sequences() == list(range(SENT))


def test_each_message_has_its_own_ack() -> None:
    core = waiting()
    core.peer_up(1, repairs=True)
    taken(core)
    acks = core.acknowledge(1, [(sequence, sequence + 1, 5000) for sequence in range(SENT)], 6000, 7000, 8000)
    assert [ack[:] for ack in acks] == [
        (sequence, 8000 - sequence, sequence + 1, 5000, 6000, 7000, 1, "flow") for sequence in range(SENT)
    ]
    assert not core.kept.entries
    assert not core.kept.runs
    assert not core.transit
    assert core.stats()["kept_octets"] == 0


@pytest.mark.parametrize(
    "records", [[*range(RUN), 3], [*range(1, RUN), 0], [0] * RUN, [0, *range(RUN)], range(RUN - 1)]
)
def test_an_ack_of_anything_else_than_a_whole_run_takes_it_apart(records: list[int]) -> None:
    core = waiting()
    core.peer_up(1, repairs=True)
    taken(core)
    in_order = list(dict.fromkeys(records))
    assert acknowledge(core, 1, list(records)) == in_order
    assert sorted(core.kept.entries) == sorted(set(range(SENT)) - set(records))
    assert acknowledge(core, 1, list(range(SENT))) == sorted(set(range(SENT)) - set(records))
    assert core.kept.runs == 0
    assert core.stats()["acknowledged"] == SENT


def test_what_is_refused_in_a_run_is_lost_and_nothing_else() -> None:
    core = waiting()
    core.peer_up(1, repairs=True)
    taken(core)
    core.acknowledge(1, [(sequence, 1, REFUSED if sequence == 5 else 2) for sequence in range(SENT)], 3, 4, 5)
    assert core.losses.report(9) == [(5, 6, TAKES_NOTHING)]
    assert core.stats()["acknowledged"] == SENT - 1


def test_what_is_asked_for_again_out_of_a_run_leaves_as_it_was_sent() -> None:
    core = waiting()
    core.peer_up(1, repairs=True)
    taken(core)
    core.asked(1, SENT, [(7, 9)], 3, 4, 5)
    kind, frames = core.backlog.take() or (None, [])
    assert kind is Kind.AGAIN
    assert frames == [sent_frame(7), sent_frame(8)]


def test_the_oldest_gives_up_its_place_alone() -> None:
    core = waiting(retention=SENT * (SIZE + KEEPING_OCTETS))
    core.send(sent_frame(SENT), SIZE, SENT)
    assert sorted(core.kept.entries) == list(range(1, SENT + 1))
    core.peer_up(1, repairs=True)
    assert [one for one in taken(core) if isinstance(one, int)] == list(range(1, SENT + 1))


def test_messages_of_several_lengths_are_kept_one_by_one() -> None:
    core = Outgoing("flow", WINDOW, RETENTION, Budget(2**20))
    core.peer_up(1, repairs=True)
    core.peer_down(1, "silent", may_return=True)
    for sequence in range(4 * LONGEST_RUN):
        core.send(sent_frame(sequence, sequence % 3), sequence % 3, 1)
    assert core.kept.runs == 0


def test_ctrl_c_while_a_run_is_acknowledged_leaves_each_message_counted_once() -> None:
    for moment in itertools.count(1):
        core = waiting()
        core.peer_up(1, repairs=True)
        while core.backlog.take():
            pass
        records = [(sequence, 1, 2) for sequence in range(SENT)]
        if not interrupted(moment, lambda: core.acknowledge(1, records, 3, 4, 5), *FILES):  # noqa: B023
            break
        core.mend()
        assert not any(isinstance(entry, run.Run) for entry in core.kept.entries.values())
        counted = core.stats()
        assert counted["acknowledged"] + counted["outstanding"] + counted["lost"] == SENT
        assert core.transit.sequences() == list(core.kept.entries)
        assert all(number(core.kept.single(sequence)[2]) == sequence for sequence in core.kept.entries)
        acknowledge(core, 1, list(range(SENT)))
        assert core.stats()["acknowledged"] == SENT
        assert core.stats()["kept_octets"] == 0
    assert moment > 10


def test_ctrl_c_while_messages_are_joined_loses_none() -> None:
    for moment in itertools.count(1):
        core = waiting()
        last = (SENT // RUN + 1) * RUN - 1
        for sequence in range(SENT, last):
            core.send(sent_frame(sequence), SIZE, sequence)
        cut_off = interrupted(moment, lambda: core.send(sent_frame(last), SIZE, last), *FILES)  # noqa: B023
        if cut_off:
            core.mend()
        core.peer_up(1, repairs=True)
        there = [one for one in taken(core) if isinstance(one, int)]
        assert there == list(range(core.backlog.next))
        if not cut_off:
            break
    assert moment > 5


def test_ctrl_c_while_a_run_is_handed_over_leaves_no_octets_under_way_for_ever() -> None:
    for moment in itertools.count(1):
        core = waiting()
        core.peer_up(1, repairs=True)
        cut_off = interrupted(moment, lambda: taken(core), backlog.__file__, transit.__file__)  # noqa: B023
        if cut_off:
            core.mend()
        taken(core)
        acknowledge(core, 1, list(range(SENT)))
        assert core.transit.budget.under_way == 0
        if not cut_off:
            break
    assert moment > 20
