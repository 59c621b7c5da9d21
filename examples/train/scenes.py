"""Recordings for the RAN emulator to play, each made of a seed: its UEs, and interferers of several kinds.

The UEs, their channels and the noise are `twinlink_ran_emulator.make_recording`'s.  On top come up to three
interferers, each with a kind, which stands in the comment of its annotation (``kind=tone INR 12 dB``):

| kind    | is                                                                             |
|---------|--------------------------------------------------------------------------------|
| `noise` | Gaussian and flat over 1 to 10 PRBs, for 0.6 to 2.5 s at a time                |
| `pulse` | the same for 0.1 to 0.3 s, every 0.6 to 1.2 s                                  |
| `tone`  | a carrier on one subcarrier, for 0.6 to 2.5 s at a time                        |
| `sweep` | a carrier that moves by one PRB in 4 to 15 records, back and forth             |

One scene in six has none.  The level is the interference to noise ratio in a PRB.
"""

import hashlib
import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from twinlink_ran_emulator import make_recording, metadata
from twinlink_ran_emulator.make_recording import Settings
from twinlink_ran_emulator.truth import Area

from twinlink.spectrum import SUBCARRIERS_PER_PRB

KINDS = "noise", "pulse", "tone", "sweep"
N_PRBS, PERIOD_MS = 106, 10.0
LEAST_INR_DB, MOST_INR_DB = 6.0, 28.0
MOST_INTERFERERS = 3
NONE_OF = 6  # one scene in so many has no interferer
_COMMENT = re.compile(r"kind=(\w+)")

Levels = NDArray[np.complex128]
Span = tuple[int, int]


def kind_of(area: Area) -> str:
    """The kind of an interferer, of its annotation; `noise` where that does not say it."""
    found = _COMMENT.search(area.comment)
    return found[1] if found and found[1] in KINDS else "noise"


@dataclass(frozen=True, slots=True)
class Scene:
    """Samples of a scene, int16 of shape ``(records, n_prbs * 12, 2)``, and its truth."""

    samples: NDArray[np.int16]
    areas: tuple[Area, ...]


def make(seed: int, seconds: float, n_prbs: int = N_PRBS) -> Scene:
    """The scene of a seed; the same arguments give the same octets."""
    rng = np.random.default_rng([seed, 57])
    settings = Settings(n_prbs=n_prbs, seconds=seconds, n_ues=int(rng.integers(2, 7)), episodes=(), seed=seed)
    made = make_recording.make(settings)
    levels = made.samples[..., 0] + 1j * made.samples[..., 1].astype(np.float64)
    areas = list(made.areas)
    for _ in range(0 if rng.integers(NONE_OF) == 0 else int(rng.integers(1, MOST_INTERFERERS + 1))):
        areas += _add(rng, levels, str(rng.choice(KINDS)), settings)
    samples = np.clip(np.rint(np.stack((levels.real, levels.imag), axis=-1)), -32768, 32767).astype("<i2")
    return Scene(samples, tuple(areas))


def write(path: Path, made: Sequence[Scene]) -> Path:
    """Write scenes, one behind the other, as a SigMF pair; returns the file of metadata.  Raises OSError."""
    samples = np.concatenate([one.samples for one in made])
    starts = np.cumsum([0, *(len(one.samples) for one in made)]).tolist()
    areas = [
        replace(area, first_record=area.first_record + start, end_record=area.end_record + start)
        for one, start in zip(made, starts, strict=False)
        for area in one.areas
    ]
    settings = Settings(n_prbs=samples.shape[1] // SUBCARRIERS_PER_PRB, seconds=len(samples) * PERIOD_MS / 1000)
    meta, data = metadata.pair(path)
    octets = samples.tobytes()
    extra = {
        "core:sha512": hashlib.sha512(octets).hexdigest(),
        "core:description": "5G NR uplink after the gNB's FFT, one OFDM symbol a record; synthetic: UEs, interferers",
        "core:recorder": "examples.train.scenes",
    }
    data.write_bytes(octets)
    metadata.write(meta, metadata.describe(settings.grid, areas, PERIOD_MS, extra=extra))
    return meta


def _add(rng: np.random.Generator, levels: Levels, kind: str, settings: Settings) -> list[Area]:
    """Add an interferer to the samples; returns its areas."""
    inr_db = float(rng.uniform(LEAST_INR_DB, MOST_INR_DB))
    amplitude = settings.noise_rms_lsb * 10 ** (inr_db / 20)
    comment = f"kind={kind} INR {inr_db:.1f} dB"
    n_records, n_prbs = settings.grid.n_records, settings.n_prbs
    spans = _pulses(rng, n_records) if kind == "pulse" else _appearances(rng, n_records)
    areas = []
    if kind in ("noise", "pulse"):
        width = int(rng.integers(1, min(11, n_prbs)))
        first = int(rng.integers(n_prbs - width + 1))
        bins = slice(first * SUBCARRIERS_PER_PRB, (first + width) * SUBCARRIERS_PER_PRB)
        for start, end in spans:
            parts = rng.standard_normal((2, end - start, width * SUBCARRIERS_PER_PRB))
            levels[start:end, bins] += amplitude / np.sqrt(2) * (parts[0] + 1j * parts[1])
            areas.append(Area("interferer", start, end, first, first + width, comment))
        return areas
    bin_, records_a_prb = int(rng.integers(n_prbs * SUBCARRIERS_PER_PRB)), int(rng.integers(4, 16))
    for start, end in spans:
        places = np.full(end - start, bin_)
        if kind == "sweep":
            places = _back_and_forth(bin_ + np.arange(end - start) * SUBCARRIERS_PER_PRB // records_a_prb, n_prbs)
        phases = np.exp(2j * np.pi * rng.random(end - start))
        levels[np.arange(start, end), places] += amplitude * np.sqrt(SUBCARRIERS_PER_PRB) * phases
        areas += _areas_along(places // SUBCARRIERS_PER_PRB, start, comment)
    return areas


def _back_and_forth(places: NDArray[np.int64], n_prbs: int) -> NDArray[np.int64]:
    """Places on a line, reflected at the edges of the carrier."""
    last = n_prbs * SUBCARRIERS_PER_PRB - 1
    folded = places % (2 * last)
    return np.where(folded > last, 2 * last - folded, folded)


def _areas_along(prbs: NDArray[np.int64], start: int, comment: str) -> Iterator[Area]:
    """An area for each stay on a PRB."""
    edges = [0, *(np.flatnonzero(np.diff(prbs)) + 1).tolist(), len(prbs)]
    for first, end in itertools.pairwise(edges):
        prb = int(prbs[first])
        yield Area("interferer", start + first, start + end, prb, prb + 1, comment)


def _appearances(rng: np.random.Generator, n_records: int) -> list[Span]:
    """On for 0.6 to 2.5 s, off for 0.6 to 2 s, in records of 10 ms."""
    return _spans(rng, n_records, (60, 250), (60, 200))


def _pulses(rng: np.random.Generator, n_records: int) -> list[Span]:
    """On for 0.1 to 0.3 s, off for 0.3 to 1.1 s."""
    return _spans(rng, n_records, (10, 30), (30, 110))


def _spans(rng: np.random.Generator, n_records: int, on: Span, off: Span) -> list[Span]:
    spans, start = [], int(rng.integers(20, 120))
    while start < n_records:
        end = min(start + int(rng.integers(*on)), n_records)
        spans.append((start, end))
        start = end + int(rng.integers(*off))
    return spans
