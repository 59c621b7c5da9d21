"""Scenes, features and the split: what a seed makes, and that nothing of the future or of another part leaks."""

import sys
from pathlib import Path

import numpy as np
import pytest

import twinlink
from examples.train import evaluate, fit, labelled, report, scenes, training
from examples.train.features import FeatureTrack
from examples.train.labelled import CLASSES, GAP, Run
from examples.train.runs import Session
from tests.train.models import by_power
from twinlink.spectrum import Spectrum
from twinlink.testing import free_endpoint, patience

N_PRBS = 24


@pytest.fixture(scope="module")
def scene() -> scenes.Scene:
    return scenes.make(3, 2.0, 24)


@pytest.fixture(scope="module")
def run(scene: scenes.Scene) -> Run:
    classes = np.zeros((200, 24), np.int8)
    for area in scene.areas:
        kind = CLASSES.index("ue") if area.label == "ue" else CLASSES.index("noise")
        classes[area.first_record : area.end_record, area.first_prb : area.end_prb] = kind
    return Run(3, scene.samples, classes, classes == 1, 0)


@pytest.fixture(scope="module")
def short(run: Run) -> Run:
    """The half of it with most interference."""
    half = slice(100, 200)
    return Run(3, run.samples[half], run.classes[half], run.ue[half], 0)


def test_a_seed_makes_the_same_scene_and_another_seed_another(scene: scenes.Scene) -> None:
    again, other = scenes.make(3, 2.0, 24), scenes.make(4, 2.0, 24)
    assert (again.samples == scene.samples).all()
    assert again.areas == scene.areas
    assert (other.samples != scene.samples).any()


def test_scenes_in_a_row_keep_their_truth(tmp_path: Path) -> None:
    made = [scenes.make(seed, 1.0, 24) for seed in (3, 4, 5)]
    from twinlink_ran_emulator import recording

    found = recording.read(scenes.write(tmp_path / "row", made))
    assert (found.samples == np.concatenate([one.samples for one in made])).all()
    moved = [(area.first_record + 100 * k, area.first_prb, area.comment) for k in range(3) for area in made[k].areas]
    assert sorted(moved) == sorted((area.first_record, area.first_prb, area.comment) for area in found.areas)


def test_each_kind_stands_in_its_annotations() -> None:
    kinds = {scenes.kind_of(area) for seed in range(12) for area in scenes.make(seed, 1.5, 24).areas
             if area.label == "interferer"}  # fmt: skip
    assert kinds == set(scenes.KINDS)


def test_features_know_nothing_of_the_future_and_do_not_depend_on_how_records_come(scene: scenes.Scene) -> None:
    whole = FeatureTrack(24).add(scene.samples)
    track = FeatureTrack(24)
    parts = np.concatenate([track.add(scene.samples[k : k + 7]) for k in range(0, 70, 7)])
    assert (parts == whole[:70]).all()
    assert np.isfinite(whole).all()


def test_training_and_validation_do_not_touch(run: Run) -> None:
    prepared = fit.prepare(run, 1)
    features = fit.features_of(run)
    assert len(prepared.held) == len(run.samples) - run.cut - GAP
    assert (prepared.held == features[run.cut + GAP :].astype(np.float16)).all()
    before = {row.tobytes() for row in features[: run.cut].reshape(-1, features.shape[-1])}
    assert all(row.tobytes() in before for row in prepared.cells[::50])


def test_no_test_run_is_a_training_run() -> None:
    plans = [training.plan(seed, thin) for seed in (0, 1, 2) for thin in (False, True)]
    trained = {seed for one in plans for seed in one.train_seeds}
    assert not trained & {seed for one in plans for seed in one.test_seeds}


def test_a_score_counts_what_the_truth_says(short: Run) -> None:
    never, about = (
        evaluate.score(short, by_power(threshold=50.0)),
        {"runs": {"train": 7, "test": 2}, "missing_records": 0},
    )
    assert never.counts["model"].missed == never.counts["model"].interfered == int(short.interfered.sum())
    assert never.counts["model"].false == 0
    always = evaluate.score(short, by_power(threshold=-50.0)).counts["model"]
    assert (always.missed, always.false) == (0, always.cells - always.interfered)
    found = report.figures([never, never], 1, about)
    assert found["compared"][report.ANSWERS]["model"]["f1"] == 0
    assert sum(sum(row.values()) for row in found["confusion"].values()) == 2 * short.classes.size
    page = report.markdown(found, report.times([never]) | {"seconds": 1})
    assert page.count("| model: ") == 3
    assert "same records of 2 runs; 7 others" in page
    assert report.digest(found) == report.digest(report.figures([never, never], 1, about))


def test_a_margin_is_that_of_whole_runs_and_has_its_sign(short: Run) -> None:
    perfect = evaluate.score(short, by_power())
    perfect.counts = {name: evaluate.Counts(0 if "model" in name else 50, 0, 100, 1000) for name in perfect.counts}
    found = report.figures([perfect, perfect], 1, {})["compared"][report.ANSWERS]
    assert found["margin"] == pytest.approx(1 - 2 / 3, abs=1e-3)
    assert found["interval"] == [found["margin"]] * 2
    assert found["beats"]


def test_without_scikit_learn_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.neural_network", None)
    with pytest.raises(fit.ScikitLearnMissing, match=r"twinlink\[train\]"):
        fit.check_installed()


def test_the_truth_is_joined_by_the_place_in_the_scene_also_beside_gaps(tmp_path: Path) -> None:
    made = [scenes.make(seed, 1.0, N_PRBS) for seed in (3, 4)]
    session = Session((3, 4), 100, tmp_path / "run.mcap", scenes.write(tmp_path / "row", made))
    sent = [place for place in range(200) if place not in (5, 6, 150)]
    endpoint = free_endpoint()
    with (
        twinlink.open("tcp", listen=endpoint, node="twin-1") as twin,
        twinlink.open("tcp", connect=endpoint, node="gnb-1") as gnb,
    ):
        gnb.wait_ready(timeout=patience())
        with twin.record(session.recording, flows=["spectrum"]):
            twin.receiver("spectrum", handler=lambda message: None)
            sender = gnb.sender("spectrum")
            for place in sent:
                samples = made[place // 100].samples[place % 100]
                at = {"timestamp": place + 1}
                sender.send(Spectrum(samples, N_PRBS, 30_000, 3.6e9, observed_ns=place, e3=at).encode())
            sender.flush(timeout=patience())
    first, second = labelled.read(session)
    assert (first.seed, first.missing, second.seed, second.missing) == (3, 2, 4, 1)
    assert (first.samples == np.delete(made[0].samples, (5, 6), axis=0)).all()
    assert (second.samples == np.delete(made[1].samples, 50, axis=0)).all()
    for found, scene, gaps in ((first, made[0], (5, 6)), (second, made[1], (50,))):
        there = np.zeros((100, N_PRBS), bool)
        for area in scene.areas:
            if area.label == "interferer":
                there[area.first_record : area.end_record, area.first_prb : area.end_prb] = True
        assert (found.interfered == np.delete(there, gaps, axis=0)).all()
