"""Closing waits for acks as long as they come."""

import signal
import subprocess
import sys
import threading
import time

import pytest

import twinlink
from twinlink.runtime.linger import LINGER_S, MAX_LINGER_S
from twinlink.testing import patience, wait_until
from twinlink.transport_options import TransportName

MESSAGES = 12
CLOSES = """
import sys, twinlink
link = twinlink.open("zeromq", connect=sys.argv[1], retention=2**28, window=2**28)
link.wait_ready(60)
outbox = link.sender("up")
for _ in range(100):
    outbox.send(bytes(600_000))
print("leaves", flush=True)
if sys.argv[2] == "close":
    link.close()
"""


class SlowReader(threading.Thread):
    """Takes one message at a time, so that its window opens and acks come slowly."""

    def __init__(self, link: twinlink.Link, each_s: float) -> None:
        super().__init__(daemon=True)
        self.got = 0
        self._receiver, self._each_s = link.receiver("up"), each_s

    def run(self) -> None:
        while self._receiver.receive() is not None:
            self.got += 1
            time.sleep(self._each_s)


@pytest.mark.parametrize("transport", ["zeromq", "zenoh"])
def test_what_was_accepted_arrives_though_it_takes_longer(transport: TransportName, endpoint: str) -> None:
    with twinlink.open(transport, listen=endpoint, window=2**20) as far:
        reader = SlowReader(far, LINGER_S / 6)
        reader.start()
        with twinlink.open(transport, connect=endpoint, window=2**20) as near:
            near.wait_ready(patience())
            outbox = near.sender("up")
            for _ in range(MESSAGES):
                outbox.send(bytes(600_000))  # the second waits until the first has been read
        assert outbox.stats()["outstanding"] == outbox.stats()["lost"] == 0
        wait_until(lambda: reader.got == MESSAGES)


@pytest.mark.parametrize("ends", ["close", "exit"])
def test_ctrl_c_ends_the_wait(ends: str, endpoint: str) -> None:
    with twinlink.open("zeromq", listen=endpoint, window=2**20) as far:
        reader = SlowReader(far, LINGER_S / 3)  # 100 messages take longer than close waits
        reader.start()
        command = [sys.executable, "-c", CLOSES, endpoint, ends]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
            assert child.stdout is not None
            assert child.stdout.readline() == "leaves\n"
            time.sleep(LINGER_S * 2)
            assert child.poll() is None
            began = time.monotonic()
            child.send_signal(signal.SIGINT)
            _, told = child.communicate(timeout=patience())
        took_s = time.monotonic() - began
    assert "not acknowledged" in told
    assert took_s < MAX_LINGER_S - 2 * LINGER_S
