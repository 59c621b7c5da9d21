"""Cyclic OPC UA PubSub: a publisher and a loopback host."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from twinlink.measure.experiments import description, measuring, pubsub


def test_a_message_comes_back_after_whole_cycles(tmp_path: Path) -> None:
    cycles, cycle_ms = 40, 25
    whole = description.load("pubsub-sizes")
    parts = tuple(part for part in whole.parts if part["variables"] == 12)
    assert [part["cycle_ms"] for part in parts] == [cycle_ms]
    (row,) = pubsub.measure(
        measuring.Run(
            dataclasses.replace(whole, parts=parts), tmp_path, "loopback", {"cycles": cycles}, True,
            lambda *_: None, lambda _: None, lambda: False,
        )
    )  # fmt: skip
    assert row.status == "done", row.reason
    assert row.figures["octets"] == 32 + 9 * 12
    assert row.n >= 1
    # It is sent again in a later cycle, at the same offset: on a busy machine later than in the cycle after the next.
    assert (row.figures["min"] or 0) > cycle_ms
    assert row.figures["drop_sum"] == pytest.approx(100 * (cycles - row.n) / cycles)
    records = np.genfromtxt(tmp_path / (row.records or ""), delimiter=",", names=True, skip_header=0)
    back = ~np.isnan(records["returned_ns"])
    assert back.sum() == row.n
