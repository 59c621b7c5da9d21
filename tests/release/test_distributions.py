"""What a release is: wheel and sdist, built here, installed into a clean virtual environment, and tried there."""

import os
import re
import shutil
import subprocess
import sys
import zipfile
from functools import cache
from pathlib import Path

import pytest
from twinlink_replay import grc

import twinlink

ROOT = Path(__file__).parents[2]
OLDEST = 11  # of Python 3, as requires-python says
BLOCKS = sorted(path.name for path in grc.PATH.glob("*.block.yml"))
# Of the paths that GNU Radio's own configuration names (grc.conf), the one below the prefix of pip.
SHARED = "share/gnuradio/grc/blocks"


def run(*command: object, cwd: Path) -> str:
    """What the command says on stdout; its error otherwise.  The environment has nothing of this checkout."""
    kept = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "GRC_BLOCKS_PATH"}}
    done = subprocess.run(list(map(str, command)), cwd=cwd, env=kept, capture_output=True, text=True, check=False)
    if "connection broken" in done.stderr:
        pytest.skip("pip reaches no package index from here, so nothing can be installed")
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def build(source: Path, out: Path, *kinds: str) -> None:
    options = [part for kind in kinds for part in ("--target", kind)]
    run(sys.executable, "-m", "hatchling", "build", "--directory", out, *options, cwd=source)


@pytest.fixture(scope="module")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    out = tmp_path_factory.mktemp("dist")
    build(ROOT, out, "wheel", "sdist")
    name = f"twinlink-{twinlink.__version__}"
    found = {"wheel": out / f"{name}-py3-none-any.whl", "sdist": out / f"{name}.tar.gz"}
    assert set(out.iterdir()) == set(found.values())
    return found


@cache
def interpreters() -> dict[int, Path]:
    """The Pythons 3 that can make a virtual environment, on PATH or by pyenv, by minor version."""
    pyenv = Path(os.environ.get("PYENV_ROOT", "~/.pyenv")).expanduser()
    found: dict[int, Path] = {}
    for folder in (*map(Path, os.get_exec_path()), *sorted(pyenv.glob("versions/*/bin"))):
        for path in folder.glob("python3.*"):
            minor = path.name.removeprefix("python3.")
            command = str(path), "-c", "import ensurepip, venv"
            if minor.isdecimal() and subprocess.run(command, capture_output=True, check=False).returncode == 0:
                found.setdefault(int(minor), path)
    return found


def interpreter(which: str) -> Path:
    """The oldest Python that twinlink supports, or the newest one here."""
    found = interpreters()
    if which == "oldest":
        return found.get(OLDEST) or pytest.skip(f"there is no Python 3.{OLDEST} here that can make an environment")
    newest = max(found)
    if newest <= OLDEST:
        pytest.skip(f"there is no Python here that is newer than 3.{OLDEST}")
    return found[newest]


@pytest.fixture(scope="module", params=["oldest", "newest"])
def environment(
    request: pytest.FixtureRequest, distributions: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A virtual environment with what the wheel requires, and nothing else."""
    folder = tmp_path_factory.mktemp(request.param) / "venv"
    run(interpreter(request.param), "-m", "venv", folder, cwd=folder.parent)
    install(folder, distributions["wheel"])
    return folder


def install(environment: Path, *arguments: object) -> None:
    pip = environment / "bin" / "pip"
    run(pip, "--retries", "1", "install", "--quiet", "--no-compile", *arguments, cwd=environment)


# Both ends of a link over each transport that needs no broker, and the payload of README's programs.
ROUND_TRIP = """
import sys, numpy, twinlink
from twinlink.spectrum import Spectrum
samples = numpy.zeros((12, 2), numpy.int16)
for transport in ("zeromq", "zenoh"):
    with twinlink.open(transport, listen=sys.argv[1]) as twin, twinlink.open(transport, connect=sys.argv[1]) as gnb:
        gnb.wait_ready(timeout=60)
        gnb.sender("spectrum").send(Spectrum(samples, 1, 30_000, 3.6e9, 0).encode())
        message = twin.receiver("spectrum").receive(timeout=60)
        print(Spectrum.decode(message.payload).n_prbs, twinlink.__file__)
"""

VERSION = f"twinlink {twinlink.__version__}\n"
RECORDING = "from twinlink_ran_emulator.recording import example; print(example())"


def test_it_works_where_only_it_is_installed(
    distributions: dict[str, Path], environment: Path, endpoint: str, tmp_path: Path
) -> None:
    programs = environment / "bin"
    said = run(programs / "python", "-c", ROUND_TRIP, endpoint, cwd=tmp_path).split()
    assert said[0::2] == ["1", "1"]
    assert all(Path(path).is_relative_to(environment) for path in said[1::2])
    for program in ("twinlink", "twinlink-ran-emulator", "twinlink-exporter", "twinlink-replay"):
        assert run(programs / program, "--version", cwd=tmp_path) == VERSION
    recording = Path(run(programs / "python", "-c", RECORDING, cwd=tmp_path).strip())
    assert recording.is_relative_to(environment)
    assert recording.read_bytes() == (ROOT / "examples" / "recordings" / recording.name).read_bytes()
    assert sorted(path.name for path in (environment / SHARED).iterdir()) == BLOCKS

    # The sdist makes the same wheel, as another test shows; here pip makes it, as on a system without a wheel.
    install(environment, "--force-reinstall", "--no-deps", distributions["sdist"])
    assert run(programs / "twinlink", "--version", cwd=tmp_path) == VERSION


PLAIN_GRCC = """
set -e
mount -t tmpfs none /usr/local
"$1" -m pip --python /usr/bin/python3 install --quiet --no-deps --break-system-packages "$2"
grcc -o "$3" "$4"
"""


@pytest.mark.skipif(not Path("/usr/bin/grcc").exists(), reason="GNU Radio of the system is not installed")
def test_plain_grcc_finds_the_blocks_after_pip_install(distributions: dict[str, Path], tmp_path: Path) -> None:
    probe = subprocess.run(["unshare", "--mount", "true"], capture_output=True, text=True, check=False)
    if probe.returncode:
        pytest.skip(f"nothing can be installed for the whole system, in a mount namespace: {probe.stderr.strip()}")
    arguments = [sys.executable, distributions["wheel"], tmp_path, grc.PATH / "uplink_transmit.grc"]
    run("unshare", "--mount", "bash", "-c", PLAIN_GRCC, "bash", *arguments, cwd=tmp_path)
    assert "twinlink_blocks.Source(" in (tmp_path / "uplink_transmit.py").read_text()


def contents(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_the_sdist_makes_the_same_wheel(distributions: dict[str, Path], tmp_path: Path) -> None:
    shutil.unpack_archive(distributions["sdist"], tmp_path)
    (source,) = tmp_path.iterdir()
    build(source, tmp_path / "again", "wheel")
    assert contents(tmp_path / "again" / distributions["wheel"].name) == contents(distributions["wheel"])


def test_the_wheel_holds_every_file_of_its_packages(distributions: dict[str, Path]) -> None:
    """And nothing of tests, examples or documents."""
    tracked = run("git", "ls-files", "twinlink", "apps", cwd=ROOT).splitlines()
    expected = {re.sub(r"^apps/\w+/", "", name) for name in tracked if (ROOT / name).is_file()}
    held = {name for name in contents(distributions["wheel"]) if not name.startswith("twinlink-")}
    recording = {f"twinlink_ran_emulator/recordings/uplink-106prb.sigmf-{part}" for part in ("data", "meta")}
    assert expected | recording <= held
    assert {name.partition("/")[0] for name in held} == {name.partition("/")[0] for name in expected}


def test_the_newest_release_in_the_changelog_is_this_version() -> None:
    headings = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert next(heading for heading in headings if heading != "Unreleased") == twinlink.__version__
