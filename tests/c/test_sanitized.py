"""The C node under sanitizers: mutated frames, and the slot thread beside the link thread."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.c.building import ROOT, SANITIZERS, WHOLE, build, compilers, needs_compiler

pytestmark = needs_compiler
FRAMES = int(os.environ.get("TWINLINK_TEST_FUZZ", "300000" if WHOLE else "50000"))  # 10,000,000 take 15 s
THREADS = ("-fsanitize=thread", "-g", "-O1", "-pthread")


def built(tmp_path: Path, name: str, options: tuple[str, ...], compiler: str) -> Path:
    """Skips where the compiler's sanitizers are not installed."""
    probe = ["-fsanitize=thread"] if options is THREADS else [SANITIZERS[0]]
    empty = subprocess.run(
        [compiler, *probe, "-xc", "-", "-o", tmp_path / "empty"],
        input="int main(void) { return 0; }\n", text=True, capture_output=True, check=False,
    )  # fmt: skip
    if empty.returncode:
        pytest.skip(f"{compiler} has no sanitizers: install libclang-rt-dev, or gcc's libasan, libubsan and libtsan")
    return build(tmp_path / name, ROOT / "tests" / "c" / f"{name}.c", options=options, compiler=compiler)


def result(*command: object) -> dict[str, Any]:
    done = subprocess.run([str(one) for one in command], capture_output=True, text=True, check=False, timeout=500)
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


@pytest.mark.parametrize("compiler", compilers() if WHOLE else compilers()[:1])
def test_mutated_frames_do_no_harm(tmp_path: Path, compiler: str) -> None:
    fuzz = built(tmp_path, "fuzz", ("-O1", "-Wno-unused-function", *SANITIZERS), compiler)
    vectors = sorted((ROOT / "docs" / "vectors").glob("*.bin"))
    found = result(fuzz, FRAMES, 1, *vectors)
    assert found["frames"] == FRAMES
    for name in ("malformed", "acknowledged", "lost", "retransmitted", "received", "gaps"):
        assert found[name] > 0, name
    assert found["steps_with_a_peer"] > FRAMES // 16  # the mutants met a node with peers


@pytest.mark.parametrize("compiler", compilers() if WHOLE else compilers()[:1])
def test_the_two_threads_have_no_race(tmp_path: Path, compiler: str) -> None:
    threads = built(tmp_path, "threads", THREADS, compiler)
    found = result(threads, 30_000)
    assert found["offered"] == 30_000
    assert found["arrived"] + found["lost"] == 30_000
    assert found["arrived"] > 0
    assert found["wrong"] == 0
