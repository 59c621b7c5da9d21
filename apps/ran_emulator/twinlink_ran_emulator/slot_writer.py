"""The process that writes whole slots to shared memory, as a gNB does: `twinlink_e3.ran_buffers` and `sensing_ring`.

The emulator (`slot_process`) gives it a record at a time.  Until the next one comes, each uplink symbol of each slot is
that record, turned by a multiple of 90 degrees: by one more from symbol to symbol, slot to slot, antenna to antenna and
round to round of the rows, so that none looks like its neighbours, nor a row as if it had not been written again.  Of
each slot that it has written it tells the emulator, which indicates it.

A message to the writer: number of sensing ranges (16 bits), the ranges (4 x 32 bits each), and the record's samples
(int16); without samples, it pauses.  A message to the emulator: `READY` when the shared memory is there, then `Notice`.
"""

import json
import mmap
import os
import signal
import socket
import struct
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from twinlink_e3 import ALL_SYMBOLS, RanBuffers, SensingRing, ran_buffers, sensing_ring, shared_memory_path

READY = b"\0"
NOTICE = struct.Struct("<QHHHHHHH")
RANGES = struct.Struct("<H")
MAX_MESSAGE = 64 * 1024
MIXED_SYMBOLS_FROM = 10  # uplink symbols of a mixed slot: 10 to 13
MIXED_SYMBOLS = ALL_SYMBOLS >> MIXED_SYMBOLS_FROM << MIXED_SYMBOLS_FROM
LEAKAGE = 8000  # LSB: what the gNB hears of itself in the other symbols of a mixed slot
MAX_BEHIND_NS = 100_000_000  # beyond, the time of slots is shifted: none is left out
FRAME_NS = 10_000_000
_TURNS = (np.arange(4)[:, None] + np.arange(14)) % 4  # of each symbol, in a slot that begins with each turn


class Notice(NamedTuple):
    """A slot that was written; the fields are those of `SlotIndication` and `SensingIndication`."""

    timestamp: int
    sfn: int
    slot: int
    fh_buffer_index: int
    fh_write_index: int
    valid_symbol_mask: int
    shm_write_idx: int
    n_ranges: int


@dataclass(frozen=True, slots=True)
class SlotPattern:
    """What the emulated gNB writes.

    Attributes:
        tdd: the slots of a TDD period: U is uplink, S mixed, D not written.  U alone is FDD.
        antennas: 1 to 4.
        beta: a value is the recording's int16 times beta.
        suffix: added to the names of the shared memory.
        version, rows: of the layout of I/Q (`ran_buffers`).
        cells: each has a row of its own in each slot, turned by 180 degrees more than that of the cell before.
        indicates_first: whether a slot is indicated before it is written, which is then done with the next slot.
    """

    tdd: str = "U"
    antennas: int = 1
    beta: float = 1 / 2048
    suffix: str = ""
    version: int = ran_buffers.VERSION
    rows: int = ran_buffers.OPENAIRINTERFACE_ROWS
    cells: int = 1
    indicates_first: bool = False

    @property
    def layout(self) -> RanBuffers:
        """Of the shared memory with I/Q."""
        return RanBuffers(rows=self.rows, version=self.version)

    @property
    def iq_name(self) -> str:
        """Name of the shared memory with I/Q."""
        return ran_buffers.NAME + self.suffix

    @property
    def sensing_name(self) -> str:
        """Name of the shared memory with sensing ranges."""
        return sensing_ring.NAME + self.suffix


class Region:
    """Shared memory of a gNB, made anew: a gNB removes what an earlier one has left.  Raises OSError."""

    def __init__(self, name: str, octets: int, header: bytes) -> None:
        self._path = shared_memory_path(name)
        self._path.unlink(missing_ok=True)
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        try:
            os.ftruncate(descriptor, octets)
            self.memory = mmap.mmap(descriptor, octets)
        finally:
            os.close(descriptor)
        self.memory[: len(header)] = header

    def remove(self) -> None:
        """Remove it; readers keep what they have opened."""
        self._path.unlink(missing_ok=True)


class Writer:
    """Writes slots; used by one thread."""

    def __init__(self, pattern: SlotPattern, scs_hz: int) -> None:
        self._pattern = pattern
        self.slot_ns = 15_000_000_000 // scs_hz
        self._slots_per_frame = FRAME_NS // self.slot_ns
        self._layout, self._ring = pattern.layout, SensingRing()
        self._iq = Region(pattern.iq_name, self._layout.octets, self._layout.header())
        self._sensing = Region(pattern.sensing_name, self._ring.octets, self._ring.header())
        shape = (ran_buffers.BUFFERS, self._layout.rows, self._layout.antennas, 14, ran_buffers.SUBCARRIERS, 2)
        self._rows: NDArray[np.float16] = np.frombuffer(
            self._iq.memory, np.float16, offset=self._layout.header_octets
        ).reshape(shape)
        self._leakage = np.float16(LEAKAGE * pattern.beta)
        self._written = 0
        self._slots: NDArray[np.float16] | None = None  # that the record makes: ``(4, 14, subcarriers, 2)``
        self._indicated: Callable[[], None] | None = None  # writes the slot that was indicated first
        self._ranges = b""

    @property
    def paused(self) -> bool:
        """Whether there is no record to write."""
        return self._slots is None

    def take(self, message: bytes) -> None:
        """Take in a message of the emulator."""
        self._complete()
        (n_ranges,) = RANGES.unpack_from(message)
        end = RANGES.size + n_ranges * sensing_ring.RANGE.size
        self._ranges = message[RANGES.size : end]
        samples = np.frombuffer(message, np.int16, offset=end).reshape(-1, 2)
        self._slots = turned(samples, self._pattern.beta)[_TURNS] if len(samples) else None

    def write(self, number: int) -> Notice | None:
        """Write a slot, counted from the start; None if the TDD pattern has no uplink in it."""
        self._complete()
        kind = self._pattern.tdd[number % len(self._pattern.tdd)]
        if kind == "D" or self._slots is None:
            return None
        mask = ALL_SYMBOLS if kind == "U" else MIXED_SYMBOLS
        buffer, row = row_of(self._pattern, self._written * self._pattern.cells)
        self._indicated = partial(
            self._write_rows, self._slots, self._written, 0 if kind == "U" else MIXED_SYMBOLS_FROM
        )
        if not self._pattern.indicates_first:
            self._complete()
        sfn = number // self._slots_per_frame % 1024
        slot = number % self._slots_per_frame
        entry, n_ranges = self._written % self._ring.entries, len(self._ranges) // sensing_ring.RANGE.size
        timestamp = time.monotonic_ns()
        start, memory = self._ring.offset(entry), self._sensing.memory
        memory[start + sensing_ring.ENTRY.size : start + sensing_ring.ENTRY.size + len(self._ranges)] = self._ranges
        self._written += 1
        sensing_ring.ENTRY.pack_into(memory, start, sfn, slot, 0, n_ranges, timestamp, self._written & 0xFFFFFFFF)
        return Notice(timestamp, sfn, slot, buffer, row, mask, entry, n_ranges)

    def _complete(self) -> None:
        """Write the slot that was indicated."""
        if self._indicated:
            self._indicated()
            self._indicated = None

    def _write_rows(self, slots: NDArray[np.float16], written: int, first: int) -> None:
        """Write a row for each cell; the symbols before the ``first`` are not uplink."""
        width, cells = slots.shape[2], self._pattern.cells
        for each in range(written * cells, (written + 1) * cells):
            rounds, place = divmod(each, ran_buffers.BUFFERS * self._layout.rows)
            # By its place, so that each round turns it further whatever the TDD pattern and the cells.
            turn = rounds + place // cells + 2 * (place % cells)
            row = self._rows[row_of(self._pattern, each)]
            for antenna in range(self._pattern.antennas):
                target = row[antenna, :, :width]
                target[first:] = slots[(turn + antenna) % 4, first:]
                target[:first] = self._leakage

    def remove(self) -> None:
        """Remove the shared memory."""
        self._iq.remove()
        self._sensing.remove()


def row_of(pattern: SlotPattern, written: int) -> tuple[int, int]:
    """Buffer and row of the next row, after so many."""
    return divmod(written % (ran_buffers.BUFFERS * pattern.rows), pattern.rows)


def turned(samples: NDArray[np.int16], beta: float) -> NDArray[np.float16]:
    """A record as in shared memory, turned by 0, 90, 180 and 270 degrees: ``(4, subcarriers, 2)``."""
    values = samples.astype(np.float32) * np.float32(beta)
    i, q = values[:, 0], values[:, 1]
    turns = ((i, q), (-q, i), (-i, -q), (q, -i))
    rows: NDArray[np.float16] = np.stack([np.stack(turn, axis=1) for turn in turns]).astype(np.float16)
    return rows + np.float16(0)  # an FFT gives no negative zeros


def main() -> None:
    """``slot_writer DESCRIPTOR SCS_HZ PATTERN``, started by `slot_process`."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # the emulator ends it
    emulator = socket.socket(fileno=int(sys.argv[1]))
    writer = Writer(SlotPattern(**json.loads(sys.argv[3])), int(sys.argv[2]))
    try:
        with suppress(ConnectionError):  # the emulator has ended
            emulator.send(READY)
            _serve(writer, emulator)
    finally:
        writer.remove()


def _serve(writer: Writer, emulator: socket.socket) -> None:
    """Write a slot when it is due, until the emulator closes the socket."""
    start_ns, number = time.monotonic_ns(), 0
    while True:
        due_ns = start_ns + number * writer.slot_ns
        behind_ns = time.monotonic_ns() - due_ns
        if behind_ns < 0:
            time.sleep(-behind_ns / 1e9)
        elif behind_ns > MAX_BEHIND_NS:
            start_ns += behind_ns
        emulator.setblocking(writer.paused)
        with suppress(BlockingIOError):
            while message := emulator.recv(MAX_MESSAGE):
                writer.take(message)
                emulator.setblocking(False)
            return
        if notice := writer.write(number):
            with suppress(BlockingIOError):  # the emulator is slow: as with a gNB, the slot is not indicated
                emulator.send(NOTICE.pack(*notice))
        number += 1


if __name__ == "__main__":
    main()
