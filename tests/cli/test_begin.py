"""Ctrl-C, or SIGTERM, while a command is being loaded."""

import os
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]

# Like the script that pip makes, but the first import of a module of the library is met by a signal.
SCRIPT = """
import os, signal, sys

def interrupt(event, arguments):
    if event == "import" and arguments[0].startswith("twinlink."):
        os.kill(os.getpid(), int(os.environ.get("SIGNAL", signal.SIGINT)))

sys.addaudithook(interrupt)
from {module} import {name}
sys.exit({name}())
"""


def run(command: str, *before: str, number: int = signal.SIGINT, **kwargs: object) -> subprocess.CompletedProcess[str]:
    module, name = SCRIPTS[command].split(":")
    path = os.pathsep.join([str(ROOT / "apps" / "command"), os.environ.get("PYTHONPATH", "")])
    done: subprocess.CompletedProcess[str] = subprocess.run(
        [*before, sys.executable, "-c", SCRIPT.format(module=module, name=name), "--help"],
        env={**os.environ, "PYTHONPATH": path, "SIGNAL": str(int(number))},
        capture_output=True,
        text=True,
        check=False,
        **kwargs,  # type: ignore[call-overload]
    )
    return done


@pytest.mark.parametrize("command", SCRIPTS)
def test_is_no_traceback(command: str) -> None:
    done = run(command)
    assert done.stderr == ""
    assert done.returncode == -signal.SIGINT


@pytest.mark.parametrize("command", SCRIPTS)
def test_stays_ignored_where_it_was(command: str) -> None:
    done = run(command, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN))
    assert done.returncode == 0, done.stderr
    assert "usage:" in done.stdout


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("command", SCRIPTS)
def test_ends_the_first_process_of_a_container(command: str, number: int) -> None:
    """There the kernel ignores what has no handler."""
    first = ["unshare", "--pid", "--fork", "--mount-proc"]
    if subprocess.run([*first, "true"], capture_output=True, check=False).returncode:
        pytest.skip("a process namespace cannot be made here (root is needed)")
    done = run(command, *first, number=number)
    assert done.stderr == ""
    assert done.returncode == 128 + number
