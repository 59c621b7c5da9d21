"""``--check`` of the three programs: what would be done, without doing any of it."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path

import pytest

from twinlink.testing import patience

FILE = """
transport = "zeromq"
connect = "tcp/10.0.0.5:7447"
option = ["retention=16777216", "window=8388608"]
[exporter]
protect-prbs = ["0-12", 50]
clear-at-start = true
http = "0.0.0.0:9464"
[replay]
listen = "tcp/0.0.0.0:7447"
validity-ms = 1500
[ran-emulator]
loop = 0
[pong]
count = 3
"""
Check = Callable[..., tuple[int, str, str]]


@pytest.fixture
def check(tmp_path: Path) -> Check:
    """Run a program in an empty folder, which is also its home, and see that it stays empty."""
    folder = tmp_path / "empty"
    folder.mkdir()

    def run(program: str, *arguments: str, file: str | None = None, **environment: str) -> tuple[int, str, str]:
        if file is not None:
            (tmp_path / "twinlink.toml").write_text(file)
            arguments = ("--config", str(tmp_path / "twinlink.toml"), *arguments)
        clean = {name: value for name, value in os.environ.items() if not name.startswith("TWINLINK_")}
        done = subprocess.run(
            [sys.executable, "-m", f"twinlink_{program}", "--check", *arguments],
            capture_output=True, text=True, cwd=folder, timeout=patience(),
            env=clean | {"HOME": str(folder), "TMP": str(folder), "TMPDIR": str(folder)} | environment, check=False,
        )  # fmt: skip
        assert list(folder.iterdir()) == []
        assert "Traceback" not in done.stderr
        assert (done.returncode == 0) is (done.stderr == "")
        return done.returncode, done.stdout, done.stderr

    return run


def test_one_file_for_all_says_what_each_would_do(check: Check) -> None:
    code, said, _ = check("exporter", file=FILE, TWINLINK_NODE="gnb-7")
    assert code == 0
    assert "connecting to tcp/10.0.0.5:7447 (ports 7447 to 7448) as gnb-7" in said
    assert "on spectrum, digest, kpm, control-result and state.prb-block each at most 16 MiB" in said
    assert "on control, digest-request, kpm and state.prb-block each at most 8 MiB" in said
    assert "E3: auto: setup ipc:///tmp/dapps/setup" in said
    assert "protected PRBs: 0-12,50" in said
    assert "http: 0.0.0.0:9464" in said

    code, said, _ = check("replay", file=FILE)
    assert code == 0
    assert "listening at tcp/0.0.0.0:7447" in said
    assert "blocks of 1500 ms" in said
    assert "http: not served" in said

    code, said, _ = check("ran_emulator", file=FILE)
    assert code == 0
    assert "550 records of 106 PRBs" in said
    assert "until stopped" in said


@pytest.mark.parametrize(
    ("program", "arguments", "named"),
    [
        ("exporter", ["--option", "retention=3"], "retention"),
        ("exporter", ["--option", "colour=3"], "colour"),
        ("exporter", ["--option", "listen=tcp/0.0.0.0:7447"], "unknown option listen"),
        ("exporter", ["--connect", "10.0.0.5:"], "host:port"),
        ("exporter", ["--transport", "pigeon"], "pigeon"),
        ("exporter", ["--node", ""], "node"),
        ("exporter", ["--protect-prbs", "106"], "PRBs 0-105"),
        ("exporter", ["--setup", f"ipc:///{200 * 'x'}"], "107 octets"),
        ("exporter", ["--http", "9464"], "host:port"),
        ("exporter", ["--log", "/nonexistent/log"], "/nonexistent: No such file"),
        ("exporter", ["--summary", "/proc"], "/proc: Is a directory"),
        ("replay", ["--out", "/proc/version/run"], "/proc/version: Not a directory"),
        ("replay", ["--http", "[::1]:65536"], "65535"),
        ("ran_emulator", ["--recording", "/nonexistent/x"], "cannot be read"),
        ("ran_emulator", ["--fft-size", "64"], "FFT of 64"),
    ],
)
def test_what_cannot_be_is_said_and_ends_with_3(
    program: str, arguments: list[str], named: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main_of(program)(["--check", *arguments]) == 3
    said, why = capfd.readouterr()
    assert said == ""
    assert named in why


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("[exporter]\nprotect-prb = '1'", "did you mean protect-prbs?"),
        ("[exporters]\nn-prbs = 51", "did you mean exporter?"),
        ("protekt-prbs = '1'", "did you mean protect-prbs?"),
    ],
)
def test_a_key_that_no_program_has_is_named(
    text: str, named: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "twinlink.toml").write_text(text)
    assert main_of("ran_emulator")(["--check", "--config", str(tmp_path / "twinlink.toml")]) == 3
    assert named in capfd.readouterr().err


def main_of(program: str) -> Callable[[list[str]], int]:
    main: Callable[[list[str]], int] = import_module(f"twinlink_{program}.__main__").main
    return main


@pytest.fixture(autouse=True)
def signals() -> Iterator[None]:
    """A program that runs in this process takes over what ends it."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_nothing_is_opened(check: Check) -> None:
    """Not the port, which is in use, nor the folder for the log, which another option makes."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        taken = f"127.0.0.1:{other.getsockname()[1]}"
        code, said, _ = check("exporter", "--listen", f"tcp/{taken}", "--http", taken)
    assert code == 0
    assert f"listening at tcp/{taken}" in said
    assert check("ran_emulator", "--heard", "new/heard", "--log", "new/heard/log")[0] == 0


def test_http_without_its_extra_is_refused(check: Check, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['prometheus_client'] = None\n")
    code, _, why = check("exporter", "--http", "127.0.0.1:0", PYTHONPATH=str(tmp_path))
    assert code == 3
    assert "pip install 'twinlink[metrics]'" in why
