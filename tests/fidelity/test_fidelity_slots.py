"""Whole slots: what the exporter heard as I/Q is what the twin has, as I/Q or as power."""

import os
from pathlib import Path

import pytest

from tests.fidelity.running import Running, mean

SLOTS = ("--slots", "--e3-generation", "G2b")


@pytest.mark.skipif("TWINLINK_TEST_WHOLE" not in os.environ, reason="20 s: TWINLINK_TEST_WHOLE=1 runs it")
@pytest.mark.parametrize(
    "sent",
    [("--every", "20", "--symbols", "3"), ("--every", "10", "--content", "power-db", "--slot-mean", "--prbs", "20-89")],
    ids=["iq", "power"],
)
def test_without_distortion(tmp_path: Path, sent: tuple[str, ...]) -> None:
    with Running(tmp_path, "zeromq", 1, exporter=sent, emulator=(*SLOTS, "--shm-suffix", f"f{tmp_path.name}")) as run:
        found = run.next_windows(2)
        run.end()
    assert all(score["expected"] > 50 for score in found)
    assert mean(found, "occupancy") > 0.99
    assert mean(found, "spectrum") > 0.97  # octets of half a dB, of a dozen sampled slots a second
    assert mean(found, "completeness") > 0.9  # the gNB overwrites slots, and this machine may be busy
