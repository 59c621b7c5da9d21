"""What is foreseen over 200 seeded episodes, against what the emulator then does (docs/what-if.md has the figures)."""

import json

import pytest

from .foresight import main


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
