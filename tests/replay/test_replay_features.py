from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from twinlink_replay.detection.features import prb_features, subcarrier_power, to_dbfs
from twinlink_replay.detection.noise_floor import NoiseFloor
from twinlink_replay.detection.power_trace import PowerTrace

from tests.replay.uplink_scenes import Interferer, Scene, hear, symbols


def test_power_of_known_samples() -> None:
    samples = np.zeros((1, 24, 2), np.int16)
    samples[0, :12] = (3, -4)
    samples[0, 12:] = (-32768, 32767)
    power = subcarrier_power(samples)
    assert power.dtype == np.float32
    np.testing.assert_array_equal(power[0, :12], 25)
    assert power[0, 12] == pytest.approx(32768.0**2 + 32767.0**2, rel=1e-6)
    np.testing.assert_allclose(prb_features(power).power, [[25, 32768.0**2 + 32767.0**2]])


def test_dbfs_of_full_scale_and_of_nothing() -> None:
    np.testing.assert_allclose(
        to_dbfs(np.array([32768.0**2, 32768.0, 0.0], np.float32)), [0, -45.15, -98.09], atol=0.01
    )


def roughness(samples: NDArray[Any]) -> float:
    """Mean over PRBs of complex samples, shape (n, 12)."""
    power = np.abs(samples.reshape(1, -1)).astype(np.float32) ** 2
    return float(prb_features(power).roughness.mean())


def test_roughness_tells_a_ue_from_noise_and_from_a_tone() -> None:
    rng = np.random.default_rng(1)
    noise = rng.normal(size=(4000, 12)) + 1j * rng.normal(size=(4000, 12))
    tone = np.zeros((4000, 12))
    tone[:, 5] = 1
    assert roughness(noise) == pytest.approx(0.557, abs=0.01)
    assert roughness(tone) == pytest.approx(1)
    for bits, expected in ((2, 0.0), (4, 0.36), (6, 0.405), (8, 0.41)):
        assert roughness(symbols(rng, bits, 48000).reshape(-1, 12)) == pytest.approx(expected, abs=0.02)
    sloped = symbols(rng, 2, 48000).reshape(-1, 12) * np.linspace(0.3, 1, 12)
    assert roughness(sloped) < 0.2  # a channel's slope is not roughness


def test_reference_symbols_on_every_other_subcarrier_are_smooth() -> None:
    comb = symbols(np.random.default_rng(2), 2, 12000).reshape(-1, 12)
    comb[:, 1::2] = 0
    assert roughness(comb) == pytest.approx(0, abs=0.01)


def test_a_tone_is_told_from_ues() -> None:
    rng = np.random.default_rng(3)
    qpsk, gaussian = (symbols(rng, bits, 120_000).reshape(10_000, 12) * 100 for bits in (2, 0))
    comb = qpsk.copy()
    comb[:, 1::2] = 0
    for ue in (qpsk, gaussian, comb, np.zeros_like(qpsk)):
        assert tone_llr(ue).mean(axis=0).max() < -0.5
        for place in range(12):
            tone = ue.copy()
            tone[:, place] += 250 * np.exp(2j * np.pi * rng.random(10_000))  # 8 dB above the UE on its subcarrier
            assert tone_llr(tone)[:, place].mean() > 0.3
    # The likelihood ratio of Gaussian samples has a mean below 1.
    assert np.exp(tone_llr(gaussian)[:, 2:10]).mean() < 1


def tone_llr(samples: NDArray[Any]) -> NDArray[np.float32]:
    """Tone LLRs of complex samples, shape (n, 12), on the first of two PRBs: the centre subcarrier is capped."""
    return prb_features(np.abs(np.tile(samples, 2)).astype(np.float32) ** 2).tone_llr[:, 0]


def test_average_and_peak_hold() -> None:
    trace = PowerTrace(2, records=10)
    for value in (4.0, 8.0, 6.0):
        trace.add(np.array([[value, 1.0]], np.float32))
    np.testing.assert_allclose(trace.average, [6, 1])
    np.testing.assert_allclose(trace.peak, [8, 1])
    trace.reset_peak()
    trace.add(np.array([[2.0, 1.0], [3.0, 1.0]], np.float32))
    np.testing.assert_allclose(trace.peak, [3, 1])


@pytest.mark.parametrize("noise_lsb", [1.0, 4.0, 300.0])
def test_floor_is_not_moved_by_a_third_of_the_band(noise_lsb: float) -> None:
    scene = Scene(51, 300, noise_lsb, interferers=(Interferer(0, 300, 17, 34, 6.0),), snr_db=(10, 25))
    floor = NoiseFloor(51)
    for record in prb_features(subcarrier_power(hear(scene, 3).samples)).power:
        floor.add(record[None])
    truth = 2 * noise_lsb**2 + 1 / 6
    assert floor.level == pytest.approx(truth, rel=0.08)


def test_floor_ignores_blanked_prbs_and_rises_slowly() -> None:
    rng = np.random.default_rng(4)
    floor = NoiseFloor(20)
    power = rng.gamma(12, 10 / 12, (200, 20)).astype(np.float32)
    power[:, :5] = 0
    floor.add(power)
    assert floor.level == pytest.approx(10, rel=0.05)
    floor.add(power[:100] * 100)
    assert floor.level is not None
    assert floor.level < 10 * 10 ** (0.02 * 101 / 10)
