"""Uplink symbols with known truth, generated independently of the RAN emulator's recordings."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Interferer:
    """One appearance over PRBs ``first`` to ``end`` - 1 and records ``start`` to ``stop`` - 1.

    kind: ``noise`` (Gaussian), ``tone`` (one subcarrier a PRB), ``drift`` (a tone that wanders within its PRBs),
    ``fading`` (Gaussian with a slow, shallow envelope); on the carrier's grid, at a constant level: ``qpsk``, ``qam16``
    and ``constant`` (one amplitude on all subcarriers, as of a fast sweep).
    """

    start: int
    stop: int
    first: int
    end: int
    inr_db: float
    kind: str = "noise"


@dataclass(frozen=True)
class Scene:
    """UEs, interferers and channel of a recording."""

    n_prbs: int = 106
    n_records: int = 600
    noise_lsb: float = 4.0
    n_ues: int = 4
    dwell: float = 30.0  # mean records on one allocation
    pause: float = 20.0
    fixed_dwell: bool = False
    packed: bool = False  # UEs get new PRBs with every record, packed from the lowest one
    static: bool = False  # UEs keep their first allocation
    snr_db: tuple[float, float] = (10.0, 28.0)
    widths: tuple[float, float] = (0.04, 0.3)  # of the carrier
    max_load: float = 0.75
    modulations: tuple[int, ...] = (2, 4, 6, 8)  # bits a symbol; 0 is Gaussian, negative is transform-precoded
    adapting: bool = False  # a UE changes its modulation with every record
    delay_spread_ns: float = 150.0
    coherence: float = 15.0  # records over which the channel decorrelates
    flat: bool = False
    interferers: tuple[Interferer, ...] = ()


@dataclass(frozen=True)
class Heard:
    """int16 samples ``(n, bins, 2)``; truth masks ``(n, n_prbs)``: interference, its strength, and UEs."""

    samples: NDArray[np.int16]
    interfered: NDArray[np.bool_]
    strong: NDArray[np.bool_]
    ue: NDArray[np.bool_]


def complex_normal(rng: np.random.Generator, *shape: int) -> NDArray[np.complex128]:
    return np.asarray((rng.normal(size=shape) + 1j * rng.normal(size=shape)) / np.sqrt(2))


def symbols(rng: np.random.Generator, bits: int, count: int) -> NDArray[np.complex128]:
    if bits == 0:
        return complex_normal(rng, count)
    if bits < 0:
        return np.asarray(np.fft.fft(symbols(rng, -bits, count)) / np.sqrt(count))
    side = np.arange(2 ** (bits // 2)) * 2 - 2 ** (bits // 2) + 1
    return np.asarray((rng.choice(side, count) + 1j * rng.choice(side, count)) / np.sqrt(2 * np.mean(side**2)))


class Channel:
    """Exponential power-delay profile; taps follow a first-order autoregression (not the emulator's Jakes sum)."""

    def __init__(self, rng: np.random.Generator, scene: Scene) -> None:
        self.rng = rng
        self.delays = np.zeros(1) if scene.flat else np.arange(10) * scene.delay_spread_ns / 2 * 1e-9
        power = np.exp(-np.arange(len(self.delays)) / 2)
        self.scale = np.sqrt(power / power.sum())
        self.keep = float(np.exp(-1 / scene.coherence))
        self.taps = complex_normal(rng, len(self.delays))
        self.phases = np.exp(-2j * np.pi * 30e3 * np.arange(scene.n_prbs * 12)[:, None] * self.delays)

    def response(self) -> NDArray[np.complex128]:
        self.taps = self.keep * self.taps + np.sqrt(1 - self.keep**2) * complex_normal(self.rng, len(self.taps))
        return np.asarray(self.phases @ (self.scale * self.taps))


def hear(scene: Scene, seed: int) -> Heard:
    rng = np.random.default_rng(seed)
    n, bins = scene.n_records, scene.n_prbs * 12
    air = complex_normal(rng, n, bins)
    ue = np.zeros((n, scene.n_prbs), bool)
    channels = [Channel(rng, scene) for _ in range(scene.n_ues)]
    snr = rng.uniform(*scene.snr_db, scene.n_ues)
    grants: list[tuple[int, int, int] | None] = [None] * scene.n_ues
    until = [0 if scene.static else int(rng.exponential(scene.pause)) for _ in range(scene.n_ues)]
    resting = [True] * scene.n_ues
    for k in range(n):
        if scene.packed:
            grants, until = [None] * scene.n_ues, [k] * scene.n_ues
        for u in range(scene.n_ues):
            if k >= until[u]:
                if not resting[u] and scene.pause and rng.random() < 0.5:
                    grants[u], resting[u] = None, True
                    until[u] = k + 1 + int(rng.exponential(scene.pause))
                else:
                    grants[u] = None
                    taken = np.zeros(scene.n_prbs, bool)
                    for other in grants:
                        if other:
                            taken[other[0] : other[1]] = True
                    width = max(1, int(rng.uniform(*scene.widths) * scene.n_prbs))
                    width = min(width, int(scene.max_load * scene.n_prbs) - int(taken.sum()))
                    starts = [
                        a for a in range(scene.n_prbs - width + 1) if width > 0 and not taken[a : a + width].any()
                    ]
                    if starts:
                        first = starts[0] if scene.packed else int(rng.choice(starts))
                        grants[u] = (first, first + width, int(rng.choice(scene.modulations)))
                    resting[u] = False
                    dwell = scene.dwell if scene.fixed_dwell else 3 + rng.exponential(scene.dwell)
                    until[u] = n if scene.static else k + 1 + int(dwell)
            response = channels[u].response()
            grant = grants[u]
            if grant:
                first, end, bits = grant
                if scene.adapting:
                    bits = int(rng.choice(scene.modulations))
                part = slice(first * 12, end * 12)
                ue[k, first:end] = True
                air[k, part] += symbols(rng, bits, (end - first) * 12) * response[part] * 10 ** (snr[u] / 20)
    interfered = np.zeros((n, scene.n_prbs), bool)
    strong = np.zeros((n, scene.n_prbs), bool)
    for one in scene.interferers:
        when, where = slice(one.start, one.stop), slice(one.first, one.end)
        air[when, one.first * 12 : one.end * 12] += interference(rng, one) * 10 ** (one.inr_db / 20)
        interfered[when, where] = True
        strong[when, where] |= one.inr_db >= 6
    scaled = air * scene.noise_lsb * np.sqrt(2)
    both = np.stack([scaled.real, scaled.imag], axis=-1)
    return Heard(np.clip(np.rint(both), -32768, 32767).astype(np.int16), interfered, strong, ue)


def with_interferer(heard: Heard, cells: NDArray[np.complex128], interfered: NDArray[np.bool_]) -> Heard:
    """``heard`` with ``cells`` added, in LSB, shape ``(n, bins)``, as the only interferer."""
    samples = np.rint(heard.samples + np.stack([cells.real, cells.imag], axis=-1)).astype(np.int16)
    return Heard(samples, interfered, interfered, heard.ue)


def interference(rng: np.random.Generator, one: Interferer) -> NDArray[np.complex128]:
    """Subcarriers of an interferer with mean power 1 in each PRB, shape ``(records, prbs * 12)``."""
    n, prbs = one.stop - one.start, one.end - one.first
    if one.kind in ("tone", "drift"):
        grid = np.zeros((n, prbs, 12), complex)
        place = np.broadcast_to(rng.integers(12, size=prbs), (n, prbs)).copy()
        if one.kind == "drift":
            place = (place + np.arange(n)[:, None] // 7) % 12
        phase = np.exp(2j * np.pi * rng.random((n, prbs)))
        np.put_along_axis(grid, place[..., None], (np.sqrt(12) * phase)[..., None], axis=2)
        return grid.reshape(n, -1)
    if one.kind in ("qpsk", "qam16"):
        return symbols(rng, 2 if one.kind == "qpsk" else 4, n * prbs * 12).reshape(n, -1)
    if one.kind == "constant":
        return np.asarray(np.exp(2j * np.pi * (0.05 * np.arange(prbs * 12) ** 2 + rng.random((n, 1)))))
    noise = complex_normal(rng, n, prbs * 12)
    if one.kind == "fading":
        swing_db = 2 * np.sin(2 * np.pi * (np.arange(n) / 90 + rng.random()))
        noise *= 10 ** (swing_db[:, None] / 20)
    return noise
