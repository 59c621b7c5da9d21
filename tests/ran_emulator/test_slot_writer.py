"""What the emulated gNB writes to shared memory."""

import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray
from twinlink_e3 import ALL_SYMBOLS, RanBuffers, SensingRing, ran_buffers, sensing_ring, shared_memory_path
from twinlink_ran_emulator.__main__ import main
from twinlink_ran_emulator.slot_writer import LEAKAGE, MIXED_SYMBOLS, RANGES, Notice, SlotPattern, Writer, turned

from tests.cli.calling import call

SAMPLES = np.random.default_rng(4).integers(-2048, 2049, (24 * 12, 2)).astype(np.int16)
MakeWriter = Callable[..., Writer]


@pytest.fixture
def make_writer() -> Iterator[MakeWriter]:
    made: list[Writer] = []

    def make(pattern: SlotPattern) -> Writer:
        made.append(Writer(pattern, 30_000))
        return made[-1]

    yield make
    for writer in made:
        writer.remove()


def pattern(tdd: str = "U", antennas: int = 1) -> SlotPattern:
    return SlotPattern(tdd, antennas, suffix=f".{uuid.uuid4().hex[:8]}")


def message(ranges: tuple[tuple[int, int, int, int], ...] = ()) -> bytes:
    return RANGES.pack(len(ranges)) + b"".join(sensing_ring.RANGE.pack(*entry) for entry in ranges) + SAMPLES.tobytes()


def row(written: SlotPattern, notice: Notice) -> NDArray[np.float16]:
    """The row of a notice, ``(antennas, 14, 3276, 2)``."""
    octets = shared_memory_path(written.iq_name).read_bytes()
    layout = RanBuffers.of(octets[: ran_buffers.HEADER_OCTETS])
    assert len(octets) == layout.octets
    start = layout.offset(notice.fh_buffer_index, notice.fh_write_index)
    values = np.frombuffer(octets[start : start + layout.row_octets], np.float16)
    return values.reshape(layout.antennas, 14, ran_buffers.SUBCARRIERS, 2)


def test_rows_hold_the_record_turned(make_writer: MakeWriter) -> None:
    written = pattern(antennas=2)
    writer = make_writer(written)
    assert writer.write(0) is None  # there is no record yet
    writer.take(message())
    turns = turned(SAMPLES, 1 / 2048)
    assert np.array_equal(turns[1].astype(np.float32) * 2048, np.stack([-SAMPLES[:, 1], SAMPLES[:, 0]], axis=1))
    for number in range(34):  # both buffers, and the beginning again
        notice = writer.write(number)
        assert notice is not None
        assert (notice.sfn, notice.slot) == (number // 20, number % 20)
        assert notice.fh_buffer_index * 16 + notice.fh_write_index == number % 32
        assert notice.valid_symbol_mask == ALL_SYMBOLS
    assert notice is not None
    values = row(written, notice)
    for antenna in range(2):
        for symbol in range(14):
            assert np.array_equal(values[antenna, symbol, : 24 * 12], turns[(33 + 1 + symbol + antenna) % 4])
    assert not values[:, :, 24 * 12 :].any()
    assert not values[2:].any()  # antennas that it does not have


@pytest.mark.parametrize(("tdd", "cells", "rows"), [("U", 1, 16), ("DDDDUUU", 1, 16), ("U", 4, 2), ("U", 16, 120)])
def test_a_row_that_is_written_again_differs_though_no_record_came_meanwhile(
    make_writer: MakeWriter, tdd: str, cells: int, rows: int
) -> None:
    """As where the emulator stands still: a reader would take the row for one that was not written again."""
    written = replace(pattern(tdd), cells=cells, rows=rows)
    writer = make_writer(written)
    writer.take(message())
    begin: dict[int, list[bytes]] = {}
    for number in range(5 * 2 * rows // tdd.count("U") * len(tdd) // cells):
        if notice := writer.write(number):
            place = notice.fh_buffer_index * rows + notice.fh_write_index
            begin.setdefault(place, []).append(row(written, notice)[0, 0, :12].tobytes())
    assert len(begin) * cells >= 2 * rows
    for of_place in begin.values():
        assert len(set(of_place[:4])) == len(of_place[:4]) >= 3


def test_each_cell_has_a_row_of_its_own(make_writer: MakeWriter) -> None:
    written = replace(pattern(), cells=3, rows=5)
    writer = make_writer(written)
    writer.take(message())
    turns = turned(SAMPLES, 1 / 2048)
    for number in range(4):  # 12 of 10 rows
        notice = writer.write(number)
        assert notice is not None
        first = notice.fh_buffer_index * 5 + notice.fh_write_index
        assert first == 3 * number % 10
        for cell in range(3):
            place = notice._replace(
                fh_buffer_index=(first + cell) % 10 // 5, fh_write_index=(first + cell) % 5
            )  # fmt: skip
            values = row(written, place)
            assert np.array_equal(values[0, 0, : 24 * 12], turns[(number + 2 * cell) % 4])


def test_a_slot_that_is_indicated_first_is_written_with_the_next(make_writer: MakeWriter) -> None:
    written = replace(pattern(), indicates_first=True)
    writer = make_writer(written)
    writer.take(message())
    notices = [writer.write(0)]
    assert notices[0] is not None
    assert not row(written, notices[0]).any()
    notices.append(writer.write(1))
    assert row(written, notices[0]).any()
    assert notices[1] is not None
    assert not row(written, notices[1]).any()
    writer.take(RANGES.pack(0))  # a pause
    assert row(written, notices[1]).any()


def test_a_mixed_slot_holds_leakage_where_it_is_not_uplink(make_writer: MakeWriter) -> None:
    written = pattern("DSU")
    writer = make_writer(written)
    writer.take(message())
    notices = [writer.write(number) for number in range(3)]
    assert notices[0] is None
    assert notices[1] is not None
    assert (notices[1].slot, notices[1].valid_symbol_mask) == (1, MIXED_SYMBOLS)
    values = row(written, notices[1])
    leaks = (values[0, :, : 24 * 12] == np.float16(LEAKAGE / 2048)).all(axis=(1, 2))
    assert [not MIXED_SYMBOLS >> symbol & 1 for symbol in range(14)] == leaks.tolist()


def test_sensing_ranges_are_beside_it(make_writer: MakeWriter) -> None:
    written = pattern()
    writer = make_writer(written)
    writer.take(message(((0, 14, 3, 5), (0, 14, 20, 4))))
    notices = [writer.write(number) for number in range(3)]
    assert notices[2] is not None
    octets = shared_memory_path(written.sensing_name).read_bytes()
    ring = SensingRing.of(octets[: sensing_ring.HEADER_OCTETS])
    assert len(octets) == ring.octets
    start = ring.offset(notices[2].shm_write_idx)
    entry = sensing_ring.SensingEntry(*sensing_ring.ENTRY.unpack_from(octets, start))
    assert (entry.sfn, entry.slot, entry.n_ranges, entry.number) == (0, 2, 2, 3)
    ranges = octets[start + sensing_ring.ENTRY.size :][: 2 * sensing_ring.RANGE.size]
    assert list(sensing_ring.RANGE.iter_unpack(ranges)) == [(0, 14, 3, 5), (0, 14, 20, 4)]


def test_what_an_earlier_gnb_left_is_replaced(make_writer: MakeWriter) -> None:
    written = pattern()
    path = shared_memory_path(written.iq_name)
    path.write_bytes(b"left by a gNB that was killed")
    with path.open("rb") as left:
        make_writer(written)
        assert left.read().startswith(b"left")
    assert path.stat().st_size == RanBuffers().octets


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--slots", "--pace", "max"), "in real time"),
        (("--slots", "--tdd", "DDX"), "letters U, S and D"),
        (("--slots", "--tdd", "D"), "at least one U or S"),
        (("--slots", "--shm-suffix", "/../x"), "no name of shared memory"),
        (("--slots", "--beta", "0"), "1/2048"),
    ],
)
def test_options_that_cannot_be_are_refused(arguments: tuple[str, ...], said: str) -> None:
    emulator = call("--check", *arguments, program=main)
    assert emulator.code() == 3
    assert said in emulator.err
