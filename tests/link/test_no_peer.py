"""What a link says that meets no peer: the reason where one can be found, and what to do."""

import contextlib
import resource
import socket
import subprocess
import sys
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import zenoh
import zmq

import twinlink
from tests.identity.nodes import make_pair, needs_mosquitto
from twinlink.cli import checks
from twinlink.process.listener_probe import probe
from twinlink.testing import free_endpoint, patience, wait_until
from twinlink.testing.base import drain
from twinlink.transport_options import TransportName

brokerless = pytest.mark.parametrize("transport", ["zeromq", "zenoh"])
REAL: tuple[TransportName, ...] = ("zeromq", "zenoh", "mqtt")


def said(transport: TransportName, endpoint: str) -> str:
    with twinlink.open(transport, connect=endpoint) as link, pytest.raises(twinlink.PeerTimeout) as raised:
        link.wait_ready(0.1)
    return str(raised.value)


@pytest.mark.parametrize("transport", REAL)
def test_where_nothing_listens_the_systems_reason_is_given(transport: TransportName) -> None:
    assert "TCP says: Connection refused; check that the other side listens" in said(transport, free_endpoint())


@pytest.mark.parametrize("transport", REAL)
def test_a_name_that_does_not_resolve_is_named_as_the_reason(transport: TransportName) -> None:
    assert "the host name" in said(transport, "tcp/no-such-host.invalid:7447")


@pytest.mark.parametrize(
    ("listens", "connects", "reason"),
    [
        ("zeromq", "zenoh", "speaks zeromq, not zenoh"),
        ("zeromq", "mqtt", "speaks zeromq, not mqtt"),
        ("mqtt", "zenoh", "speaks mqtt, not zenoh"),
        ("mqtt", "zeromq", "speaks mqtt, not zeromq"),
        ("zenoh", "zeromq", "does not speak zeromq"),
        ("zenoh", "mqtt", "does not speak mqtt"),
    ],
)
def test_another_transport_at_the_other_end_is_named(
    listens: TransportName, connects: TransportName, reason: str
) -> None:
    at = free_endpoint()
    with twinlink.open(listens, listen=at):
        assert f"what listens there {reason}: open both sides with the same transport" in said(connects, at)


def test_the_second_port_of_a_link_is_recognised_by_a_connector_a_listener_and_doctor() -> None:
    at = free_endpoint(4)
    port = int(at.rpartition(":")[2])
    second = f"tcp/127.0.0.1:{port + 1}"
    listener = subprocess.Popen([sys.executable, "-m", "twinlink", "pong", "--listen", at], stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: probe("127.0.0.1", port, 1.0, asks=True).protocol == "zeromq")
        advice = f"port {port + 1} is the second port of the link that listens at {port}: connect to {at}"
        assert advice in said("zeromq", second)
        with pytest.raises(twinlink.TransportError, match=f"is the second port of a link that listens at {port}:"):
            twinlink.open("zeromq", listen=second)
        rows = list(checks.peer(second))
        assert [(row.status, row.next) for row in rows] == [("fail", f"give its first port: {at}")]
    finally:
        listener.terminate()
        listener.wait()


@brokerless
def test_another_program_at_the_other_end_is_named(transport: TransportName) -> None:
    def greet() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            with connection:
                connection.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=greet, daemon=True).start()
        text = said(transport, f"tcp/127.0.0.1:{server.getsockname()[1]}")
        server.shutdown(socket.SHUT_RDWR)
    assert "greets with 'SSH-2.0-OpenSSH" in text


def test_a_program_that_speaks_the_same_protocol_is_not_blamed() -> None:
    """It is no node of twinlink: only the general advice is left."""
    with zmq.Context() as context, context.socket(zmq.PUB) as publisher:
        port = publisher.bind_to_random_port("tcp://127.0.0.1")
        text = said("zeromq", f"tcp/127.0.0.1:{port}")
    config = zenoh.Config()
    at = free_endpoint()
    config.insert_json5("listen/endpoints", f'["{at}"]')
    config.insert_json5("scouting/multicast/enabled", "false")
    with zenoh.open(config):
        texts = text, said("zenoh", at)
    for each in texts:
        assert "check that the other side listens" in each
        assert "what listens there" not in each
        assert "TCP says" not in each


@pytest.mark.parametrize(("listens", "connects"), [("zeromq", "zenoh"), ("zeromq", "mqtt"), ("zenoh", "zeromq")])
def test_the_listener_reports_a_peer_of_another_transport(listens: TransportName, connects: TransportName) -> None:
    at = free_endpoint()
    with twinlink.open(listens, listen=at) as link:
        with twinlink.open(connects, connect=at):
            wait_until(lambda: link.stats()["malformed"].get("transport"))
        assert "transport" in {event.reason for event in drain(link, twinlink.Malformed)}


@brokerless
def test_the_listener_reports_no_peer_of_its_own_transport(transport: TransportName) -> None:
    at = free_endpoint()
    with twinlink.open(transport, listen=at) as link:
        for _ in range(5):
            socket.create_connection(("127.0.0.1", int(at.rpartition(":")[2]))).close()
            with twinlink.open(transport, connect=at) as peer:
                peer.wait_ready(patience())
        assert link.stats()["malformed"] == {}


@pytest.mark.parametrize("transport", REAL)
def test_a_cause_on_this_host_is_named_and_no_firewall(transport: TransportName, tmp_path: Path) -> None:
    """No descriptor is free, or no route leads there: neither depends on the other side."""
    with twinlink.open(transport, connect=free_endpoint()) as link, ExitStack() as opened:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 200), hard))
        try:
            with contextlib.suppress(OSError):
                while True:
                    opened.enter_context((tmp_path / "file").open("a"))
            with pytest.raises(twinlink.PeerTimeout) as raised:
                link.wait_ready(0.1)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert "this host has no descriptor free" in str(raised.value)
    assert "firewall" not in str(raised.value)


@pytest.mark.parametrize("transport", REAL)
def test_a_listener_that_ends_each_connection_at_once_is_named(transport: TransportName) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def end() -> None:
            with contextlib.suppress(OSError):
                while True:
                    server.accept()[0].close()

        threading.Thread(target=end, daemon=True).start()
        assert "ends each connection at once" in said(transport, f"tcp/127.0.0.1:{server.getsockname()[1]}")
        server.shutdown(socket.SHUT_RDWR)


@needs_mosquitto
def test_a_broker_at_its_limit_sends_no_one_to_repair_keys(tmp_path: Path, endpoint: str) -> None:
    twin, gnb = make_pair(tmp_path)
    port = int(endpoint.rsplit(":", 1)[1])
    with (
        twinlink.open("mqtt", listen=endpoint, identity=twin.folder, connections=8, handshakes=8) as listener,
        ExitStack() as opened,
    ):
        transport: Any = listener._transport
        transport.broker._guard.close()  # which would end idle connections
        for _ in range(30):
            opened.enter_context(socket.create_connection(("127.0.0.1", port)))
        link = opened.enter_context(twinlink.open("mqtt", connect=endpoint, identity=gnb.folder))
        with pytest.raises(twinlink.PeerTimeout) as raised:
            link.wait_ready(2.5)
    assert "ends each connection at once" in str(raised.value)
    assert "key" not in str(raised.value)


def test_a_listener_names_its_own_limits() -> None:
    at = free_endpoint(2)
    port = int(at.rsplit(":", 1)[1])
    with twinlink.open("zeromq", listen=at, handshakes=2) as link, ExitStack() as opened:
        for _ in range(6):
            opened.enter_context(socket.create_connection(("127.0.0.1", port)))
        wait_until(lambda: link.stats()["limits_exceeded"].get("handshakes"))
        with pytest.raises(twinlink.PeerTimeout, match=r"ended connections for its limits \(handshakes \d+\)"):
            link.wait_ready(0.1)
