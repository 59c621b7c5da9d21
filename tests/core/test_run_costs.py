"""What runs cost where they do not stay whole: each step is as long as what it concerns."""

from collections.abc import Iterator
from typing import Any

from tests.core.pair import MS, Pair, pair
from tests.core.test_runs import sent_runs
from twinlink.protocol.frames import Kind, run_header
from twinlink.protocol.liveness import TICK_NS


class Counted(list[Any]):
    """Counts how often it is gone through."""

    times = 0

    def __iter__(self) -> Iterator[Any]:
        self.times += 1
        return super().__iter__()


def test_a_peer_that_ends_makes_the_table_of_what_is_in_flight_anew_once() -> None:
    core = sent_runs(*[20] * 50)
    splits, split = Counted(), core.in_flight.split

    def count(*arguments: Any) -> None:
        splits.append(arguments)
        split(*arguments)

    core.unacked.on_split = count
    core.on_peer_ended(2, "it is gone")
    assert len(splits) == 1
    assert len(core.in_flight._of) == core.stats()["lost"] == 1000
    core.on_ack_range(1, range(1000), 2, 3, 4, 5, every_ack=False)
    assert core.in_flight.budget.in_flight == 0


def test_runs_that_a_peer_does_not_owe_stay_whole_when_it_ends() -> None:
    core = sent_runs(*[20] * 5)
    core.on_ack_range(2, range(20), 2, 3, 4, 5, every_ack=False)
    core.on_peer_up(3, True, 2**20, True)
    core.on_peer_ended(3, "it is gone")
    assert [run.count for run in core.unacked.runs] == [20] * 5
    core.on_peer_ended(2, "it is gone")
    assert [run.count for run in core.unacked.runs] == [20]
    assert core.stats()["lost"] == 80


def test_a_nak_is_gone_through_as_often_for_many_runs_as_for_few() -> None:
    for runs in (2, 200):
        core = sent_runs(*[2] * runs)
        missing = Counted((first, first + 1) for first in range(2 * runs, 2 * runs + 500, 2))
        core.on_nak(1, 2 * runs, missing, 3, 4, 5)
        assert missing.times < 10


def test_what_is_kept_for_a_silent_peer_stays_in_runs() -> None:
    core = sent_runs(40, 40)
    core.on_peer_down(2, "it is silent", True)
    core.on_ack_range(1, range(40), 2, 3, 4, 5, every_ack=False)
    core.on_ack_range(1, range(40, 80), 2, 3, 4, 5, every_ack=False)
    for tick in range(50):
        core.on_tick(tick * TICK_NS)
    assert [(run.count, run.unacked_by) for run in core.unacked.runs] == [(40, frozenset({2}))] * 2


def acks_of(made: Pair, count: int) -> tuple[int, dict[str, Any]]:
    """How many acks a batch gets, and the counters of its sender."""
    sender, acks = made.near.sender("flow", in_flight=2**20), 0

    def counted(topic: bytes, octets: bytes) -> list[bytes]:
        nonlocal acks
        acks += octets[3] == Kind.ACK
        return [octets]

    made.run(50 * MS)
    made.tampering[made.far.epoch] = counted
    assert sender.send_many([bytes(1)] * count) == count
    made.run(2000 * MS)
    return acks, sender.stats()


def test_what_is_rejected_of_a_run_is_rejected_together() -> None:
    made = pair()
    made.far.session.messages._unclaimed._limit = 0
    acks, counters = acks_of(made, 2000)
    assert acks < 100
    assert (counters["lost"], counters["outstanding"], counters["in_flight_octets"]) == (2000, 0, 0)


def test_what_is_checked_of_a_run_is_acknowledged_together() -> None:
    made = pair()
    got = made.far.receive("flow")
    made.far.session.receive_flow("flow").watched = True
    acks, counters = acks_of(made, 2000)
    assert acks < 100
    assert len(got) == counters["acknowledged"] == 2000


def test_a_few_messages_of_a_run_do_not_keep_all_of_it() -> None:
    made = pair()
    flow = made.near.session.receive_flow("flow")
    flow.subscribed = True
    made.run(50 * MS)
    octets = run_header(4096, 10, made.far.epoch, 0, 1) + bytes(40960)
    made.near.session.receive(b"traffic/flow", octets, made.now, made.now)
    for most in (1, 5, 4000, 1000):
        parts: list[Any] = []
        flow.next_parts(most, parts)
        (part,) = parts
        kept: Any = getattr(part, "octets").obj  # noqa: B009  (of a run)
        assert len(kept) <= 4 * 10 * len(part) + 64
