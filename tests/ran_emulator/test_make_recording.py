import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import sigmf
from hypothesis import given, settings
from hypothesis import strategies as st
from twinlink_ran_emulator import make_recording
from twinlink_ran_emulator.channel import _TAPS, TappedDelayLine
from twinlink_ran_emulator.interferer import Episode, draw_episodes
from twinlink_ran_emulator.recording import Recording, read
from twinlink_ran_emulator.scheduler import MAX_LOAD, schedule

from .conftest import SMALL

COMMITTED = Path(__file__).parents[2] / "examples/recordings/uplink-106prb.sigmf-meta"


def test_two_processes_with_different_thread_counts_make_the_same_octets(tmp_path: Path) -> None:
    for name, threads in (("a", "1"), ("b", "4")):
        command = [sys.executable, "-m", "twinlink_ran_emulator.make_recording", "--out", str(tmp_path / name)]
        environment = os.environ | {"OPENBLAS_NUM_THREADS": threads, "OMP_NUM_THREADS": threads}
        subprocess.run([*command, "--n-prbs", "51", "--seconds", "1.5", "--seed", "3"], check=True, env=environment)
    assert (tmp_path / "a.sigmf-data").read_bytes() == (tmp_path / "b.sigmf-data").read_bytes()
    assert (tmp_path / "a.sigmf-meta").read_bytes() == (tmp_path / "b.sigmf-meta").read_bytes()


def test_another_seed_makes_another_recording() -> None:
    first, second = (make_recording.make(make_recording.Settings(n_prbs=24, seconds=0.2, seed=seed)) for seed in (1, 2))
    assert not np.array_equal(first.samples, second.samples)


def test_another_interferer_leaves_everything_else_as_it_was() -> None:
    def make(*episodes: Episode) -> make_recording.Made:
        return make_recording.make(make_recording.Settings(n_prbs=24, seconds=0.5, seed=1, episodes=episodes))

    with_interferer, without = make(Episode(0.1, 0.2, 5, 3, 20)), make()
    differ = (with_interferer.samples != without.samples).any(axis=2).reshape(50, 24, 12).any(axis=2)
    assert differ[10:30, 5:8].all()
    differ[10:30, 5:8] = False
    assert not differ.any()


def test_the_committed_recording_is_what_the_script_makes_and_small(tmp_path: Path) -> None:
    made = make_recording.write(tmp_path / "again", make_recording.Settings())
    committed = [COMMITTED, COMMITTED.with_suffix(".sigmf-data")]
    assert committed[0].read_bytes() == (tmp_path / "again.sigmf-meta").read_bytes()
    assert committed[1].read_bytes() == (tmp_path / "again.sigmf-data").read_bytes()
    assert sum(path.stat().st_size for path in committed) <= 3_000_000
    assert made.clipped == 0


def test_the_committed_recording_tells_the_story_of_the_demo() -> None:
    recording = read(COMMITTED)
    assert (recording.grid.n_prbs, recording.grid.scs_hz, recording.period_ns) == (106, 30e3, 10_000_000)
    first, second, *_ = [area for area in recording.areas if area.label == "interferer"]
    assert (first.first_record, first.end_record) == (100, 300)
    assert first.first_prb > 75, "the dApp library's spectrum dApp never blocks PRBs 0 to 75"
    assert second.end_prb <= first.first_prb or second.first_prb >= first.end_prb


def test_sigmf_library_accepts_and_reads_it(small_path: Path, small: Recording) -> None:
    handle = sigmf.fromfile(str(small_path))
    handle.validate()
    read_by_sigmf = np.asarray(handle.read_samples())
    assert np.allclose(read_by_sigmf.imag * 32768, small.samples[..., 1].reshape(-1))
    assert len(handle.get_annotations()) == len(small.areas)


def test_truth_matches_the_power_in_every_cell(small: Recording) -> None:
    power = np.square(small.samples, dtype=float).sum(axis=2).reshape(small.grid.n_records, small.grid.n_prbs, 12)
    cells_db = 10 * np.log10(power.mean(axis=2))
    noise_db = 20 * np.log10(SMALL.noise_rms_lsb)
    free = ~small.ue & (small.interferer == 0)
    assert abs(10 * np.log10(power[free].mean()) - noise_db) < 0.1
    assert cells_db[free].max() < noise_db + 5
    for number, episode in enumerate(SMALL.episodes or (), 1):
        alone = (small.interferer == number) & ~small.ue
        assert abs(10 * np.log10(power[alone].mean()) - noise_db - episode.inr_db) < 0.5
    assert 10 * np.log10(power[small.ue & (small.interferer == 0)].mean()) > noise_db + 8


def test_every_prb_is_free_now_and_then() -> None:
    for n_prbs in (51, 106, 273):
        made = make_recording.make(make_recording.Settings(n_prbs=n_prbs, seconds=5.5)) if n_prbs == 106 else None
        grants = schedule(np.random.Generator(np.random.PCG64(5)), 5, 550, n_prbs)
        held = np.zeros((550, n_prbs), bool)
        for grant in grants:
            held[grant.first_record : grant.end_record, grant.first_prb : grant.first_prb + grant.n_prbs] = True
        assert (~held).mean(axis=0).min() > 0.1
        assert 0.2 < held.mean() < MAX_LOAD
        assert made is None or {area.label for area in made.areas} == {"ue", "interferer"}


@settings(max_examples=30)
@given(seed=st.integers(0, 2**32), n_ues=st.integers(1, 8), n_prbs=st.integers(8, 273))
def test_grants_lie_in_the_carrier_and_never_overlap(seed: int, n_ues: int, n_prbs: int) -> None:
    count = np.zeros((120, n_prbs), int)
    for grant in schedule(np.random.Generator(np.random.PCG64(seed)), n_ues, 120, n_prbs):
        assert 0 <= grant.first_record < grant.end_record <= 120
        assert 0 <= grant.first_prb < grant.first_prb + grant.n_prbs <= n_prbs
        count[grant.first_record : grant.end_record, grant.first_prb : grant.first_prb + grant.n_prbs] += 1
    assert count.max(initial=0) <= 1


@given(seed=st.integers(0, 2**32), seconds=st.floats(1, 30), n_prbs=st.integers(20, 273))
def test_drawn_episodes_fit_the_recording(seed: int, seconds: float, n_prbs: int) -> None:
    for episode in draw_episodes(np.random.Generator(np.random.PCG64(seed)), seconds, n_prbs, 30):
        assert 0 <= episode.first_prb < episode.first_prb + episode.n_prbs <= n_prbs
        assert episode.inr_db >= 6


@pytest.mark.parametrize("profile", ["TDL-A", "TDL-C"])
def test_channel_has_unit_power_and_the_delay_spread_asked_for(profile: str) -> None:
    rng = np.random.Generator(np.random.PCG64(1))
    lines = [TappedDelayLine.draw(rng, profile, 100e-9, 50.0) for _ in range(40)]  # type: ignore[arg-type]
    weights = lines[0].amplitudes ** 2
    mean = (weights * lines[0].delays_s).sum()
    spread = np.sqrt((weights * (lines[0].delays_s - mean) ** 2).sum())
    assert spread == pytest.approx(100e-9, rel=0.02), "TR 38.901 normalises its tables to an RMS delay spread of 1"
    gains = np.stack([line.response(np.arange(50) * 0.01, np.arange(0, 38e6, 1e6)) for line in lines])
    assert np.mean(np.abs(gains) ** 2) == pytest.approx(1, rel=0.1)
    assert len(_TAPS[profile]) == {"TDL-A": 23, "TDL-C": 24}[profile]  # type: ignore[index]


def test_channel_without_doppler_stands_still() -> None:
    line = TappedDelayLine.draw(np.random.Generator(np.random.PCG64(1)), "TDL-A", 100e-9, 0.0)
    gains = line.response(np.array([0.0, 5.0]), np.arange(0, 1e6, 1e5))
    assert np.allclose(gains[0], gains[1])


def test_what_does_not_fit_int16_is_clipped_and_counted(tmp_path: Path) -> None:
    made = make_recording.write(
        tmp_path / "loud", make_recording.Settings(n_prbs=24, seconds=0.1, episodes=(Episode(0, 0.1, 0, 2, 85),))
    )
    assert made.clipped > 0
    assert (made.samples.min(), made.samples.max()) == (-32768, 32767)
    assert json.loads((tmp_path / "loud.sigmf-meta").read_text())["global"]["twinlink:clipped_values"] == made.clipped


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--n-prbs", "274"], 3),
        (["--episode", "1:2:3"], 3),
        (["--episode", "0:1:100:7:20"], 3),
        (["--seconds", "0"], 3),
        (["--nonsense"], 3),
        ([], 2),
    ],
)
def test_command_line_refuses_in_words(arguments: list[str], code: int, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--out", "/nonexistent/directory/x", "--seconds", "0.1", *arguments]
    assert make_recording.main(arguments) == code
    assert "Traceback" not in capsys.readouterr().err
