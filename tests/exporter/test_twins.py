"""Which twin's decisions count, on a manual clock."""

from twinlink_exporter.twin_sync import SyncLimits
from twinlink_exporter.twins import CHECK_INTERVAL_NS, Twin, Twins

from twinlink.sync import State

MS = 1_000_000


class Run:
    """Two twins that are up; each acknowledges the observations until it is told not to."""

    def __init__(self, completeness: float = 0.99) -> None:
        self.ms = 1000
        self.twins = Twins(SyncLimits(2.0, completeness))
        self.twins.up("twin-1", 1, self.ms * MS)
        self.twins.up("twin-2", 2, self.ms * MS)
        self.acknowledging = [1, 2]
        self.sequence = 0
        self.send(1)

    def send(self, count: int) -> None:
        """Observations, one every 10 ms."""
        for _ in range(count):
            self.twins.sent.sending(self.ms * MS)
            sequence = self.twins.sent.next_sequence
            self.twins.sent.sent(sequence)
            for epoch in self.acknowledging:
                self.twins.acknowledged(epoch, sequence, self.ms * MS)
            self.ms += 10

    def twin(self, epoch: int) -> Twin:
        twin = self.twins.get(epoch)
        assert twin
        return twin

    def decide(self, epoch: int, clears: bool = False, sequence: int | None = None) -> str | None:
        """Why a decision of this twin is rejected, or None."""
        self.sequence += 1
        number = self.sequence if sequence is None else sequence
        return self.twins.accept(self.twin(epoch), number, clears, self.ms * MS)

    def changes(self) -> list[tuple[str, State]]:
        self.ms += CHECK_INTERVAL_NS // MS
        return [(twin.node, report.state) for twin, report in self.twins.changes(self.ms * MS)]


def test_a_peer_that_is_not_up_is_no_twin() -> None:
    run = Run()
    assert run.twins.get(3) is None
    assert run.twins.down(3) is False
    run.twins.acknowledged(3, 0, 0)
    assert run.twins
    run.twins.down(1)
    run.twins.down(2)
    assert not run.twins


def test_the_first_to_decide_holds_the_block_and_the_other_is_rejected_with_its_name() -> None:
    run = Run()
    assert run.decide(1) is None
    assert run.twins.holder is run.twin(1)
    text = "holder: twin-1 holds the block until it is down or out of sync"
    assert run.decide(2) == text
    assert run.decide(2, clears=True) == text
    assert run.decide(1) is None


def test_the_holder_remains_it_while_it_blocks_nothing() -> None:
    run = Run()
    assert run.decide(1) is None
    assert run.decide(1, clears=True) is None
    assert (run.decide(2) or "").startswith("holder: twin-1 holds the block")
    assert run.decide(1) is None


def test_a_session_that_comes_up_while_its_predecessor_still_counts_as_up_waits() -> None:
    run = Run()
    assert run.decide(1) is None
    run.twins.up("twin-1", 11, run.ms * MS)
    assert (run.decide(11, sequence=0) or "").startswith("holder: another session of twin-1 holds the block")


def test_an_out_of_sync_holder_is_reported_and_gives_way() -> None:
    run = Run()
    assert run.decide(1) is None
    assert run.changes() == []
    run.acknowledging = [2]
    run.send(210)
    assert run.changes() == [("twin-1", State.OUT_OF_SYNC)]
    assert run.twins.release(run.twin(1)) is True
    assert run.twins.release(run.twin(1)) is False
    assert (run.decide(1) or "").startswith("sync: twin-1 is out-of-sync")
    assert run.decide(2) is None
    run.acknowledging = [1, 2]
    run.send(1300)
    assert run.changes() == [("twin-1", State.IN_SYNC)]
    assert run.twins.changes((run.ms + 1) * MS) == []


def test_a_holder_that_was_in_sync_for_a_moment_only_gives_way_too() -> None:
    run = Run(completeness=0.0)
    run.acknowledging = []
    run.send(300)
    assert run.changes() == [("twin-1", State.OUT_OF_SYNC), ("twin-2", State.OUT_OF_SYNC)]
    run.acknowledging = [1]
    run.send(1)
    assert run.decide(1) is None
    run.acknowledging = []
    run.send(300)
    assert run.changes() == [("twin-1", State.OUT_OF_SYNC)]
    assert run.twins.release(run.twin(1)) is True
    assert run.changes() == []


def test_a_holder_that_is_down_gives_way() -> None:
    run = Run()
    assert run.decide(1) is None
    assert run.twins.down(2) is False
    assert run.twins.down(1) is True
    assert run.twins.holder is None
    run.twins.up("twin-1", 11, run.ms * MS)  # restarted
    assert run.decide(11, sequence=0) == "sync: twin-1 is bound: it has acknowledged no observation since it came up"
    assert run.twins.holder is None
    run.acknowledging = [11]
    run.send(1)
    assert run.decide(11, sequence=1) is None


def test_an_older_decision_does_not_replace_a_newer_one() -> None:
    run = Run()
    assert run.decide(1, sequence=7) is None
    assert run.decide(1, sequence=5) == "order: decision 5 of twin-1 is not newer than its decision 7"
    assert (run.decide(1, sequence=7, clears=True) or "").startswith("order: ")
    assert run.decide(1, sequence=8) is None


def test_an_empty_list_needs_no_sync_and_holds_nothing() -> None:
    run = Run()
    run.acknowledging = []
    run.send(300)
    assert run.decide(1, clears=True) is None
    assert run.twins.holder is None


def test_whether_a_twin_follows_the_observations() -> None:
    run = Run()
    assert run.twins.not_ready(run.ms * MS) is None
    run.acknowledging = [2]
    run.send(300)
    assert run.twins.not_ready(run.ms * MS) is None
    run.acknowledging = []
    run.send(300)
    assert run.twins.not_ready(run.ms * MS) == "the twin is out of sync: it does not acknowledge new observations"
    run.twins.up("twin-1", 1, run.ms * MS)
    assert run.twins.not_ready(run.ms * MS) == "the twin has not acknowledged an observation yet"
    run.twins.down(1)
    run.twins.down(2)
    assert run.twins.not_ready(run.ms * MS) == "no twin is up"
