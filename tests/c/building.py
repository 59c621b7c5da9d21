"""Builds what is in `c/` with the compilers that are found; ``python -m tests.c.building`` is part of `make lint`."""

import os
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "c"
STRICT = ("-std=c11", "-Wall", "-Wextra", "-Wshadow", "-Wconversion", "-Wsign-conversion", "-Werror", "-pedantic")
SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer", "-g")
NO_COMPILER = "no C compiler is found: install gcc or clang, or name one in CC"


@cache
def compilers() -> list[str]:
    """The C compilers that are found: that of the environment's CC, or gcc and clang."""
    named = [os.environ["CC"]] if "CC" in os.environ else ["gcc", "clang"]
    return [one for one in named if shutil.which(one)] or [one for one in ("cc",) if shutil.which(one)]


WHOLE = os.environ.get("TWINLINK_TEST_WHOLE") == "1"
whole = pytest.mark.skipif(not WHOLE, reason="a minute more of faults and compilers: set TWINLINK_TEST_WHOLE=1")
SEEDS = 6 if WHOLE else 2  # of paths that lose messages
needs_compiler = pytest.mark.skipif(not compilers(), reason=NO_COMPILER)


@cache
def has_libzmq() -> bool:
    """Whether programs with libzmq can be compiled."""
    if not compilers():
        return False
    command = [compilers()[0], "-fsyntax-only", "-xc", "-"]
    done = subprocess.run(command, input="#include <zmq.h>\n", text=True, capture_output=True, check=False)
    return done.returncode == 0


def build(
    target: Path,
    *sources: Path,
    options: tuple[str, ...] = ("-O2",),
    libraries: tuple[str, ...] = (),
    compiler: str | None = None,
) -> Path:
    """Compiles and links these files, warnings as errors; raises AssertionError with what the compiler says."""
    command = [compiler or compilers()[0], *STRICT, *options, f"-I{SOURCES}", "-o", str(target), *map(str, sources)]
    command += libraries
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return target


def compiled(directory: Path) -> list[Path]:
    """The C files that can be compiled here."""
    return sorted(one for one in directory.glob("*.c") if has_libzmq() or "zeromq" not in one.name)


def main() -> int:
    """Compiles each file of `c/`, and checks those of its tests; where there is no compiler it says so."""
    if not compilers():
        print(f"c/ is not compiled: {NO_COMPILER}", file=sys.stderr)
        return 0
    with tempfile.TemporaryDirectory() as directory:
        try:
            for compiler in compilers():
                for source in compiled(SOURCES):
                    build(Path(directory, "object.o"), source, options=("-O2", "-c"), compiler=compiler)
            for source in compiled(Path(__file__).parent):  # what optimisers find, they find above
                build(Path(directory, "object.o"), source, options=("-fsyntax-only", "-Wno-unused-function"))
        except AssertionError as error:
            print(error, file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
