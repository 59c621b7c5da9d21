"""A short part of the fault lab: real processes in namespaces, a few faults on each transport.

It needs root, for the namespaces.  `python -m tests.faults.lab` is the long form.
"""

import ctypes
import os
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import TypeVar

import pytest

from twinlink.protocol.send.endpoint import Priority
from twinlink.testing import base

from . import faults
from .faults import FAULTS
from .lab import seeds
from .ledger import ROW, Row
from .measuring import round_trips
from .schedule import Flow, Schedule, Step, draw
from .trial import Outcome, Trial, run_seed
from .world import PREFIX, World, ip, why_not

CLONE_NEWNET = 0x40000000
WAIT_S = {True: base.patience(), False: 0.4}  # by whether it is expected to come
STILL_S = 0.5  # a machine that was late by so much tells little of what waits for what
TRANSPORTS = ("zeromq", "zenoh")
T = TypeVar("T")
REASON = why_not()

needs_namespaces = pytest.mark.skipif(
    REASON is not None, reason=f"the fault lab was NOT run: {REASON}; nothing here was tried under faults"
)


# Schedules: no root needed


def test_a_seed_is_a_schedule() -> None:
    assert [str(draw(seed)) for seed in range(50)] == [str(draw(seed)) for seed in range(50)]
    assert len({str(draw(seed)) for seed in range(50)}) == 50


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
    assert drawn == set(FAULTS)


# The world and the faults, by plain sockets


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with World("sockets") as made:
        yield made


def socket_in(namespace: str) -> socket.socket:
    """A TCP socket that lives in a namespace: a thread enters it, the socket stays there."""
    made: list[socket.socket] = []

    def make() -> None:
        with Path("/run/netns", namespace).open() as file:
            if ctypes.CDLL(None, use_errno=True).setns(file.fileno(), CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        made.append(socket.socket())

    thread = threading.Thread(target=make)
    thread.start()
    thread.join()
    made[0].setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return made[0]


class Wire:
    """A TCP connection from the Real World's namespace to the Digital Twin's."""

    def __init__(self, world: World) -> None:
        self.world = world
        with socket_in(world.dt) as listener:
            listener.bind((world.listener, 0))
            listener.listen()
            self.rw = socket_in(world.rw)
            self.rw.settimeout(base.patience())
            self.rw.connect(listener.getsockname())
            self.dt, _ = listener.accept()

    def passes(self, sender: socket.socket, octets: int, within_s: float = WAIT_S[False]) -> bool:
        """Whether so many octets get to the other end."""
        receiver = self.dt if sender is self.rw else self.rw
        receiver.settimeout(within_s)
        sender.sendall(bytes(octets))
        try:
            while octets:
                octets -= len(receiver.recv(octets))
        except TimeoutError:
            return False
        return True

    def close(self) -> None:
        self.rw.close()
        self.dt.close()


@pytest.fixture
def wire(world: World) -> Iterator[Wire]:
    made = Wire(world)
    yield made
    made.close()


class OnlyWorld:
    """A place without nodes."""

    def __init__(self, world: World) -> None:
        self.world = world

    def __getattr__(self, name: str) -> None:
        raise AssertionError(f"a fault of the network wants {name}")


@needs_namespaces
@pytest.mark.parametrize(
    ("fault", "to_dt", "to_rw"),
    [
        (faults.Partition(), False, False),
        (faults.OneWay("rw-dt"), False, True),
        (faults.OneWay("dt-rw"), True, False),
        (faults.Drop(999), False, False),
        (faults.Drop(1), True, True),
    ],
    ids=str,
)
def test_a_filter_holds_what_it_says(world: World, wire: Wire, fault: faults.Fault, to_dt: bool, to_rw: bool) -> None:
    place = OnlyWorld(world)
    assert wire.passes(wire.rw, 10, WAIT_S[True])
    fault.begin(place)  # type: ignore[arg-type]
    # Three times, for one packet of a thousand passes by chance.
    through = [
        all(wire.passes(sender, 10, WAIT_S[to]) for _ in range(3))
        for sender, to in ((wire.rw, to_dt), (wire.dt, to_rw))
    ]
    fault.end(place)  # type: ignore[arg-type]
    assert through == [to_dt, to_rw]


@needs_namespaces
def test_a_pmtu_hole_swallows_what_is_long(world: World, wire: Wire) -> None:
    place = OnlyWorld(world)
    faults.PmtuHole().begin(place)  # type: ignore[arg-type]
    short, long = wire.passes(wire.rw, 1000, WAIT_S[True]), wire.passes(wire.rw, 1448)
    faults.PmtuHole().end(place)  # type: ignore[arg-type]
    assert (short, long) == (True, False)


@needs_namespaces
@pytest.mark.parametrize("fault", [faults.Reset(), faults.KillSockets("dt"), faults.KillSockets("rw")], ids=str)
def test_a_connection_is_reset(world: World, wire: Wire, fault: faults.Fault) -> None:
    place = OnlyWorld(world)
    fault.begin(place)  # type: ignore[arg-type]

    def use() -> None:
        for _ in range(20):
            wire.passes(wire.rw, 10)
            wire.passes(wire.dt, 10)

    with pytest.raises(OSError, match=r"reset|abort|Broken pipe"):
        use()
    fault.end(place)  # type: ignore[arg-type]


@needs_namespaces
def test_a_rate_limit_takes_its_time(world: World, wire: Wire) -> None:
    place = OnlyWorld(world)
    faults.RateLimit(5).begin(place)  # type: ignore[arg-type]
    began = time.monotonic()
    assert wire.passes(wire.rw, 500_000, base.patience())
    took_s = time.monotonic() - began
    faults.RateLimit(5).end(place)  # type: ignore[arg-type]
    assert took_s > 0.4  # 4 Mbit at 5 Mbit/s, less the bucket


@needs_namespaces
def test_a_world_leaves_nothing_behind() -> None:
    before = ip("netns", "list")

    def fail() -> None:
        with World("gone"):
            assert "gone" in ip("netns", "list")
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert ip("netns", "list") == before


@needs_namespaces
def test_a_world_removes_what_a_killed_lab_left() -> None:
    with subprocess.Popen(["sleep", "0"]) as process:
        process.wait()
    name = f"{PREFIX}-{process.pid}-dead-rw"
    ip("netns", "add", name)
    with World("next"):
        assert name not in ip("netns", "list")


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
def test_who_falls_silent_and_returns_has_lost_nothing(tmp_path: Path) -> None:
    flows = (*FLOWS, Flow("bulk", "dt", 30.0, (100_000,)))
    steps = (Step(0.5, faults.PmtuHole(), 1.8), Step(0.7, faults.Partition(), 1.8), Step(0.7, faults.Stop("rw"), 1.8))
    for name, outcome in both([Schedule(0, flows, steps, calm_s=2.0)], tmp_path).items():
        assert not outcome.broken, name
        assert outcome.verdict.findings == [], name
        began_ns = outcome.moments[0].began_ns  # what was sent before anybody was up is lost, and said to be
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
    """What is measured in a new folder; once more, and said, when the machine stood still meanwhile."""
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
    # Of such a cable, what may be under way beside normal flows outweighs whatever else runs here: 1.8 to 4 times, also
    # beside four busy loops.  Of equal priority they are within a sixth.
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
        assert normal_ns > 1.3 * high_ns, f"{transport}: {high_ns / 1e6:.0f} ms, normal {normal_ns / 1e6:.0f} ms"


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
    """It takes 1.6 s: longer than anybody's silence may, and than Zenoh has a message wait on a connection."""
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
