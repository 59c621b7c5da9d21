"""Builds what is in `c/` with the compilers that are found."""

import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "c"
STRICT = ("-std=c11", "-Wall", "-Wextra", "-Wconversion", "-Werror", "-pedantic")
SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer", "-g")
NO_COMPILER = "no C compiler is found: install gcc or clang, or name one in CC"


@cache
def compilers() -> list[str]:
    """The C compilers that are found: that of the environment's CC, or gcc and clang."""
    named = [os.environ["CC"]] if "CC" in os.environ else ["gcc", "clang"]
    return [one for one in named if shutil.which(one)] or [one for one in ("cc",) if shutil.which(one)]


needs_compiler = pytest.mark.skipif(not compilers(), reason=NO_COMPILER)


def build(target: Path, *sources: Path, options: tuple[str, ...] = ("-O2",), compiler: str | None = None) -> Path:
    """Compiles and links these files, warnings as errors; raises AssertionError with what the compiler says."""
    command = [compiler or compilers()[0], *STRICT, *options, f"-I{SOURCES}", "-o", str(target), *map(str, sources)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return target
