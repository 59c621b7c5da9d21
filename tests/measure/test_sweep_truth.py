"""What is put in on purpose comes out of the records: a clock that is wrong, a way that takes longer, messages lost."""

from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import replace

import pytest

from tests.measure.sweeping import Measured, in_turn, table
from twinlink.measure.cells import Plan
from twinlink.measure.setting import Truth

MS = 1_000_000
SUBJECTS = ("zeromq", "raw-tcp")
OFFSET_NS = -50 * MS
DRIFT_PPM = 10_000.0  # 1 %: 10 ms in a second
DELAY_NS = 40 * MS
LATER = {"forward": Truth(forward_delay_ns=DELAY_NS), "back": Truth(back_delay_ns=DELAY_NS)}

Sweeps = dict[str, Future[Measured]]


@pytest.fixture(scope="module")
def sweeps(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sweeps]:
    shifted = Plan(SUBJECTS, (100,), count=8, rounds=1, warm_up=3)
    drifting = Plan(("zeromq",), (100,), ("rw-dt",), ("open",), count=60, rounds=1, rate_hz=40.0)
    later = Plan(("zeromq", "zenoh", "raw-tcp"), (100,), count=6, rounds=1, warm_up=2)
    modes = ("closed", "open")
    losing = Plan(SUBJECTS, (100,), ("rw-dt",), modes, count=20, rounds=1, warm_up=3, rate_hz=200.0, timeout_s=0.6)
    repairing = Plan(("zeromq",), (100,), ("rw-dt",), ("open",), count=20, rounds=1, warm_up=3, rate_hz=100.0)
    begun = {
        "loses": (replace(losing, options={"zeromq": {"reliability": "detect"}}), Truth(drop_every=10)),
        **{way: (later, truth) for way, truth in LATER.items()},
        "shifted": (shifted, Truth(twin_clock=(OFFSET_NS, 0.0))),
        "drifts": (drifting, Truth(twin_clock=(0, DRIFT_PPM))),
        "repairs": (repairing, Truth(drop_every=10)),
    }
    with in_turn(tmp_path_factory.mktemp("sweeps"), begun) as running:
        yield running


def test_a_shifted_clock_shifts_every_stamp_of_its_side(sweeps: Sweeps) -> None:
    folder, run = sweeps["shifted"].result()
    for cell in run["cells"]:
        sent = table(folder, cell, "sent")
        assert sent["acknowledged"].all(), cell["id"]
        forward = sent["peer_received_ns"] - sent["sent_ns"]
        back = sent["received_ns"] - sent["peer_sent_ns"]
        # No delay is negative, so each exchange encloses the offset of the reflector's clock.
        truth_ns = OFFSET_NS if cell["direction"] == "rw-dt" else -OFFSET_NS
        assert (-back).max() <= truth_ns <= forward.min(), cell["id"]
        assert (sent["rtt_ns"] < 2**40).all()  # on the monotonic clock, which nobody shifts
        received = table(folder, cell, "received")
        assert (received["received_ns"] == sent["peer_received_ns"]).all(), cell["id"]


def test_a_drifting_clock_drifts(sweeps: Sweeps) -> None:
    folder, run = sweeps["drifts"].result()
    (cell,) = run["cells"]
    sent = table(folder, cell, "sent")
    forward = sent["peer_received_ns"] - sent["sent_ns"]
    elapsed = sent["sent_ns"] - sent["sent_ns"][0]
    expected = elapsed[-1] * DRIFT_PPM * 1e-6
    slack = sent["rtt_ns"][0] + sent["rtt_ns"][-1]
    assert abs((forward[-1] - forward[0]) - expected) <= slack


@pytest.mark.parametrize("way", LATER)
def test_a_delay_on_one_way_is_found_on_that_way(way: str, sweeps: Sweeps) -> None:
    folder, run = sweeps[way].result()
    for cell in run["cells"]:
        sent = table(folder, cell, "sent")
        assert sent["acknowledged"].all(), cell["id"]
        there = (sent["peer_received_ns"] - sent["sent_ns"]).min()
        back = (sent["received_ns"] - sent["peer_sent_ns"]).min()
        delayed, other = (there, back) if (cell["direction"] == "rw-dt") == (way == "forward") else (back, there)
        assert delayed >= DELAY_NS > other, cell["id"]


def test_known_losses_are_the_ones_found(sweeps: Sweeps) -> None:
    folder, run = sweeps["loses"].result()
    for cell in run["cells"]:
        (entry,) = cell["rounds"]
        sent, received = table(folder, cell, "sent"), table(folder, cell, "received")
        lost = sent["sequence"][~sent["acknowledged"]]
        assert entry["sent"] == len(sent) == 20, cell["id"]
        assert len(lost) == entry["dropped"] == 2, cell["id"]
        assert lost[1] - lost[0] == 10, cell["id"]
        assert sorted({*range(20)} - set(received["sequence"].tolist())) == lost.tolist(), cell["id"]


def test_what_a_link_repairs_is_not_lost_but_late(sweeps: Sweeps) -> None:
    folder, run = sweeps["repairs"].result()
    (cell,) = run["cells"]
    (entry,) = cell["rounds"]
    sent, received = table(folder, cell, "sent"), table(folder, cell, "received")
    assert entry["dropped"] == entry["counters"]["repaired"] == 2
    assert sent["acknowledged"].all()
    assert sorted(received["sequence"]) == list(range(20))
