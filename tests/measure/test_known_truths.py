"""Real sweeps with injected errors (clock, path, loss): the metrics find them within the bound that they state."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from twinlink_measure.cells import Plan
from twinlink_measure.setting import Loopback, Truth
from twinlink_results import metrics

from tests.measure.sweeping import measure, table
from twinlink.appkit.clock import Estimate
from twinlink.appkit.records import Table

MS = 1_000_000


def swept(folder: Path, plan: Plan, truth: Truth) -> tuple[Estimate, list[tuple[Any, Table, Table, Any]]]:
    """The twin's clock as the Real World sees it; of each cell its entry, what was sent, what came, and its metrics."""
    run = measure(folder, plan, Loopback(truth))
    tables = [(cell, table(folder, cell, "sent"), table(folder, cell, "received")) for cell in run["cells"]]
    clocks = metrics.run_clocks([(cell, sent) for cell, sent, _ in tables])
    found = []
    for cell, sent, received in tables:
        seen = clocks[cell["direction"]]
        found.append((cell, sent, received, metrics.cell(sent, received, cell["rounds"], "loopback", clock=seen)))
    return clocks["rw-dt"], found


@pytest.mark.parametrize(
    ("offset_ns", "forward_delay_ns"),
    [
        (250 * MS, 0),
        (-2 * 3_600_000 * MS, 20 * MS),
        pytest.param(250 * MS, 20 * MS, marks=pytest.mark.thorough),
        pytest.param(-2 * 3_600_000 * MS, 0, marks=pytest.mark.thorough),
    ],
)
def test_a_clock_that_is_off(offset_ns: int, forward_delay_ns: int, tmp_path: Path) -> None:
    """With a path that is not symmetric too: half of what one way takes longer is within the bound."""
    plan = Plan(("zeromq", "raw-tcp"), (100,), count=20, rounds=1, warm_up=3)
    truth = Truth(twin_clock=(offset_ns, 0.0), forward_delay_ns=forward_delay_ns)
    clock, cells = swept(tmp_path, plan, truth)
    assert abs(clock.offset_ns - offset_ns) <= clock.bound_ns
    assert not clock.stepped
    for cell, sent, received, found in cells:
        truth_ns = offset_ns if cell["direction"] == "rw-dt" else -offset_ns
        # Every stamp of the twin is shifted: no delay is negative, so each exchange encloses the offset.
        assert sent["acknowledged"].all(), cell["id"]
        forward_ns = sent["peer_received_ns"] - sent["sent_ns"]
        back_ns = sent["received_ns"] - sent["peer_sent_ns"]
        assert (-back_ns).max() <= truth_ns <= forward_ns.min(), cell["id"]
        assert (received["received_ns"] == sent["peer_received_ns"]).all(), cell["id"]
        assert (sent["rtt_ns"] < 2**40).all(), cell["id"]  # on the monotonic clock, which is not shifted
        assert found["clock"]["method"] != metrics.ONE_CLOCK, cell["id"]
        assert abs(found["clock"]["offset_ns"] - truth_ns) <= found["clock"]["bound_ns"] + 1, cell["id"]
        delay = found["one_way_delay_ns"]
        true_mean_ns = (received["received_ns"] - received["sent_ns"]).mean() - truth_ns
        assert abs(delay["mean"] - true_mean_ns) <= delay["bound_ns"] + 1, cell["id"]
        # An offset that is off by less than its bound may make a delay of microseconds negative.
        assert set(delay["flags"]) <= {"negative"}, cell["id"]
        assert found["rtt_ns"]["mean"] == pytest.approx(sent["rtt_ns"].mean()), cell["id"]


def test_a_clock_that_drifts(tmp_path: Path) -> None:
    drift_ppm = 300.0
    plan = Plan(("raw-tcp",), (100,), ("rw-dt",), ("open",), count=120, rounds=1, rate_hz=60.0)
    clock, ((_, sent, _, _),) = swept(tmp_path, plan, Truth(twin_clock=(0, drift_ppm)))
    ends = sent[[0, -1]]
    first, last = ends["sent_ns"]
    drifted_ns = (last - first) * drift_ppm * 1e-6
    seen_ns = np.diff(ends["peer_received_ns"] - ends["sent_ns"])[0]
    assert abs(seen_ns - drifted_ns) <= ends["rtt_ns"].sum()
    moved_ns = np.diff(clock.offset_at([first, last]))[0]
    assert abs(moved_ns - drifted_ns) <= clock.bound_at([first, last]).sum()
    assert not clock.stepped


@pytest.mark.parametrize("way", ["forward", "back"])
def test_a_path_that_takes_longer_one_way(way: str, tmp_path: Path) -> None:
    """Both sides are on one host, so that the delay is known although the exchanges could be read as an offset."""
    delay_ns = 40 * MS
    truth = Truth(forward_delay_ns=delay_ns) if way == "forward" else Truth(back_delay_ns=delay_ns)
    plan = Plan(("zeromq", "raw-tcp"), (100,), count=15, rounds=1, warm_up=3)
    _, cells = swept(tmp_path, plan, truth)
    for cell, sent, received, found in cells:
        assert sent["acknowledged"].all(), cell["id"]
        there_ns = (sent["peer_received_ns"] - sent["sent_ns"]).min()
        back_ns = (sent["received_ns"] - sent["peer_sent_ns"]).min()
        delayed = (cell["direction"] == "rw-dt") == (way == "forward")
        longer_ns, other_ns = (there_ns, back_ns) if delayed else (back_ns, there_ns)
        assert longer_ns >= delay_ns > other_ns, cell["id"]
        delay = found["one_way_delay_ns"]
        raw_ns = received["received_ns"] - received["sent_ns"]
        assert abs(delay["mean"] - raw_ns.mean()) <= delay["bound_ns"], cell["id"]
        assert (delay["min"] >= delay_ns) == delayed, cell["id"]
        assert found["rtt_ns"]["min"] >= delay_ns, cell["id"]


@pytest.mark.parametrize("mode", ["closed", "open"])
def test_messages_that_are_lost(mode: str, tmp_path: Path) -> None:
    plan = Plan(
        ("zeromq", "raw-tcp"), (100,), ("rw-dt",), (mode,), count=40, rounds=1, warm_up=3, rate_hz=400.0,
        timeout_s=2.0, options={"zeromq": {"reliability": "detect"}},
    )  # fmt: skip
    _, cells = swept(tmp_path, plan, Truth(drop_every=20))
    for cell, sent, received, found in cells:
        lost = sent["sequence"][~sent["acknowledged"]]
        assert len(sent) == found["n_sent"] == 40, cell["id"]
        assert len(lost) == found["lost"] == cell["rounds"][0]["dropped"] == 2, cell["id"]
        assert lost[1] - lost[0] == 20, cell["id"]
        assert sorted({*range(40)} - set(received["sequence"].tolist())) == lost.tolist(), cell["id"]
        assert (found["n_received"], found["loss_ratio"]) == (38, 0.05), cell["id"]
        low, high = found["loss_ratio_ci95"]
        assert low < 0.05 < high, cell["id"]
        assert found["duplicates"] == found["reordered"] == 0, cell["id"]
        if mode == "open":
            assert found["open_loop_delay_ns"]["n"] == 38, cell["id"]
            assert found["open_loop_delay_ns"]["mean"] > 0, cell["id"]


def test_what_a_link_repairs_is_not_lost_but_late(tmp_path: Path) -> None:
    plan = Plan(("zeromq",), (100,), ("rw-dt",), ("open",), count=20, rounds=1, warm_up=3, rate_hz=100.0)
    _, ((cell, sent, received, found),) = swept(tmp_path, plan, Truth(drop_every=10))
    (entry,) = cell["rounds"]
    assert entry["dropped"] == entry["counters"]["repaired"] == 2
    assert sent["acknowledged"].all()
    assert sorted(received["sequence"]) == list(range(20))
    assert found["lost"] == 0
