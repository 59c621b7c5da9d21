"""What the tests of export and import share: a recording of a link with spectra, slots, arrays and decisions."""

import json
import struct
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.recording.recordings import pair
from twinlink.control import PrbBlock, PrbBlockResult
from twinlink.protocol.rangeset import RangeSet
from twinlink.recording.writer import RecordingWriter
from twinlink.slots import ALL_SYMBOLS, Clock, Slot, SlotSpectrum
from twinlink.spectrum import Spectrum
from twinlink.testing import free_endpoint, patience

N_PRBS, SCS_HZ, CENTRE_HZ = 24, 30_000, 3.6e9
T0_NS = 1_795_900_000_123_456_789
EPOCH = 0x1234
ROUNDS = 12
DECIDED, BLOCKED = 4, (3, 4, 9)


def spectrum(number: int, observed_ns: int | None = None, n_prbs: int = N_PRBS) -> Spectrum:
    """A symbol of noise."""
    samples = np.random.default_rng(number).integers(-3000, 3000, (n_prbs * 12, 2)).astype(np.int16)
    time_ns = T0_NS + number * 10_000_000 if observed_ns is None else observed_ns
    return Spectrum(samples, n_prbs, SCS_HZ, CENTRE_HZ, time_ns, e3={"timestamp": number})


def slot(number: int, symbols: int = ALL_SYMBOLS, dtype: Any = np.float16, antennas: int = 2) -> Slot:
    """A slot of noise."""
    shape = antennas, symbols.bit_count(), N_PRBS * 12, 2
    values: NDArray[Any] = np.random.default_rng(number).integers(-2000, 2000, shape).astype(np.int16)
    data = (values / 2048).astype(np.float16) if dtype is np.float16 else values
    return Slot(data, number // 20, number % 20, symbols, T0_NS + number * 500_000, number, Clock.MONOTONIC)


def slots(*of: Slot, antennas: int = 2) -> SlotSpectrum:
    """A message."""
    return SlotSpectrum(106, 20, N_PRBS, tuple(range(antennas)), SCS_HZ, CENTRE_HZ, 1 / 2048, slots=of)


@dataclass
class Scene:
    """What was sent, by flow, and where it was recorded."""

    path: Path
    spectra: list[Spectrum] = field(default_factory=list)
    slots: list[SlotSpectrum] = field(default_factory=list)
    arrays: list[NDArray[Any]] = field(default_factory=list)


def record(path: Path, by: str = "twin", **options: Any) -> Scene:
    """Record a link between a twin and a gNB, at one of the two."""
    scene = Scene(path)
    with pair("memory", free_endpoint()) as (twin, gnb), {"twin": twin, "gnb": gnb}[by].record(path, **options):
        for flow in ("spectrum", "slots", "samples", "control-result"):
            twin.receiver(flow, handler=lambda message: None)
        gnb.receiver("control", handler=lambda message: None)
        for number in range(ROUNDS):
            scene.spectra.append(spectrum(number))
            two = slot(2 * number), slot(2 * number + 1, 0b11 << 10 if number % 2 else ALL_SYMBOLS)
            scene.slots.append(slots(*two))
            scene.arrays.append(np.full((2, 8), number, np.complex64))
            gnb.sender("spectrum").send(scene.spectra[-1].encode())
            gnb.sender("slots").send(scene.slots[-1].encode())
            gnb.sender("samples").send_array(scene.arrays[-1])
            for flow in ("spectrum", "slots", "samples"):
                gnb.sender(flow).flush(patience())
            if number == DECIDED:
                block = PrbBlock("b-1", BLOCKED, time.time_ns(), 600_000, "tone")
                twin.sender("control").send(block.encode())
                twin.sender("control").flush(patience())
                gnb.sender("control-result").send(PrbBlockResult("b-1", "installed", BLOCKED, time.time_ns()).encode())
                gnb.sender("control-result").flush(patience())
    return scene


def write(
    path: Path, messages: list[tuple[int, bytes]], lacking: RangeSet | None = None, flow: str = "spectrum"
) -> Path:
    """A recording of these numbers and payloads, in this order, sent and received a ms apart from 0 on."""
    with RecordingWriter(path, {"format": "test"}, "00000000000000aa", {EPOCH: "gnb-1"}) as writer:
        for place, (number, payload) in enumerate(messages):
            writer.add(flow, EPOCH, number, T0_NS + number, T0_NS + place * 1_000_000, payload)
        writer.leave_out(flow, EPOCH, lacking or RangeSet())
    return path


def header(payload: bytes) -> dict[str, Any]:
    """The head of a message of `twinlink.spectrum`."""
    (length,) = struct.unpack_from(">H", payload)
    found: dict[str, Any] = json.loads(payload[2 : 2 + length])
    return found
