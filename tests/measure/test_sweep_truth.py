"""What is put in on purpose comes out of the records: a clock that is wrong, a way that takes longer, messages lost."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.measure.sweeping import measure, table
from twinlink.measure.cells import Plan
from twinlink.measure.setting import Loopback, Truth

MS = 1_000_000
SUBJECTS = ("zeromq", "raw-tcp")


def test_a_shifted_clock_shifts_every_stamp_of_its_side(tmp_path: Path) -> None:
    offset_ns = -50 * MS
    plan = Plan(SUBJECTS, (100,), count=8, rounds=1, warm_up=3)
    run = measure(tmp_path, plan, Loopback(Truth(twin_clock=(offset_ns, 0.0))))
    for cell in run["cells"]:
        sent = table(tmp_path, cell, "sent")
        assert sent["acknowledged"].all(), cell["id"]
        forward = sent["peer_received_ns"] - sent["sent_ns"]
        back = sent["received_ns"] - sent["peer_sent_ns"]
        # No delay is negative, so each exchange encloses the offset of the reflector's clock.
        truth_ns = offset_ns if cell["direction"] == "rw-dt" else -offset_ns
        assert (-back).max() <= truth_ns <= forward.min(), cell["id"]
        assert (sent["rtt_ns"] < 2**40).all()  # on the monotonic clock, which nobody shifts
        received = table(tmp_path, cell, "received")
        assert (received["received_ns"] == sent["peer_received_ns"]).all(), cell["id"]


def test_a_drifting_clock_drifts(tmp_path: Path) -> None:
    drift_ppm = 10_000.0  # 1 %: 10 ms in a second
    plan = Plan(("zeromq",), (100,), ("rw-dt",), ("open",), count=60, rounds=1, rate_hz=40.0)
    (cell,) = measure(tmp_path, plan, Loopback(Truth(twin_clock=(0, drift_ppm))))["cells"]
    sent = table(tmp_path, cell, "sent")
    forward = sent["peer_received_ns"] - sent["sent_ns"]
    elapsed = sent["sent_ns"] - sent["sent_ns"][0]
    expected = elapsed[-1] * drift_ppm * 1e-6
    slack = sent["rtt_ns"][0] + sent["rtt_ns"][-1]
    assert abs((forward[-1] - forward[0]) - expected) <= slack


@pytest.mark.parametrize("way", ["forward", "back"])
def test_a_delay_on_one_way_is_found_on_that_way(way: str, tmp_path: Path) -> None:
    delay_ns = 40 * MS
    truth = Truth(forward_delay_ns=delay_ns) if way == "forward" else Truth(back_delay_ns=delay_ns)
    plan = Plan(("zeromq", "zenoh", "raw-tcp"), (100,), count=6, rounds=1, warm_up=2)
    run = measure(tmp_path, plan, Loopback(truth))
    for cell in run["cells"]:
        sent = table(tmp_path, cell, "sent")
        assert sent["acknowledged"].all(), cell["id"]
        there = (sent["peer_received_ns"] - sent["sent_ns"]).min()
        back = (sent["received_ns"] - sent["peer_sent_ns"]).min()
        delayed, other = (there, back) if (cell["direction"] == "rw-dt") == (way == "forward") else (back, there)
        assert delayed >= delay_ns > other, cell["id"]


def test_known_losses_are_the_ones_found(tmp_path: Path) -> None:
    modes = ("closed", "open")
    plan = Plan(SUBJECTS, (100,), ("rw-dt",), modes, count=20, rounds=1, warm_up=3, rate_hz=200.0, timeout_s=2.0)
    plan = replace(plan, options={"zeromq": {"reliability": "detect"}})
    run = measure(tmp_path, plan, Loopback(Truth(drop_every=10)))
    for cell in run["cells"]:
        (entry,) = cell["rounds"]
        sent, received = table(tmp_path, cell, "sent"), table(tmp_path, cell, "received")
        lost = sent["sequence"][~sent["acknowledged"]]
        assert entry["sent"] == len(sent) == 20, cell["id"]
        assert len(lost) == entry["dropped"] == 2, cell["id"]
        assert lost[1] - lost[0] == 10, cell["id"]
        assert sorted({*range(20)} - set(received["sequence"].tolist())) == lost.tolist(), cell["id"]


def test_what_a_link_repairs_is_not_lost_but_late(tmp_path: Path) -> None:
    plan = Plan(("zeromq",), (100,), ("rw-dt",), ("open",), count=20, rounds=1, warm_up=3, rate_hz=100.0)
    (cell,) = measure(tmp_path, plan, Loopback(Truth(drop_every=10)))["cells"]
    (entry,) = cell["rounds"]
    sent, received = table(tmp_path, cell, "sent"), table(tmp_path, cell, "received")
    assert entry["dropped"] == entry["counters"]["repaired"] == 2
    assert sent["acknowledged"].all()
    assert sorted(received["sequence"]) == list(range(20))
