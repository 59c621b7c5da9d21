"""The programs as a user starts them: what they refuse, and, for `make thorough`, the whole command."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from examples.train import signed_model
from tests.train.models import by_power
from twinlink.identity import Identity
from twinlink.testing import patience

ROOT = Path(__file__).parents[2]


def python_m(module: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", module, *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=patience(600), check=False)


def test_a_twin_starts_with_no_model_that_was_altered(tmp_path: Path) -> None:
    twin = Identity.create(tmp_path / "twin.id", "twin-1", "twin")
    signed_model.write(tmp_path / "m.tlm", by_power().encode(), twin)
    octets = bytearray((tmp_path / "m.tlm").read_bytes())
    octets[-1] ^= 1
    (tmp_path / "m.tlm").write_bytes(octets)
    made = python_m("examples.train.dapp", "--model", str(tmp_path / "m.tlm"), "--identity", str(twin.folder))
    assert made.returncode == 2
    assert "is refused (signature)" in made.stderr
    assert "Traceback" not in made.stderr


def test_a_folder_that_holds_something_is_not_written_to(tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("x")
    made = python_m("examples.train", "--out", str(tmp_path))
    assert made.returncode == 3
    assert "name another --out" in made.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


@pytest.mark.thorough
def test_a_seed_gives_the_same_figures_and_the_path_ends_on_air(tmp_path: Path) -> None:
    first = python_m("examples.train", "--out", str(tmp_path / "first"), "--thin")
    second = python_m("examples.train", "--out", str(tmp_path / "second"), "--thin", "--no-loop")
    assert {first.returncode, second.returncode} <= {0, 1}, first.stderr + second.stderr  # so few runs have no margin
    figures = [json.loads((tmp_path / name / "figures.json").read_text()) for name in ("first", "second")]
    assert figures[0]["set"]["missing_records"] == figures[1]["set"]["missing_records"] == 0
    assert figures[0] == figures[1]
    loops = json.loads((tmp_path / "first" / "loop.json").read_text())
    assert "(signature)" in loops["altered"]
    assert [loops[name]["policy"]["stage"] for name in ("poisoned in shadow", "poisoned on air")] == ["rolled back"] * 2
