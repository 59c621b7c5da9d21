"""Transform-precoded UEs are told from noise, and other single carriers from them."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray
from twinlink_replay.evidence import Evidence, weigh
from twinlink_replay.power import prb_features, subcarrier_power
from twinlink_replay.precoded import Precoded

from tests.replay.evaluate import detect, scores
from tests.replay.uplink_scenes import Heard, Interferer, Scene, complex_normal, hear, symbols

FEW = Scene(51, dwell=20, modulations=(2, 4, 4, 2, 4, 4, 4, -2), widths=(0.1, 0.3), delay_spread_ns=30)
N_PRBS, NOISE = 20, 40.0  # LSB^2


def heard_as(cells: NDArray[np.complex128]) -> tuple[NDArray[np.int16], Evidence]:
    """Samples of cells, shape ``(records, subcarriers)``, and what is known of them without the inverse DFT."""
    noisy = (cells + complex_normal(np.random.default_rng(9), *cells.shape)) * np.sqrt(NOISE)
    samples = np.rint(np.stack([noisy.real, noisy.imag], axis=-1)).astype(np.int16)
    return samples, weigh(prb_features(subcarrier_power(samples), samples), NOISE)


def on(places: list[tuple[int, int]], bits: int, delay: float = 0.3) -> NDArray[np.complex128]:
    """Ten records with 13 dB on each of some runs of PRBs."""
    rng = np.random.default_rng(4)
    cells = np.zeros((10 * len(places), 12 * N_PRBS), complex)
    for k, (first, end) in enumerate(places):
        count = 12 * (end - first)
        late = np.exp(-2j * np.pi * delay * np.arange(count) / count)
        for record in range(10 * k, 10 * k + 10):
            cells[record, 12 * first : 12 * end] = 4.5 * symbols(rng, bits, count) * late
    return cells


def says(cells: NDArray[np.complex128], where: slice) -> float:
    """Nats for a UE against noise, over all records, of a PRB."""
    precoded, (samples, evidence) = Precoded(N_PRBS), heard_as(cells)
    told = precoded.tell(evidence, precoded.add(samples, evidence))
    return float(told.structure[:, where].sum(axis=0).mean())


@pytest.mark.parametrize("bits", [-2, -4, -6])
@pytest.mark.parametrize("delay", [0.0, 0.5])
def test_precoded_symbols_are_no_noise(bits: int, delay: float) -> None:
    assert says(on([(5, 13)], bits, delay), slice(5, 13)) > 5


def test_noise_is_still_noise_and_ofdm_is_still_ofdm() -> None:
    assert says(on([(5, 13)], 0), slice(5, 13)) < -5
    assert says(on([(5, 13)], 4), slice(5, 13)) > 5


@pytest.mark.parametrize(
    ("places", "bits", "here"),
    [
        pytest.param([(2, 6), (12, 18)], -2, True, id="precoded at two places"),
        pytest.param([(0, 6), (5, 9), (9, 12)], -2, True, id="precoded, side by side, on more than a quarter"),
        pytest.param([(3, 6), (3, 6), (3, 7)], -2, False, id="a single carrier at one place"),
        pytest.param([(2, 6), (12, 18), (6, 9)], 0, False, id="noise"),
        pytest.param([(2, 6), (12, 18), (6, 9)], 4, False, id="others"),
    ],
)
def test_precoded_ues_are_here_where_single_carriers_move(places: list[tuple[int, int]], bits: int, here: bool) -> None:
    precoded = Precoded(N_PRBS)
    precoded.add(*heard_as(on(places, bits)))
    assert precoded.here is here


@pytest.mark.parametrize("seed", [1, 2, 3, 4])
def test_a_few_precoded_ues_among_others_are_not_interference(seed: int) -> None:
    assert detect(hear(FEW, seed)).settled.mean() < 0.002


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_noise_is_found_beside_a_few_precoded_ues(seed: int) -> None:
    scene = replace(FEW, interferers=(Interferer(150, 400, 30, 35, 12),))
    score = scores(heard := hear(scene, seed), detect(heard).settled)
    assert score.precision >= 0.95
    assert score.recall_uncovered >= 0.95


def test_a_single_carrier_among_ofdm_is_interference() -> None:
    heard = hear(Scene(51, modulations=(2, 4), n_ues=3), 5)
    rng, where = np.random.default_rng(6), slice(150, 400)
    carrier = np.stack([symbols(rng, -2, 60) for _ in range(250)])  # noise has 4 LSB
    samples, truth = heard.samples.astype(float), np.zeros_like(heard.ue)
    samples[where, 360:420] += 20 * np.stack([carrier.real, carrier.imag], axis=-1)
    truth[where, 30:35] = True
    mixed = Heard(np.rint(samples).astype(np.int16), truth, truth, heard.ue)
    score = scores(mixed, detect(mixed).settled)
    assert score.precision >= 0.95
    assert score.recall_uncovered >= 0.95
