"""Who has not acknowledged, when a link closes: a session that fell silent, beside a peer that has everything."""

import logging
import subprocess
import sys

import pytest

import twinlink
from twinlink.testing import free_endpoint, patience, wait_until

_LISTENER = """
import sys, time, twinlink
link = twinlink.open("zeromq", listen=sys.argv[1], node=sys.argv[2])
link.receiver("d", handler=lambda message: None)
time.sleep(600)
"""


def test_a_closed_link_names_who_still_owes_an_ack(caplog: pytest.LogCaptureFixture) -> None:
    endpoint = free_endpoint()
    link = twinlink.open("zeromq", connect=endpoint)
    sender = link.sender("d")
    first = subprocess.Popen([sys.executable, "-c", _LISTENER, endpoint, "twin-1"])
    try:
        link.wait_ready(patience())
        sender.send(b"which it acknowledges")
        sender.flush(patience())
    finally:
        first.kill()
        first.wait()
    wait_until(lambda: not link.peers())
    second = subprocess.Popen([sys.executable, "-c", _LISTENER, endpoint, "twin-2"])
    try:
        link.wait_ready(patience())
        sender.send(b"which the first may come back for")
        with caplog.at_level(logging.WARNING, "twinlink"):
            link.close()
    finally:
        second.kill()
        second.wait()
    (told,) = [record.getMessage() for record in caplog.records if "not acknowledged" in record.getMessage()]
    assert "twin-1 (down, may return)" in told
