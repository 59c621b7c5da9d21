"""Whether the newest dapps library reads what the RAN emulator writes: to be run by hand, as it is not installed.

pip download --no-deps --no-binary dapps --ignore-requires-python dapps==0.3.1 && tar xf dapps-0.3.1.tar.gz
python -m tests.e3.newest_dapps dapps-0.3.1/src
"""

import sys
import uuid
from pathlib import Path
from typing import Any

import numpy as np
import twinlink_e3 as e3
from twinlink_e3 import sensing_ring, shared_memory_path
from twinlink_ran_emulator.slot_writer import RANGES, Notice, SlotPattern, Writer, turned

from .pdus import CODECS

RANGE = (2, 10, 5, 40)


def main() -> None:
    """Raises AssertionError where the library reads something else."""
    sys.path.insert(0, sys.argv[1])
    for codec in CODECS:
        check(codec)
        print(f"{codec.name}: I/Q of 40 slots and their sensing ranges are read bit for bit")


def check(codec: e3.Codec) -> None:
    from spectrum.e3_l2_sensing_reader import E3L2SensingReader
    from spectrum.e3_ran_buffers_reader import E3RanBuffersReader

    pattern = SlotPattern("DSU", antennas=2, suffix=f".{uuid.uuid4().hex[:8]}")
    writer = Writer(pattern, 30_000)
    samples = np.random.default_rng(2).integers(-2048, 2049, (106 * 12, 2)).astype(np.int16)
    expected = turned(samples, pattern.beta)
    try:
        writer.take(RANGES.pack(1) + sensing_ring.RANGE.pack(*RANGE) + samples.tobytes())
        reader: Any = E3RanBuffersReader(pattern.beta, str(shared_memory_path(pattern.iq_name)))
        sensing: Any = E3L2SensingReader(str(shared_memory_path(pattern.sensing_name)))
        reader.open()
        sensing.open()
        for number in range(60):
            if notice := writer.write(number):
                check_slot(codec, pattern, notice, reader, expected, number)
                (found,) = sensing.read_ranges(notice.shm_write_idx, notice.sfn, notice.slot, notice.n_ranges)
                assert (found.start_symbol, found.num_symbols, found.rb_start, found.rb_size) == RANGE
    finally:
        writer.remove()


def check_slot(
    codec: e3.Codec, pattern: SlotPattern, notice: Notice, reader: Any, expected: np.ndarray[Any, Any], number: int
) -> None:
    from spectrum.e3_ran_buffers_reader import SlotPointer

    indication = e3.SlotIndication(
        pattern.iq_name, notice.fh_buffer_index, notice.fh_write_index, notice.timestamp, notice.sfn, notice.slot,
        0, pattern.antennas, notice.valid_symbol_mask,
    )  # fmt: skip
    pointer: Any = SlotPointer.from_bytes(codec.encode_structure(indication))
    assert (pointer.sfn, pointer.slot, pointer.timestamp_ns) == (notice.sfn, notice.slot, notice.timestamp)
    assert (pointer.n_rx_ant, pointer.valid_symbol_mask) == (2, notice.valid_symbol_mask)
    values = reader.read_slot(pointer)
    for antenna in range(pattern.antennas):
        for symbol in range(14):
            if notice.valid_symbol_mask >> symbol & 1:
                lsb = expected[(number + symbol + antenna) % 4].astype(np.float32) / np.float32(pattern.beta)
                assert np.array_equal(values[antenna, symbol, : len(lsb)], lsb)
    assert not values[:, :, len(expected[0]) :].any()


if __name__ == "__main__":
    if len(sys.argv) != 2 or not Path(sys.argv[1], "spectrum").is_dir():
        sys.exit(__doc__)
    main()
