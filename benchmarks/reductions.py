"""What a slot costs, by what is sent of it: ``python -m benchmarks.reductions``.

For carriers of 51, 106 and 273 PRBs and each reduction of the exporter: Mbit/s at 2000 slots a second, and the
processor time of a slot in us, for making the message from its I/Q and for reading it at the twin, without the link's
own.  Each symbol is a record of a recording, or several side by side; how far they compress depends on their levels.
"""

import argparse
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from twinlink_exporter.__main__ import make_parser
from twinlink_exporter.reduction import Reduction, reduction_of
from twinlink_ran_emulator.recording import example, read
from twinlink_ran_emulator.slot_writer import turned

from twinlink.slots import SYMBOLS, Content, Slot, SlotSpectrum

CARRIERS = (51, 106, 273)
SLOTS_PER_S = 2000
REDUCTIONS = {
    "I/Q": "",
    "I/Q, one symbol": "--symbols 3",
    "I/Q, compressed": "--compress",
    "power, float32, per symbol": "--content power",
    "power, dB, per symbol": "--content power-db",
    "power, dB, per slot": "--content power-db --slot-mean",
    "the same, 4 slots a message": "--content power-db --slot-mean --slots-per-message 4",
}


def main() -> None:
    """Prints a row for each reduction."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--slots", type=int, default=400, help="for each figure")
    parser.add_argument("--recording", type=Path, help="SigMF recording (default: the example)")
    given = parser.parse_args()
    recorded = read(given.recording or example()).samples
    print("| | " + " | ".join(f"{n_prbs} PRBs: Mbit/s, us" for n_prbs in CARRIERS) + " |")
    print("|---|" + "---|" * len(CARRIERS))
    for name, options in REDUCTIONS.items():
        cells = []
        for n_prbs in CARRIERS:
            reduction = reduction_of(make_parser().parse_args([*options.split(), "--n-prbs", str(n_prbs)]))
            octets, making_us, reading_us = measure(recorded, n_prbs, reduction, given.slots)
            mbit_s = octets * 8 * SLOTS_PER_S / 1e6
            cells.append(f"{mbit_s:.{int(mbit_s < 10)}f}, {making_us:.0f} + {reading_us:.0f}")
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


def measure(recorded: NDArray[np.int16], n_prbs: int, reduction: Reduction, slots: int) -> tuple[float, float, float]:
    """Octets of a slot, and us for making and for reading it."""
    octets = making_ns = reading_ns = 0
    per_message = reduction.slots_per_message
    for first, end in pairwise(range(0, slots + 1, per_message)):
        data = [slot_of(recorded, n_prbs, number, reduction) for number in range(first, end)]
        before_ns = time.process_time_ns()
        head = reduction.head(n_prbs, 30_000, 3.6e9, (0,))
        made = tuple(Slot(reduction.reduce(head, iq), 0, 0, reduction.symbols, 0) for iq in data)
        message = SlotSpectrum(
            head.n_prbs_carrier, head.first_prb, head.n_prbs, head.antennas, head.scs_hz, head.centre_hz, head.beta,
            head.content, head.slot_mean, head.every, made,
        ).encode(compress=reduction.compress)  # fmt: skip
        made_ns = time.process_time_ns()
        spectrum = SlotSpectrum.decode(message)
        for slot in spectrum.slots:
            if spectrum.content is Content.IQ:
                spectrum.in_lsb(slot)
            else:
                spectrum.power(slot)
        reading_ns += time.process_time_ns() - made_ns
        making_ns += made_ns - before_ns
        octets += len(message)
    return octets / slots, making_ns / slots / 1000, reading_ns / slots / 1000


def slot_of(recorded: NDArray[np.int16], n_prbs: int, number: int, reduction: Reduction) -> NDArray[np.float16]:
    """The symbols of a slot as in a gNB's memory, ``(1, symbols, subcarriers, 2)``."""
    count = -(-n_prbs * 12 // recorded.shape[1])  # records side by side
    rows: list[NDArray[np.float16]] = []
    for symbol in range(SYMBOLS):
        if reduction.symbols >> symbol & 1:
            first = (SYMBOLS * number + symbol) * count
            records = recorded[np.arange(first, first + count) % len(recorded)]
            rows.append(turned(records.reshape(-1, 2)[: n_prbs * 12], reduction.beta)[0])
    return np.stack(rows)[None]


if __name__ == "__main__":
    main()
