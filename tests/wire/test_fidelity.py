"""The score of a window, and which windows are matched; no I/O."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from twinlink.digest import WINDOW_NS, Digest, Observed, Settings, Window
from twinlink.fidelity import GRACE_NS, SPECTRUM_ZERO_DB, Matching, WindowScore, age_part, compare
from twinlink.kpm import Kpm, Source

BEGIN_NS = 1_800_000_000 * WINDOW_NS
PERIOD_NS = WINDOW_NS // 100
N_PRBS = 40
SETTINGS = Settings(N_PRBS, 0, N_PRBS, 30_000, 3.6e9)
AGE_NS = 5_000_000
RNG = np.random.default_rng(57)
# Noise, and UEs 15 dB above it that are on half of the time, on some PRBs
LEVEL = np.where(np.arange(N_PRBS) < 15, 1000.0, 32.0)
ON = RNG.random((1000, N_PRBS)) < 0.5
POWER = (RNG.gamma(12, 1 / 12, (1000, N_PRBS)) * np.where(ON, LEVEL, 32.0)).astype(np.float32)
Rows = NDArray[np.float32]


def record(k: int, power: Rows = POWER) -> Observed:
    return Observed(BEGIN_NS + k * PERIOD_NS, 1, power[k : k + 1], 0)


def digest_of(second: int, missed: int = 0) -> Digest:
    window = Window(BEGIN_NS + second * WINDOW_NS)
    for k in range(100 * second, 100 * second + 100):
        window.count(record(k).observed_ns)
        window.sample(POWER[k : k + 1])
    return window.digest(SETTINGS, missed)


def scores(kept: NDArray[np.bool_], power: Rows = POWER, seconds: int = 10, age_ns: int = AGE_NS) -> list[WindowScore]:
    """Of a run in which only some records come; each digest comes when its second has ended."""
    matching, found = Matching(), []
    for k in range(100 * seconds):
        if kept[k]:
            found += matching.records(record(k, power), record(k).observed_ns + age_ns)
        if k % 100 == 99:
            found += matching.digest(digest_of(k // 100), record(k + 1).observed_ns)
    return found


ALL = np.ones(1000, bool)


def test_without_distortion_every_part_is_1_and_the_first_window_is_left_out() -> None:
    found = scores(ALL)
    assert [one.window_ns for one in found] == [BEGIN_NS + k * WINDOW_NS for k in range(1, 10)]
    assert {one.score for one in found} == {1.0}
    assert found[0].parts == {"completeness": 1, "occupancy": 1, "spectrum": 1, "age": 1, "kpm": None}


@pytest.mark.parametrize("share", [0.02, 0.1, 0.3, 0.6])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_dropped_records_lower_completeness_by_their_share(share: float, seed: int) -> None:
    kept = np.random.default_rng(seed).random(1000) >= share
    found = scores(kept)
    assert [one.records for one in found] == [
        int(kept[at : at + 100].sum()) for at in range(100, 100 * len(found) + 1, 100)
    ]
    assert all(one.completeness == one.records / 100 for one in found)
    assert all(
        one.score == min(one.parts[name] or 0 for name in ("completeness", "spectrum", "occupancy")) for one in found
    )


@pytest.mark.parametrize("gain_db", [-3.0, -1.0, 0.5, 2.0, 9.0])
def test_a_gain_error_is_the_spectral_distance(gain_db: float) -> None:
    power = (POWER * 10 ** (gain_db / 10)).astype(np.float32)
    for one in scores(ALL, power, 4):
        assert one.spectral_distance_db == pytest.approx(abs(gain_db), abs=0.05)
        assert one.parts["spectrum"] == pytest.approx(max(0, 1 - abs(gain_db) / SPECTRUM_ZERO_DB), abs=0.01)


def test_shifted_prbs_differ_in_occupancy_and_spectrum_by_what_the_digest_says() -> None:
    shifted = np.roll(POWER, 7, axis=1)
    for second, one in enumerate(scores(ALL, shifted, 4), 1):
        digest = digest_of(second)
        share, level = digest.occupied / digest.sampled, 10 * np.log10(digest.power + 1 / 6)
        assert one.occupancy_error == pytest.approx(np.abs(share - np.roll(share, 7)).mean(), abs=1e-6)
        assert one.spectral_distance_db == pytest.approx(np.sqrt(((level - np.roll(level, 7)) ** 2).mean()), abs=1e-4)
        assert one.score < 0.5


@pytest.mark.parametrize(("age_s", "part"), [(-5, 1), (0.5, 1), (0.8, 0.8), (1.25, 0.5), (2, 0), (9, 0)])
def test_age(age_s: float, part: float) -> None:
    assert age_part(age_s * 1e9) == pytest.approx(part)
    found = scores(ALL, seconds=3, age_ns=round(age_s * 1e9))
    assert [one.parts["age"] for one in found] == pytest.approx([part] * 2)
    assert found[0].worst == ("age" if part < 1 else "completeness")


def test_records_that_the_exporter_could_not_read_are_not_here() -> None:
    matching = Matching()
    for k in range(201):
        matching.records(record(k), None)
    (one,) = matching.digest(digest_of(1, missed=25), 0)
    assert (one.completeness, one.expected, one.parts["age"]) == (0.8, 125, None)


def test_a_window_waits_for_its_records_but_not_without_end() -> None:
    matching = Matching()
    matching.records(record(0), None)
    received_ns = BEGIN_NS + 2 * WINDOW_NS
    assert matching.digest(digest_of(1), received_ns) == []
    assert matching.digest(digest_of(2), received_ns + GRACE_NS - 1) == []
    (one,) = matching.digest(digest_of(3), received_ns + GRACE_NS)
    assert (one.window_ns, one.score, one.parts["occupancy"], one.age_ns) == (BEGIN_NS + WINDOW_NS, 0, None, None)


def test_late_records_count_until_their_window_is_compared() -> None:
    matching = Matching()
    matching.records(record(0), None)
    assert matching.digest(digest_of(1), 0) == []
    found = [one for k in range(100, 200) for one in matching.records(record(k), record(k).observed_ns + WINDOW_NS)]
    assert [(one.completeness, one.age_ns) for one in found] == [(1.0, WINDOW_NS)]
    assert matching.records(record(150), None) == []


def test_an_answer_is_not_compared() -> None:
    matching = Matching()
    for k in range(201):
        matching.records(record(k), None)
    assert matching.digest(replace(digest_of(1), answer=True), 0) == []
    assert [one.score for one in matching.digest(digest_of(1), 0)] == [1.0]


def test_when_the_exporters_clock_was_set_back_an_answer_begins_the_windows_anew() -> None:
    matching = Matching()
    matching.records(record(900), None)
    for k in range(50):
        matching.records(record(k), None)
    assert matching.digest(digest_of(0), 0) == []
    matching.digest(replace(digest_of(0), answer=True), 0)
    for k in range(50, 301):
        matching.records(record(k), None)
    assert [one.score for second in (1, 2) for one in matching.digest(digest_of(second), 0)] == [1.0, 1.0]


def test_it_holds_few_windows_whatever_comes() -> None:
    matching = Matching()
    for k in range(1000):
        matching.records(Observed(BEGIN_NS + k * WINDOW_NS, 1, POWER[:1], 0), None)
    assert len(matching._windows) <= 8


def test_windows_in_which_nothing_was_heard_have_no_score() -> None:
    window = Window(BEGIN_NS)
    assert compare(window.digest(SETTINGS), window, N_PRBS, 0, None) is None
    window.count(BEGIN_NS)
    silent = compare(Window(BEGIN_NS).digest(SETTINGS), window, N_PRBS, 0, AGE_NS)
    assert silent is not None
    assert silent.score == 0


def test_other_prbs_than_the_exporter_states_are_another_picture() -> None:
    matching = Matching()
    for k in range(201):
        matching.records(Observed(BEGIN_NS + k * PERIOD_NS, 1, POWER[k : k + 1, :30], 0), None)
    (one,) = matching.digest(digest_of(1), 0)
    assert (one.occupancy_error, one.spectral_distance_db, one.score, one.worst) == (1, None, 0, "occupancy")


def kpm_of(second: int, used: int, period_ns: int = WINDOW_NS, slots: int = 100, n_prbs: int = N_PRBS) -> Kpm:
    begin_ns = BEGIN_NS + second * WINDOW_NS
    return Kpm(Source.GNB, n_prbs, slots, 0, begin_ns, period_ns, used, slots * n_prbs)


def scores_with(
    kpms: list[Kpm], late: bool = False, used: int = 10, settings: Settings = SETTINGS
) -> list[WindowScore]:
    """Of four seconds in which the twin finds ``used`` PRBs used in each record."""
    matching, found = Matching(7), []
    for k in range(400):
        found += matching.records(record(k), None)
        matching.used(record(k).observed_ns, used, N_PRBS)
        if k % 100 == 99:
            second = k // 100
            due = [one for one in kpms if one.begin_ns == BEGIN_NS + (second - 1) * WINDOW_NS]
            for one in due if not late else ():
                matching.kpm(one)
            found += matching.digest(replace(digest_of(second), settings=settings), 0)
            for one in due if late else ():
                matching.kpm(one)
    return found


def test_the_kpm_part_is_the_difference_of_the_usages_of_the_window_before() -> None:
    found = scores_with([kpm_of(1, 1000), kpm_of(2, 1200)])
    assert [one.parts["kpm"] for one in found] == [None, 1.0, pytest.approx(0.95)]
    assert found[2].score == pytest.approx(0.95)
    assert (found[2].heard, found[2].worst) == (1.0, "kpm")
    one = found[2].as_dict()
    assert one["kpm"] == {"usage": 0.25, "used": 1000, "available": 4000, "slots": 100, "missing": 0}
    assert one["kpm_gnb"]["usage"] == 0.3
    assert found[2].kpm == Kpm(Source.TWIN, N_PRBS, 100, 0, BEGIN_NS + 2 * WINDOW_NS, WINDOW_NS, 1000, 4000, 7)


@pytest.mark.parametrize(
    "kpms",
    [
        [],
        [kpm_of(0, 4000)],  # the first second may not be whole
        [kpm_of(1, 960, slots=24)],
        [kpm_of(1, 4000, period_ns=10 * WINDOW_NS)],
        [kpm_of(1, 4000, n_prbs=106)],
        [replace(kpm_of(1, 4000), missing=50)],
    ],
    ids=["none", "first", "few slots", "another period", "another carrier", "missing slots"],
)
def test_a_kpm_that_says_nothing_of_this_window_is_not_known(kpms: list[Kpm]) -> None:
    assert [(one.parts["kpm"], one.score) for one in scores_with(kpms)] == [(None, 1.0)] * 3


def test_a_late_kpm_is_not_known_and_so_is_that_of_a_part_of_the_carrier() -> None:
    assert [one.parts["kpm"] for one in scores_with([kpm_of(1, 4000)], late=True)] == [None] * 3
    part = Settings(106, 0, N_PRBS, 30_000, 3.6e9)
    assert [one.parts["kpm"] for one in scores_with([kpm_of(1, 4000)], settings=part)] == [None] * 3


def test_kpms_of_few_windows_are_held() -> None:
    matching = Matching()
    for k in range(1000):
        matching.records(Observed(BEGIN_NS + k * WINDOW_NS, 1, POWER[:1], 0), None)
        matching.used(BEGIN_NS + k * WINDOW_NS, 1, N_PRBS)
        matching.kpm(kpm_of(k, 1))
    assert max(len(matching._kpms), len(matching._usages)) <= 8
