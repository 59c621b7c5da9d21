from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from twinlink_ran_emulator.prb_block import PrbBlocker
from twinlink_ran_emulator.recording import Recording
from twinlink_ran_emulator.truth import Area, Grid, mark

from .conftest import SMALL

Array = np.ndarray[Any, Any]
NOISE = SMALL.noise_rms_lsb**2


def powers(samples: Array) -> Array:
    power: Array = 2 * np.square(samples, dtype=float).reshape(-1, 24).mean(axis=1)
    return power


def play(recording: Recording, blocked: Array) -> Array:
    blocker = PrbBlocker(recording)
    return np.stack([blocker.apply(record, blocked) for record in range(recording.grid.n_records)])


def test_without_a_block_nothing_changes(small: Recording) -> None:
    assert np.array_equal(play(small, np.zeros(24, bool)), small.samples)


def test_a_block_changes_only_blocked_prbs_that_carry_a_ue(small: Recording) -> None:
    blocked = np.zeros(24, bool)
    blocked[[3, 7, 8, 20]] = True
    played = play(small, blocked)
    changed = (played != small.samples).any(axis=2).reshape(-1, 24, 12).any(axis=2)
    assert np.array_equal(changed, small.ue & blocked)


def test_blocked_prbs_carry_interferer_and_noise_but_no_ue(small: Recording) -> None:
    played = play(small, np.ones(24, bool)).reshape(-1, 24, 12, 2)
    power = 2 * np.square(played, dtype=float).mean(axis=(2, 3))
    assert power[small.interferer == 0].mean() == pytest.approx(NOISE, rel=0.05)
    assert power[small.interferer == 0].max() < 4.5 * NOISE
    for number, episode in enumerate(SMALL.episodes or (), 1):
        level = NOISE * (1 + 10 ** (episode.inr_db / 10))
        assert power[small.interferer == number].mean() == pytest.approx(level, rel=0.1)


def test_noise_under_a_long_block_is_not_frozen(small: Recording) -> None:
    played = play(small, np.ones(24, bool))
    assert all((first != second).any() for first, second in pairwise(played))


def test_the_same_block_always_gives_the_same_samples(small: Recording) -> None:
    assert np.array_equal(play(small, np.ones(24, bool)), play(small, np.ones(24, bool)))


def recording_of(samples: Array, *areas: Area, like: Recording) -> Recording:
    n_records, n_prbs = len(samples), samples.shape[1] // 12
    return replace(
        like,
        grid=Grid(n_records, n_prbs, 30e3, 3.6e9),
        samples=samples,
        areas=areas,
        ue=mark(areas, "ue", n_records, n_prbs) > 0,
        interferer=mark(areas, "interferer", n_records, n_prbs),
    )


def gaussian(power: float, shape: tuple[int, ...], seed: int) -> Array:
    samples: Array = np.rint(np.random.default_rng(seed).normal(0, np.sqrt(power / 2), (*shape, 2))).astype(np.int16)
    return samples


def test_a_prb_that_a_ue_never_leaves_gets_the_noise_of_its_neighbours(small: Recording) -> None:
    samples = gaussian(16, (40, 5 * 12), 1)
    samples[:, 24:36] = gaussian(4000, (40, 12), 2)
    recording = recording_of(samples, Area("ue", 0, 40, 2, 3), like=small)
    assert PrbBlocker(recording).synthetic == 0
    assert powers(play(recording, np.ones(5, bool))).max() < 5 * 16


def test_an_interferer_that_never_shows_without_a_ue_keeps_its_estimated_power(small: Recording) -> None:
    samples = gaussian(16, (100, 4 * 12), 1)
    samples[:, 12:24] += gaussian(2000, (100, 12), 2)
    samples[40:80, 12:24] += gaussian(6000, (40, 12), 3)
    areas = Area("ue", 0, 100, 1, 2), Area("interferer", 40, 80, 1, 2)
    recording = recording_of(samples, *areas, like=small)
    assert PrbBlocker(recording).synthetic == 40
    played = powers(play(recording, np.ones(4, bool))).reshape(100, 4)
    assert played[40:80, 1].mean() == pytest.approx(6000, rel=0.25)
    assert played[:40, 1].mean() == pytest.approx(16, rel=0.25)


def test_a_recording_that_is_nothing_but_ue_gets_noise(small: Recording) -> None:
    samples = gaussian(5000, (50, 24), 1)
    samples[:, :12] = gaussian(50, (50, 12), 2)
    recording = recording_of(samples, Area("ue", 0, 50, 0, 2), like=small)
    assert PrbBlocker(recording).synthetic == 100
    assert powers(play(recording, np.ones(2, bool))).mean() < 60
