"""Real sweeps into which a truth is put: what the metrics say of it is right, within the bound they state."""

from collections.abc import Callable, Hashable, Iterator
from typing import Any

import numpy as np
import pytest

from tests.measure.sweeping import in_turn, table
from twinlink.measure import metrics
from twinlink.measure.cells import Plan
from twinlink.measure.records import Table
from twinlink.measure.setting import Truth

MS = 1_000_000


OFFSETS = [250 * MS, -2 * 3_600_000 * MS]
DELAYS = [0, 20 * MS]
DRIFT_PPM = 300.0
ONE_WAY_NS = 30 * MS
LATER = {"forward": Truth(forward_delay_ns=ONE_WAY_NS), "back": Truth(back_delay_ns=ONE_WAY_NS)}

Swept = tuple[metrics.RunClock, list[tuple[Any, Table, Table, Any]]]


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[Hashable], Swept]]:
    """Of a sweep the run's clock, and of each cell its entry, what was sent and received, and its metrics."""
    off = Plan(("zeromq", "raw-tcp"), (100,), count=20, rounds=1, warm_up=3)
    drifting = Plan(("raw-tcp",), (100,), ("rw-dt",), ("open",), count=120, rounds=1, rate_hz=60.0)
    longer = Plan(("raw-tcp",), (100,), count=15, rounds=1, warm_up=3)
    losing = Plan(("raw-tcp",), (100,), ("rw-dt",), ("open",), count=100, rounds=1, rate_hz=400.0, timeout_s=0.6)
    sweeps: dict[Hashable, tuple[Plan, Truth]] = {
        (offset_ns, delay_ns): (off, Truth(twin_clock=(offset_ns, 0.0), forward_delay_ns=delay_ns))
        for offset_ns in OFFSETS
        for delay_ns in DELAYS
    }
    sweeps |= {way: (longer, truth) for way, truth in LATER.items()}
    sweeps |= {"drifts": (drifting, Truth(twin_clock=(0, DRIFT_PPM))), "loses": (losing, Truth(drop_every=20))}

    with in_turn(tmp_path_factory.mktemp("sweeps"), sweeps) as begun:

        def _swept(name: Hashable) -> Swept:
            folder, run = begun[name].result()
            tables = [(cell, table(folder, cell, "sent"), table(folder, cell, "received")) for cell in run["cells"]]
            clock = metrics.run_clock([(cell, sent) for cell, sent, _ in tables])
            assert clock is not None
            found = []
            for cell, sent, received in tables:
                seen = clock.seen_from(cell["direction"])
                measured = metrics.cell(sent, received, cell["rounds"], "loopback", clock=seen)
                found.append((cell, sent, received, measured))
            return clock, found

        yield _swept


@pytest.mark.parametrize("offset_ns", OFFSETS)
@pytest.mark.parametrize("forward_delay_ns", DELAYS)
def test_a_clock_that_is_off(offset_ns: int, forward_delay_ns: int, swept: Callable[[Hashable], Swept]) -> None:
    """With a path that is not symmetric too: half of what one way takes longer is within the bound."""
    clock, cells = swept((offset_ns, forward_delay_ns))
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


def test_a_clock_that_drifts(swept: Callable[[Hashable], Swept]) -> None:
    clock, ((_, sent, _, _),) = swept("drifts")
    first, last = sent["sent_ns"][0], sent["sent_ns"][-1]
    estimate = clock.estimate
    moved = np.diff(estimate.offset_at([first, last]))[0]
    assert abs(moved - (last - first) * DRIFT_PPM * 1e-6) <= estimate.bound_at([first, last]).sum()
    assert not estimate.stepped


@pytest.mark.parametrize("way", LATER)
def test_a_path_that_takes_longer_one_way(way: str, swept: Callable[[Hashable], Swept]) -> None:
    """Both sides are on one host, so that the delay is known although the exchanges could be read as an offset."""
    _, cells = swept(way)
    for cell, _, received, found in cells:
        delay = found["one_way_delay_ns"]
        raw_ns = received["received_ns"] - received["sent_ns"]
        assert abs(delay["mean"] - raw_ns.mean()) <= delay["bound_ns"]
        delayed = (cell["direction"] == "rw-dt") == (way == "forward")
        assert (delay["min"] >= ONE_WAY_NS) == delayed
        assert found["rtt_ns"]["min"] >= ONE_WAY_NS


def test_messages_that_are_lost(swept: Callable[[Hashable], Swept]) -> None:
    _, ((cell, _, _, found),) = swept("loses")
    assert found["lost"] == cell["rounds"][0]["dropped"] == 5
    assert (found["n_sent"], found["n_received"], found["loss_ratio"]) == (100, 95, 0.05)
    low, high = found["loss_ratio_ci95"]
    assert low < 0.05 < high
    assert found["duplicates"] == found["reordered"] == 0
    assert found["open_loop_delay_ns"]["n"] == 95
    assert found["open_loop_delay_ns"]["mean"] > 0
