"""Cyclic OPC UA PubSub: a publisher and a loopback host."""

from pathlib import Path

import numpy as np
import pytest
from twinlink_measure.experiments import pubsub

from tests.measure.experimenting import quiet


def test_a_message_comes_back_after_whole_cycles(tmp_path: Path) -> None:
    cycles, cycle_ms = 40, 25
    run = quiet(tmp_path, "pubsub-sizes", {"cycles": cycles}, lambda part: part["variables"] == 12)
    assert [part["cycle_ms"] for part in run.experiment.parts] == [cycle_ms]
    (row,) = pubsub.measure(run)
    assert row.status == "done", row.reason
    assert row.figures["octets"] == 32 + 9 * 12
    assert row.n >= 1
    # It is sent again in a later cycle, at the same offset: on a busy machine later than in the cycle after the next.
    assert (row.figures["min"] or 0) > cycle_ms
    assert row.figures["drop_sum"] == pytest.approx(100 * (cycles - row.n) / cycles)
    records = np.genfromtxt(tmp_path / (row.records or ""), delimiter=",", names=True, skip_header=0)
    back = ~np.isnan(records["returned_ns"])
    assert back.sum() == row.n
