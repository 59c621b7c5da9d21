"""Scenes, features and the split: what a seed makes, and that nothing of the future or of another part leaks."""

import sys
from pathlib import Path

import numpy as np
import pytest

from examples.train import evaluate, fit, labelled, report, scenes, training
from examples.train.features import FeatureTrack
from examples.train.labelled import CLASSES, GAP, Run
from tests.train.models import by_power


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


def test_a_score_counts_what_the_truth_says(run: Run) -> None:
    never = evaluate.score(run, by_power(threshold=50.0))
    assert never.counts["model"].missed == never.counts["model"].interfered == int(run.interfered.sum())
    assert never.counts["model"].false == 0
    always = evaluate.score(run, by_power(threshold=-50.0)).counts["model"]
    assert (always.missed, always.false) == (0, always.cells - always.interfered)
    found = report.figures([never, never], 1, {})
    assert found["compared"][report.ANSWERS]["model"]["f1"] == 0
    assert sum(sum(row.values()) for row in found["confusion"].values()) == 2 * run.classes.size
    assert report.markdown(found, report.times([never]) | {"seconds": 1}).count("| model: ") == 3
    assert report.digest(found) == report.digest(report.figures([never, never], 1, {}))


def test_a_margin_is_that_of_whole_runs_and_has_its_sign(run: Run) -> None:
    perfect = evaluate.score(run, by_power())
    perfect.counts = {name: evaluate.Counts(0 if "model" in name else 50, 0, 100, 1000) for name in perfect.counts}
    found = report.figures([perfect, perfect], 1, {})["compared"][report.ANSWERS]
    assert found["margin"] == pytest.approx(1 - 2 / 3, abs=1e-3)
    assert found["interval"] == [found["margin"]] * 2
    assert found["beats"]


def test_without_scikit_learn_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.neural_network", None)
    with pytest.raises(fit.ScikitLearnMissing, match=r"twinlink\[train\]"):
        fit.check_installed()


def test_the_labels_of_a_recording_are_joined_by_the_place_in_the_scene() -> None:
    assert labelled.CLASSES[labelled.FIRST_INTERFERER :] == ("noise", "tone", "sweep")
