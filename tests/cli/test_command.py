import subprocess
import sys

import pytest

from tests.cli.running import Start
from twinlink.cli import COMMANDS, console
from twinlink.errors import AckTimeout, ConfigurationError, PeerTimeout, TransportError


def test_help_names_every_command(start: Start) -> None:
    run = start("--help")
    assert run.code() == 0
    for name in COMMANDS:
        assert any(line.split()[:1] == [name] for line in run.out)


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("pinng",),
        ("ping", "--cuont", "3"),
        ("ping", "--coun", "3"),  # abbreviations are refused
        ("ping", "--count", "0"),
        ("ping", "--count", "many"),
        ("ping", "--interval", "-1"),
        ("ping", "--interval", "nan"),
        ("ping", "--size", "1G"),
        ("ping", "--listen", "tcp/127.0.0.1:1", "--connect", "tcp/127.0.0.1:1"),
        ("ping", "--connect", "127.0.0.1:7447"),
        ("ping", "--connect", "tcp/127.0.0.1:70000"),
        ("ping", "--transport", "pigeon"),
        ("ping", "--flow", "a/b"),
        ("ping", "--option", "receive_hwm"),
        ("ping", "--option", "nonsense=1"),
        ("ping", "--option", "receive_hwm=many"),
        ("pub", "--count", "1", "a-file"),
        ("sub", "--print", "colour"),
        ("doctor", "--listen", "7447"),
        ("doctor", "--role", "xapp"),
    ],
)
def test_wrong_arguments(start: Start, arguments: tuple[str, ...]) -> None:
    run = start(*arguments)
    assert run.code() == 3
    assert run.err.startswith("twinlink" if arguments else "usage: twinlink")
    assert run.out == []


def test_as_a_module() -> None:
    done = subprocess.run([sys.executable, "-m", "twinlink", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("twinlink ")


def _raise(error: BaseException) -> int:
    raise error


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (PeerTimeout("nobody"), 1),
        (AckTimeout("missing", ((0, 1),)), 1),
        (ConfigurationError("no such option"), 3),
        (TransportError("port in use"), 2),
        (OSError(24, "Too many open files"), 2),
        (ModuleNotFoundError("No module named 'rich'", name="rich"), 2),
        (KeyboardInterrupt(), 2),
        (ZeroDivisionError("division by zero"), 2),
    ],
)
def test_errors_become_one_line(error: BaseException, code: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert console.guarded("twinlink test", lambda: _raise(error)) == code
    shown = capsys.readouterr()
    assert shown.out == ""
    assert len(shown.err.splitlines()) == 1
    assert getattr(error, "name", str(error)) in shown.err
    assert ("bug" in shown.err) == isinstance(error, ZeroDivisionError)


def test_traceback_when_asked_for(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TWINLINK_TRACEBACK", "1")
    assert console.guarded("twinlink test", lambda: _raise(ZeroDivisionError())) == 2
    assert "Traceback" in capsys.readouterr().err
