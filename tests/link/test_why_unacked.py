"""What `AckTimeout` says: why a message is not acknowledged, and what to do."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

import twinlink
from twinlink.testing import free_endpoint, patience, wait_until

_SHORT_S = 0.3
_LISTENER = """
import sys, time, twinlink
link = twinlink.open("zeromq", listen=sys.argv[1], node="twin-1")
link.receiver("d")
time.sleep(600)
"""


@contextmanager
def listener(endpoint: str) -> Iterator["subprocess.Popen[bytes]"]:
    process = subprocess.Popen([sys.executable, "-c", _LISTENER, endpoint])
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def unacknowledged(sender: twinlink.Sender, timeout: float = _SHORT_S) -> twinlink.AckTimeout:
    with pytest.raises(twinlink.AckTimeout) as caught:
        sender.flush(timeout)
    assert caught.value.reason in str(caught.value)
    return caught.value


def test_without_a_peer_the_message_is_lost_and_the_call_to_make_before_is_named() -> None:
    with twinlink.open("zeromq", connect=free_endpoint()) as link:
        sender = link.sender("d")
        sender.send(b"to no peer")
        error = unacknowledged(sender)
        assert error.reason == "no peer was up"
        assert "lost: no peer was up; what is sent after wait_ready() reaches a peer" in str(error)


def test_a_peer_that_does_not_read_is_told_from_one_that_is_down() -> None:
    endpoint = free_endpoint()
    with twinlink.open("zeromq", connect=endpoint, window=2**20) as link, listener(endpoint) as peer:
        link.wait_ready(patience())
        sender = link.sender("d")
        for _ in range(4):
            sender.send(bytes(2**20))
        error = unacknowledged(sender)
        assert error.reason.startswith("the peer's application reads slower than is sent")
        assert f"within {_SHORT_S} s by twin-1: " in str(error)
        peer.kill()
        wait_until(lambda: not link.peers())
        error = unacknowledged(sender)
        assert error.reason == "the peer is down"
        assert "by twin-1 (down, may return)" in str(error)


def test_the_peer_that_is_lost_with_a_message_does_not_hide_the_one_that_is_waited_for() -> None:
    endpoint = free_endpoint()
    with twinlink.open("zeromq", connect=endpoint, window=2**20) as link:
        sender = link.sender("d")
        sender.send(b"to no peer")
        with listener(endpoint):
            link.wait_ready(patience())
            for _ in range(4):
                sender.send(bytes(2**20))
            error = unacknowledged(sender)
        assert "lost or not acknowledged within" in str(error)
        assert error.reason.startswith("no peer was up; the peer's application reads slower")
        assert error.missing[0][0] == 0


def test_a_link_that_was_closed_says_so() -> None:
    endpoint = free_endpoint()
    with twinlink.open("zeromq", connect=endpoint, window=2**20) as link, listener(endpoint):
        link.wait_ready(patience())
        sender = link.sender("d")
        for _ in range(4):
            sender.send(bytes(2**20))
        link.close()
        assert unacknowledged(sender).reason == "the link is closed"
