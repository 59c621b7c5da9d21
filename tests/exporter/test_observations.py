"""Slots of a gNB whose indications are odd."""

import io
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from twinlink_e3 import SlotIndication
from twinlink_exporter import slot_reader
from twinlink_exporter.counters import Counters
from twinlink_exporter.delays import Delays
from twinlink_exporter.digests import Digests
from twinlink_exporter.kpms import Kpms
from twinlink_exporter.observation import Carrier
from twinlink_exporter.observations import Observations
from twinlink_exporter.reduction import Reduction

from twinlink.appkit.journal import Journal
from twinlink.digest import Settings
from twinlink.slots import Clock, Slot, SlotSpectrum

from .gnb_memory import GnbMemory

NO_CLOCK = 5  # a time of none of this host's: what counts is known at once


@pytest.fixture
def memory() -> Iterator[GnbMemory]:
    with GnbMemory(rows=16) as made:
        yield made


@pytest.fixture(autouse=True)
def no_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    """A gNB of 16 rows writes them before it indicates them."""
    monkeypatch.setattr(slot_reader, "TRIAL", 0)


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., Observations]]:
    with Journal("test", tmp_path / "log", stream=io.StringIO()) as journal:
        # At 15 Hz, a slot takes a second: nothing is late because this machine is busy.
        yield lambda sent, together=1, every=1, scs_hz=15: Observations(
            Carrier(24, scs_hz),
            Reduction(every=every, slots_per_message=together),
            Counters(),
            journal,
            lambda: True,
            sent.append,
            Digests(Settings(24, 0, 24, 15_000, 3.6e9)),
            Delays(),
            Kpms(24, journal, lambda: True, lambda payload: None),
        )


def indicate(observations: Observations, *indications: SlotIndication) -> None:
    for indication in indications:
        observations._indicated_slot(indication, 1)


def slots(sent: list[bytes]) -> list[Slot]:
    return [SlotSpectrum.decode(payload).slots[0] for payload in sent]


def test_nothing_is_read_before_a_message_lacks_one_slot_only(make: Callable[..., Observations]) -> None:
    sent: list[bytes] = []
    observations, second_ns = make(sent, 4), 1_000_000_000  # a slot
    pauses = [observations.pause_ns()]
    with GnbMemory(rows=16) as memory:
        for count in (1, 1, 2):
            indicate(observations, *(memory.write(NO_CLOCK) for _ in range(count)))
            observations.copy(all_read=True)
            observations.send(all_read=True)
            pauses += [observations.pause_ns(), observations.pause_ns()]
        observations.close()
    assert pauses == [0, 2 * second_ns, 0, second_ns, 0, 3 * second_ns, 0]
    assert [len(SlotSpectrum.decode(payload).slots) for payload in sent] == [4]


def test_a_slot_that_may_not_be_written_yet_waits_for_the_next_indication_a_second_at_most(
    make: Callable[[list[bytes]], Observations],
) -> None:
    sent: list[bytes] = []
    observations = make(sent)
    counters = observations._counters
    with GnbMemory(rows=20) as memory:
        indicate(observations, memory.indicate(NO_CLOCK))
        assert not observations.copy(all_read=True)
        memory.put(0)
        indicate(observations, memory.indicate(NO_CLOCK))
        while not observations.pending:
            due_ns = observations.next_timer_ns()
            assert due_ns is not None
            time.sleep(max(0, due_ns - time.monotonic_ns()) / 1e9)
        observations.copy(all_read=True)
        observations.send(all_read=True)
        assert np.array_equal(np.asarray(slots(sent)[0].data).view(np.uint16)[0], memory.row(0)[0, :, : 24 * 12])
        due_ns = observations.next_timer_ns()
        assert due_ns is not None
        observations.timer(due_ns - 1)
        assert counters.slots_unreadable == 0
        observations.timer(due_ns)  # nothing came after the second
        assert (counters.slots_unreadable, observations.next_timer_ns()) == (1, None)
        indicate(observations, memory.write(NO_CLOCK), memory.indicate(NO_CLOCK))
        observations.close()
    assert counters.indications == 4 == counters.exported + counters.slots_unreadable


def test_what_was_indicated_when_the_exporter_ends_is_sent(
    make: Callable[[list[bytes]], Observations], memory: GnbMemory
) -> None:
    sent: list[bytes] = []
    observations = make(sent)
    indicate(observations, *(memory.write(NO_CLOCK) for _ in range(2)))
    observations.copy(all_read=True)
    indicate(observations, *(memory.write(NO_CLOCK) for _ in range(3)))
    observations.close()
    assert [slot.slot for slot in slots(sent)] == [0, 1, 2, 3, 4]
    assert observations._counters.indications == observations._counters.exported == 5


def test_an_indication_that_comes_twice_is_none_of_ours(
    make: Callable[[list[bytes]], Observations], memory: GnbMemory
) -> None:
    sent: list[bytes] = []
    observations = make(sent)
    indication = memory.write(NO_CLOCK)
    indicate(observations, indication, indication)
    observations.copy(all_read=True)
    observations.close()
    counters = observations._counters
    assert (counters.indications, counters.exported, counters.for_others) == (1, 1, 1)


def test_a_slot_that_cannot_be_read_is_missing_before_the_next_one(
    make: Callable[[list[bytes]], Observations], memory: GnbMemory
) -> None:
    sent: list[bytes] = []
    observations = make(sent)
    missing = replace(memory.indicate(NO_CLOCK), shm_name=f"{memory.name}-x")
    memory.written = 0
    indicate(observations, memory.write(NO_CLOCK))
    observations._reader.all_read(time.monotonic_ns())
    indicate(observations, missing, memory.write(NO_CLOCK))
    observations.copy(all_read=True)
    observations.close()
    assert [(slot.slot, slot.missing) for slot in slots(sent)] == [(0, 0), (1, 1)]


@pytest.mark.parametrize("timestamp", [-5, 2**63, -(2**4000), 2**4000])
def test_a_time_that_no_clock_has_counts_as_none(
    make: Callable[[list[bytes]], Observations], memory: GnbMemory, timestamp: int
) -> None:
    sent: list[bytes] = []
    observations = make(sent)
    indicate(observations, *(memory.write(timestamp) for _ in range(2)))
    observations.copy(all_read=True)
    observations.send(all_read=True)
    observations.close()
    assert [(slot.gnb_ns, slot.clock, slot.missing) for slot in slots(sent)] == [(0, Clock.UNKNOWN, 0)] * 2


def test_a_time_that_no_clock_has_counts_as_none_of_a_cell_that_is_named_second_too(
    make: Callable[[list[bytes]], Observations], memory: GnbMemory
) -> None:
    sent: list[bytes] = []
    observations = make(sent)
    for order in ((41, 42), (42, 41)):
        first, second = (replace(memory.write(2**64 - 1), cell_id=cell) for cell in order)
        indicate(observations, replace(first, others=(second,), names_cells=True))
    observations.copy(all_read=True)
    observations.send(all_read=True)
    observations.close()
    assert [(slot.gnb_ns, slot.clock, slot.missing) for slot in slots(sent)] == [(0, Clock.UNKNOWN, 0)] * 2


def test_a_copy_does_not_count_if_the_gnb_came_round_meanwhile(
    make: Callable[[list[bytes]], Observations], memory: GnbMemory
) -> None:
    sent: list[bytes] = []
    observations = make(sent)
    indicate(observations, *(memory.write(NO_CLOCK) for _ in range(3)))
    assert observations.copy(all_read=True)
    indicate(observations, *(memory.write(NO_CLOCK) for _ in range(28)))  # at once, which takes the gNB 28 s otherwise
    observations.send(all_read=True)
    assert [slot.slot for slot in slots(sent)] == [1, 2]
    assert slots(sent)[0].missing == 1


@pytest.mark.parametrize("copied", [False, True])
def test_shared_memory_that_is_made_anew_does_not_take_the_place_of_what_was_indicated(
    make: Callable[[list[bytes]], Observations], memory: GnbMemory, copied: bool
) -> None:
    sent: list[bytes] = []
    observations = make(sent)
    indicate(observations, memory.write(NO_CLOCK), memory.write(NO_CLOCK))
    if copied:
        observations.copy(all_read=True)
    else:  # so that the time of reading them is known
        observations._reader.all_read(time.monotonic_ns())
    memory.make()
    memory.written = 5
    indicate(observations, memory.write(NO_CLOCK))
    assert [slot.slot for slot in slots(sent)] == [0, 1]
    observations.copy(all_read=True)
    observations.send(all_read=True)
    rows = [np.asarray(slot.data).view(np.uint16)[0] for slot in slots(sent)]
    assert [
        np.array_equal(row, memory.row(number)[0, :, : 24 * 12]) for row, number in zip(rows, (0, 1, 5), strict=True)
    ]
    observations.close()


def test_of_several_cells_one_of_so_many_slots_is_sent(make: Callable[..., Observations]) -> None:
    """Their rows are twice as many."""
    sent: list[bytes] = []
    observations = make(sent, every=2)
    with GnbMemory(rows=16) as memory:
        for number in range(8):
            rows = [replace(memory.write(NO_CLOCK, number), cell_id=cell, n_cells=2) for cell in (41, 42)]
            indicate(observations, replace(rows[0], others=(rows[1],), names_cells=True))
            observations.copy(all_read=True)
            observations.send(all_read=True)
        observations.close()
    assert [(slot.slot, slot.missing) for slot in slots(sent)] == [(1, 0), (3, 0), (5, 0), (7, 0)]


@pytest.mark.parametrize("before_ns", [0, 60 * 10**9])
def test_a_gnb_whose_clock_is_set_has_not_left_out_the_slots_of_half_a_century(
    make: Callable[[list[bytes]], Observations], memory: GnbMemory, before_ns: int
) -> None:
    sent: list[bytes] = []
    observations = make(sent)
    indicate(observations, *(memory.write(before_ns) for _ in range(3)))
    for later in range(3):
        indicate(observations, memory.write(1_764_259_200 * 10**9 + later))
    observations.copy(all_read=True)
    observations.send(all_read=True)
    observations.close()
    assert [slot.missing for slot in slots(sent)] == [0] * 6
    assert observations._counters.slots_not_indicated == 0


def test_more_missing_slots_than_a_slot_can_tell_are_told_by_the_next_ones_too(
    make: Callable[..., Observations], memory: GnbMemory
) -> None:
    sent: list[bytes] = []
    observations, hour_ns = make(sent, scs_hz=240_000), 3600 * 10**9
    for hour in range(100):
        indicate(observations, memory.write(hour * hour_ns))
    for later in range(2):
        indicate(observations, memory.write(99 * hour_ns + (later + 1) * 62_500))
    observations.copy(all_read=True)
    observations.send(all_read=True)
    observations.close()
    counters = observations._counters
    assert counters.slots_not_indicated > 2**32
    assert sum(slot.missing for slot in slots(sent)) == counters.slots_not_indicated + counters.slots_late


def test_an_agent_that_names_another_shared_memory_each_time_does_not_fill_the_log(
    make: Callable[..., Observations], memory: GnbMemory, tmp_path: Path
) -> None:
    observations = make([])
    with GnbMemory(rows=16) as other:
        for _ in range(10):
            indicate(
                observations, replace(memory.write(NO_CLOCK), cell_id=1), replace(other.write(NO_CLOCK), cell_id=2)
            )
        observations._counters.setups += 1  # as where the gNB has started
        indicate(observations, memory.write(NO_CLOCK))
        observations.close()
    observations._journal.__exit__(None, None, None)
    names = [json.loads(line)["event"] for line in (tmp_path / "log").read_text().splitlines()]
    assert names.count("slots") == 3  # the first, a complaint, and the first of another setup
