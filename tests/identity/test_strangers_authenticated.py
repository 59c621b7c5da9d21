"""Programs without a key take what they can of a listener with an identity: a peer gets in when they have left."""

import contextlib
import os
import socket
import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import twinlink
from tests.identity.nodes import deliver, make_pair, needs_mosquitto, opener
from tests.link.true_peers import ended
from twinlink.testing import patience, wait_until
from twinlink.transport_options import TransportName

STRANGERS = 150
IN_TURN_S = STRANGERS * 0.1  # what a Zenoh listener takes for as many failed handshakes
TRANSPORTS = ["zenoh", "zeromq", pytest.param("mqtt", marks=needs_mosquitto), "websocket", "tcp"]


def client_hello() -> bytes:
    """The first message of TLS (RFC 8446 section 4.1.2)."""
    context = ssl.create_default_context()
    arrives, leaves = ssl.MemoryBIO(), ssl.MemoryBIO()
    secured = context.wrap_bio(arrives, leaves, server_hostname="twin-1")
    with contextlib.suppress(ssl.SSLWantReadError):
        secured.do_handshake()
    return leaves.read()


BEGINNINGS = {"nothing": b"", "an octet": b"\x16", "no TLS": os.urandom(40), "a ClientHello": client_hello()}


@contextlib.contextmanager
def strangers(endpoint: str, first: bytes, number: int = STRANGERS) -> Iterator[list[socket.socket]]:
    port = int(endpoint.rsplit(":", 1)[1])
    with contextlib.ExitStack() as opened:
        connected = []
        for _ in range(number):
            with contextlib.suppress(ConnectionError, TimeoutError):  # a listener may end those before
                one = socket.create_connection(("127.0.0.1", port), patience())
                connected.append(opened.enter_context(one))
                one.sendall(first)
        yield connected


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("first", BEGINNINGS.values(), ids=BEGINNINGS)
def test_a_peer_gets_in_when_strangers_have_left(
    first: bytes, transport: TransportName, endpoint: str, tmp_path: Path
) -> None:
    twin, gnb = make_pair(tmp_path)
    opened = opener(transport)
    with opened("listen", endpoint, twin) as listener:
        with opened("connect", endpoint, gnb) as before:
            before.wait_ready(patience())
        with strangers(endpoint, first):
            time.sleep(0.3)  # what a listener accepts at once, it has accepted
        left_s = time.monotonic()
        with opened("connect", endpoint, gnb) as peer:
            peer.wait_ready(patience())
            assert time.monotonic() - left_s < IN_TURN_S
            listener.wait_ready(patience())
            deliver(peer, listener, "d")


def test_idle_strangers_do_not_reach_a_zenoh_session(endpoint: str, tmp_path: Path) -> None:
    """So they interrupt no peer that is up."""
    twin, gnb = make_pair(tmp_path)
    opened = opener("zenoh")
    with opened("listen", endpoint, twin) as listener, opened("connect", endpoint, gnb) as peer:
        peer.wait_ready(patience())
        listener.wait_ready(patience())
        transport: Any = listener._transport
        wait_until(lambda: not transport._tcp._unfiltered)
        session = transport._session
        with strangers(endpoint, b""):
            time.sleep(0.3)
            deliver(peer, listener, "d")
            assert transport._session is session
            assert not listener.stats()["limits_exceeded"]


def test_a_handshake_that_does_not_go_on_is_ended(endpoint: str, tmp_path: Path) -> None:
    """Zenoh itself waits for ten seconds."""
    twin, _ = make_pair(tmp_path)
    with (
        twinlink.open("zenoh", listen=endpoint, identity=twin.folder, accept_timeout_ms=300) as listener,
        strangers(endpoint, client_hello(), 2) as connected,
    ):
        wait_until(lambda: ended(listener, "accept_timeout_ms") == len(connected))
        for one in connected:
            one.settimeout(patience())
            while one.recv(4096):
                pass
