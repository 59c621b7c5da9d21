"""A short part of the fault lab: real processes in namespaces, a few faults on each transport.

It needs root, for the namespaces.  `python -m tests.faults.lab` is the long form.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import TypeVar

import pytest

from twinlink.protocol.session import Priority
from twinlink.testing import base

from . import faults
from .faults import FAULTS
from .lab import seeds
from .ledger import ROW, Row
from .marks import needs_namespaces
from .measuring import round_trips
from .schedule import Flow, Schedule, Step, draw, tighten
from .trial import Outcome, Trial, run_seed

STILL_S = 0.5  # a stall that makes the comparison of waiting times meaningless
TRANSPORTS = ("zeromq", "zenoh")
T = TypeVar("T")

# Schedules: no root needed


def test_a_seed_is_a_schedule() -> None:
    assert [str(draw(seed)) for seed in range(50)] == [str(draw(seed)) for seed in range(50)]
    assert len({str(draw(seed)) for seed in range(50)}) == 50


def test_tightened_a_schedule_has_its_faults_and_a_small_window() -> None:
    for seed in range(50):
        schedule, tight = draw(seed), tighten(draw(seed))
        assert str(tight) == str(tighten(draw(seed)))
        assert [step for step in tight.steps if not isinstance(step.fault, faults.HandlerSlow)] == list(schedule.steps)
        assert tight.options["window"] == 2**20
    assert len({str(tighten(draw(seed)).background) for seed in range(50)}) > 10


def test_seeds_may_have_no_end() -> None:
    assert list(seeds("3,7,20-22")) == [3, 7, 20, 21, 22]
    assert list(islice(seeds("5,301-"), 4)) == [5, 301, 302, 303]


def test_more_load_is_the_same_faults() -> None:
    for seed in range(50):
        once, thrice = draw(seed), draw(seed, load=3.0)
        assert str(once) == str(thrice)
        assert all(
            one.rate_hz <= other.rate_hz <= 3 * one.rate_hz + 1
            for one, other in zip(once.flows, thrice.flows, strict=True)
        )


def test_two_hundred_seeds_have_every_fault() -> None:
    drawn = {type(step.fault).__name__ for seed in range(1, 201) for step in draw(seed).steps}
    several = {type(step.fault).__name__ for seed in range(1, 51) for step in draw(seed, connectors=3).steps}
    assert drawn | several == set(FAULTS)


# Runs


def both(run: "list[Schedule]", tmp_path: Path) -> dict[str, Outcome]:
    """Every schedule on every transport, at the same time."""
    with ThreadPoolExecutor(len(TRANSPORTS) * len(run)) as pool:
        futures = {
            f"{transport}, {schedule}": pool.submit(
                run_seed, tmp_path / f"{transport}-{schedule.seed}", transport, schedule, "repair"
            )
            for schedule in run
            for transport in TRANSPORTS
        }
        return {name: future.result() for name, future in futures.items()}


FLOWS = (Flow("traffic", "rw", 300.0, (100, 2000)), Flow("control", "dt", 100.0, (100,)))


@needs_namespaces
def test_nothing_is_lost_in_silence(tmp_path: Path) -> None:
    steps = (
        Step(0.5, faults.Partition(), 0.8),
        Step(0.5, faults.KillSockets("rw")),
        Step(0.5, faults.Kill("dt"), 0.2),
        Step(1.0, faults.OneWay("dt-rw"), 0.6),
        Step(0.5, faults.HandlerRaises("dt", 3)),
        Step(0.5, faults.Kill("rw"), 0.2),
        Step(1.0, faults.Stop("dt"), 0.5),
    )
    many = (
        Step(0.5, faults.Stop("rw2"), 2.0),
        Step(0.3, faults.Kill("rw3"), 0.3),
        Step(0.5, faults.Partition(), 0.8),
        Step(0.5, faults.Kill("dt"), 0.2),
    )
    schedules = [
        Schedule(0, FLOWS, steps, calm_s=3.0),
        Schedule(1, FLOWS, many, connectors=("rw", "rw2", "rw3"), calm_s=3.0),
    ]
    for name, outcome in both(schedules, tmp_path).items():
        assert not outcome.broken, name
        assert outcome.verdict.findings == [], name
        assert len(outcome.sessions) == (6 if "3 connectors" in name else 4), name  # killed twice in both
        for session in outcome.sessions:
            assert any(len(got.sequence) for got in session.deliveries.values()), f"{name}: {session.node} got nothing"


@needs_namespaces
def test_a_silent_peer_that_returns_has_lost_nothing(tmp_path: Path) -> None:
    flows = (*FLOWS, Flow("bulk", "dt", 30.0, (100_000,)))
    steps = (Step(0.5, faults.PmtuHole(), 1.8), Step(0.7, faults.Partition(), 1.8), Step(0.7, faults.Stop("rw"), 1.8))
    for name, outcome in both([Schedule(0, flows, steps, calm_s=2.0)], tmp_path).items():
        assert not outcome.broken, name
        assert outcome.verdict.findings == [], name
        began_ns = outcome.moments[0].began_ns  # messages sent before a peer was up are lost, and reported
        for session in outcome.sessions:
            gaps = [report for report in session.events if report.name == "Gap" and report.at_ns > began_ns]
            assert not gaps, f"{name}: {session.node} has lost {gaps}"
            assert any(report.name == "PeerDown" for report in session.events), (
                f"{name}: {session.node} noticed nothing"
            )


@needs_namespaces
def test_a_cut_of_one_way_is_noticed_by_both_and_is_over_when_healed(tmp_path: Path) -> None:
    lasts_s = base.patience(2.5)
    steps = (Step(0.5, faults.OneWay("rw-dt"), lasts_s), Step(1.0, faults.OneWay("dt-rw"), lasts_s))
    for name, outcome in both([Schedule(0, FLOWS, steps, calm_s=1.0)], tmp_path).items():
        assert not outcome.broken, name
        assert outcome.verdict.findings == [], name
        for session in outcome.sessions:
            told = [event for event in session.events if event.name in {"PeerUp", "PeerDown"}]
            told = [event for event in told if event.fields.get("reason") != "closed"]
            assert [event.name for event in told] == ["PeerUp", "PeerDown", "PeerUp", "PeerDown", "PeerUp"], name
            for down, cut in zip(told[1::2], outcome.moments, strict=True):
                assert cut.began_ns < down.at_ns < cut.ended_ns, name


@needs_namespaces
def test_what_retention_cannot_hold_is_named_by_both(tmp_path: Path) -> None:
    flows = (Flow("traffic", "rw", 300.0, (10_000,)), Flow("control", "dt", 300.0, (10_000,)))
    options = {"retention": 2 * 1024 * 1024}
    schedule = Schedule(0, flows, (Step(0.5, faults.Partition(), 2.5),), calm_s=2.0, options=options)
    for name, outcome in both([schedule], tmp_path).items():
        assert not outcome.broken, name
        assert outcome.verdict.findings == [], name
        assert outcome.verdict.reported > 0, name


def steadily(measure: Callable[[Path], T], folder: Path) -> T:
    """The result of a measurement in a new folder; repeated, with a note, if the machine stalled meanwhile."""
    with base.Stopwatch() as watch:
        found = measure(folder / "first")
    if watch.late_s() < STILL_S:
        return found
    print(f"measured again: the machine was {watch.late_s():.1f} s late")
    return measure(folder / "again")


@needs_namespaces
def test_bulk_does_not_hold_up_what_is_urgent(tmp_path: Path) -> None:
    # Bulk fills a cable so slow that one message of it takes longer than whatever else runs here.
    mbit_s, octets = 30, 3_000_000
    one_ns = octets * 8 * 1000 // mbit_s
    bulk, urgent = Flow("bulk", "rw", 1000.0, (octets,)), Flow("urgent", "rw", 100.0, (100,), "high")
    schedule = Schedule(
        0, (urgent, bulk), (), (faults.RateLimit(mbit_s),), quiet_s=4.0, calm_s=0.0, options={"retention": 4 * 2**20}
    )
    for name, outcome in steadily(lambda folder: both([schedule], folder), tmp_path).items():
        assert not outcome.broken, name
        assert outcome.verdict.findings == [], name
        waits_ns = round_trips(outcome, urgent)["p50"]
        assert waits_ns < one_ns / 4, f"{name}: {waits_ns / 1e6:.0f} ms, a bulk message takes {one_ns / 1e6:.0f} ms"


@needs_namespaces
def test_what_is_urgent_is_quicker_beside_bulk_than_what_is_not(tmp_path: Path) -> None:
    # On such a cable the data in flight of normal flows dominate other load: 1.8 to 4 times, also beside four busy
    # loops.  Flows of equal priority are within a sixth.
    bulk = [Flow(f"bulk-{number}", "rw", 1000.0, (250_000,)) for number in range(4)]

    def waits_ns(priority: Priority, folder: Path) -> list[int]:
        urgent = Flow("urgent", "rw", 100.0, (100,), priority)
        schedule = Schedule(
            0, (urgent, *bulk), (), (faults.RateLimit(100),), quiet_s=4.0, calm_s=0.0, options={"retention": 4 * 2**20}
        )
        outcomes = both([schedule], folder / priority)
        for name, outcome in outcomes.items():
            assert not outcome.broken, name
            assert outcome.verdict.findings == [], name
        return [round_trips(outcome, urgent)["p50"] for outcome in outcomes.values()]

    def side_by_side(folder: Path) -> list[list[int]]:
        with ThreadPoolExecutor(2) as pool:  # what slows one down slows down the other
            return list(pool.map(waits_ns, ("high", "normal"), (folder, folder)))

    high, normal = steadily(side_by_side, tmp_path)
    for transport, high_ns, normal_ns in zip(TRANSPORTS, high, normal, strict=True):
        assert normal_ns > 1.2 * high_ns, f"{transport}: {high_ns / 1e6:.0f} ms, normal {normal_ns / 1e6:.0f} ms"


@needs_namespaces
@pytest.mark.parametrize(
    ("count", "octets", "mbit_s"),
    [
        pytest.param(16, 100_000, 10, id="parts"),  # each with what one alone may have: a hello would wait for 8 s
        pytest.param(128, 20_000, 8, id="whole"),  # each with one message, and it would wait for 2.6 s
    ],
)
def test_many_flows_that_begin_at_once_do_not_fill_a_slow_path(
    tmp_path: Path, count: int, octets: int, mbit_s: int
) -> None:
    flows = tuple(Flow(f"flow-{number}", "rw", 1.0, (octets,)) for number in range(count))
    schedule = Schedule(0, flows, (), (faults.RateLimit(mbit_s),), quiet_s=3.0, calm_s=0.0)
    for name, outcome in both([schedule], tmp_path).items():
        assert not outcome.broken, name
        assert outcome.verdict.findings == [], name
        told = [event.fields for session in outcome.sessions for event in session.events if event.name == "PeerDown"]
        assert [fields for fields in told if fields.get("reason") != "closed"] == [], name


def rows(ledger: Path, kind: Row) -> list[int]:
    """Where in a ledger these rows begin."""
    octets = ledger.read_bytes()
    return [at for at in range(0, len(octets), ROW.size) if octets[at] == kind]


@needs_namespaces
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_long_message_gets_through_a_slow_path(tmp_path: Path, transport: str) -> None:
    """It takes 1.6 s: longer than the silence that makes a peer down, and than Zenoh's block_before_close."""
    long = Flow("long", "rw", 1.0, (15 * 1024 * 1024,))
    with Trial(tmp_path, transport, (long,)) as trial:
        faults.RateLimit(80).begin(trial)
        ledger = trial.nodes["rw"].ledger
        base.wait_until(lambda: len(rows(ledger, Row.SENT)) >= 2)
        outcome = trial.finish()
    assert not outcome.broken
    assert outcome.verdict.findings == []
    assert outcome.verdict.delivered >= 2
    for session in outcome.sessions:
        reasons = [report.fields["reason"] for report in session.events if report.name == "PeerDown"]
        assert reasons in ([], ["closed"]), session.node


@needs_namespaces
def test_the_lab_sees_a_node_that_lies(tmp_path: Path) -> None:
    with Trial(tmp_path, "zeromq", FLOWS) as trial:
        ledger = trial.nodes["dt"].ledger
        base.wait_until(lambda: len(rows(ledger, Row.GOT)) > 100)
        outcome = trial.finish()
        assert not outcome.broken
        assert outcome.verdict.findings == []
        octets, at = bytearray(ledger.read_bytes()), rows(ledger, Row.GOT)[20]
        del octets[at : at + ROW.size]
        ledger.write_bytes(octets)
        assert len(trial.judge().verdict.findings) > 0
