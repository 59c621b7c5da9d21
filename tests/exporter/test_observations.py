"""Slots of a gNB whose indications are odd."""

import io
from dataclasses import replace
from pathlib import Path

import pytest
from twinlink_exporter.counters import Counters
from twinlink_exporter.observation import Carrier
from twinlink_exporter.observations import Observations
from twinlink_exporter.reduction import Reduction

from twinlink.appkit.journal import Journal
from twinlink.slots import Clock, SlotSpectrum

from .gnb_memory import GnbMemory


@pytest.mark.parametrize("timestamp", [-5, 2**63, -(2**4000), 2**4000])
def test_a_time_that_no_clock_has_counts_as_none(tmp_path: Path, timestamp: int) -> None:
    sent: list[bytes] = []
    carrier = Carrier(24, 15)  # a slot takes a second: nothing is late
    with GnbMemory(rows=60) as memory, Journal("test", tmp_path / "log", stream=io.StringIO()) as journal:
        observations = Observations(carrier, Reduction(), Counters(), journal, lambda: True, sent.append)
        for indication in (memory.write(), memory.write()):
            observations._indicated_slot(replace(indication, timestamp=timestamp), 1)
        observations.read(all_read=True)
        observations.close()
    slots = [SlotSpectrum.decode(payload).slots[0] for payload in sent]
    assert [(slot.gnb_ns, slot.clock, slot.missing) for slot in slots] == [(0, Clock.UNKNOWN, 0)] * 2
