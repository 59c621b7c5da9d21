import errno
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.calling import call
from tests.cli.running import Start
from twinlink.appkit import console
from twinlink.cli import COMMANDS
from twinlink.errors import AckTimeout, ConfigurationError, PeerTimeout, TransportError


def test_help_names_every_command() -> None:
    run = call("--help")
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
        ("ping", "--connect", "127.0.0.1:"),
        ("ping", "--connect", "tcp/127.0.0.1:70000"),
        ("ping", "--transport", "pigeon"),
        ("ping", "--transport", "memory"),
        ("ping", "--flow", "a/b"),
        ("ping", "--size", "17M"),
        ("ping", "--size", "2", "--option", "max_payload=1"),
        ("pub", "--count", "1", "--size", "17M"),
        ("pub", "--flow", "_x"),
        ("ping", "--option", "receive_hwm"),
        ("ping", "--option", "nonsense=1"),
        ("ping", "--option", "receive_hwm=many"),
        ("ping", "--option", "io_threads=0"),
        ("pub", "--count", "1", "a-file"),
        ("sub", "--print", "colour"),
        ("doctor", "--listen", "7447"),
        ("doctor", "--role", "xapp"),
    ],
)
def test_wrong_arguments(arguments: tuple[str, ...]) -> None:
    run = call(*arguments)
    assert run.code() == 3
    assert run.err.startswith("twinlink" if arguments else "usage: twinlink")
    assert run.out == []
    assert "for a peer" not in run.err  # found before waiting


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        (("pingg",), "ping"),
        (("ping", "--cuont", "3"), "--count"),
        (("ping", "--conect=tcp/127.0.0.1:1"), "--connect"),
        (("--versoin",), "--version"),
        (("ping", "--transport", "zeromqq"), "zeromq"),
        (("ping", "--option", "retenton=1M"), "retention"),
        (("ping", "--option", "recieve_hwm=1"), "receive_hwm"),
        (("sub", "--print", "hahs"), "hash"),
        (("doctor", "--role", "gbn"), "gnb"),
        (("sweep", "--subjects", "raw-zermq"), "raw-zeromq"),
        (("sweep", "--subjects", "opcu"), "raw-opcua"),
        (("experiment", "hub-rt"), "hub-rtt"),
        (("sweep", "--transports", "Zenho"), "zenoh"),
        (("sweep", "--systems", "opcau"), "opcua"),
        (("sweep", "--mode", "closd"), "closed"),
        (("sweep", "--require", "los=1"), "loss"),
        (("sweep", "--option", "zenho.shared_memory=false"), "zenoh"),
        (("sweep", "--subjects", "raw-modbus", "--option", "raw-modbus.pol_ms=1"), "poll_ms"),
    ],
)
def test_what_was_probably_meant_is_named(arguments: tuple[str, ...], meant: str) -> None:
    run = call(*arguments)
    assert run.code() == 3
    assert f"did you mean {meant}?" in run.err


def test_nothing_is_meant_where_nothing_is_similar() -> None:
    for arguments in (
        ("demo", "--timeout", "3"),
        ("ping", "--transport", "pigeon"),
        ("sweep", "--subjects", "carrier"),
    ):
        run = call(*arguments)
        assert run.code() == 3
        assert "did you mean" not in run.err


@pytest.mark.parametrize(
    ("arguments", "full_stdout", "closed_stdout", "no_stderr"),
    [
        (("--version",), 2, 0, 0),
        (("ping", "--help"), 2, 0, 0),
        (("ping", "--cuont", "3"), 3, 3, 3),
        (("doctor",), 2, 2, 0),
        (("doctor", "--json"), 2, 2, 0),
        (("pub", "--connect", "tcp/127.0.0.1:1", "--count", "1", "--timeout", "0.1"), 2, 2, 1),
        (("sub", "--output", "/proc/nowhere"), 2, 2, 2),
    ],
)
def test_streams_that_are_closed_or_full(
    start: Start, arguments: tuple[str, ...], full_stdout: int, closed_stdout: int, no_stderr: int
) -> None:
    buffered: dict[str, Any] = {"env": {"PYTHONUNBUFFERED": ""}}
    with Path("/dev/full").open("wb") as full:
        runs = {
            "full stdout": (start(*arguments, stdout=full, **buffered), full_stdout),
            "full stderr": (start(*arguments, stderr=full, **buffered), no_stderr),
            "no stdout": (start(*arguments, stdout=None, preexec_fn=lambda: os.close(1), **buffered), closed_stdout),
            "no stderr": (start(*arguments, stderr=None, preexec_fn=lambda: os.close(2), **buffered), no_stderr),
        }
    for what, (run, code) in runs.items():
        assert run.code() == code, (what, run.err)
        assert "bug" not in run.err
        if code == 2 and arguments[0] != "sub":
            assert "standard output" in run.err


def test_a_table_on_a_full_disk_says_so_where_python_does_not_buffer(start: Start) -> None:
    with Path("/dev/full").open("wb") as full:
        run = start("doctor", stdout=full, env={"PYTHONUNBUFFERED": "1"})  # as in containers
    assert run.code() == 2
    assert "standard output cannot be written: No space left on device" in run.err


def test_an_error_names_the_file_as_it_was_given() -> None:
    """One that gets its name when it is whole is written under another; a user's may end like that."""
    for name, said in (("run.part", "run.part"), ("run.7.part", "run.7.part"), (f"run.{os.getpid()}.part", "run")):
        error = FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
        assert console.explain(error) == f"{said}: No such file or directory; check the path"


def test_as_a_module() -> None:
    done = subprocess.run([sys.executable, "-m", "twinlink", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("twinlink ")


def _raise(error: BaseException) -> int:
    raise error


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (PeerTimeout("no peer"), 1),
        (AckTimeout("missing", ((0, 1),)), 1),
        (ConfigurationError("no such option"), 3),
        (TransportError("port in use"), 2),
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


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (OSError(2, "No such file or directory", "a/b"), "a/b: No such file or directory; check the path"),
        (OSError(28, "No space left on device"), "out: No space left on device; make room there, or write elsewhere"),
        (OSError(24, "Too many open files"), "Too many open files; `ulimit -n` shows"),
        (OSError("as it came"), "as it came"),
        (TransportError("port in use"), "port in use"),
    ],
)
def test_what_the_system_refuses_has_its_file_and_what_to_do(
    error: OSError, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def body() -> int:
        with console.writing(Path("out")):
            raise error

    assert console.guarded("twinlink test", body) == 2
    assert capsys.readouterr().err.startswith(f"twinlink test: {says}")


def test_traceback_when_asked_for(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TWINLINK_TRACEBACK", "1")
    assert console.guarded("twinlink test", lambda: _raise(ZeroDivisionError())) == 2
    assert "Traceback" in capsys.readouterr().err
