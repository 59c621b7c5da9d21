"""The detector over a holdout set of plain recordings: ``python -m tests.replay.holdout --scenes 700``.

The recordings model a gNB's uplink independently of `uplink_scenes`.  Their author had read the detector.  They are a
holdout set: use other scenes for tuning the detector.
"""

import argparse
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tests.replay.evaluate import detect
from tests.replay.uplink_scenes import Heard

N_RECORDS = 600  # of 10 ms
SCS_HZ, RECORD_S = 30e3, 0.01
SILENT = 0.0005  # largest share of false cells in a recording without an interferer

Complex = NDArray[np.complex128]
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Ues:
    """How UEs transmit: their symbols, and for how many records they hold a grant."""

    symbols: Callable[[np.random.Generator, tuple[int, ...]], Complex]
    shortest: int
    longest: int


def gaussian(rng: np.random.Generator, shape: tuple[int, ...]) -> Complex:
    """Mean power 1."""
    return np.asarray((rng.standard_normal(shape) + 1j * rng.standard_normal(shape)) / np.sqrt(2))


def qpsk(rng: np.random.Generator, shape: tuple[int, ...]) -> Complex:
    """Mean power 1."""
    return np.asarray(np.exp(0.5j * np.pi * (0.5 + rng.integers(4, size=shape))))


def qam(rng: np.random.Generator, shape: tuple[int, ...]) -> Complex:
    """16QAM or 64QAM of mean power 1."""
    side = int(rng.choice([4, 8]))
    amplitudes = np.arange(1 - side, side, 2) / np.sqrt(2 * (side**2 - 1) / 3)
    return np.asarray(rng.choice(amplitudes, shape) + 1j * rng.choice(amplitudes, shape))


UES = {
    "QPSK, new grants every record": Ues(qpsk, 1, 1),
    "QPSK, grants of 0.1 to 0.6 s": Ues(qpsk, 10, 60),
    "16 or 64QAM, new grants every record": Ues(qam, 1, 1),
    "16 or 64QAM, grants of 0.1 to 0.6 s": Ues(qam, 10, 60),
    "QPSK, never move": Ues(qpsk, N_RECORDS, N_RECORDS),
    "Gaussian, new grants every record": Ues(gaussian, 1, 1),
    "Gaussian, grants of 0.1 to 0.6 s": Ues(gaussian, 10, 60),
}
MOVING = [kind for kind, ues in UES.items() if ues.symbols is not gaussian and ues.longest < N_RECORDS]


class Air:
    """Samples of the gNB's receiver after its FFT, and the truth.

    Attributes:
        samples: shape ``(records, subcarriers)``; the noise has mean power 1.
        ue, interfered: where UEs and interferers are, bool, shape ``(records, n_prbs)``.
    """

    def __init__(self, rng: np.random.Generator, n_prbs: int) -> None:
        self.rng, self.n_prbs = rng, n_prbs
        self.samples = gaussian(rng, (N_RECORDS, 12 * n_prbs))
        self.ue = np.zeros((N_RECORDS, n_prbs), bool)
        self.interfered = np.zeros((N_RECORDS, n_prbs), bool)

    def fading(self) -> Complex:
        """A channel of eight taps with an exponential profile, each a sum of sixteen Doppler shifts."""
        rng, spread_s = self.rng, float(self.rng.choice([30e-9, 100e-9, 300e-9]))
        delays_s = np.sort(rng.exponential(spread_s, 8))
        delays_s -= delays_s[0]
        power = np.exp(-delays_s / spread_s)
        shifts_hz = float(rng.choice([0.5, 5, 20])) * np.cos(2 * np.pi * rng.random((8, 16)))
        at_s = RECORD_S * np.arange(N_RECORDS)[:, None, None]
        taps = np.exp(2j * np.pi * (shifts_hz * at_s + rng.random((8, 16)))).sum(axis=2)
        taps *= np.sqrt(power / power.sum() / 16)
        frequencies_hz = SCS_HZ * np.arange(12 * self.n_prbs)
        return np.asarray(taps @ np.exp(-2j * np.pi * delays_s[:, None] * frequencies_hz))

    def add_ue(self, ues: Ues, widest: int) -> None:
        """A UE with one grant after the other, each on free PRBs."""
        rng, channel = self.rng, self.fading() * 10 ** (self.rng.uniform(8, 28) / 20)
        start = 0
        while start < N_RECORDS:
            stop = min(start + int(rng.integers(ues.shortest, ues.longest + 1)), N_RECORDS)
            width = int(rng.integers(2, max(3, widest)))
            first = int(rng.integers(self.n_prbs - width + 1))
            where = (slice(start, stop), slice(first, first + width))
            if rng.random() < 0.75 and not self.ue[where].any():
                part = (where[0], slice(12 * first, 12 * (first + width)))
                self.samples[part] += channel[part] * ues.symbols(rng, channel[part].shape)
                self.ue[where] = True
            start = stop

    def add_noise(self, spans: Iterable[tuple[int, int]]) -> None:
        """Gaussian noise on some adjacent PRBs; ``spans`` are the first record and the end of each burst."""
        width = int(self.rng.integers(1, max(2, self.n_prbs // 8)))
        first = int(self.rng.integers(self.n_prbs - width + 1))
        amplitude = 10 ** (self.rng.uniform(6, 25) / 20)
        for start, stop in spans:
            part = (slice(start, stop), slice(12 * first, 12 * (first + width)))
            self.samples[part] += amplitude * gaussian(self.rng, self.samples[part].shape)
            self.interfered[start:stop, first : first + width] = True

    def add_tone(self, spans: Iterable[tuple[int, int]], sweeps: bool = False) -> None:
        """A tone on one subcarrier, or a sweep; its level is relative to the noise of a PRB."""
        begin, end = self.rng.integers(12 * self.n_prbs, size=2)
        amplitude = np.sqrt(12) * 10 ** (self.rng.uniform(10 if sweeps else 6, 25) / 20)
        for start, stop in spans:
            for record in range(start, stop):
                place = begin + (end - begin) * (record - start) // (stop - start) if sweeps else begin
                self.samples[record, place] += amplitude * np.exp(2j * np.pi * self.rng.random())
                self.interfered[record, place // 12] = True

    def comes_and_goes(self) -> list[tuple[int, int]]:
        """On for 0.6 to 2.5 s, off for 0.6 to 2 s."""
        spans, start = [], int(self.rng.integers(30, 120))
        while start < N_RECORDS:
            stop = min(start + int(self.rng.integers(60, 250)), N_RECORDS)
            spans.append((start, stop))
            start = stop + int(self.rng.integers(60, 200))
        return spans

    def pulses(self) -> list[tuple[int, int]]:
        """0.1 to 0.3 s every 0.6 to 1.2 s."""
        starts = range(40, N_RECORDS - 40, int(self.rng.integers(60, 120)))
        return [(start, start + int(self.rng.integers(10, 30))) for start in starts]

    def sweep(self) -> list[tuple[int, int]]:
        """One span over most of the recording."""
        return [(int(self.rng.integers(50, 150)), N_RECORDS - int(self.rng.integers(100)))]


# Number of interferers, and how to add one.
INTERFERERS: dict[str, tuple[int, Callable[[Air], None]]] = {
    "noise": (1, lambda air: air.add_noise(air.comes_and_goes())),
    "noise in two places": (2, lambda air: air.add_noise(air.comes_and_goes())),
    "noise, pulses of 0.1 to 0.3 s": (1, lambda air: air.add_noise(air.pulses())),
    "a tone": (1, lambda air: air.add_tone(air.comes_and_goes())),
    "three tones": (3, lambda air: air.add_tone(air.comes_and_goes())),
    "a tone that sweeps": (1, lambda air: air.add_tone(air.sweep(), sweeps=True)),
    "none": (0, lambda air: None),
}


def plain(seed: int, ues: str, interferer: str) -> Heard:
    """A recording of 6 s; ``ues`` of `UES`, ``interferer`` of `INTERFERERS`."""
    rng = np.random.default_rng(seed)
    air = Air(rng, int(rng.choice([51, 106, 106, 273])))
    n_ues = int(rng.integers(1, 6))
    for _ in range(n_ues):
        air.add_ue(UES[ues], air.n_prbs // n_ues)
    n_interferers, add = INTERFERERS[interferer]
    for _ in range(n_interferers):
        add(air)
    scaled = air.samples * rng.uniform(1.5, 8)
    both = np.stack([scaled.real, scaled.imag], axis=-1)
    samples = np.clip(np.rint(both), -32768, 32767).astype(np.int16)
    return Heard(samples, air.interfered, air.interfered, air.ue)


@dataclass
class Tally:
    """Counts over scenes: scenes, right ones, and (record, PRB) cells."""

    scenes: int = 0
    right: int = 0
    hits: int = 0
    found: int = 0
    there: int = 0
    seen: int = 0  # found cells without a UE on top
    visible: int = 0

    def add(self, heard: Heard, found: Mask) -> None:
        """A scene is right with precision and recall of 0.95 or more; without an interferer, with at most `SILENT`."""
        hits, visible = int((found & heard.interfered).sum()), heard.interfered & ~heard.ue
        there, reported = int(heard.interfered.sum()), int(found.sum())
        self.scenes += 1
        self.right += reported <= SILENT * found.size if not there else hits >= 0.95 * max(reported, there)
        self.hits += hits
        self.found += reported
        self.there += there
        self.seen += int((found & visible).sum())
        self.visible += int(visible.sum())

    @property
    def precision(self) -> float:
        """Share of the found cells that are interfered."""
        return self.hits / max(self.found, 1)

    @property
    def recall(self) -> float:
        """Share of the interfered cells that are found."""
        return self.hits / max(self.there, 1)

    def __str__(self) -> str:
        figures = f"{self.precision:.3f} | {self.recall:.3f} | {self.seen / max(self.visible, 1):.3f}"
        return f"{self.right} of {self.scenes} | {figures if self.there else '| |'}"


def main() -> None:
    """Print a row for each kind of UE, and for each kind of interferer."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scenes", type=int, default=140, help="kinds of UEs and interferers take turns (140)")
    parser.add_argument("--first", type=int, default=0, help="seed of the first scene (0)")
    parser.add_argument("--prompt", action="store_true", help="judge the filtered answers, not the smoothed ones")
    given = parser.parse_args()
    of_ues, of_interferers = {kind: Tally() for kind in UES}, {kind: Tally() for kind in INTERFERERS}
    moving = Tally()
    for seed in range(given.first, given.first + given.scenes):
        ues, interferer = list(UES)[seed % len(UES)], list(INTERFERERS)[seed // len(UES) % len(INTERFERERS)]
        heard = plain(seed, ues, interferer)
        answers = detect(heard, batch=16)
        found = answers.filtered if given.prompt else answers.smoothed
        of_ues[ues].add(heard, found)
        if ues in MOVING:
            moving.add(heard, found)
            of_interferers[interferer].add(heard, found)
    heads = "right | precision | recall | without a UE on top |\n|---|---|---|---|---|"
    print(f"| UEs | {heads}")
    for kind, tally in of_ues.items():
        print(f"| {kind} | {tally} |")
    print(f"\n| interferer, UEs of QPSK to 64QAM that move | {heads}")
    for kind, tally in of_interferers.items():
        print(f"| {kind} | {tally} |")
    print(f"| all | {moving} |")


if __name__ == "__main__":
    main()
