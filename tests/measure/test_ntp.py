"""NTP against a private chronyd, which leaves the system's clock alone."""

import getpass
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from twinlink.measure import ntp
from twinlink.testing import free_endpoint, patience

PATIENCE_S = patience()


def chronyd() -> str:
    """The program, wherever it is; skips aloud without it."""
    unpacked = Path(sys.prefix) / "chrony/usr/sbin"  # where `make setup` puts it without installing it
    found = shutil.which("chronyd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin:{unpacked}")
    if found is None:
        pytest.skip("chronyd is not here: `make setup` brings it, or apt install chrony")
    return found


@pytest.fixture
def port() -> int:
    """A UDP port on loopback that is free."""
    return int(free_endpoint(1).rpartition(":")[2])


@pytest.fixture
def server(port: int, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[str]:
    """A chronyd that serves this host's clock as one of stratum 5, or, with a parameter, does not know the time."""
    program = chronyd()
    lines = ["bindaddress 127.0.0.1", "cmdport 0", f"port {port}", f"pidfile {tmp_path}/pid", "allow 127.0.0.1"]
    if getattr(request, "param", True):
        lines.append("local stratum 5")
    configuration = tmp_path / "chrony.conf"
    configuration.write_text("\n".join(lines) + "\n", encoding="ascii")
    process = subprocess.Popen(
        [program, "-x", "-d", "-U", "-u", getpass.getuser(), "-f", str(configuration)],
        stdin=subprocess.DEVNULL,
        stdout=(tmp_path / "log").open("wb"),
        stderr=subprocess.STDOUT,
    )
    try:
        end = time.monotonic() + PATIENCE_S
        while "no answer" in ntp.view(f"127.0.0.1:{port}", 0.2).get("error", ""):
            log = (tmp_path / "log").read_text(errors="replace")
            assert process.poll() is None, log
            assert time.monotonic() < end, log
        yield f"127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(PATIENCE_S)


def test_the_clock_of_this_host(server: str) -> None:
    views = [ntp.view(server, PATIENCE_S) for _ in range(5)]
    for view in views:
        assert "error" not in view
        assert (view["server"], view["stratum"]) == (server, 5)
        assert view["root_delay_ns"] >= view["delay_ns"] > 0
        assert view["root_dispersion_ns"] >= 0
        assert view["bound_ns"] >= view["root_delay_ns"] // 2
        assert abs(view["offset_ns"]) <= view["bound_ns"] + 1_000  # it is the same clock; floats of seconds since 1900
    best = min(views, key=lambda view: view["bound_ns"])
    assert best["bound_ns"] == pytest.approx(best["root_delay_ns"] / 2 + best["root_dispersion_ns"], abs=2)


@pytest.mark.parametrize("server", [False], indirect=True)
def test_a_server_that_does_not_know_the_time(server: str) -> None:
    view = ntp.view(server, PATIENCE_S)
    assert set(view) == {"server", "error"}
    assert "not synchronised" in view["error"]


def test_no_server(port: int) -> None:
    view = ntp.view(f"127.0.0.1:{port}", 0.2)
    assert set(view) == {"server", "error"}
    assert f"127.0.0.1, UDP port {port}" in view["error"]
    assert "no answer within 0.2 s" in view["error"]


def test_a_name_that_does_not_resolve() -> None:
    assert "does not resolve" in ntp.view("no-such-host.invalid", 0.2)["error"]


def test_something_else_answers(port: int) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        other.bind(("127.0.0.1", port))
        other.settimeout(PATIENCE_S)

        def answer() -> None:
            _, address = other.recvfrom(1024)
            other.sendto(b"hello", address)

        thread = threading.Thread(target=answer)
        thread.start()
        view = ntp.view(f"127.0.0.1:{port}", PATIENCE_S)
        thread.join()
    assert "Invalid NTP packet" in view["error"]


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("ntp.example", ("ntp.example", 123)),
        ("ntp.example:1123", ("ntp.example", 1123)),
        ("10.0.0.5:123", ("10.0.0.5", 123)),
        ("[::1]", ("::1", 123)),
        ("[::1]:1123", ("::1", 1123)),
        ("fd00::5", ("fd00::5", 123)),
    ],
)
def test_server_names(text: str, parsed: tuple[str, int]) -> None:
    assert ntp.parse(text) == parsed


@pytest.mark.parametrize(
    "text", ["", ":123", "host:", "host:0", "host:65536", "host:http", "[::1", "[::1]5", "host:-1"]
)
def test_what_names_no_server(text: str) -> None:
    with pytest.raises(ValueError, match="is not HOST or HOST:PORT"):
        ntp.parse(text)
