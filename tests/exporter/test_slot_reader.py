"""Rows of a gNB's shared memory: which count, and which were overwritten."""

import os
import time
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from twinlink_e3 import RanBuffers, SharedMemoryError, SlotIndication, shared_memory_path
from twinlink_exporter import slot_reader
from twinlink_exporter.slot_reader import IndicatedSlot, SlotReader

from twinlink.slots import ALL_SYMBOLS, Clock

from .gnb_memory import GnbMemory

HOUR_NS = 3600 * 10**9
LONG_NS = 60 * 10**9  # of a slot: nothing becomes late because this machine is busy


@pytest.fixture
def memory() -> Iterator[GnbMemory]:
    with GnbMemory(antennas=2) as made:
        yield made


def indicate(reader: SlotReader, indication: SlotIndication) -> IndicatedSlot:
    if not reader.is_open(indication.shm_name):
        reader.open(indication.shm_name)
    slot = reader.indicated(indication, 1)
    assert slot is not None
    reader.all_read(time.monotonic_ns())
    return slot


def test_a_part_of_a_row_is_bit_for_bit_that_of_the_gnb(memory: GnbMemory) -> None:
    reader = SlotReader(LONG_NS)
    for number in range(8):  # both buffers, and the beginning again
        slot = indicate(reader, memory.write())
        part = reader.read(slot, (0, 1), 0b10000000000110, 5, 20)
        assert part is not None
        expected = memory.row(number)[:, [1, 2, 13], 60:300]
        assert np.array_equal(part.view(np.uint16), expected)


@pytest.mark.parametrize(("antennas", "rows"), [(1, 2), (4, 16), (2, 37)])
def test_rows_and_antennas_are_taken_from_the_header(antennas: int, rows: int) -> None:
    with GnbMemory(antennas, rows) as memory:
        reader = SlotReader(LONG_NS)
        memory.written = 2 * rows - 1
        part = reader.read(indicate(reader, memory.write()), (antennas - 1,), ALL_SYMBOLS, 272, 1)
        assert part is not None
        assert np.array_equal(part.view(np.uint16)[0], memory.row(2 * rows - 1)[-1, :, 272 * 12 :])


def test_slots_that_were_not_indicated_are_counted(memory: GnbMemory) -> None:
    reader = SlotReader(LONG_NS)
    first = indicate(reader, memory.write())
    memory.write()
    memory.write()
    later = indicate(reader, memory.write())
    assert (first.skipped, later.skipped, later.number - first.number) == (0, 2, 3)
    assert reader.indicated(later.indication, 2) is None  # the same again


@pytest.mark.parametrize("rounds", [0, 1, 5])
def test_rounds_of_the_gnb_between_two_indications_are_counted(memory: GnbMemory, rounds: int) -> None:
    slot_ns = 500_000
    reader = SlotReader(slot_ns)
    uplink = [period * 5 + place for period in range(6 * rounds + 120) for place in (0, 1)]  # two slots of five
    for number in uplink[:200]:
        slot = indicate(reader, memory.write(10**9 + number * slot_ns, number))
        assert slot.skipped == 0
    skipped = 6 * rounds + 2
    memory.written += skipped
    number = uplink[200 + skipped]
    slot = indicate(reader, memory.write(10**9 + number * slot_ns + 200_000, number))
    assert slot.skipped == skipped


def test_a_pause_of_the_gnb_is_no_round_if_its_last_row_stands(memory: GnbMemory) -> None:
    """Two uplink slots of ten, as of a TDD carrier: the pause is longer than the time of all rows at one a slot."""
    reader = SlotReader(500_000)
    for number in (period * 10 + place for period in range(20) for place in (0, 1)):
        slot = indicate(reader, memory.write(10**9 + number * 500_000, number))
        reader.all_read(time.monotonic_ns() + LONG_NS)  # nothing is late because this machine is busy
        assert reader.read(slot, (0,), 1, 0, 1) is not None
        assert reader.counts(slot, time.monotonic_ns())
        assert slot.skipped == 0


def test_a_row_that_was_copied_after_the_gnb_came_round_does_not_hide_the_round() -> None:
    """40 slots without an indication, of which the last has been written where the first copy is made."""
    with GnbMemory(rows=16) as memory:
        reader = tried(memory)
        slot = indicate(reader, memory.write())
        for _ in range(39):
            memory.write()
        assert reader.read(slot, (0,), 1, 0, 1) is not None
        last = indicate(reader, memory.write())
        assert last.skipped == 39


def tried(memory: GnbMemory) -> SlotReader:
    """A reader that knows the rows to differ from round to round, and to be complete when they are indicated."""
    reader = SlotReader(500_000)
    for _ in range(slot_reader.TRIAL):
        slot = indicate(reader, memory.write())
        assert reader.read(slot, (0,), 1, 0, 1) is not None
        copied_ns = time.monotonic_ns()
        reader.all_read(copied_ns + slot_reader.MAX_TRANSIT_NS)
        assert reader.counts(slot, copied_ns)
    return reader


@pytest.mark.parametrize("pattern", ["DDDDDDDDDU", "DDDDDDDSUU"])
def test_the_age_of_a_row_is_counted_in_slots_that_were_written(pattern: str) -> None:
    """200 and 600 slots of 2000 a second: a consumer that was not scheduled for a while finds every row intact."""
    rng = np.random.default_rng(3)
    with GnbMemory(rows=16) as memory:
        reader = tried(memory)
        numbers = (number for number in range(1000, 10**6) if pattern[number % len(pattern)] != "D")
        for backlog in (1, 29, *rng.integers(1, 30, 8).tolist()):
            written = [next(numbers) for _ in range(backlog)]
            now_ns = time.monotonic_ns()
            indications = [memory.write(now_ns - (written[-1] - number) * 500_000, number) for number in written]
            slots = [indicate(reader, indication) for indication in indications]
            assert all(reader.read(slot, (0,), 1, 0, 1) is not None for slot in slots)
            assert all(reader.counts(slot, time.monotonic_ns()) for slot in slots)


def test_without_a_row_that_tells_a_copy_counts_when_a_later_indication_comes(memory: GnbMemory) -> None:
    reader = SlotReader(500_000)
    slot = indicate(reader, memory.write(time.monotonic_ns() - 500_000_000))  # however old it is
    assert reader.read(slot, (0,), 1, 0, 1) is not None
    copied_ns = time.monotonic_ns()
    assert reader.counts(slot, copied_ns) is None
    reader.all_read(copied_ns + slot_reader.MAX_TRANSIT_NS - 1)
    assert reader.counts(slot, copied_ns) is None
    reader.all_read(copied_ns + slot_reader.MAX_TRANSIT_NS)
    assert reader.counts(slot, copied_ns)
    reader.all_read(copied_ns)
    indicate(reader, memory.write())
    assert reader.counts(slot, copied_ns)
    for _ in range(2):
        indicate(reader, memory.write())
    assert reader.counts(slot, copied_ns) is False  # of six rows, that which follows may be the slot's


def test_rows_that_begin_with_zeros_tell_nothing() -> None:
    """A simulated carrier without noise: a row that begins as before may be another round's."""
    with GnbMemory(rows=16) as memory, memory.path.open("r+b") as file:
        reader = tried(memory)
        for _ in range(2 * memory.layout.rows):
            indication = memory.indicate()
            file.seek(memory.layout.offset(indication.fh_buffer_index, indication.fh_write_index))
            file.write(bytes(64))
            slot = indicate(reader, indication)
            reader.read(slot, (0,), 1, 0, 1)
        assert reader.counts(slot, time.monotonic_ns()) is None


@pytest.mark.parametrize("timestamp", [None, 5])
@pytest.mark.parametrize("part", [slice(None), slice(-64, None)])
def test_an_agent_that_was_thought_to_write_first_and_does_not_is_found_out(part: slice, timestamp: int | None) -> None:
    """With its first copy that differs from the row, at the end alone, too."""
    antennas, prbs = (0, 1), 273
    with GnbMemory(antennas=2, rows=16) as memory, memory.path.open("r+b", buffering=0) as file:
        reader, octets = SlotReader(500_000), memory.row(0).tobytes()
        slot = indicate(reader, memory.indicate(timestamp))
        if part.start:
            file.seek(memory.layout.offset(0, 0))
            file.write(octets[: part.start])
        assert reader.read(slot, antennas, ALL_SYMBOLS, 0, prbs) is not None
        copied_ns = time.monotonic_ns()
        memory.put(0)
        slots = [indicate(reader, memory.write(timestamp)) for _ in range(2)]
        assert reader.counts(slot, copied_ns) is False
        assert reader.written_ns(slots[1]) == slots[1].read_ns
        last = indicate(reader, memory.write(timestamp))
        assert reader.read(slots[0], antennas, ALL_SYMBOLS, 0, prbs) is not None
        assert reader.written_ns(last) is None
        copied_ns = time.monotonic_ns()
        for _ in range(34):  # the row is written again: that shows nothing
            last = indicate(reader, memory.write(timestamp))
            reader.counts(slots[0], copied_ns)
        reader.read(last, antennas, ALL_SYMBOLS, 0, prbs)
        assert reader.written_ns(last) is None


def test_a_row_that_was_written_again_does_not_show_that_it_was_indicated_first(memory: GnbMemory) -> None:
    with GnbMemory(rows=16) as memory:
        reader = SlotReader(500_000)
        slot = indicate(reader, memory.write())
        assert reader.read(slot, (0,), 1, 0, 1) is not None
        copied_ns = time.monotonic_ns()
        later = [memory.write() for _ in range(33)]
        indicate(reader, later[0])
        assert reader.counts(slot, copied_ns) is False
        for indication in later[1:]:
            last = indicate(reader, indication)
        indicate(reader, memory.write())
        reader.read(last, (0,), 1, 0, 1)
        assert reader.written_ns(last) == last.read_ns


@pytest.mark.parametrize(("rows", "first"), [(16, True), (120, False), (121, False)])
def test_a_row_is_complete_when_it_is_indicated_or_when_the_next_one_is(rows: int, first: bool) -> None:
    reader = SlotReader(LONG_NS)
    with GnbMemory(rows=rows) as memory:
        slot = indicate(reader, memory.indicate())
        assert reader.written_ns(slot) == (slot.read_ns if first else None)
        indicate(reader, memory.indicate())
        assert reader.written_ns(slot) == slot.read_ns + (0 if first else slot_reader.MAX_WRITE_NS)


@pytest.mark.parametrize("hours", [-1, 0, 1])
def test_without_a_common_clock_the_newest_indication_tells(hours: int) -> None:
    reader = SlotReader(LONG_NS)
    with GnbMemory(rows=16) as memory:
        slots = [indicate(reader, memory.write(time.monotonic_ns() + hours * HOUR_NS)) for _ in range(33)]
        read = [reader.read(slot, (0,), 1, 0, 1) is not None for slot in slots]
    assert read == 3 * [False] + 30 * [True]
    assert (reader.clock is Clock.UNKNOWN) == bool(hours)


def test_without_a_common_clock_time_since_the_newest_counts(memory: GnbMemory) -> None:
    reader = SlotReader(LONG_NS)
    slot = indicate(reader, memory.write(timestamp=5))
    assert reader.read(slot, (0,), 1, 0, 1) is not None
    assert reader.counts(slot, time.monotonic_ns())
    reader.all_read(time.monotonic_ns() - 4 * LONG_NS)  # a round without two rows
    assert reader.counts(slot, time.monotonic_ns()) is False


@pytest.mark.parametrize(
    ("clock", "number"),
    [(Clock.MONOTONIC, time.CLOCK_MONOTONIC), (Clock.UNIX, time.CLOCK_REALTIME)],
)
def test_the_clock_is_found(memory: GnbMemory, clock: Clock, number: int) -> None:
    reader = SlotReader(LONG_NS)
    slot = indicate(reader, memory.write(time.clock_gettime_ns(number)))
    assert reader.read(slot, (0,), 1, 0, 1) is not None
    assert reader.clock is clock
    slot = indicate(reader, memory.write(7))  # the gNB has another clock from here on
    assert reader.read(slot, (0,), 1, 0, 1) is not None
    assert reader.clock is Clock.UNKNOWN


@pytest.mark.parametrize("timestamp", [None, 5])
def test_a_gnb_that_came_round_before_its_indications_came_is_noticed(timestamp: int | None) -> None:
    with GnbMemory(rows=16) as memory:
        reader = tried(memory)
        slot = indicate(reader, memory.write(timestamp))
        later = [memory.write(timestamp) for _ in range(32)]  # the last one in the slot's row
        assert reader.read(slot, (0,), 1, 0, 1) is not None
        copied_ns = time.monotonic_ns()
        assert not reader.counts(slot, copied_ns)
        for indication in later:
            indicate(reader, indication)
        assert reader.counts(slot, copied_ns) is False
        slot = indicate(reader, memory.write())
        assert reader.read(slot, (0,), 1, 0, 1) is not None
        copied_ns = time.monotonic_ns()
        indicate(reader, memory.write())
        assert reader.counts(slot, copied_ns)


@pytest.mark.parametrize("before", [0, 40])
def test_a_gnb_that_came_round_without_an_indication_is_noticed(before: int) -> None:
    """An agent that stands still indicates nothing for longer than `MAX_TRANSIT_NS`; the gNB goes on.

    Args:
        before: slots before it that were not indicated either, so that no copy tells.
    """
    with GnbMemory(rows=16) as memory:
        reader = tried(memory)
        for _ in range(before):
            memory.write()
        now_ns = time.monotonic_ns()
        number = memory.written
        slot = indicate(reader, memory.write(now_ns - 40 * 500_000, number))
        for _ in range(32):  # the last one in the slot's row
            memory.write()
        assert reader.read(slot, (0,), 1, 0, 1) is not None
        copied_ns = time.monotonic_ns()
        reader.all_read(copied_ns + slot_reader.MAX_TRANSIT_NS)
        assert reader.counts(slot, copied_ns) is False
        later = indicate(reader, memory.write(time.monotonic_ns(), memory.written))
        assert later.skipped == 32


def test_a_gnb_that_starts_anew_is_followed(memory: GnbMemory) -> None:
    reader = SlotReader(LONG_NS)
    for _ in range(3):
        indicate(reader, memory.write())
    memory.layout = RanBuffers(antennas=1, rows=9)
    memory.make()
    memory.written = 4
    slot = indicate(reader, memory.write())
    assert slot.skipped == 0  # nothing of before counts
    part = reader.read(slot, (0,), 1, 0, 273)
    assert part is not None
    assert np.array_equal(part.view(np.uint16)[0, 0], memory.row(4)[0, 0])


def test_another_layout_in_the_same_file_is_not_what_was_opened(memory: GnbMemory) -> None:
    reader = SlotReader(LONG_NS)
    reader.open(memory.name)
    assert reader.is_open(memory.name)
    with memory.path.open("r+b") as file:
        file.write(RanBuffers(antennas=1, rows=6).header())
    assert not reader.is_open(memory.name)


def test_what_a_gnb_wrote_before_it_ended_is_still_there(memory: GnbMemory) -> None:
    reader = SlotReader(LONG_NS)
    slot = indicate(reader, memory.write())
    memory.path.unlink()
    assert reader.is_open(memory.name)
    assert reader.read(slot, (0,), 1, 0, 1) is not None


@pytest.mark.parametrize("size", [0, 10, 64, 1000])
def test_a_short_file_is_an_error_and_is_opened_again(memory: GnbMemory, size: int) -> None:
    reader, octets = SlotReader(LONG_NS), memory.path.read_bytes()
    memory.path.write_bytes(octets[:size])
    with pytest.raises(SharedMemoryError):
        reader.open(memory.name)
    memory.path.write_bytes(octets)
    reader.open(memory.name)
    assert reader.is_open(memory.name)
    os.truncate(memory.path, 5000)  # under the reader
    slot = indicate(reader, SlotIndication(memory.name, 1, 2, time.monotonic_ns(), 0, 0))
    with pytest.raises(SharedMemoryError, match="less than"):
        reader.read(slot, (0,), 1, 0, 1)


def test_a_row_that_does_not_exist_is_an_error(memory: GnbMemory) -> None:
    reader, indication = SlotReader(LONG_NS), memory.write()
    reader.open(memory.name)
    for other in (replace(indication, fh_buffer_index=2), replace(indication, fh_write_index=3)):
        with pytest.raises(SharedMemoryError, match="there is no row"):
            reader.indicated(other, 0)


def test_an_antenna_that_a_row_does_not_have_is_an_error(memory: GnbMemory) -> None:
    reader = SlotReader(LONG_NS)
    slot = indicate(reader, memory.write())
    with pytest.raises(SharedMemoryError, match="a row has 2"):
        reader.read(slot, (1, 2), 1, 0, 1)


@pytest.mark.parametrize("name", ["", "/", "x", "/..", "/a/b", "/../etc/passwd", "/a\0b"])
def test_names_that_lead_elsewhere_are_refused(name: str) -> None:
    with pytest.raises(SharedMemoryError, match="no name of shared memory"):
        shared_memory_path(name)


def test_other_headers_are_refused() -> None:
    header = bytearray(RanBuffers().header())
    for position, value in ((0, 2), (4, 1), (16, 5), (20, 0), (20, 17)):
        changed = bytearray(header)
        changed[position : position + 4] = value.to_bytes(4, "little")
        with pytest.raises(SharedMemoryError):
            RanBuffers.of(bytes(changed))
