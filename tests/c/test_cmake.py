"""A gNB's CMake: nothing is built unless it asks for it; then there are a library and a file for pkg-config."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.c.building import SOURCES, needs_compiler

pytestmark = [
    needs_compiler,
    pytest.mark.skipif(shutil.which("cmake") is None, reason="cmake is not found: install cmake"),
]
PROJECT = f"""cmake_minimum_required(VERSION 3.16)
project(gnb C)
add_subdirectory({SOURCES} twinlink)
if(TARGET twinlink)
  add_executable(gnb gnb.c)
  target_link_libraries(gnb PRIVATE twinlink)
endif()
"""
PROGRAM = """#include "twinlink.h"
int main(void) { return twinlink_memory_octets(NULL) == 0 ? 0 : 1; }
"""


def run(*command: object, **environment: str) -> str:
    done = subprocess.run(
        [str(one) for one in command], capture_output=True, text=True, check=False, env={**os.environ, **environment}
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "CMakeLists.txt").write_text(PROJECT)
    (tmp_path / "gnb.c").write_text(PROGRAM)
    return tmp_path


def test_without_the_option_nothing_is_built(project: Path) -> None:
    run("cmake", "-S", project, "-B", project / "build")
    run("cmake", "--build", project / "build")
    assert not list((project / "build").rglob("*twinlink*.[ao]"))


def test_with_the_option_a_program_links_it(project: Path) -> None:
    build, prefix = project / "build", project / "installed"
    run(
        "cmake",
        "-S",
        project,
        "-B",
        build,
        "-DENABLE_TWINLINK=ON",
        "-DTWINLINK_EXAMPLE=ON",
        "-DCMAKE_INSTALL_LIBDIR=lib",
    )
    run("cmake", "--build", build)
    run(build / "gnb")
    run("cmake", "--install", build, "--prefix", prefix)
    assert (prefix / "include" / "twinlink.h").exists()
    if shutil.which("pkg-config") is None:
        pytest.skip("pkg-config is not found: install pkgconf")
    flags = run(
        "pkg-config", "--define-variable", f"prefix={prefix}", "--cflags", "--libs", "twinlink",
        PKG_CONFIG_PATH=str(prefix / "lib" / "pkgconfig"),
    ).split()  # fmt: skip
    run("cc", project / "gnb.c", *flags, "-o", project / "program")
    run(project / "program")
