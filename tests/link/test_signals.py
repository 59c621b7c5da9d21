"""Ctrl-C and signal handlers, which come between any two steps of the thread that sends."""

import subprocess
import sys
from types import FrameType
from typing import Any

import pytest

import twinlink
from twinlink.testing import patience, wait_until

BURST = 400
INTERRUPTS = 8
CLOSES_WHILE_SENDING = """
import signal, sys, time, twinlink
transport, endpoint, delay_s = sys.argv[1], sys.argv[2], float(sys.argv[3])
with twinlink.open(transport, listen=endpoint) as far, twinlink.open(transport, connect=endpoint) as near:
    far.receiver("f", handler=lambda message: None)
    near.wait_ready(float(sys.argv[4]))
    sender = near.sender("f")
    signal.signal(signal.SIGALRM, lambda *_: near.close())
    signal.setitimer(signal.ITIMER_REAL, delay_s)
    try:
        while True:
            sender.send(bytes(100))
            if sys.argv[5] == "flush":
                sender.flush(60)
    except (twinlink.LinkClosed, twinlink.AckTimeout):
        while not near.closed:
            time.sleep(0.01)
        print("closed")
"""


class Interrupter:
    """Raises KeyboardInterrupt where Python does, when a call has returned: the ``number``-th of the sender's locks."""

    def __init__(self, number: int) -> None:
        self.left = number

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        if event == "c_return" and frame.f_code.co_filename.endswith("sender.py"):
            self.left -= argument.__name__ in {"acquire", "release"}
            if not self.left:
                sys.setprofile(None)
                raise KeyboardInterrupt


@pytest.mark.parametrize("transport", ["memory", "zeromq", "zenoh"])
def test_a_flow_goes_on_after_ctrl_c_wherever_a_lock_of_its_sender_is_taken(transport: str, endpoint: str) -> None:
    with twinlink.open(transport, listen=endpoint) as far, twinlink.open(transport, connect=endpoint) as near:
        got: list[int] = []
        far.receiver("f", handler=lambda message: got.append(message.sequence))
        near.wait_ready(patience())
        sender = near.sender("f")
        for interrupt in range(1, INTERRUPTS + 1):
            sys.setprofile(Interrupter(interrupt))
            try:
                for _ in range(BURST):
                    sender.send(bytes(100))
                sender.flush(patience())
            except KeyboardInterrupt:
                pass
            finally:
                sys.setprofile(None)
            last = sender.send(bytes(100))
            sender.flush(patience())
            wait_until(lambda: got[-1] == last)  # noqa: B023
        assert got == list(range(last + 1))


@pytest.mark.parametrize("transport", ["zeromq", "zenoh"])
@pytest.mark.parametrize("waits", ["send", "flush"])
@pytest.mark.parametrize("delay_s", [0.2, 0.3137])
def test_a_signal_handler_may_close(transport: str, waits: str, delay_s: float, endpoint: str) -> None:
    command = [sys.executable, "-c", CLOSES_WHILE_SENDING, transport, endpoint, str(delay_s), str(patience()), waits]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=3 * patience(), check=True)
    assert done.stdout == "closed\n"
