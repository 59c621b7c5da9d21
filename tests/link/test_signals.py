"""Ctrl-C and signal handlers, which come between any two steps of the thread that sends."""

import itertools
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import twinlink
from twinlink.events import PeerDown
from twinlink.testing import patience, wait_until
from twinlink.transport_options import TransportName

LIBRARY = str(Path(twinlink.__file__).parent)

FILES = ("sender.py", "transmitter.py", "driver.py")
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
    """Presses Ctrl-C where Python does, when a call has returned: the ``number``-th of the sender's locks."""

    def __init__(self, number: int) -> None:
        self.left = number

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        if event == "c_return" and frame.f_code.co_filename.endswith(("sender.py", "transmitter.py", "driver.py")):
            self.left -= argument.__name__ in {"acquire", "release"}
            if not self.left:
                sys.setprofile(None)
                signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize("transport", ["memory", "zeromq", "zenoh"])
def test_a_flow_goes_on_after_ctrl_c_wherever_a_lock_of_its_sender_is_taken(
    transport: TransportName, endpoint: str
) -> None:
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
@pytest.mark.parametrize("delay_s", [0.2, pytest.param(0.3137, marks=pytest.mark.thorough)])
def test_a_signal_handler_may_close(transport: TransportName, waits: str, delay_s: float, endpoint: str) -> None:
    command = [sys.executable, "-c", CLOSES_WHILE_SENDING, transport, endpoint, str(delay_s), str(patience()), waits]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=3 * patience(), check=True)
    assert done.stdout == "closed\n"


class CallEnds:
    """Presses Ctrl-C where the ``number``-th call of something built in ends, in a file of the library.

    Or where one of something in `threading` does that the library uses.
    """

    def __init__(self, number: int) -> None:
        self.left = number
        self.where = ""

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        file = frame.f_code.co_filename
        ends = event in {"c_return", "return"} if file == threading.__file__ else event == "c_return"
        if ends and file.startswith((LIBRARY, threading.__file__)):
            self.left -= 1
            if not self.left:
                sys.setprofile(None)
                self.where = f"{file}:{frame.f_lineno} {getattr(argument, '__name__', 'return')}"
                signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize("overflow", ["block", "latest"])
def test_wherever_ctrl_c_comes_the_sums_are_right_and_the_flow_goes_on(overflow: Any, endpoint: str) -> None:
    """On the thread that is interrupted messages are sent and acknowledged, and another one received."""
    with (
        twinlink.open("memory", listen=endpoint, node="far") as far,
        twinlink.open("memory", connect=endpoint, node="near") as near,
    ):
        near.wait_ready(patience())
        far.wait_ready(patience())
        sender = near.sender("there", overflow=overflow)
        there, here, back, core = far.receiver("there"), near.receiver("here"), far.sender("here"), sender._flow
        for number in itertools.count(1):
            ends = CallEnds(number)
            back.send(b"0")
            sys.setprofile(ends)
            try:
                sender.send(b"1")
                sender.send(b"1")  # of states, it waits for the transmit thread
                sender.flush(patience())
                here.receive(patience())
            except KeyboardInterrupt:
                pass
            finally:
                sys.setprofile(None)
            last = sender.send(b"2")
            sender.flush(patience())
            while there.receive(patience()).sequence != last:  # type: ignore[union-attr]
                pass
            back.send(b"3")
            back.flush(patience())
            assert here.receive(patience()), ends.where  # "0", or at least what came after
            assert sender.stats()["sent"] == sender.stats()["acknowledged"] + sender.stats()["conflated"], ends.where
            assert not core.unacked.entries, ends.where
            assert not core.in_flight, ends.where
            assert core.in_flight._octets == 0, ends.where
            assert near._session.send_flows.budgets.of["normal"].in_flight == 0, ends.where
            assert core.unacked.octets == 0, ends.where
            while here.receive(0):
                pass
            if not ends.where:
                break
    assert number > 30  # on a busy machine, the other threads of the link do more of the work


def test_wherever_ctrl_c_comes_in_a_batch_it_is_sent_or_not_and_the_sums_are_right(endpoint: str) -> None:
    """On the thread that is interrupted batches are sent and acknowledged, and others received."""
    with (
        twinlink.open("memory", listen=endpoint, node="far") as far,
        twinlink.open("memory", connect=endpoint, node="near") as near,
    ):
        near.wait_ready(patience())
        far.wait_ready(patience())
        sender = near.sender("there")
        there, here, back, core = far.receiver("there"), near.receiver("here"), far.sender("here"), sender._flow
        stream = near._session.receive_flow("here").streams
        sent_before, got_before = 0, 0
        for number in itertools.count(1, 2):
            ends = CallEnds(number)
            back.send_many([b"0"] * 3)  # a run, a single message, and a run: the parts of a batch
            back.send(b"0")
            back.send_many([b"0"] * 3)
            back.flush(patience())
            received: list[int] = []
            sys.setprofile(ends)
            try:
                sender.send_many([b"%d" % place for place in range(50)])
                sender.flush(patience())
                batch = here.receive_many(5, patience())
                sys.setprofile(None)
                received.extend(map(int, batch.sequence))
            except KeyboardInterrupt:
                pass
            finally:
                sys.setprofile(None)
            last = sender.send(b"last")
            sender.flush(patience())
            assert last - sent_before in {0, 50}, ends.where
            got: list[bytes] = []
            while len(got) < last + 1 - sent_before:
                got += map(bytes, there.receive_many(timeout=patience()).payloads)
            assert got == [b"%d" % place for place in range(last - sent_before)] + [b"last"], ends.where
            sent_before = last + 1
            assert sender.stats()["sent"] == sender.stats()["acknowledged"], ends.where
            assert not core.unacked.entries, ends.where
            assert core.unacked.octets == 0, ends.where
            assert near._session.send_flows.budgets.of["normal"].in_flight == 0, ends.where
            while batch := here.receive_many(2, 0):
                received.extend(map(int, batch.sequence))
            assert received == list(range(got_before, got_before + 7)), ends.where
            (one,) = stream.values()
            assert (one.waiting_octets, one.consumed) == (0, got_before + 7), ends.where
            got_before += 7
            if not ends.where:
                break
    assert number > 30


def test_wherever_ctrl_c_comes_in_close_the_link_is_closed_and_its_peer_knows(endpoint: str) -> None:
    for number in itertools.count(1, 3):
        far = twinlink.open("memory", listen=endpoint, node="far")
        near = twinlink.open("memory", connect=endpoint, node="near")
        near.wait_ready(patience())
        far.wait_ready(patience())
        ends = CallEnds(number)
        sys.setprofile(ends)
        try:
            near.close()
        except KeyboardInterrupt:
            pass
        finally:
            sys.setprofile(None)
        near.close()
        far._wait(lambda: not far.peers(), patience())  # noqa: B023
        events = list(iter(lambda: far.events().receive(0), None))  # noqa: B023
        assert [event.reason for event in events if isinstance(event, PeerDown)] == ["closed"], ends.where
        assert near.closed, ends.where
        far.close()
        if not ends.where:
            break
    assert number > 20
