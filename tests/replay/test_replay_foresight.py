"""What is foreseen over 200 seeded episodes, against what the emulator then does (docs/what-if.md has the figures)."""

import json

import pytest
from twinlink_ran_emulator.make_recording import Settings, make
from twinlink_ran_emulator.truth import mark

from .foresight import main, truth


def test_the_truth_that_is_heard_is_that_of_the_recording() -> None:
    settings = Settings(seconds=5.0, n_ues=3, seed=10_004)
    areas, shape = make(settings).areas, (settings.grid.n_records, settings.n_prbs)
    for label, rows in zip(("ue", "interferer"), truth(settings), strict=True):
        assert ((mark(areas, label, *shape) > 0) == rows).all()


@pytest.mark.thorough
def test_occupancy_and_blocked_capacity_are_foreseen_to_4_per_cent_of_the_carrier(
    capsys: pytest.CaptureFixture[str],
) -> None:
    main(["--episodes", "200", "--heard", "truth", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert found["episodes"] == 200
    for arm, figure in (("nothing", "used"), ("block", "used"), ("block", "blocked")):
        assert found["errors"][arm][figure]["error"] < 4
        assert abs(found["errors"][arm][figure]["bias"]) < 1
