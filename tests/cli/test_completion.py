"""The script of `twinlink completion`, in a real bash."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.cli.calling import call
from twinlink.cli import known_flows

BASH = shutil.which("bash")
COMPLETE = """
source "$1"; function=$2; shift 2
COMP_WORDS=("$@"); COMP_CWORD=$(( $# - 1 ))
$function && printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("completion")


def completed(folder: Path, program: str, *words: str) -> list[str]:
    """What bash offers for the last word."""
    script = folder / program
    if not script.exists():
        run = call("completion", "bash", program)
        assert run.code() == 0
        script.write_text("\n".join(run.out))
    function = f"_shtab_{program.replace('-', '_')}"
    command = [BASH or "bash", "--norc", "-c", COMPLETE, "bash", str(script), function, program, *words]
    environment = os.environ | {"XDG_CACHE_HOME": str(folder / "cache")}
    return subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout.split()


@pytest.mark.skipif(BASH is None, reason="bash is not installed")
@pytest.mark.parametrize(
    ("program", "words", "expected"),
    [
        ("twinlink", ("pi",), ["ping"]),
        ("twinlink", ("dem",), ["demo"]),  # a command of an application
        ("twinlink", ("sweep", "--mo"), ["--mode"]),
        ("twinlink", ("ping", "--conf"), ["--config"]),
        ("twinlink", ("sub", "--print", "h"), ["hash", "hex"]),
        ("twinlink", ("ping", "--transport", "z"), ["zenoh", "zeromq"]),
        ("twinlink", ("sub", "--output", "/pro"), ["/proc"]),
        ("twinlink-exporter", ("--protect",), ["--protect-prbs"]),
    ],
)
def test_bash_completes(folder: Path, program: str, words: tuple[str, ...], expected: list[str]) -> None:
    assert sorted(completed(folder, program, *words)) == expected


@pytest.mark.skipif(BASH is None, reason="bash is not installed")
def test_bash_completes_flows_that_were_seen(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    assert completed(folder, "twinlink", "sub", "--flow", "s") == []  # no flow was seen yet
    known_flows.remember(["control", "spectrum"])
    known_flows.remember(["slots"])
    assert known_flows.path().read_text().split() == ["slots", "control", "spectrum"]
    assert completed(folder, "twinlink", "sub", "--flow", "s") == ["slots", "spectrum"]
    assert completed(folder, "twinlink", "sub", "10.0.0.5", "c") == ["control"]


def test_zsh_and_wrong_arguments() -> None:
    run = call("completion", "zsh")
    assert run.code() == 0
    assert run.out[0] == "#compdef twinlink"
    run = call("completion", "bsh")
    assert run.code() == 3
    assert "'bsh' is none of bash, zsh; did you mean bash?" in run.err
    assert call("completion").code() == 3
