"""Rows of a waterfall."""

import numpy as np
import pytest
from twinlink_live.waterfall import DATA, LOST, NOTHING, Record, Waterfall

from twinlink.errors import MalformedPayload
from twinlink.slots import Content, Slot, SlotSpectrum
from twinlink.spectrum import Spectrum


def record(*amplitudes: int, centre_hz: float = 3.6e9) -> Record:
    samples = np.repeat(np.array(amplitudes, np.int16), 12)[:, np.newaxis] * np.array([1, 0], np.int16)
    payload = Spectrum(samples, len(amplitudes), scs_hz=30_000, centre_hz=centre_hz, observed_ns=0).encode()
    return Record.decode(payload)


def level(power: float) -> int:
    return int(np.rint((10 * np.log10(power) + 30.5) * 2))


def test_a_row_has_the_greatest_power_of_its_step() -> None:
    waterfall = Waterfall()
    assert waterfall.step() == (NOTHING, b"")
    waterfall.add(record(10, 1000, 1))
    waterfall.add(record(100, 10, 1))
    assert waterfall.step() == (DATA, bytes([level(100**2), level(1000**2), level(1)]))
    assert waterfall.step() == (NOTHING, b"")


def test_a_gap_shows_in_its_step_alone() -> None:
    waterfall = Waterfall()
    waterfall.on_lost()
    assert waterfall.step() == (LOST, b"")
    waterfall.add(record(1))
    waterfall.on_lost()
    assert waterfall.step()[0] == LOST
    waterfall.add(record(1))
    assert waterfall.step()[0] == DATA


def test_another_carrier_takes_the_place_of_the_one_before() -> None:
    waterfall = Waterfall()
    waterfall.add(record(1000, 1000))
    waterfall.add(record(10, 10, centre_hz=3.5e9))
    assert waterfall.step() == (DATA, bytes([level(100)] * 2))
    assert waterfall.axis == {"first_prb": 0, "prbs": 2, "low_hz": 3.5e9 - 360e3, "high_hz": 3.5e9 + 360e3}


def test_slots_are_shown_with_their_place_in_the_carrier() -> None:
    power = np.array([[[4.0, 100.0]], [[9.0, 1.0]]], np.float32)  # two antennas, one symbol, two PRBs
    slots = SlotSpectrum(
        n_prbs_carrier=10, first_prb=6, n_prbs=2, antennas=(0, 1), scs_hz=30_000, centre_hz=3.6e9, beta=1.0,
        content=Content.POWER, slots=(Slot(power, sfn=0, slot=0, symbols=1, observed_ns=0),),
    )  # fmt: skip
    decoded = Record.decode(slots.encode())
    assert bytes(decoded.levels) == bytes([level(9), level(100)])
    assert decoded.axis() == {"first_prb": 6, "prbs": 2, "low_hz": 3.6e9 + 360e3, "high_hz": 3.6e9 + 3 * 360e3}


def test_what_only_begins_like_a_record_is_none() -> None:
    with pytest.raises(MalformedPayload):
        Record.decode(b'\0\x40{"format":"twinlink-spectrum/1"}')
