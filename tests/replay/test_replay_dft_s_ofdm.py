"""The test for transform-precoded UEs tells them from noise and from other single carriers."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray
from twinlink_replay.detection.dft_s_ofdm import DftSOfdmTest
from twinlink_replay.detection.features import prb_features, subcarrier_power
from twinlink_replay.detection.likelihoods import PrbLikelihoods, prb_likelihoods

from tests.replay.evaluate import detect, scores
from tests.replay.uplink_scenes import Interferer, Scene, complex_normal, hear, symbols, with_interferer

FEW = Scene(51, dwell=20, modulations=(2, 4, 4, 2, 4, 4, 4, -2), widths=(0.1, 0.3), delay_spread_ns=30)
N_PRBS, NOISE = 20, 40.0  # LSB^2


def heard_as(cells: NDArray[np.complex128]) -> tuple[NDArray[np.int16], PrbLikelihoods]:
    """Samples of cells, shape ``(records, subcarriers)``, and their likelihoods before the test."""
    noisy = (cells + complex_normal(np.random.default_rng(9), *cells.shape)) * np.sqrt(NOISE)
    samples = np.rint(np.stack([noisy.real, noisy.imag], axis=-1)).astype(np.int16)
    return samples, prb_likelihoods(prb_features(subcarrier_power(samples), samples), NOISE)


def on(places: list[tuple[int, int]], bits: int, delay: float = 0.3) -> NDArray[np.complex128]:
    """Ten records for each run of PRBs, with a signal of 13 dB on it."""
    rng = np.random.default_rng(4)
    cells = np.zeros((10 * len(places), 12 * N_PRBS), complex)
    for k, (first, end) in enumerate(places):
        count = 12 * (end - first)
        late = np.exp(-2j * np.pi * delay * np.arange(count) / count)
        for record in range(10 * k, 10 * k + 10):
            cells[record, 12 * first : 12 * end] = 4.5 * symbols(rng, bits, count) * late
    return cells


def single_carrier(records: int, prbs: int, kind: str) -> NDArray[np.complex128]:
    """The FFT of a foreign carrier that is not aligned with the grid, 13 dB, shape ``(records, prbs * 12)``.

    ``QPSK`` has root raised cosine pulses, roll-off 0.25, and no whole number of symbols in a piece; ``FM`` is noise on
    a carrier of constant amplitude.
    """
    rng, fft, count = np.random.default_rng(12), 512, 12 * prbs
    place = np.rint(np.fft.fftfreq(fft * records) * fft * records).astype(int)
    subcarrier = np.abs(place) / records
    if kind == "QPSK":
        sent = symbols(rng, 2, int((count / 1.25 + 1 / 3) * records))
        beyond = np.clip((subcarrier * records / len(sent) - 0.375) / 0.25, 0, 1)
        carrier = np.fft.ifft(np.fft.fft(sent)[place % len(sent)] * np.cos(np.pi / 2 * beyond))
    else:
        sound = np.fft.ifft(np.fft.fft(rng.normal(size=fft * records)) * (subcarrier < count / 8)).real
        carrier = np.exp(2j * np.pi * np.cumsum(sound / sound.std() * count / 8 / fft))
    carrier *= 4.5 / np.sqrt(np.mean(np.abs(carrier) ** 2))
    cells = np.fft.fft(carrier.reshape(records, fft)) * np.sqrt(count) / fft
    return np.asarray(np.roll(cells, count // 2, axis=1)[:, :count])


def ue_llr(cells: NDArray[np.complex128], where: slice) -> float:
    """LLR of a UE against noise in nats, summed over all records, as a mean over PRBs."""
    dft_s_ofdm, (samples, likelihoods) = DftSOfdmTest(N_PRBS), heard_as(cells)
    applied = dft_s_ofdm.apply(likelihoods, dft_s_ofdm.add(samples, likelihoods))
    return float(applied.ue_llr[:, where].sum(axis=0).mean())


@pytest.mark.parametrize("bits", [-2, -4, -6])
@pytest.mark.parametrize("delay", [0.0, 0.5])
def test_precoded_symbols_are_no_noise(bits: int, delay: float) -> None:
    assert ue_llr(on([(5, 13)], bits, delay), slice(5, 13)) > 5


def test_noise_remains_noise_and_ofdm_remains_ofdm() -> None:
    assert ue_llr(on([(5, 13)], 0), slice(5, 13)) < -5
    assert ue_llr(on([(5, 13)], 4), slice(5, 13)) > 5


@pytest.mark.parametrize(
    ("places", "bits", "detected"),
    [
        pytest.param([(2, 8), (12, 18)], -2, True, id="precoded at two places"),
        pytest.param([(3, 8), (3, 8), (3, 8), (3, 8)], -2, True, id="precoded at one place"),
        pytest.param([(2, 8), (12, 18), (6, 14)], 0, False, id="noise"),
        pytest.param([(2, 8), (12, 18), (6, 14)], 4, False, id="others"),
    ],
)
def test_precoded_ues_are_detected_by_their_symbols(places: list[tuple[int, int]], bits: int, detected: bool) -> None:
    dft_s_ofdm = DftSOfdmTest(N_PRBS)
    dft_s_ofdm.add(*heard_as(on(places, bits)))
    assert dft_s_ofdm.detected is detected


@pytest.mark.parametrize("kind", ["QPSK", "FM"])
def test_another_single_carrier_is_no_precoded_ue(kind: str) -> None:
    dft_s_ofdm, cells = DftSOfdmTest(N_PRBS), np.zeros((400, 12 * N_PRBS), complex)
    cells[:, 60:156] = single_carrier(400, 8, kind)
    assert dft_s_ofdm.add(*heard_as(cells)).llr[:, 8:10].mean() > 0.5  # its kurtosis is that of a precoded UE
    assert not dft_s_ofdm.detected


@pytest.mark.parametrize("seed", [1, 2, 3, 4])
def test_a_few_precoded_ues_among_others_are_not_interference(seed: int) -> None:
    assert detect(hear(FEW, seed)).smoothed.mean() < 0.002


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_noise_is_found_beside_a_few_precoded_ues(seed: int) -> None:
    scene = replace(FEW, interferers=(Interferer(150, 400, 30, 35, 12),))
    score = scores(heard := hear(scene, seed), detect(heard).smoothed)
    assert score.precision >= 0.95
    assert score.recall_uncovered >= 0.95


def test_a_single_carrier_among_ofdm_is_interference() -> None:
    heard = hear(Scene(51, modulations=(2, 4), n_ues=3), 5)
    cells, truth = np.zeros((len(heard.ue), 12 * 51), complex), np.zeros_like(heard.ue)
    cells[150:400, 360:420] = 4.5 * single_carrier(250, 5, "QPSK")  # noise has 4 LSB
    truth[150:400, 30:35] = True
    mixed = with_interferer(heard, cells, truth)
    score = scores(mixed, detect(mixed).smoothed)
    assert score.precision >= 0.95
    assert score.recall_uncovered >= 0.95
