"""A gNB's shared memory of I/Q, written by the tests."""

import time
import uuid
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray
from twinlink_e3 import RanBuffers, SlotIndication, shared_memory_path
from twinlink_e3.ran_buffers import VERSION

Row = NDArray[np.uint16]


class GnbMemory:
    """Rows with values of their own: that of a subcarrier tells row, antenna, symbol and subcarrier apart."""

    def __init__(self, antennas: int = 1, rows: int = 3, version: int = VERSION) -> None:
        self.layout = RanBuffers(antennas, rows, version)
        self.name = f"/twinlink-test-{uuid.uuid4().hex[:12]}"
        self.path: Path = shared_memory_path(self.name)
        self.written = 0
        self.make()

    def make(self) -> None:
        """Make the file anew, as a gNB that starts."""
        self.path.unlink(missing_ok=True)
        self.path.write_bytes(self.layout.header() + bytes(self.layout.octets - self.layout.header_octets))
        self.written = 0

    def write(self, timestamp: int | None = None, slot: int | None = None) -> SlotIndication:
        """Write the next row; returns its indication: of the next slot, or of another one, counted from 0."""
        self.put(self.written)
        return self.indicate(timestamp, slot)

    def put(self, number: int) -> None:
        """Write a row, counted from the start."""
        with self.path.open("r+b") as file:
            file.seek(self.layout.offset(*self._place(number)))
            file.write(self.row(number).tobytes())

    def indicate(self, timestamp: int | None = None, slot: int | None = None) -> SlotIndication:
        """The indication of the next row, whether it is written or not."""
        number = self.written if slot is None else slot
        timestamp = time.monotonic_ns() if timestamp is None else timestamp
        place = self._place(self.written)
        self.written += 1
        return SlotIndication(self.name, *place, timestamp, number // 20 % 1024, number % 20)

    def _place(self, number: int) -> tuple[int, int]:
        """Buffer and row."""
        return divmod(number % (2 * self.layout.rows), self.layout.rows)

    def row(self, number: int) -> Row:
        """The bits of the values of a row, ``(antennas, 14, 3276, 2)``."""
        count = self.layout.row_octets // 2
        values = (np.arange(count, dtype=np.uint32) * 7 + number * 1009) % 0x7800
        return values.astype(np.uint16).reshape(self.layout.antennas, 14, 3276, 2)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.path.unlink(missing_ok=True)
