"""Slots of agents that indicate a row before they write it."""

import numpy as np
import pytest
from twinlink_e3 import Endpoints
from twinlink_exporter.counters import Counters
from twinlink_exporter.observation import Carrier

from twinlink.slots import Slot, SlotSpectrum
from twinlink.testing import wait_until

from .conftest import StartExporter, Twin
from .gnb_memory import GnbMemory
from .slot_agent import SlotAgent, no_gap
from .twin_side import receive

__all__ = ["no_gap"]
N_PRBS = 24
CARRIER = Carrier(N_PRBS, 30_000)


def accounted_for(counters: Counters) -> int:
    """Indications by what became of them."""
    return (
        counters.exported + counters.left_out + counters.slots_late + counters.slots_unreadable + counters.without_twin
    )


def number_of(sfn: int, slot: int) -> int:
    """Of a slot of `GnbMemory`."""
    return sfn * 20 + slot


@pytest.mark.usefixtures("no_gap")
@pytest.mark.parametrize(("rows", "burst", "late_s"), [(121, 3, 0.0), (121, 3, 0.002), (16, 1, 0.001)])
def test_a_row_that_is_written_after_its_indication_is_never_that_of_the_round_before(
    twin: Twin, start_exporter: StartExporter, endpoints: Endpoints, rows: int, burst: int, late_s: float
) -> None:
    """Also of an agent with 16 rows, as OpenAirInterface, which writes them first."""
    with GnbMemory(rows=rows) as memory, SlotAgent(endpoints, memory, burst, 0.002, late_s):
        exporter = start_exporter(endpoints, carrier=CARRIER)
        receiver = twin[0].receiver("spectrum")
        taken: list[Slot] = []
        while len(taken) < 300:
            taken += SlotSpectrum.decode(receive(receiver, 1)[0].payload).slots
        exporter.stop()
        numbers = [number_of(slot.sfn, slot.slot) for slot in taken]
        wrong = [
            number for number, slot in zip(numbers, taken, strict=True)
            if not np.array_equal(np.asarray(slot.data).view(np.uint16)[0], memory.row(number)[0, :, : N_PRBS * 12])
        ]  # fmt: skip
    assert wrong == []
    assert np.diff(numbers).tolist() == [1 + slot.missing for slot in taken[1:]]
    counters = exporter.counters
    assert counters.indications == accounted_for(counters)
    assert counters.slots_unreadable <= 1 + 3  # of those that were indicated last


@pytest.mark.usefixtures("no_gap")
@pytest.mark.parametrize(("late_s", "burst", "times"), [(None, 2000, 4), (0.001, 8, 1)])
def test_every_indication_is_accounted_for_whenever_the_exporter_ends(
    twin: Twin, start_exporter: StartExporter, endpoints: Endpoints, late_s: float | None, burst: int, times: int
) -> None:
    """The agent is so fast that the exporter always has slots that were indicated and not yet copied."""
    rng = np.random.default_rng(11)
    with GnbMemory(rows=16 if late_s is None else 121) as memory, SlotAgent(endpoints, memory, burst, 0.001, late_s):
        for count in rng.integers(1, 1000, times).tolist():
            exporter = start_exporter(endpoints, carrier=CARRIER)
            wait_until(lambda: exporter.counters.indications >= count)  # noqa: B023
            exporter.stop()
            counters = exporter.counters
            assert counters.indications == accounted_for(counters), counters
