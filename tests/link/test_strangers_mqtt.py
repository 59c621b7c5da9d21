"""Foreign programs that take what they can of a private broker: they lose their connection, and the peers nothing."""

import contextlib
import os
import shutil
import socket
import struct
import time

import pytest

import twinlink
from tests.link.true_peers import deliver, ended, pair
from twinlink.testing import patience, wait_until
from twinlink.transports import mqtt_broker_guard
from twinlink.transports.mosquitto import SBIN

pytestmark = pytest.mark.skipif(
    shutil.which("mosquitto", path=f"{os.environ.get('PATH', '')}:{SBIN}") is None, reason="mosquitto is not installed"
)
MIB = 1024 * 1024
CONNACK, DISCONNECT = 0x20, 0xE0  # MQTT 5.0 section 2.1.2
SERVER_KEEP_ALIVE, RETAIN_NOT_SUPPORTED = 0x13, 0x9A


class Stranger:
    """A client of MQTT 5 that does only what a test says; keepalive 0."""

    def __init__(self, endpoint: str) -> None:
        self.socket = connect(endpoint)
        self.send(0x10, b"\0\4MQTT\5\2\0\0\0\0\x08stranger")
        self.connack = self.socket.recv(1024)
        assert self.connack[0] == CONNACK

    def send(self, first: int, body: bytes) -> None:
        length, left = b"", len(body)
        while left or not length:
            left, octet = divmod(left, 128)
            length += bytes([octet | (0x80 if left else 0)])
        self.socket.sendall(bytes([first]) + length + body)

    def publish(self, topic: bytes, payload: bytes, retain: bool = False) -> None:
        self.send(0x31 if retain else 0x30, struct.pack("!H", len(topic)) + topic + b"\0" + payload)

    def subscribe(self, topics: bytes) -> None:
        self.send(0x82, b"\0\1\0" + struct.pack("!H", len(topics)) + topics + b"\0")
        assert self.socket.recv(5)[0] == 0x90


def connect(endpoint: str) -> socket.socket:
    return socket.create_connection(("127.0.0.1", int(endpoint.rsplit(":", 1)[1])), patience())


def test_idle_connections_keep_no_peer_out(endpoint: str) -> None:
    with (
        twinlink.open("mqtt", listen=endpoint, connections=20, handshakes=10) as listener,
        contextlib.ExitStack() as opened,
    ):
        idle = [opened.enter_context(connect(endpoint)) for _ in range(60)]  # the broker takes 30
        with twinlink.open("mqtt", connect=endpoint) as peer:
            peer.wait_ready(patience())
            listener.wait_ready(patience())
            deliver(listener, peer)
        for one in idle:
            assert not one.recv(1)
        assert ended(listener, "handshakes") > 0


def test_a_connection_without_a_connect_packet_is_ended(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """mosquitto itself waits for 90 s."""
    monkeypatch.setattr(mqtt_broker_guard, "HANDSHAKE_S", 0.5)
    with pair("mqtt", endpoint) as (listener, peer), connect(endpoint) as stranger:
        stranger.sendall(b"\x10")
        assert not stranger.recv(1)
        wait_until(lambda: ended(listener, "handshakes") == 1)
        deliver(listener, peer)


def test_a_subscriber_that_reads_nothing_is_ended(endpoint: str) -> None:
    with pair("mqtt", endpoint, unsent_octets=4 * MIB) as (listener, peer):
        stranger = Stranger(endpoint)
        stranger.subscribe(b"traffic/+")
        with stranger.socket:
            for _ in range(200):
                deliver(listener, peer, bytes(256 * 1024), 4)
                if ended(listener, "unsent_octets"):
                    break
            assert ended(listener, "unsent_octets") == 1
        deliver(listener, peer)


def test_what_no_thread_reads_is_limited(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pair("mqtt", endpoint, unread_octets=4 * MIB) as (listener, peer):
        stranger = Stranger(endpoint)
        transport = listener._transport
        with stranger.socket, monkeypatch.context() as stalled:

            def stall(_: float) -> None:
                transport.tick()
                time.sleep(0.01)

            stalled.setattr(transport, "receive", stall)
            with contextlib.suppress(ConnectionError):  # it is ended
                for _ in range(400):
                    stranger.publish(b"traffic/x", bytes(256 * 1024))
                    time.sleep(0.005)
        wait_until(lambda: ended(listener, "unread_octets") == 1)
        deliver(listener, peer)


def test_no_message_is_retained_and_no_client_stays_silent_for_long(endpoint: str) -> None:
    with pair("mqtt", endpoint, keepalive_s=11) as (listener, peer):
        stranger = Stranger(endpoint)
        with stranger.socket:
            assert bytes([SERVER_KEEP_ALIVE, 0, 11]) in stranger.connack
            stranger.publish(b"x", b"retained", retain=True)
            answer = stranger.socket.recv(100)
            assert (answer[0], answer[2]) == (DISCONNECT, RETAIN_NOT_SUPPORTED)
        deliver(listener, peer)


def test_without_the_system_call_the_broker_goes_on(
    endpoint: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As in a container that does not permit it."""
    monkeypatch.setattr(mqtt_broker_guard, "PIDFD_GETFD", 100_000)
    with pair("mqtt", endpoint) as (listener, peer):
        wait_until(lambda: "permit pidfd_getfd" in caplog.text)
        deliver(listener, peer)
        assert caplog.text.count("permit pidfd_getfd") == 1
