"""The waterfall of one flow: rows of power over PRBs, one for each step of time, gaps among them."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twinlink.slots import SlotSpectrum, db_octets, is_slots, power_per_prb
from twinlink.spectrum import SUBCARRIERS_PER_PRB, Spectrum

# What a row is.
FREE, USED, INTERFERED = 0, 1, 2  # levels of what the twin has made of records
NOTHING, DATA, LOST = 0, 1, 2  # nothing came; records came; some were lost
SPECTRUM_HEAD = b'{"format":"twinlink-spectrum/'
SPECTRUM_HEAD_AT = 2


def is_spectrum(flow: str, payload: bytes | memoryview) -> bool:
    """Whether a waterfall may be made of a message, by the first octets of its payload."""
    head = bytes(payload[SPECTRUM_HEAD_AT : SPECTRUM_HEAD_AT + len(SPECTRUM_HEAD)])
    return head == SPECTRUM_HEAD or (flow == "spectrum" and is_slots(payload))


@dataclass(frozen=True, slots=True)
class Record:
    """The power of a part of the carrier, as octets of `twinlink.slots` (half a dB above -30.5 dB), by PRB; or its use.

    ``observed_ns``: Unix time at which the exporter got the newest of it.
    """

    levels: NDArray[np.uint8]
    first_prb: int
    centre_hz: float
    scs_hz: int
    n_prbs_carrier: int
    observed_ns: int

    @classmethod
    def decode(cls, payload: bytes | memoryview) -> "Record":
        """The greatest power of each PRB in a payload.  Raises MalformedPayload; TwinlinkError without blosc2."""
        if not is_slots(payload):
            one = Spectrum.decode(payload)
            power = power_per_prb(one.samples.astype(np.float32)[np.newaxis, np.newaxis])
            return cls(db_octets(power[0, 0]), 0, one.centre_hz, one.scs_hz, one.n_prbs, one.observed_ns)
        slots = SlotSpectrum.decode(payload)
        greatest = np.max([slots.power(one).max(axis=(0, 1)) for one in slots.slots], axis=0)
        observed_ns = slots.slots[-1].observed_ns
        levels = db_octets(greatest)
        return cls(levels, slots.first_prb, slots.centre_hz, slots.scs_hz, slots.n_prbs_carrier, observed_ns)

    def axis(self) -> dict[str, Any]:
        """What the columns are: the first PRB, how many, and the frequencies of the lower and the upper edge."""
        prb_hz = SUBCARRIERS_PER_PRB * self.scs_hz
        low_hz = self.centre_hz + (self.first_prb - self.n_prbs_carrier / 2) * prb_hz
        prbs = len(self.levels)
        return {"first_prb": self.first_prb, "prbs": prbs, "low_hz": low_hz, "high_hz": low_hz + prbs * prb_hz}


class Waterfall:
    """Takes records as they come, gives a row at each step.

    Attributes:
        axis: as `Record.axis`, of the last record.
        number: by which rows name it.
        newest_step: at which the last record came.
        passed, decoded: messages that came, and of how many of them the rows are.
    """

    def __init__(self, number: int = 0) -> None:
        self.axis: dict[str, Any] = {}
        self.number, self.newest_step = number, 0
        self.passed = self.decoded = 0
        self._levels: NDArray[np.uint8] | None = None
        self._lost = False

    def add(self, record: Record) -> None:
        """A record has come.  Where the carrier changes, those before it in this step are replaced."""
        axis = record.axis()
        before, self._levels = self._levels, record.levels
        if before is not None and axis == self.axis:
            self._levels = np.maximum(before, record.levels)
        self.axis = axis

    def on_lost(self) -> None:
        """A gap was found."""
        self._lost = True

    def step(self) -> tuple[int, bytes]:
        """What the time since the last step is, and the greatest level of each PRB in it; empty where nothing came."""
        levels, lost = self._levels, self._lost
        self._levels, self._lost = None, False
        return LOST if lost else NOTHING if levels is None else DATA, b"" if levels is None else levels.tobytes()
