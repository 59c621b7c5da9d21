"""Foreign programs that take what they can of a Zenoh listener: they lose their connection, and the peers nothing."""

import contextlib
import json
import signal
import socket
import subprocess
import sys
import time

import pytest
import zenoh

import twinlink
from tests.link.true_peers import deliver, ended, pair
from twinlink.testing import patience, wait_until

MIB = 1024 * 1024
BLOCK_S = 20.0  # far above what a send takes


def config(endpoint: str) -> zenoh.Config:
    """Of a foreign program that connects."""
    made = zenoh.Config()
    for key, value in (
        ("mode", "peer"),
        ("connect/endpoints", [endpoint]),
        ("listen/endpoints", []),
        ("scouting/multicast/enabled", False),
    ):
        made.insert_json5(key, json.dumps(value))
    return made


SUBSCRIBER = """
import sys, zenoh
config = zenoh.Config()
for key, value in zip(sys.argv[1::2], sys.argv[2::2]):
    config.insert_json5(key, value)
with zenoh.open(config) as session:
    subscriber = session.declare_subscriber("traffic/**")
    subscriber.recv()
    print("hears", flush=True)
    sys.stdin.read()
"""


def test_a_subscriber_that_reads_nothing_does_not_delay_the_peer(endpoint: str) -> None:
    """If ``send`` waited for it, it would do so for ``block_before_close_ms``."""
    arguments = [
        "mode", '"peer"', "connect/endpoints", json.dumps([endpoint]), "listen/endpoints", "[]",
        "scouting/multicast/enabled", "false",
    ]  # fmt: skip
    with (
        pair("zenoh", endpoint, block_before_close_ms=int(BLOCK_S * 1000), lease_ms=60_000) as (listener, peer),
        subprocess.Popen(
            [sys.executable, "-c", SUBSCRIBER, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as stranger,
    ):
        assert stranger.stdout
        try:
            assert stranger.stdout.readline() == "hears\n"
            stranger.send_signal(signal.SIGSTOP)
            longest_s = 0.0
            for _ in range(100):  # 64 MB, far more than TCP and Zenoh queue
                before = time.monotonic()
                deliver(listener, peer, bytes(64 * 1024), 10)
                longest_s = max(longest_s, time.monotonic() - before)
        finally:
            stranger.kill()
        assert longest_s < BLOCK_S / 2


def test_idle_connections_keep_no_peer_out(endpoint: str) -> None:
    port = int(endpoint.rsplit(":", 1)[1])
    with (
        twinlink.open("zenoh", listen=endpoint, handshakes=20, accept_timeout_ms=60_000) as listener,
        contextlib.ExitStack() as opened,
    ):
        idle = [opened.enter_context(socket.create_connection(("127.0.0.1", port))) for _ in range(100)]
        with twinlink.open("zenoh", connect=endpoint) as peer:
            peer.wait_ready(patience())
            listener.wait_ready(patience())
            deliver(listener, peer)
        wait_until(lambda: ended(listener, "handshakes") == len(idle))


def test_what_no_thread_reads_is_limited(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pair("zenoh", endpoint, unread_octets=4 * MIB) as (listener, peer), zenoh.open(config(endpoint)) as stranger:
        wait_until(lambda: stranger.put("traffic/x", b"?") or listener.stats()["malformed"])
        with monkeypatch.context() as stalled:
            stalled.setattr(listener._transport, "receive", lambda _: time.sleep(0.01))
            for _ in range(100):
                stranger.put("traffic/x", bytes(256 * 1024), congestion_control=zenoh.CongestionControl.BLOCK)
                if listener._transport.limits_exceeded["unread_octets"]:
                    break
            wait_until(lambda: listener._transport.limits_exceeded["unread_octets"])
        wait_until(lambda: ended(listener, "unread_octets"))
        deliver(listener, peer)
