"""Foreign programs that take what they can of a ZeroMQ listener: they lose their connection, and the peers nothing."""

import contextlib
import itertools
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import zmq

import twinlink
from tests.link.true_peers import deliver, ended, pair
from twinlink.testing import patience, wait_until
from twinlink.testing.base import ForeignPeer, drain
from twinlink.transports import Endpoint
from twinlink.transports.zeromq import ZeromqOptions, ZeromqTransport
from twinlink.transports.zeromq_joining import JOINING

Sockets = Callable[[int, int], "zmq.Socket[bytes]"]
MIB = 1024 * 1024
EPOCH = 0xFEED
# ZMTP 3.0: greeting, READY of a SUB socket.
HANDSHAKE = b"\xff" + bytes(8) + b"\x7f\3\0NULL" + bytes(48) + b"\4\x19\5READY\x0bSocket-Type\0\0\0\3SUB"


@pytest.fixture
def raw(endpoint: str) -> Iterator[Sockets]:
    """Makes a socket of a kind that is connected to one of the listener's two ports."""
    with zmq.Context() as context, contextlib.ExitStack() as opened:

        def make(kind: int, port: int) -> "zmq.Socket[bytes]":
            made = opened.enter_context(context.socket(kind))
            made.setsockopt(zmq.LINGER, 0)
            made.setsockopt(zmq.SNDHWM, 0)
            made.connect(f"tcp://127.0.0.1:{int(endpoint.rsplit(':', 1)[1]) + port}")
            return made

        yield make


def resident_octets() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_subscriptions_take_no_memory(endpoint: str) -> None:
    """4 MB of them would take libzmq 200 MiB, and ``send`` a second."""
    with pair("zeromq", endpoint) as (listener, peer):
        before = resident_octets()
        with socket.create_connection(("127.0.0.1", int(endpoint.rsplit(":", 1)[1]))) as stranger:
            stranger.sendall(HANDSHAKE)
            answer = b""
            while b"READY" not in answer:
                answer += stranger.recv(1000)
            with contextlib.suppress(ConnectionError):
                for _ in range(4000):
                    stranger.sendall(b"\2" + (1001).to_bytes(8) + b"\1" + os.urandom(1000))
        wait_until(lambda: ended(listener, "subscription_octets"))
        deliver(listener, peer)
        assert resident_octets() - before < 20 * MIB


def test_subscriptions_in_portions_are_limited_as_well(endpoint: str, raw: Sockets) -> None:
    """Each within what heartbeats may take."""
    with pair("zeromq", endpoint) as (listener, peer):
        stranger = raw(zmq.XSUB, 0)
        for number in itertools.count():
            stranger.send(b"\1%070d" % number)
            time.sleep(0.01)
            if ended(listener, "subscription_octets"):
                break
            assert number < 1000
        deliver(listener, peer)


def test_many_connections_with_subscriptions_do_not_stop_the_listener(endpoint: str, raw: Sockets) -> None:
    """libzmq visits all subscriptions when a connection ends; without a limit, the peer would be declared down."""
    with pair("zeromq", endpoint) as (listener, peer):
        strangers = [raw(zmq.XSUB, 0) for _ in range(50)]
        for stranger in strangers:
            for _ in range(50):
                stranger.send(b"\1" + os.urandom(70))
        wait_until(lambda: ended(listener, "subscription_octets"))
        for _ in range(10):
            deliver(listener, peer, count=10)
            time.sleep(0.05)  # the strangers connect again meanwhile
        assert drain(listener, twinlink.PeerDown) == []


def test_a_subscriber_that_reads_nothing_is_disconnected(endpoint: str, raw: Sockets) -> None:
    with pair("zeromq", endpoint, unsent_octets=MIB) as (listener, peer):
        stranger = raw(zmq.SUB, 0)
        stranger.setsockopt(zmq.RCVHWM, 1)
        stranger.subscribe(b"")
        assert stranger.poll(int(patience() * 1000))  # it is subscribed, and from now on reads nothing
        for _ in range(1000):
            deliver(listener, peer, bytes(64 * 1024), 10)
            if ended(listener, "unsent_octets"):
                break
        wait_until(lambda: ended(listener, "unsent_octets"))


def test_what_no_thread_reads_is_limited(endpoint: str, raw: Sockets, monkeypatch: pytest.MonkeyPatch) -> None:
    with pair("zeromq", endpoint, unread_octets=4 * MIB) as (listener, peer):
        stranger = raw(zmq.PUB, 1)
        wait_until(lambda: stranger.send_multipart([b"traffic/x", b"?"]) or listener.stats()["malformed"])
        with monkeypatch.context() as stalled:
            stalled.setattr(listener._transport, "receive", lambda _: time.sleep(0.01))
            for _ in range(100):
                stranger.send_multipart([b"traffic/x", bytes(256 * 1024)])
            wait_until(lambda: listener._transport.limits_exceeded["unread_octets"])
        wait_until(lambda: ended(listener, "unread_octets"))
        deliver(listener, peer)


def test_idle_connections_keep_no_peer_out(endpoint: str) -> None:
    port = int(endpoint.rsplit(":", 1)[1])
    with twinlink.open("zeromq", listen=endpoint, handshakes=20) as listener, contextlib.ExitStack() as opened:
        for _ in range(100):
            for one in (port, port + 1):
                opened.enter_context(socket.create_connection(("127.0.0.1", one)))
        with twinlink.open("zeromq", connect=endpoint) as peer:
            peer.wait_ready(patience())
            listener.wait_ready(patience())
            deliver(listener, peer)
        wait_until(lambda: ended(listener, "handshakes") >= 100)


def test_a_handshake_that_goes_on_for_ever_is_ended(endpoint: str) -> None:
    with (
        twinlink.open("zeromq", listen=endpoint, handshake_ms=100),
        socket.create_connection(("127.0.0.1", int(endpoint.rsplit(":", 1)[1]))) as stranger,
    ):
        stranger.sendall(b"\xff" + bytes(8) + b"\x7f\3")  # the beginning of ZMTP's greeting
        stranger.settimeout(10)  # libzmq's own limit is 30 s
        with contextlib.suppress(ConnectionResetError):
            while stranger.recv(100):
                pass


def test_a_subscription_to_the_topic_of_a_joining_node_does_not_keep_it_out(endpoint: str, raw: Sockets) -> None:
    with twinlink.open("zeromq", listen=endpoint) as link:
        stranger = raw(zmq.XSUB, 0)
        for _ in range(10):
            stranger.send(b"\1%s%016x" % (JOINING, EPOCH))
        transport = ZeromqTransport(Endpoint.parse(endpoint), False, 1000, ZeromqOptions())
        transport.epoch = EPOCH
        transport.open()
        try:
            node = ForeignPeer(transport, epoch=EPOCH)
            transport.greeted()

            def up() -> bool:
                stranger.send(b"\1%s%016x" % (JOINING, EPOCH))  # after the node has withdrawn its own
                node.receive(0.02)
                node.hello(link.epoch)
                return node.node in link.peers()

            wait_until(up)
        finally:
            transport.close()


RESETS = """
import socket, struct, sys, time, zmq
from twinlink.transports import Endpoint
from twinlink.transports.zeromq import ZeromqOptions, ZeromqTransport
endpoint = Endpoint.parse(sys.argv[1])
listener = ZeromqTransport(endpoint, True, 1000, ZeromqOptions())
listener.open()
stranger = socket.create_connection(("127.0.0.1", endpoint.port))
stranger.sendall(bytes.fromhex(sys.argv[2]))
time.sleep(0.2)
stranger.sendall(b"".join(b"\\0\\2\\1" + bytes([number]) for number in range(250)))
time.sleep(0.2)
stranger.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
stranger.close()
time.sleep(0.5)  # two heartbeats of libzmq
listener.send(b"traffic/flow", b"frame")
listener.close()
"""


def test_a_reset_with_a_full_queue_does_not_abort_the_process(endpoint: str) -> None:
    """libzmq 4.3.5 does, if its heartbeat comes before the queue is read."""
    process = subprocess.run(
        [sys.executable, "-c", RESETS, endpoint, HANDSHAKE.hex()],
        capture_output=True,
        text=True,
        timeout=patience(),
        check=False,
    )
    assert (process.returncode, process.stderr) == (0, "")
