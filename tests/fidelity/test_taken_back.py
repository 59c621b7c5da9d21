"""A gNB that acknowledges a block and goes on as before: the twin takes the block back, and says why."""

import json
from pathlib import Path
from typing import Any

import pytest
from twinlink_ran_emulator.make_recording import main as make_recording
from twinlink_replay.twin.controller import BAR_NS
from twinlink_replay.twin.supervision import EFFECT_NS
from twinlink_results.recorded import Recordings

from tests.fidelity.running import Running
from twinlink.testing import wait_until

SCENE = "--n-prbs=24", "--seconds=3", "--ues=8", "--episode=0.5:2.5:8:6:12", "--seed=5"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a run in which a block was taken back, and has ended."""
    folder = tmp_path_factory.mktemp("run")
    assert make_recording(["--out", str(folder / "scene"), *SCENE]) == 0
    emulator = "--recording", str(folder / "scene.sigmf-meta")
    with Running(folder, "zeromq", 57, ["--n-prbs=24"], emulator, "tests.fidelity.deaf_emulator") as run:
        wait_until(lambda: _without_effect(run.events("decision")))
        run.end()
    return folder


def _without_effect(decisions: list[dict[str, Any]]) -> list[dict[str, Any]]:
    found = [one for one in decisions if "taken back" in one["stages"]]
    return [one for one in found if one["stages"]["taken back"]["note"].startswith("no effect")]


def events(folder: Path, name: str, process: str = "twin") -> list[dict[str, Any]]:
    lines = map(json.loads, (folder / f"{process}.jsonl").read_text().splitlines())
    return [event for event in lines if event["event"] == name]


def test_the_story_says_so_with_its_times(folder: Path) -> None:
    stages = _without_effect(events(folder, "decision"))[0]["stages"]
    assert stages.keys() >= {"sent", "installed", "on air", "taken back", "cleared"}
    # Of a list that only lets PRBs go, as the model refuses the one that was due, nothing was seen or tried.
    assert ("seen" in stages) == (stages["tried"]["time_ns"] is not None)
    order = [stages[name]["time_ns"] for name in ("seen", "installed", "on air", "cleared") if name in stages]
    assert order == sorted(order)
    assert stages["sent"]["time_ns"] < stages["taken back"]["time_ns"]  # of the other clock
    assert stages["taken back"]["time_ns"] - stages["sent"]["time_ns"] >= EFFECT_NS
    assert "effect" not in stages or stages["effect"]["time_ns"] < stages["cleared"]["time_ns"] - EFFECT_NS
    assert "UE traffic" in stages["taken back"]["note"]


def test_the_exporter_and_the_gnb_have_ended_it(folder: Path) -> None:
    one = _without_effect(events(folder, "decision"))[0]
    ended = next(event for event in events(folder, "block-cleared", "gnb") if event["id"] == one["id"])
    assert ended["reason"] == "requested"
    assert ended["cleared_ns"] == one["stages"]["cleared"]["time_ns"]
    assert [] in [event["prbs"] for event in events(folder, "control", "emulator")]


def test_its_prbs_are_left_alone_for_a_while(folder: Path) -> None:
    one = _without_effect(events(folder, "decision"))[0]
    at_ns, prbs = one["stages"]["taken back"]["time_ns"], set(one["prbs"])
    soon = [event for event in events(folder, "proposed") if at_ns < event["time_ns"] < at_ns + BAR_NS]
    assert not any(prbs & set(event["prbs"]) for event in soon)


def test_the_recordings_of_both_sides_tell_the_same_story(folder: Path) -> None:
    logged = {one["id"]: one["stages"] for one in events(folder, "decision")}
    for name in ("twin", "gnb"):
        told = Recordings([folder / f"{name}.mcap"]).decisions.as_list()
        assert {one["id"]: one["stages"] for one in told if one["id"] in logged} == logged
    (summary,) = events(folder, "summary")
    assert sum(summary["decisions"].values()) == len(logged)
    assert summary["taken_back"] == len(events(folder, "taken-back"))
