"""Whether a twin is in sync, by its acknowledgements, on a manual clock."""

from twinlink_exporter.twin_sync import SentObservations, SyncLimits, TwinSync

from twinlink.sync import State

MS = 1_000_000
LIMITS = SyncLimits(out_after=2.0, completeness=0.99)


class Run:
    """Observations every 10 ms, which a twin acknowledges 5 ms later."""

    def __init__(self, limits: SyncLimits = LIMITS) -> None:
        self.sent = SentObservations(limits)
        self.ms = 0
        self.twin = TwinSync(limits, self.sent, 0)

    def send(self, count: int, acknowledge: float = 1.0) -> "Run":
        """So many observations, of which this part is acknowledged."""
        for k in range(count):
            self.sent.sending(self.ms * MS)
            sequence = self.sent.next_sequence
            if int((k + 1) * acknowledge) > int(k * acknowledge):  # also before it is known to be sent
                self.twin.acknowledged(sequence, self.ms * MS)
            self.sent.sent(sequence)
            self.ms += 10
        return self

    def state(self) -> State:
        return self.twin.report(self.ms * MS).state


def test_it_is_in_sync_from_the_first_acknowledgement_on() -> None:
    run = Run()
    assert run.state() is State.BOUND
    assert run.twin.age_ns(0) is None
    assert run.send(1).state() is State.IN_SYNC
    assert run.twin.age_ns(run.ms * MS) == 10 * MS


def test_the_age_of_the_newest_acknowledged_observation_decides() -> None:
    run = Run().send(10)
    assert run.twin.report(2090 * MS).state is State.IN_SYNC
    report = run.twin.report(2091 * MS)
    assert report.state is State.OUT_OF_SYNC
    assert report.reason == "the newest observation that it acknowledged was sent 2.0 s ago, more than 2 s"
    run.twin.acknowledged(3, 30 * MS)  # late
    assert run.twin.age_ns(100 * MS) == 10 * MS


def test_a_twin_that_acknowledges_nothing_is_out_of_sync_soon_and_never_in_sync() -> None:
    run = Run()
    run.ms = 100_000
    assert run.state() is State.BOUND  # nothing was sent that it could acknowledge
    run.send(100, acknowledge=0)
    assert run.state() is State.BOUND
    run.send(201, acknowledge=0)
    assert run.state() is State.OUT_OF_SYNC
    assert run.send(5000, acknowledge=0).state() is State.OUT_OF_SYNC
    assert run.send(1300).state() is State.IN_SYNC


def test_an_incomplete_twin_is_out_of_sync_however_new_its_newest_observation_is() -> None:
    run = Run().send(1000)
    assert run.twin.completeness(run.ms * MS) == 1.0
    assert run.send(300, acknowledge=0.5).send(1).state() is State.OUT_OF_SYNC
    report = run.twin.report(run.ms * MS)
    assert "of 10 seconds' observations, less than 99.0%" in report.reason
    run.send(1300)
    assert run.state() is State.IN_SYNC


def test_what_may_still_be_in_flight_does_not_count_as_missing() -> None:
    run = Run().send(1000).send(150, acknowledge=0.0).send(1)
    assert run.state() is State.IN_SYNC


def test_what_is_acknowledged_after_a_retransmission_counts() -> None:
    run = Run().send(500)
    first = run.sent.next_sequence
    run.send(100, acknowledge=0.0).send(250)
    assert run.state() is State.OUT_OF_SYNC
    for sequence in range(first, first + 100):
        run.twin.acknowledged(sequence, (5000 + (sequence - first) * 10) * MS)
    assert run.twin.completeness(run.ms * MS) == 1.0
    assert run.state() is State.IN_SYNC


def test_a_twin_that_comes_up_owes_nothing_from_before() -> None:
    run = Run().send(1000)
    run.twin = TwinSync(LIMITS, run.sent, run.ms * MS)
    run.twin.acknowledged(999, run.ms * MS)  # of its session of before
    assert run.state() is State.BOUND
    assert run.send(300).state() is State.IN_SYNC
    assert run.twin.completeness(run.ms * MS) == 1.0


def test_after_a_pause_it_is_in_sync_again_at_once() -> None:
    run = Run().send(300)
    run.ms += 60_000
    assert run.state() is State.OUT_OF_SYNC
    assert run.send(1).state() is State.IN_SYNC


def test_the_completeness_counts_with_any_limit_of_the_age() -> None:
    run = Run(SyncLimits(20.0, 0.99))
    assert run.send(1000, acknowledge=0.5).send(2100).state() is State.OUT_OF_SYNC
