import ctypes
import json
import shutil
import socket
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tests.cli.calling import Called, call
from tests.cli.running import Run, Start
from tests.link import named_host
from twinlink.cli import checks

SCHEMA = {
    "type": "object",
    "required": ["type", "ok", "failed", "warned", "rows"],
    "additionalProperties": False,
    "properties": {
        "type": {"const": "summary"},
        "ok": {"type": "boolean"},
        "failed": {"type": "integer"},
        "warned": {"type": "integer"},
        "rows": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["check", "status", "seen", "next"],
                "additionalProperties": False,
                "properties": {
                    "check": {"type": "string", "minLength": 1},
                    "status": {"enum": ["ok", "warn", "fail"]},
                    "seen": {"type": "string", "minLength": 1},
                    "next": {"type": "string"},
                },
            },
        },
    },
}


def report(run: Run | Called) -> dict[str, Any]:
    code = run.code()
    found: dict[str, Any] = json.loads("\n".join(run.out))
    jsonschema.validate(found, SCHEMA)
    assert code == (0 if found["ok"] else 1)
    statuses = [row["status"] for row in found["rows"]]
    assert (found["failed"], found["warned"]) == (statuses.count("fail"), statuses.count("warn"))
    assert all(row["next"] for row in found["rows"] if row["status"] != "ok")
    return {row["check"]: row for row in found["rows"]}


def broken_package(directory: Path, name: str, source: str) -> dict[str, str]:
    """The environment of a process in which importing ``name`` runs ``source`` instead."""
    (directory / name).mkdir()
    (directory / name / "__init__.py").write_text(source)
    return {"PYTHONPATH": str(directory)}


def test_every_thing_has_its_row(start: Start, endpoint: str) -> None:
    rows = report(start("doctor", "--json", "--listen", endpoint))
    assert {
        "python",
        "gnuradio",
        "zeromq",
        "zenoh",
        "websocket",
        "tcp",
        "ports",
        "mgen",
        "rmem_max",
        "wmem_max",
        "clock",
    } <= rows.keys()
    assert {
        "clocksource",
        "e3 packages",
        "e3 logs",
        "e3 sockets",
        "descriptors",
        "memory",
        "cpu",
        "/dev/shm",
    } <= rows.keys()
    for name in ("python", "zeromq", "zenoh", "websocket", "tcp", "ports"):
        assert rows[name]["status"] == "ok", rows[name]


def test_text(start: Start) -> None:
    run = start("doctor")
    run.code()
    assert run.out[0].startswith("ok    python")
    assert run.out[-1].endswith(" failed")
    assert "\033" not in "\n".join(run.out)  # no terminal, no colour


def test_port_in_use(endpoint: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", int(endpoint.rpartition(":")[2]) + 1))
        taken.listen()
        rows = report(call("doctor", "--json", "--listen", endpoint))
        assert rows["ports"]["status"] == "fail"


def test_peer(start: Start, endpoint: str) -> None:
    assert report(call("doctor", "--json", "--connect", endpoint))["peer"]["status"] == "fail"
    start("pong", "--listen", endpoint).wait_for("Ctrl-C ends it")
    row = report(call("doctor", "--json", "--connect", endpoint))["peer"]
    assert (row["status"], "ZeroMQ" in row["seen"]) == ("ok", False)


def test_a_peer_of_which_only_the_first_port_is_open(endpoint: str) -> None:
    with socket.socket() as first:
        first.bind(("127.0.0.1", int(endpoint.rpartition(":")[2])))
        first.listen()
        assert "which ZeroMQ also needs" in report(call("doctor", "--json", "--connect", endpoint))["peer"]["seen"]


def test_a_peer_at_the_last_port_there_is() -> None:
    with socket.socket() as last:
        try:
            last.bind(("127.0.0.1", 65535))
        except OSError as error:
            pytest.skip(f"port 65535 is not free here: {error}")
        last.listen()
        row = report(call("doctor", "--json", "--connect", "tcp/127.0.0.1:65535"))["peer"]
    assert "there is none" in row["seen"]


def test_missing_driver(start: Start, tmp_path: Path) -> None:
    source = "raise ModuleNotFoundError(\"No module named 'zmq'\", name='zmq')"
    rows = report(start("doctor", "--json", env=broken_package(tmp_path, "zmq", source)))
    assert rows["zeromq"]["status"] == "fail"
    assert "pip install pyzmq" in rows["zeromq"]["next"]
    assert rows["zenoh"]["status"] == "ok"


@pytest.mark.parametrize(("role", "status"), [("any", "warn"), ("gnb", "warn"), ("twin", "fail")])
def test_gnuradio_that_does_not_load(start: Start, tmp_path: Path, role: str, status: str) -> None:
    source = "raise ImportError('numpy.core.multiarray failed to import: _ARRAY_API not found')"
    environment = broken_package(tmp_path, "gnuradio", source)
    rows = report(start("doctor", "--json", "--role", role, env=environment))
    assert rows["gnuradio"]["status"] == status
    assert "_ARRAY_API not found" in rows["gnuradio"]["seen"]


@pytest.mark.skipif(not shutil.which("gnuradio-companion"), reason="gnuradio-companion is not installed")
def test_companion_without_gtk(start: Start, tmp_path: Path) -> None:
    source = "def require_version(name, version): raise ValueError(f'Namespace {name} not available')"
    row = report(start("doctor", "--json", env=broken_package(tmp_path, "gi", source)))["companion"]
    assert row["status"] == "warn"
    assert "cannot start: ValueError: Namespace Gtk not available" in row["seen"]
    assert "gir1.2-gtk-3.0" in row["next"]


def test_e3_sockets(tmp_path: Path) -> None:
    def look(required: bool = False) -> checks.Row:
        return next(row for row in checks.e3(required, tmp_path) if row.check == "e3 sockets")

    assert look().status == "ok"
    assert look(required=True).status == "fail"
    with socket.socket(socket.AF_UNIX) as gnb:
        gnb.bind(str(tmp_path / "setup"))
        gnb.listen()
        assert look(required=True).status == "ok"
    assert look().status == "warn"
    assert "no process listens" in look().seen
    (tmp_path / "e3_socket").write_text("")
    assert "not a socket" in look().seen


def test_e3_logs_that_belong_to_somebody_else(tmp_path: Path) -> None:
    logs = tmp_path / "e3.log", tmp_path / "dapp.log"

    def look() -> checks.Row:
        return next(row for row in checks.e3(False, tmp_path, logs) if row.check == "e3 logs")

    assert look().status == "ok"
    assert not logs[0].exists()
    logs[0].touch()
    assert look().status == "ok"
    logs[1].mkdir()  # the permissions of a file do not stop root
    assert look().status == "warn"
    assert look().seen == f"{logs[1]}: cannot be written"


@pytest.fixture(params=[0])
def ntp_server(request: pytest.FixtureRequest) -> Iterator[str]:
    """An NTP server (RFC 5905) on loopback whose clock is 2 s ahead, at stratum 2; the parameter: leap indicator."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))
        server.settimeout(0.1)
        done = threading.Event()

        def serve() -> None:
            while not done.is_set():
                try:
                    asked, address = server.recvfrom(48)
                except TimeoutError:
                    continue
                now = int((time.time() + 2_208_988_800 + 2) * 2**32)
                head = struct.pack("!BBbbII4sQ", request.param << 6 | 4 << 3 | 4, 2, 6, -20, 0, 0, b"TEST", now)
                server.sendto(head + asked[40:48] + struct.pack("!QQ", now, now), address)

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        done.set()
        thread.join()


def test_ntp(ntp_server: str) -> None:
    row = report(call("doctor", "--json", "--ntp", ntp_server))["ntp"]
    assert row["status"] == "warn"
    offset_ms = float(row["seen"].partition("offset ")[2].split()[0])
    bound_ms = float(row["seen"].partition("± ")[2].split()[0])
    assert abs(offset_ms - 2000) <= bound_ms + 0.01


@pytest.mark.parametrize("ntp_server", [3], indirect=True)
def test_an_ntp_server_that_is_not_synchronised_says_nothing_of_this_clock(ntp_server: str) -> None:
    row = report(call("doctor", "--json", "--ntp", ntp_server))["ntp"]
    assert row["status"] == "fail"
    assert "its own clock is not synchronised" in row["seen"]


def test_a_wrong_ntp_server_is_a_bad_argument() -> None:
    run = call("doctor", "--ntp", "127.0.0.1:65536")
    assert run.code() == 3
    assert "a port is a number from 1 to 65535" in run.err


def test_no_ntp_server() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
        silent.bind(("127.0.0.1", 0))
        row = report(call("doctor", "--json", "--ntp", f"127.0.0.1:{silent.getsockname()[1]}"))["ntp"]
    assert row["status"] == "fail"


def without_low_ports() -> None:
    """In a child: root is refused ports below 1024 like other users (PR_CAPBSET_DROP of CAP_NET_BIND_SERVICE)."""
    ctypes.CDLL(None).prctl(24, 10, 0, 0, 0)


@pytest.mark.skipif(
    int(Path("/proc/sys/net/ipv4/ip_unprivileged_port_start").read_text()) < 1024,
    reason="on this system every user may use low ports",
)
def test_a_port_that_only_root_may_have(start: Start) -> None:
    row = report(start("doctor", "--json", "--listen", "tcp/127.0.0.1:80", preexec_fn=without_low_ports))["ports"]
    assert row["status"] == "fail"
    assert "below 1024" in row["next"]


_PORTS = """
import socket
from twinlink.cli import checks

stands_for("127.0.0.2", "::1")
print(*(row.status for row in checks.ports("tcp/twin.example:7447", True)))
with socket.create_server(("::1", 7448), family=socket.AF_INET6):
    print(*(f"{row.status} {row.seen}" for row in checks.ports("tcp/twin.example:7447", True)))
"""


def test_a_port_in_use_at_the_second_address_of_a_name_is_found(tmp_path: Path) -> None:
    free, used = named_host.run(tmp_path, _PORTS).splitlines()
    assert free == "ok"
    assert used == "fail twin.example, TCP 7447 and 7448: 7448: Address already in use"
