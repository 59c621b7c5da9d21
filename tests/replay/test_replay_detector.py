"""The detector on scenes with known truth; `evaluate.py` runs many more."""

from dataclasses import replace

import numpy as np
import pytest
from twinlink_replay.detection.detector import Detector
from twinlink_replay.detection.features import prb_features, subcarrier_power

from tests.replay.evaluate import detect, scores
from tests.replay.holdout import INTERFERERS, MOVING, Tally, plain
from tests.replay.uplink_scenes import Interferer, Scene, hear

NARROW = (Interferer(150, 400, 60, 68, 10),)
SEVERAL = (
    Interferer(60, 220, 10, 13, 7),
    Interferer(150, 420, 50, 56, 15, "fading"),
    Interferer(300, 560, 90, 91, 9, "tone"),
    Interferer(250, 500, 75, 77, 12, "drift"),
)
WIDE = (Interferer(100, 450, 30, 66, 12),)


@pytest.mark.parametrize(
    "scene",
    [
        pytest.param(Scene(interferers=NARROW), id="narrow"),
        pytest.param(Scene(interferers=SEVERAL), id="several"),
        pytest.param(Scene(interferers=WIDE), id="wide"),
        pytest.param(Scene(n_ues=0, interferers=(Interferer(100, 130, 3, 5, 6),)), id="weak and short without UEs"),
        pytest.param(Scene(n_prbs=51, noise_lsb=1.0, interferers=(Interferer(100, 400, 5, 9, 15),)), id="1 LSB"),
        pytest.param(Scene(273, 400, 150.0, interferers=(Interferer(100, 300, 200, 220, 10),)), id="273 PRBs, 150 LSB"),
    ],
)
def test_precision_and_recall(scene: Scene) -> None:
    heard = hear(scene, 21)
    score = scores(heard, detect(heard).smoothed)
    assert score.precision >= 0.95
    assert score.recall_uncovered >= 0.95
    assert score.recall >= 0.9  # where a UE covers an interferer's first or last records, no method can tell


def test_holdout_recordings() -> None:
    tally = Tally()
    for seed, interferer in enumerate(INTERFERERS):
        heard = plain(7000 + seed, MOVING[seed % len(MOVING)], interferer)
        tally.add(heard, detect(heard, batch=16).smoothed)
    assert tally.precision >= 0.95
    assert tally.recall >= 0.95


@pytest.mark.thorough
@pytest.mark.parametrize("seed", [9104, 9110, 9119])
def test_noise_below_a_ue_that_never_leaves_is_found(seed: int) -> None:
    tally, heard = Tally(), plain(seed, "QPSK, never move", "noise")
    tally.add(heard, detect(heard, batch=16).smoothed)
    assert tally.right


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("seed", "interferer"),
    [(9206, "noise in two places"), (9225, "noise, pulses of 0.1 to 0.3 s"), (9227, "none")],
)
def test_noise_is_told_from_gaussian_ues_that_hold_their_grants(seed: int, interferer: str) -> None:
    tally, heard = Tally(), plain(seed, "Gaussian, grants of 0.1 to 0.6 s", interferer)
    tally.add(heard, detect(heard, batch=16).smoothed)
    assert tally.right


@pytest.mark.parametrize("n_prbs", [pytest.param(51, marks=pytest.mark.thorough), 106])
def test_lo_leakage_at_the_carriers_centre_is_no_tone(n_prbs: int) -> None:
    tally = Tally()
    for seed in (5, 6, 7, 8):
        heard = hear(Scene(n_prbs=n_prbs, n_records=400, interferers=(Interferer(100, 300, 10, 14, 10),)), seed)
        centre = heard.samples[:, 6 * n_prbs]
        centre += np.int16(8 * centre.std())
        found = detect(heard, batch=16).smoothed
        assert not found[:, n_prbs // 2].any()
        assert scores(heard, found).recall_uncovered >= 0.95
        tally.add(heard, found)
    assert tally.precision >= 0.95


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.thorough)])
def test_a_ue_that_never_leaves_is_not_interference(seed: int) -> None:
    heard = hear(Scene(static=True, n_ues=3, widths=(0.1, 0.2)), seed)
    found = detect(heard)
    assert found.smoothed.mean() < 0.002
    assert found.filtered.mean() < 0.005


@pytest.mark.thorough
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_ue_that_never_leaves_and_changes_its_modulation_is_not_interference(seed: int) -> None:
    ues = Scene(static=True, n_ues=3, widths=(0.15, 0.3), modulations=(2, 4, 6), adapting=True, coherence=60)
    assert detect(hear(ues, seed)).smoothed.mean() < 0.002
    heard = hear(replace(ues, interferers=NARROW), seed)
    assert scores(heard, detect(heard).smoothed).precision >= 0.9


def test_skirts_beside_an_interferers_prbs_are_not_reported() -> None:
    levels = {30: 4, 31: 12, 32: 12, 33: 4, 60: 3.5, 75: 6.5}
    interferers = tuple(Interferer(100, 400, k, k + 1, db) for k, db in levels.items())
    heard = hear(Scene(n_ues=2, interferers=interferers), 5)
    found = detect(heard).smoothed[100:400]
    share = {k: found[:, k].mean() for k in levels}
    assert min(share[k] for k, db in levels.items() if db > 6) > 0.9
    assert max(share[k] for k, db in levels.items() if db < 6) < 0.3


@pytest.mark.thorough
def test_an_interferer_whose_power_falls_off_slowly_is_not_put_on_the_rest_of_the_carrier() -> None:
    slope = [(k, 22 - 2 * abs(k - 35)) for k in range(22, 49)]  # dB; no step from one PRB to the next
    pulses = tuple(Interferer(n, n + 60, k, k + 1, db) for n in (100, 250, 400) for k, db in slope)
    heard = hear(Scene(51, n_ues=0, interferers=pulses), 6)
    score = scores(heard, detect(heard).smoothed)
    assert score.precision >= 0.95
    assert score.recall >= 0.95


@pytest.mark.parametrize("kind", ["qpsk", "qam16", "constant"])
@pytest.mark.parametrize("seed", [3, pytest.param(4, marks=pytest.mark.thorough)])
def test_an_interferer_that_looks_like_a_ue_is_known_by_its_level(kind: str, seed: int) -> None:
    heard = hear(Scene(coherence=5, interferers=(Interferer(150, 450, 60, 68, 12, kind),)), seed)
    score = scores(heard, detect(heard).smoothed)
    assert score.precision >= 0.9
    assert score.recall_uncovered >= 0.7  # the first of it has smoothed before it is known


@pytest.mark.thorough
def test_an_interferer_that_looks_like_a_ue_is_known_by_staying() -> None:
    scene = Scene(n_ues=3, dwell=8, pause=5, flat=True, interferers=(Interferer(150, 450, 60, 68, 12, "qpsk"),))
    heard = hear(scene, 3)
    score = scores(heard, detect(heard).smoothed)
    assert score.precision >= 0.95
    assert score.recall >= 0.95


def test_a_known_interferer_is_found_in_short_bursts() -> None:
    again = tuple(Interferer(k, end, 60, 68, 12, "qpsk") for k, end in ((60, 95), (150, 400), (450, 480)))
    heard = hear(Scene(coherence=5, interferers=again), 4)
    found = detect(heard).smoothed
    assert found[60:95, 60:68].mean() >= 0.9
    assert found[450:480, 60:68].mean() >= 0.9
    assert scores(heard, found).precision >= 0.95


@pytest.mark.thorough
def test_a_tone_that_sweeps_below_a_ue_is_not_put_on_all_of_its_prbs() -> None:
    sweep = tuple(Interferer(100 + 10 * k, 110 + 10 * k, 10 + k, 11 + k, 15, "tone") for k in range(30))
    heard = hear(Scene(n_prbs=51, interferers=sweep), 7)
    assert scores(heard, detect(heard).smoothed).precision >= 0.75  # of 30 PRBs one at a time, 4 UEs on top


@pytest.mark.thorough
def test_where_ues_do_not_fade_an_interferer_is_known_by_staying_longer() -> None:
    scene = Scene(n_ues=3, dwell=8, pause=5, flat=True, coherence=1e9)
    heard = hear(replace(scene, interferers=(Interferer(100, 500, 60, 68, 12, "qpsk"),)), 3)
    score = scores(heard, detect(heard).smoothed)
    assert score.precision >= 0.9
    assert score.recall >= 0.8


@pytest.mark.thorough
@pytest.mark.parametrize("seed", [1, 2])
def test_a_lone_static_ue_that_fades_is_not_interference(seed: int) -> None:
    heard = hear(Scene(n_ues=3, dwell=8, pause=5, coherence=5), seed)
    lone = hear(Scene(n_ues=1, static=True, coherence=5, widths=(0.1, 0.1)), seed + 10)
    samples, where = heard.samples.copy(), lone.ue[0]
    bins = np.repeat(where, 12)
    samples[:, bins] = lone.samples[:, bins]
    assert detect(replace(heard, samples=samples)).smoothed[:, where].mean() < 0.02


@pytest.mark.thorough
def test_a_structured_interferer_does_not_make_gaussian_ues_look_structured() -> None:
    where = (Interferer(150, 450, 30, 38, 12, "qpsk"),)
    heard = hear(Scene(n_prbs=51, modulations=(0,), dwell=8, interferers=where), 5)
    assert scores(heard, detect(heard).smoothed).precision >= 0.9


def test_gaussian_ues_are_not_interference() -> None:
    heard = hear(Scene(n_prbs=51, modulations=(0,), interferers=(Interferer(150, 450, 30, 38, 10),)), 5)
    found = detect(heard).smoothed
    score = scores(heard, found)
    assert score.precision >= 0.95
    assert score.recall >= 0.95
    assert found[:, ~heard.interfered.any(axis=0)].mean() < 0.001


def test_a_tone_is_told_from_gaussian_ues() -> None:
    where = (Interferer(150, 250, 30, 31, 10, "tone"), Interferer(300, 400, 40, 42, 10, "drift"))
    heard = hear(Scene(n_prbs=51, modulations=(0,), dwell=8, interferers=where), 6)
    score = scores(heard, detect(heard).smoothed)
    assert score.precision >= 0.95
    assert score.recall_uncovered >= 0.95


@pytest.mark.thorough
def test_gaussian_ues_are_known_from_a_few_grants() -> None:
    scene = Scene(n_records=400, n_ues=3, dwell=60, modulations=(0,), flat=True, coherence=1e9, widths=(0.05, 0.15))
    tone = (Interferer(100, 300, 30, 31, 12, "tone"),)
    for seed in (1, 2):
        heard = hear(replace(scene, interferers=tone), seed)
        assert scores(heard, detect(heard).smoothed).precision >= 0.9


@pytest.mark.thorough
@pytest.mark.parametrize("bits", [2, 6])
def test_a_tone_is_seen_below_a_stronger_ue_and_its_end_too(bits: int) -> None:
    tones = tuple(Interferer(k, k + 100, 40, 41, 9, "tone") for k in (150, 350))
    ue = Scene(n_ues=1, static=True, widths=(0.9, 0.9), max_load=0.9, snr_db=(14, 14), flat=True, coherence=1e9)
    for seed in (3, 5):  # the UE's SNR is 12 to 13 dB
        heard = hear(replace(ue, modulations=(bits,), interferers=tones), seed)
        assert heard.ue[:, 40].all()
        score = scores(heard, detect(heard).smoothed)
        assert score.precision >= 0.95
        assert score.recall >= 0.95


@pytest.mark.thorough
def test_ues_that_never_leave_nor_fade_are_not_interference_however_long() -> None:
    ues = Scene(51, 1800, static=True, n_ues=3, flat=True, coherence=1e9, modulations=(2,))
    heard = hear(replace(ues, interferers=(Interferer(500, 1200, 14, 18, 10),)), 7)
    score = scores(heard, detect(heard, batch=32).smoothed)
    assert score.precision >= 0.95
    assert score.recall_uncovered >= 0.9


def test_the_filtered_answer_finds_interference_and_its_end_within_records() -> None:
    heard = hear(Scene(n_ues=0, interferers=(Interferer(100, 200, 40, 48, 10),)), 7)
    prompt = detect(heard).filtered[:, 40:48]
    assert prompt[110:200].mean() > 0.95
    assert prompt[210:].mean() < 0.05


def test_edges_are_put_where_the_change_was() -> None:
    heard = hear(Scene(n_ues=0, interferers=(Interferer(150, 400, 60, 68, 10),)), 8)
    rows = np.flatnonzero(detect(heard).smoothed[:, 60:68].mean(axis=1) > 0.5)
    assert abs(int(rows[0]) - 150) <= 1
    assert abs(int(rows[-1]) - 399) <= 1


def test_an_obeyed_block_leaves_the_interferer_visible_until_it_ends() -> None:
    heard = hear(Scene(interferers=(Interferer(100, 400, 60, 68, 12),)), 9)
    alone = hear(Scene(n_ues=0, interferers=(Interferer(100, 400, 60, 68, 12),)), 10)
    samples = heard.samples.copy()
    samples[130:, 60 * 12 : 68 * 12] = alone.samples[130:, 60 * 12 : 68 * 12]  # no UE on these PRBs from record 130 on
    found = detect(replace(heard, samples=samples))
    assert found.smoothed[130:400, 60:68].mean() > 0.99
    assert found.smoothed[402:, 60:68].mean() < 0.01
    assert found.filtered[415:, 60:68].mean() < 0.01


def test_silence_is_free_and_full_scale_does_not_overflow() -> None:
    detector = Detector(3)
    silent = prb_features(subcarrier_power(np.zeros((40, 36, 2), np.int16)))
    assert not detector.add(silent).occupied.any()
    samples = hear(Scene(n_prbs=3, n_records=80, n_ues=0), 12).samples
    samples[40:, 12:] = -32768
    answer = detector.add(prb_features(subcarrier_power(samples)))
    np.testing.assert_array_equal(answer.occupied[50:].all(axis=0), [False, True, True])
    assert not answer.interfered.any()  # constant amplitude looks like a UE


@pytest.mark.thorough
def test_short_bursts_of_noise_are_found_though_grants_change_with_every_record() -> None:
    bursts = tuple(Interferer(k, k + 8, 30, 34, 10) for k in range(20, 590, 25))
    heard = hear(Scene(51, dwell=1, fixed_dwell=True, pause=0, n_ues=3, modulations=(2, 4), interferers=bursts), 1)
    score = scores(heard, detect(heard).smoothed)
    assert score.precision >= 0.95
    assert score.recall_uncovered >= 0.95
    assert score.recall >= 0.85  # UEs of 16QAM hide the bursts at times


@pytest.mark.parametrize(("n_prbs", "seed"), [(24, 2), (51, 1)])
def test_noise_that_hops_is_found_also_where_it_shares_prbs_with_an_earlier_hop(n_prbs: int, seed: int) -> None:
    hops = tuple(Interferer(60 * k, 60 * k + 60, at, at + 3, 15) for k, at in enumerate((4, 6, 16, 15, 9, 3, 7, 5), 1))
    heard = hear(Scene(n_prbs, interferers=hops), seed)
    assert scores(heard, detect(heard, 32).smoothed).recall_uncovered >= 0.95


def test_noise_below_a_ue_is_seen_by_how_rough_it_makes_the_ue() -> None:
    bursts = tuple(Interferer(k, k + 30, 40, 48, 9) for k in range(40, 590, 70))
    ue = Scene(n_ues=1, dwell=40, pause=30, widths=(0.8, 0.8), max_load=0.8, snr_db=(20, 20), flat=True, coherence=1e9)
    heard = hear(replace(ue, modulations=(2,), interferers=bursts), 2)
    assert (heard.ue & heard.interfered).sum() > 0.3 * heard.interfered.sum()
    score = scores(heard, detect(heard).smoothed)
    assert score.precision >= 0.95
    assert score.recall >= 0.95


@pytest.mark.thorough
def test_noise_in_bursts_is_told_from_gaussian_ues_by_coming_back_to_its_prbs() -> None:
    bursts = tuple(Interferer(k, k + 15, 30, 35, 14) for k in range(30, 590, 50))
    ues = Scene(51, dwell=1, fixed_dwell=True, pause=0, n_ues=3, modulations=(0,), widths=(0.05, 0.25))
    heard = hear(replace(ues, interferers=bursts), 3)
    score = scores(heard, detect(heard).smoothed)
    assert score.precision >= 0.9
    assert score.recall >= 0.9


@pytest.mark.thorough
@pytest.mark.parametrize(("dwell", "seed"), [(1, 6), (6, 7)])
def test_one_burst_of_noise_is_told_from_gaussian_ues_by_lasting_longer(dwell: int, seed: int) -> None:
    scene = Scene(51, dwell=dwell, fixed_dwell=True, pause=0, n_ues=3, modulations=(0,), widths=(0.05, 0.25))
    heard = hear(replace(scene, flat=True, coherence=1e9, interferers=(Interferer(200, 320, 30, 35, 12),)), seed)
    score = scores(heard, detect(heard).smoothed)
    assert score.precision >= 0.95
    assert score.recall >= 0.95
    assert detect(hear(scene, seed)).smoothed.mean() < 0.0005


@pytest.mark.thorough
def test_static_gaussian_transmissions_are_ues_and_later_ones_are_not() -> None:
    scene = Scene(51, static=True, n_ues=2, flat=True, coherence=1e9, modulations=(0,), widths=(0.1, 0.3))
    for seed in (1, 2, 3):
        assert detect(hear(scene, seed)).smoothed.mean() < 0.0005
        ue = hear(scene, seed).ue[0]
        first = next(k for k in range(46) if not ue[max(k - 1, 0) : k + 6].any())
        heard = hear(replace(scene, interferers=(Interferer(200, 450, first, first + 5, 12),)), seed)
        score = scores(heard, detect(heard).smoothed)
        assert score.precision >= 0.95
        assert score.recall >= 0.95


@pytest.mark.thorough
def test_an_interferer_present_from_the_start_is_not_taken_for_several_ues() -> None:
    heard = hear(Scene(n_ues=0, interferers=(Interferer(0, 600, 31, 53, 8),)), 100)
    assert scores(heard, detect(heard).smoothed).recall >= 0.95


@pytest.mark.thorough
def test_a_tone_in_bursts_ends_though_ues_come_at_once() -> None:
    tones = tuple(Interferer(k, k + 10, 40, 41, 20, "tone") for k in range(100, 580, 20))
    ues = Scene(dwell=1, fixed_dwell=True, pause=0, n_ues=3, modulations=(2,), snr_db=(5, 15), widths=(0.05, 0.3))
    for seed in (1, 2, 3):
        heard = hear(replace(ues, flat=True, coherence=1e9, interferers=tones), seed)
        score = scores(heard, detect(heard).smoothed)
        assert score.precision >= 0.95
        assert score.recall >= 0.95


@pytest.mark.parametrize("subcarriers", [1, 7])
def test_a_tone_that_sweeps_is_followed_from_prb_to_prb(subcarriers: int) -> None:
    heard = hear(Scene(n_records=300, modulations=(2,)), 4)
    samples, truth = heard.samples.copy(), np.zeros_like(heard.ue)
    for k in range(100, 250):
        place = 200 + (k - 100) * subcarriers % 600
        samples[k, place, 0] += 60  # noise has 4 LSB: 17 dB over a PRB
        truth[k, place // 12] = True
    found = detect(replace(heard, samples=samples)).smoothed
    assert (found & truth).sum() >= 0.75 * truth.sum()  # UEs are on top at times
    assert (found & truth).sum() >= 0.9 * found.sum()


PACKED = Scene(packed=True, n_ues=3, pause=0, flat=True, coherence=1e9, widths=(0.05, 0.4))


@pytest.mark.thorough
@pytest.mark.parametrize("bits", [(2, 4), (0,)])
def test_prbs_that_are_never_free_because_ues_get_the_lowest_ones_are_not_interference(bits: tuple[int, ...]) -> None:
    heard = hear(replace(PACKED, modulations=bits), 5)
    assert heard.ue[:, :4].all()
    assert detect(heard).smoothed.mean() < 0.0005
    heard = hear(replace(PACKED, modulations=bits, interferers=(Interferer(150, 450, 80, 88, 12),)), 5)
    score = scores(heard, detect(heard).smoothed)
    assert score.precision >= 0.95
    assert score.recall >= 0.95


@pytest.mark.thorough
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_noise_on_most_of_the_carrier_does_not_make_ues_rough(seed: int) -> None:
    jammed = (Interferer(110, 190, 0, 36, 11), Interferer(250, 350, 0, 36, 11))
    heard = hear(Scene(51, modulations=(2, 4), n_ues=3, interferers=jammed), seed)
    score = scores(heard, detect(heard).smoothed)
    assert score.precision >= 0.95
    assert score.recall_uncovered >= 0.95


def test_a_single_peak_of_noise_is_no_tone() -> None:
    heard = hear(Scene(273, 600, n_ues=0, interferers=(Interferer(0, 600, 95, 106, 10),)), 12)
    assert scores(heard, detect(heard).smoothed).recall >= 0.95


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("scene", "recall"),
    [
        pytest.param(
            Scene(static=True, n_ues=3, interferers=(Interferer(150, 400, 63, 71, 10, "qpsk"),)),
            0.95,
            id="three of them",
        ),
        pytest.param(
            Scene(delay_spread_ns=500, coherence=60, interferers=(Interferer(150, 400, 31, 66, 10, "constant"),)),
            0.65,  # the first of it has smoothed before it is known
            id="most of them in turn",
        ),
    ],
)
def test_an_interferer_that_looks_like_a_ue_has_its_edges_though_ues_hide_some_of_its_prbs(
    scene: Scene, recall: float
) -> None:
    heard = hear(scene, 100)
    score = scores(heard, detect(heard).smoothed)
    assert score.precision >= 0.9
    assert score.recall >= recall
