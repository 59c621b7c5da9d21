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
FINDING = """cmake_minimum_required(VERSION 3.16)
project(gnb C)
find_package(twinlink 1 REQUIRED)
add_executable(gnb gnb.c)
target_link_libraries(gnb PRIVATE twinlink::twinlink)
"""
PROGRAM = """#include "twinlink.h"
int main(void)
{
  twinlink *link;
  return twinlink_init(&link, NULL, 0, NULL, 0) == TWINLINK_WRONG_ABI ? 0 : 1;
}
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
    build = project / "build"
    run("cmake", "-S", project, "-B", build, "-DENABLE_TWINLINK=ON", "-DTWINLINK_EXAMPLE=ON")
    run("cmake", "--build", build)
    run(build / "gnb")


@pytest.mark.parametrize("shared", ["OFF", "ON"])
def test_installed_it_is_found_by_pkg_config_and_cmake(project: Path, shared: str) -> None:
    """The prefix is another one than was configured, as in a package; of a static library no symbol is seen."""
    build, prefix = project / "build", project / "installed"
    run("cmake", "-S", SOURCES, "-B", build, "-DENABLE_TWINLINK=ON", f"-DTWINLINK_SHARED={shared}")
    run("cmake", "--build", build)
    run("cmake", "--install", build, "--prefix", prefix)
    (project / "CMakeLists.txt").write_text(FINDING)
    found = project / "found"
    run("cmake", "-S", project, "-B", found, f"-DCMAKE_PREFIX_PATH={prefix}")
    run("cmake", "--build", found)
    run(found / "gnb")
    if shutil.which("pkg-config") is None:
        pytest.skip("pkg-config is not found: install pkgconf")
    (package,) = prefix.rglob("twinlink.pc")
    flags = run("pkg-config", "--cflags", "--libs", "twinlink", PKG_CONFIG_PATH=str(package.parent)).split()
    program = project / "program"
    run("cc", project / "gnb.c", *flags, "-o", program)
    run(program, LD_LIBRARY_PATH=str(package.parent.parent))
    if shutil.which("nm") is None:
        pytest.skip("nm is not found: install binutils")
    assert ("twinlink_init" in run("nm", "-D", program)) == (shared == "ON")
