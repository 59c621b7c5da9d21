"""Without a C compiler the rest of `make lint` goes on."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.c.building import NO_COMPILER, ROOT, SOURCES

CPLUSPLUS = [one for one in ("g++", "clang++") if shutil.which(one)]


def test_what_cannot_be_compiled_is_named(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.c.building"],
        cwd=ROOT, env={"PATH": str(tmp_path)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0
    assert done.stderr == f"c/ is not compiled: {NO_COMPILER}\n"


@pytest.mark.skipif(not CPLUSPLUS, reason="no C++ compiler is found: install g++ or clang++")
def test_a_gnb_in_cplusplus_includes_the_headers() -> None:
    text = "".join(f'#include "{one.name}"\n' for one in sorted(SOURCES.glob("*.h")))
    strict = ("-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Wconversion", "-Wold-style-cast", "-Werror")
    for compiler in CPLUSPLUS:
        command = [compiler, "-std=c++11", *strict, f"-I{SOURCES}", "-fsyntax-only", "-xc++", "-"]
        done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
