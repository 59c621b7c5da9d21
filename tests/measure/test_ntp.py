"""NTP against a private chronyd, which leaves the system's clock alone, and against servers that break a rule."""

import getpass
import os
import shutil
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from twinlink_measure.clock_command import _Ntp as Polled

from twinlink.appkit import ntp
from twinlink.process import resolver
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
        assert abs(view["offset_ns"]) <= view["bound_ns"]  # it is the same clock
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
    assert "no answer: nothing listens there" in view["error"]


def test_a_server_that_does_not_answer() -> None:
    with serving(lambda right: []) as server:
        assert "no answer within 0.2 s: does a server run there" in ntp.view(server, 0.2)["error"]


def test_a_name_that_does_not_resolve() -> None:
    assert "does not resolve" in ntp.view("no-such-host.invalid", 0.2)["error"]


@dataclass(frozen=True)
class Packet:
    """A server's packet; as a rule a right answer of a server with this host's clock."""

    first: int = 4 << 3 | 4  # leap, version, mode
    stratum: int = 2
    precision: int = -20
    root_delay: int = 100
    root_dispersion: int = 100
    reference_id: bytes = b"\x7f\0\0\1"
    reference: int = 0
    origin: int = 0
    receive: int = 0
    transmit: int = 0

    @classmethod
    def answer(cls, question: bytes) -> "Packet":
        now = (time.time_ns() + 2_208_988_800 * 10**9 << 32) // 10**9
        return cls(origin=int.from_bytes(question[40:48]), reference=now, receive=now, transmit=now)

    def octets(self) -> bytes:
        head = struct.pack("!BBBb", self.first, self.stratum, 6, self.precision)
        head += struct.pack("!II4s", self.root_delay, self.root_dispersion, self.reference_id)
        return head + struct.pack(
            "!4Q", *(at % 2**64 for at in (self.reference, self.origin, self.receive, self.transmit))
        )


@contextmanager
def serving(answers: Callable[[Packet], list[Packet | bytes]], host: str = "127.0.0.1") -> Iterator[str]:
    """A server on loopback that sends these packets for the right one; gives its HOST:PORT."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    done = threading.Event()
    with socket.socket(family, socket.SOCK_DGRAM) as server:
        server.bind((host, 0))
        server.settimeout(0.05)

        def serve() -> None:
            while not done.is_set():
                try:
                    question, address = server.recvfrom(1024)
                except TimeoutError:
                    continue
                for packet in answers(Packet.answer(question)):
                    server.sendto(packet.octets() if isinstance(packet, Packet) else packet, address)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"{f'[{host}]' if ':' in host else host}:{server.getsockname()[1]}"
        finally:
            done.set()
            thread.join()


def seconds(stamp: int, value: float) -> int:
    """A timestamp so much later."""
    return stamp + round(value * 2**32)


UNUSABLE: dict[str, tuple[Callable[[Packet], Packet], str]] = {
    "receive of zero": (lambda p: replace(p, receive=0), "its receive timestamp is zero"),
    "transmit of zero": (lambda p: replace(p, transmit=0), "its transmit timestamp is zero"),
    "leap": (lambda p: replace(p, first=3 << 6 | p.first), "not synchronised (leap 3, stratum 2)"),
    "stratum 16": (lambda p: replace(p, stratum=16), "not synchronised (leap 0, stratum 16)"),
    "stratum 0 without a code": (lambda p: replace(p, stratum=0), "not synchronised (leap 0, stratum 0)"),
    "code that is not listed": (lambda p: replace(p, stratum=0, reference_id=b"XYZ\0"), "code XYZ (not listed"),
    "root delay": (lambda p: replace(p, root_delay=3 << 16), "its root distance is 1.5"),
    "root dispersion": (lambda p: replace(p, root_dispersion=2 << 16), "its root distance is 2.0"),
    "root delay below 0": (lambda p: replace(p, root_delay=2**32 - 100), "its root distance is"),
    "precision of 2 s": (lambda p: replace(p, precision=1), "its root distance is 2.0"),
    "held longer than it took": (lambda p: replace(p, transmit=seconds(p.transmit, 0.5)), "the delay is negative (-"),
    "answered before it was asked": (lambda p: replace(p, receive=seconds(p.receive, 0.5)), "before it was asked"),
    "set between reference and answer": (
        lambda p: replace(p, reference=seconds(p.reference, 1)),
        "reference timestamp",
    ),
}


@pytest.mark.parametrize("name", UNUSABLE)
def test_an_answer_that_breaks_a_rule_is_no_offset(name: str) -> None:
    change, reason = UNUSABLE[name]
    with serving(lambda right: [change(right)]) as server:
        view = ntp.view(server, PATIENCE_S)
    assert "offset_ns" not in view
    assert reason in view["error"]


UNRELATED: dict[str, tuple[Callable[[Packet], Packet | bytes], str]] = {
    "no packet": (lambda p: b"hello", "a datagram of 5 octets, which is no NTP packet"),
    "cut off": (lambda p: p.octets()[:47], "a datagram of 47 octets"),
    "version 0": (lambda p: replace(p, first=4), "NTP version 0"),
    "version 5": (lambda p: replace(p, first=5 << 3 | 4), "NTP version 5"),
    "client": (lambda p: replace(p, first=4 << 3 | 3), "mode 3 (client)"),
    "broadcast": (lambda p: replace(p, first=4 << 3 | 5), "mode 5 (broadcast)"),
    "no origin": (lambda p: replace(p, origin=0), "no origin timestamp"),
    "earlier question": (lambda p: replace(p, origin=seconds(p.transmit, -16)), "of another question"),
    "kiss for another": (lambda p: replace(p, stratum=0, reference_id=b"DENY", origin=1), "code DENY"),
}


@pytest.mark.parametrize("name", UNRELATED)
def test_what_answers_another_question_is_ignored_and_named(name: str) -> None:
    change, what = UNRELATED[name]
    with serving(lambda right: [change(right), change(right), right]) as server:
        assert "error" not in ntp.view(server, PATIENCE_S)
    with serving(lambda right: [change(right), change(right)]) as server:
        view = ntp.view(server, 0.2)
    assert set(view) == {"server", "error"}
    assert what in view["error"]
    assert "(2 times)" in view["error"]


@pytest.mark.parametrize("code", ["DENY", "RATE", "RSTR", "NTSN"])
def test_a_kiss_code_is_named(code: str) -> None:
    with serving(lambda right: [replace(right, stratum=0, first=0xE4, reference_id=code.encode())]) as server:
        view = ntp.view(server, PATIENCE_S)
    assert view["kiss"] == code
    assert f"code {code} (" in view["error"]
    assert "not listed" not in view["error"]


@pytest.mark.parametrize(
    ("code", "asked_again", "every_s"), [("DENY", False, 16), ("RSTR", False, 16), ("RATE", True, 64)]
)
def test_a_clock_that_is_told_so_asks_less_or_no_more(code: str, asked_again: bool, every_s: float) -> None:
    questions = []

    def answer(right: Packet) -> list[Packet | bytes]:
        questions.append(right)
        return [replace(right, stratum=0, reference_id=code.encode())]

    with serving(answer) as server:
        asking = Polled(server)
        for _ in range(2):
            asking._next = 0.0  # as if the interval had passed
            asking.poll()
            if asking._thread is not None:
                asking._thread.join()
    assert len(questions) == (2 if asked_again else 1)
    assert asking._every_s == every_s


@pytest.mark.parametrize("years", [0, 20, -40])
def test_the_offset_of_a_server_with_another_clock(years: int) -> None:
    """Also across the end of NTP's era in 2036."""
    ahead_s = years * 365.25 * 86400 + 0.25

    def shifted(right: Packet) -> Packet:
        return replace(
            right,
            reference=seconds(right.reference, ahead_s),
            receive=seconds(right.receive, ahead_s),
            transmit=seconds(right.transmit, ahead_s),
        )

    with serving(lambda right: [shifted(right)]) as server:
        view = ntp.view(server, PATIENCE_S)
    assert abs(view["offset_ns"] - ahead_s * 1e9) <= view["bound_ns"]


@pytest.mark.parametrize("step_s", [3600, -0.05])
def test_this_host_s_clock_is_set_between_question_and_answer(step_s: float, monkeypatch: pytest.MonkeyPatch) -> None:
    true_ns, step_ns = time.time_ns, 0

    def answer(right: Packet) -> list[Packet | bytes]:
        nonlocal step_ns
        step_ns = round(step_s * 1e9)
        return [right]

    monkeypatch.setattr(time, "time_ns", lambda: true_ns() + step_ns)
    with serving(answer) as server:
        view = ntp.view(server, PATIENCE_S)
        assert "clock was set by " in view["error"]
        assert "error" not in ntp.view(server, PATIENCE_S)  # asked again


def test_every_address_of_a_name_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """One refuses, one is silent, one answers."""
    monkeypatch.setattr(resolver, "addresses", lambda host, within_s: ["127.0.0.2", "::1", "127.0.0.1"])
    with serving(lambda right: [right]) as server, socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as silent:
        port = server.rpartition(":")[2]
        silent.bind(("::1", int(port)))
        assert "error" not in ntp.view(f"twin.example:{port}", 1.0)
    view = ntp.view(f"twin.example:{port}", 1.0)
    for address in ("127.0.0.2", "::1", "127.0.0.1"):
        assert f"twin.example ({address}), UDP port {port}: no answer" in view["error"]


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("ntp.example", ("ntp.example", 123)),
        ("ntp.example:1123", ("ntp.example", 1123)),
        ("10.0.0.5:123", ("10.0.0.5", 123)),
        ("[::1]", ("::1", 123)),
        ("[::1]:1123", ("::1", 1123)),
        ("fd00::5", ("fd00::5", 123)),
        ("[fe80::5%lo]:123", ("fe80::5%lo", 123)),
    ],
)
def test_server_names(text: str, parsed: tuple[str, int]) -> None:
    assert ntp.parse(text) == parsed


@pytest.mark.parametrize(
    "text", ["", ":123", "host:", "host:0", "host:65536", "host:http", "[::1", "[::1]5", "host:-1"]
)
def test_what_names_no_server(text: str) -> None:
    with pytest.raises(ValueError, match=r"host or host:port|a port is a number"):
        ntp.parse(text)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("224.0.1.1", "is a multicast group"),
        ("[ff05::101]:123", "is a multicast group"),
        ("fe80::5", "is link-local: add the interface"),
        ("[fe80::5%nonesuch]", "has no interface nonesuch"),
        ("10.1", "is not an IPv4 address"),
    ],
)
def test_what_is_not_the_address_of_one_server(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        ntp.parse(text)
