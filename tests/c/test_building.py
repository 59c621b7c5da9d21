"""Without a C compiler the rest of `make lint` goes on."""

import subprocess
import sys
from pathlib import Path

from tests.c.building import NO_COMPILER, ROOT


def test_what_cannot_be_compiled_is_named(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.c.building"],
        cwd=ROOT, env={"PATH": str(tmp_path)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0
    assert done.stderr == f"c/ is not compiled: {NO_COMPILER}\n"
