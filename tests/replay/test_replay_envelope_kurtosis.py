"""Chirps and pulses, which are as smooth over frequency as UEs; and intermittent interferers."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numpy.typing import NDArray
from twinlink_replay.detection.envelope_kurtosis import apply_envelope_test
from twinlink_replay.detection.features import prb_features, subcarrier_power
from twinlink_replay.detection.likelihoods import prb_likelihoods
from twinlink_replay.detection.transition_rates import TransitionRates

from tests.replay.evaluate import detect, scores
from tests.replay.uplink_scenes import Heard, Scene, complex_normal, hear, symbols, with_interferer

Kind = Callable[[int], NDArray[np.complex128]]

NOISE = 40.0  # LSB^2
PRBS = 8


def chirp(count: int) -> NDArray[np.complex128]:
    """Subcarriers of a chirp that sweeps over them once within a symbol, shape ``(count,)``; mean power 1."""
    return np.asarray(np.fft.fft(np.exp(1j * np.pi * np.arange(count) ** 2 / count)) / np.sqrt(count))


def pulse(count: int) -> NDArray[np.complex128]:
    """The same of a chirp that sweeps over them within a quarter of a symbol."""
    time = np.zeros(count, complex)
    part = np.arange(count // 4)
    time[count // 3 :][: len(part)] = np.exp(4j * np.pi * (part - len(part) / 2) ** 2 / count)
    cells = np.fft.fft(time)
    return np.asarray(cells / np.sqrt(np.mean(np.abs(cells) ** 2)))


def ue_llr(cells: NDArray[np.complex128]) -> NDArray[np.float32]:
    """LLR of a UE in nats, shape ``(records, prbs)``, of ``cells``, ``(records, prbs * 12)``, 13 dB above noise."""
    rng, count = np.random.default_rng(5), cells.shape[1]
    air = complex_normal(rng, len(cells), count + 24 * PRBS)
    air[:, 12 * PRBS : -12 * PRBS] += 4.5 * cells
    samples = np.rint(np.stack([air.real, air.imag], axis=-1) * np.sqrt(NOISE)).astype(np.int16)
    before = prb_likelihoods(prb_features(subcarrier_power(samples), samples), NOISE)
    likelihoods = apply_envelope_test(samples, before)
    llr = likelihoods.ue_llr + np.where(likelihoods.not_tone_llr < before.not_tone_llr, likelihoods.not_tone_llr, 0)
    return np.asarray(llr[:, PRBS:-PRBS])


@pytest.mark.parametrize("kind", [chirp, pulse])
def test_the_envelope_is_not_a_ues(kind: Kind) -> None:
    assert (ue_llr(np.tile(kind(12 * PRBS), (100, 1))).mean(axis=1) < -2).mean() >= 0.9


@pytest.mark.parametrize("kind", [chirp, pulse])
def test_an_adjacent_ue_of_the_same_level_is_not_included(kind: Kind) -> None:
    rng = np.random.default_rng(6)
    cells = np.stack([np.concatenate((kind(12 * PRBS), symbols(rng, 2, 24))) for _ in range(100)])
    llr = ue_llr(cells)
    assert (llr[:, :PRBS].mean(axis=1) < -2).mean() >= 0.7
    assert (llr[:, PRBS + 1 :] > 0).mean() >= 0.9


@pytest.mark.parametrize("bits", [2, 4])
def test_ofdm_remains_a_ues(bits: int) -> None:
    rng = np.random.default_rng(8)
    llr = ue_llr(np.stack([symbols(rng, bits, 12 * PRBS) for _ in range(1000)]))
    assert (llr.mean(axis=1) > 0).mean() >= 0.99


def test_reference_signals_on_every_other_subcarrier_are_a_ues() -> None:
    cells = np.zeros((20, 12 * PRBS), complex)
    cells[:, ::2] = np.sqrt(2) * chirp(6 * PRBS)
    assert ue_llr(cells).min() > 0


def swept(heard: Heard, inr_db: float, width: int) -> Heard:
    """``heard`` with a chirp on another ``width`` PRBs of 40 to 63 with every record."""
    rng = np.random.default_rng(3)
    n_records, n_prbs = heard.ue.shape
    cells, truth = np.zeros((n_records, 12 * n_prbs), complex), np.zeros_like(heard.ue)
    for k in range(150, 450):
        first = int(rng.integers(40, 64 - width + 1))
        truth[k, first : first + width] = True
        turn = np.exp(2j * np.pi * rng.random()) * 10 ** (inr_db / 20) * 4 * np.sqrt(2)  # noise has 4 LSB in I and in Q
        cells[k, 12 * first : 12 * (first + width)] = turn * chirp(12 * width)
    return with_interferer(heard, cells, truth)


@pytest.mark.parametrize("width", [3, PRBS])
def test_a_chirp_on_other_prbs_with_every_record_is_found(width: int) -> None:
    heard = swept(hear(Scene(modulations=(2,), n_ues=3), 6), 15, width)
    score = scores(heard, detect(heard).smoothed)
    assert score.precision >= 0.9
    assert score.recall_uncovered >= 0.85


@pytest.mark.parametrize("seed", [7, 8])
def test_packets_of_one_record_are_found(seed: int) -> None:
    heard = hear(Scene(modulations=(4, 6), n_ues=3), seed)
    rng = np.random.default_rng(2)
    truth = np.zeros_like(heard.ue)
    truth[:, 70:78] = (rng.random(len(truth)) < 0.2)[:, None]
    noise = complex_normal(rng, len(truth), 12 * 106) * 4 * np.sqrt(2) * 10 ** (15 / 20)
    heard = with_interferer(heard, noise * np.repeat(truth, 12, axis=1), truth)
    score = scores(heard, detect(heard).smoothed)
    assert score.precision >= 0.95
    assert score.recall_uncovered >= 0.9  # below 0.8 with fixed transition probabilities


def test_transition_rates_are_forgotten() -> None:
    rates = TransitionRates(2)
    usual = rates.transition()
    for k in range(400):
        rates.learn(np.zeros(2, np.float32), np.array([k % 4 == 0, 0], np.float32))
    learned = rates.transition()
    assert learned[0, 2, 0] > 50 * usual[0, 2, 0]  # the interferer starts on the first PRB
    assert learned[0, 2, 1] == pytest.approx(usual[0, 2, 1], rel=0.01)
    for _ in range(20_000):
        rates.learn(np.zeros(2, np.float32), np.zeros(2, np.float32))
    np.testing.assert_allclose(rates.transition(), usual, rtol=0.01)


@given(st.data())
def test_transition_probabilities_are_valid(data: st.DataObject) -> None:
    rates = TransitionRates(3)
    shape = (data.draw(st.integers(0, 40)), 2, 3)
    for ue, interferer in data.draw(arrays.arrays(np.float32, shape, elements=st.floats(0, 1, width=32))):
        rates.learn(ue, interferer)
    transition = rates.transition()
    assert transition.shape == (4, 4, 3)
    assert (transition > 0).all()
    np.testing.assert_allclose(transition.sum(axis=1), 1, rtol=1e-5)
