"""The HTTP server: its answers, and that no client blocks it."""

import http.client
import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

import twinlink
from tests.link import named_host
from twinlink.appkit.convert import HttpAddress
from twinlink.appkit.pulse import STOPPED_NS, Pulse
from twinlink.errors import TransportError
from twinlink.process import internal_errors
from twinlink.process.guarded_thread import GuardedThread
from twinlink.testing import patience, wait_until

http_server = pytest.importorskip("twinlink.appkit.http", reason="prometheus_client is not installed")

Serve = Callable[..., HttpAddress]


@pytest.fixture
def reasons() -> list[str]:
    """Why the program is not ready; a test may change it."""
    return []


@pytest.fixture
def pulse() -> Pulse:
    return Pulse()


@pytest.fixture
def serve(pulse: Pulse, reasons: list[str]) -> Iterator[Serve]:
    with ExitStack() as stack:

        def start(host: str = "127.0.0.1") -> HttpAddress:
            server = http_server.Server(HttpAddress(host, 0), pulse, reasons.copy, [])
            address: HttpAddress = stack.enter_context(server).address
            return address

        yield start


def ask(
    address: HttpAddress, path: str, method: str = "GET", **headers: str
) -> tuple[int, str, http.client.HTTPMessage]:
    connection = http.client.HTTPConnection(address.host, address.port, timeout=patience())
    try:
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read().decode(), answer.headers
    finally:
        connection.close()


def test_pages(serve: Serve, reasons: list[str]) -> None:
    address = serve()
    assert ask(address, "/healthz")[:2] == (200, "ok\n")
    status, text, headers = ask(address, "/readyz?verbose")
    assert (status, json.loads(text)) == (200, {"ready": True, "reasons": []})
    assert headers["Content-Type"] == "application/json"
    reasons.append("no twin is up")
    status, text, _ = ask(address, "/readyz")
    assert (status, json.loads(text)) == (503, {"ready": False, "reasons": ["no twin is up"]})
    assert ask(address, "/")[0] == 404
    assert ask(address, "/healthz", "POST")[0] == 501


def test_what_has_raised_within_a_minute_is_a_reason(
    serve: Serve, may_raise: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = serve()
    with twinlink.open("memory", listen="tcp/127.0.0.1:7447") as link:
        GuardedThread(partial(int, "x"), "of a test").start()
        wait_until(lambda: ask(address, "/readyz")[0] == 503)
        link.receiver("f", handler=lambda message: message.unknown)  # type: ignore[attr-defined]
        with twinlink.open("memory", connect="tcp/127.0.0.1:7447") as peer:
            peer.wait_ready(patience())
            peer.sender("f").send(b"")
            wait_until(lambda: len(json.loads(ask(address, "/readyz")[1])["reasons"]) == 2)
        reasons = json.loads(ask(address, "/readyz")[1])["reasons"]
        assert reasons[0].startswith("a handler of f raised AttributeError(")
        assert reasons[1].startswith("thread of a test raised ValueError(")
        assert ask(address, "/healthz")[0] == 200
    monkeypatch.setattr(internal_errors, "RECENT_S", 0.0)
    assert ask(address, "/readyz")[0] == 200


def test_metrics_come_in_the_format_that_is_asked_for(serve: Serve) -> None:
    address = serve()
    status, text, headers = ask(address, "/metrics")
    assert status == 200
    assert headers["Content-Type"].startswith("text/plain; version=0.0.4")
    assert "process_resident_memory_bytes" in text
    text = ask(address, "/metrics", Accept="application/openmetrics-text; version=1.0.0")[1]
    assert text.endswith("# EOF\n")


def test_head_has_the_length_and_nothing_else(serve: Serve) -> None:
    status, text, headers = ask(serve(), "/healthz", "HEAD")
    assert (status, text, headers["Content-Length"]) == (200, "", "3")


def test_a_loop_that_stands_still_is_neither_healthy_nor_ready(
    serve: Serve, pulse: Pulse, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = serve()
    monkeypatch.setattr("twinlink.appkit.pulse._monotonic_ns", lambda: pulse._turned_ns + STOPPED_NS + 1)
    status, text, _ = ask(address, "/healthz")
    assert (status, text) == (503, "the main loop has not turned for 5.0 s\n")
    assert ask(address, "/readyz")[0] == 503


def test_what_fails_here_is_said_and_the_next_request_is_answered(serve: Serve, pulse: Pulse, may_raise: None) -> None:
    address = serve()
    pulse.problem = lambda: str(1 // 0)  # type: ignore[method-assign]
    status, text, _ = ask(address, "/healthz")
    assert status == 500
    assert "ZeroDivisionError" in text
    assert ask(address, "/metrics")[0] == 200


def test_ipv6(serve: Serve) -> None:
    try:
        address = serve("::1")
    except TransportError as error:
        pytest.skip(f"no IPv6 here: {error}")
    assert str(address) == f"[::1]:{address.port}"
    assert ask(address, "/healthz")[0] == 200


_SERVES_A_NAME = """
import http.client
from twinlink.appkit.convert import HttpAddress
from twinlink.appkit.http import Server
from twinlink.appkit.pulse import Pulse

stands_for("127.0.0.2", "::1")
for host in ("twin.example", "::"):
    with Server(HttpAddress(host, 0), Pulse(), list, []) as server:
        for address in ("127.0.0.2", "::1"):
            connection = http.client.HTTPConnection(address, server.address.port, timeout=patience())
            connection.request("GET", "/healthz")
            print(host, address, connection.getresponse().status)
            connection.close()
"""


def test_every_address_of_a_name_and_both_families_are_served(tmp_path: Path) -> None:
    told = named_host.run(tmp_path, _SERVES_A_NAME).splitlines()
    assert told == [f"{host} {address} 200" for host in ("twin.example", "::") for address in ("127.0.0.2", "::1")]


def test_a_port_in_use_says_what_to_do(serve: Serve) -> None:
    address = serve()
    with pytest.raises(TransportError, match=rf"--http cannot serve at {address}: Address already in use; `ss -ltnp`"):
        http_server.Server(address, Pulse(), list, [])


def answered(address: HttpAddress) -> bool:
    """Whether a probe is; one may be turned away while the threads of connections that were cut off end."""
    try:
        return ask(address, "/healthz")[0] == 200
    except (OSError, http.client.HTTPException):
        return False


def test_silent_clients_do_not_block_others(serve: Serve) -> None:
    """More of them than are served at a time: each probe is answered all the same, by few threads."""
    address = serve()
    before = threading.active_count()
    with ExitStack() as stack:
        for _ in range(4 * http_server.MOST_CONNECTIONS):
            client = stack.enter_context(socket.create_connection(address, timeout=patience()))
            client.sendall(b"GET /healthz HTTP/1.1\r\n")
            wait_until(lambda: answered(address))
            assert threading.active_count() - before <= http_server.MOST_CONNECTIONS
        wait_until(lambda: threading.active_count() - before <= http_server.CONNECTIONS)


def test_a_request_that_never_ends_is_cut_off(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when something comes now and then, for which a limit on each read alone would wait for ever."""
    monkeypatch.setattr(http_server, "PATIENCE_S", 0.5)
    address = serve()
    with socket.create_connection(address, timeout=patience()) as client:
        client.settimeout(0.1)
        client.sendall(b"GET /healthz HTTP/1.1\r\nX: ")

        def ended() -> bool:
            try:
                client.sendall(b"y")
                return client.recv(1) == b""
            except TimeoutError:
                return False
            except ConnectionError:
                return True

        wait_until(ended)
