"""Real sweeps into which a truth is put: what the metrics say of it is right, within the bound they state."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.measure.sweeping import measure, table
from twinlink.measure import metrics
from twinlink.measure.cells import Plan
from twinlink.measure.records import Table
from twinlink.measure.setting import Loopback, Truth

MS = 1_000_000


def swept(folder: Path, plan: Plan, truth: Truth) -> tuple[metrics.RunClock, list[tuple[Any, Table, Table, Any]]]:
    """The run's clock, and of each cell its entry, what was sent and received, and its metrics."""
    run = measure(folder, plan, Loopback(truth))
    tables = [(cell, table(folder, cell, "sent"), table(folder, cell, "received")) for cell in run["cells"]]
    clock = metrics.run_clock([(cell, sent) for cell, sent, _ in tables])
    assert clock is not None
    found = []
    for cell, sent, received in tables:
        seen = clock.seen_from(cell["direction"])
        found.append((cell, sent, received, metrics.cell(sent, received, cell["rounds"], "loopback", clock=seen)))
    return clock, found


@pytest.mark.parametrize("offset_ns", [250 * MS, -2 * 3_600_000 * MS])
@pytest.mark.parametrize("forward_delay_ns", [0, 20 * MS])
def test_a_clock_that_is_off(offset_ns: int, forward_delay_ns: int, tmp_path: Path) -> None:
    """With a path that is not symmetric too: half of what one way takes longer is within the bound."""
    plan = Plan(("zeromq", "raw-tcp"), (100,), count=20, rounds=1, warm_up=3)
    truth = Truth(twin_clock=(offset_ns, 0.0), forward_delay_ns=forward_delay_ns)
    clock, cells = swept(tmp_path, plan, truth)
    assert abs(clock.estimate.offset_ns - offset_ns) <= clock.estimate.bound_ns
    assert not clock.estimate.stepped
    for cell, sent, received, found in cells:
        truth_ns = offset_ns if cell["direction"] == "rw-dt" else -offset_ns
        assert found["clock"]["method"] != metrics.ONE_CLOCK, cell["id"]
        assert abs(found["clock"]["offset_ns"] - truth_ns) <= found["clock"]["bound_ns"] + 1, cell["id"]
        delay = found["one_way_delay_ns"]
        true_mean_ns = (received["received_ns"] - received["sent_ns"]).mean() - truth_ns
        assert abs(delay["mean"] - true_mean_ns) <= delay["bound_ns"] + 1, cell["id"]
        assert delay["flags"] == [], cell["id"]
        assert found["rtt_ns"]["mean"] == pytest.approx(sent["rtt_ns"].mean()), cell["id"]


def test_a_clock_that_drifts(tmp_path: Path) -> None:
    drift_ppm = 300.0
    plan = Plan(("raw-tcp",), (100,), ("rw-dt",), ("open",), count=120, rounds=1, rate_hz=60.0)
    clock, ((_, sent, _, _),) = swept(tmp_path, plan, Truth(twin_clock=(0, drift_ppm)))
    first, last = sent["sent_ns"][0], sent["sent_ns"][-1]
    estimate = clock.estimate
    moved = np.diff(estimate.offset_at([first, last]))[0]
    assert abs(moved - (last - first) * drift_ppm * 1e-6) <= estimate.bound_at([first, last]).sum()
    assert not estimate.stepped


@pytest.mark.parametrize("way", ["forward", "back"])
def test_a_path_that_takes_longer_one_way(way: str, tmp_path: Path) -> None:
    """Both sides are on one host, so that the delay is known although the exchanges could be read as an offset."""
    delay_ns = 30 * MS
    truth = Truth(forward_delay_ns=delay_ns) if way == "forward" else Truth(back_delay_ns=delay_ns)
    _, cells = swept(tmp_path, Plan(("raw-tcp",), (100,), count=15, rounds=1, warm_up=3), truth)
    for cell, _, received, found in cells:
        delay = found["one_way_delay_ns"]
        raw_ns = received["received_ns"] - received["sent_ns"]
        assert abs(delay["mean"] - raw_ns.mean()) <= delay["bound_ns"]
        delayed = (cell["direction"] == "rw-dt") == (way == "forward")
        assert (delay["min"] >= delay_ns) == delayed
        assert found["rtt_ns"]["min"] >= delay_ns


def test_messages_that_are_lost(tmp_path: Path) -> None:
    plan = Plan(("raw-tcp",), (100,), ("rw-dt",), ("open",), count=100, rounds=1, rate_hz=400.0, timeout_s=0.6)
    _, ((cell, _, _, found),) = swept(tmp_path, plan, Truth(drop_every=20))
    assert found["lost"] == cell["rounds"][0]["dropped"] == 5
    assert (found["n_sent"], found["n_received"], found["loss_ratio"]) == (100, 95, 0.05)
    low, high = found["loss_ratio_ci95"]
    assert low < 0.05 < high
    assert found["duplicates"] == found["reordered"] == 0
    assert found["open_loop_delay_ns"]["n"] == 95
    assert found["open_loop_delay_ns"]["mean"] > 0
