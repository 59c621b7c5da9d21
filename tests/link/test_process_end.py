"""A process ends with a link still open: its messages get through, or are named."""

import subprocess
import sys

import pytest

import twinlink
from twinlink.testing import patience, wait_until
from twinlink.transport_options import TransportName

HANDLER_THAT_STAYS = """
import sys, threading, twinlink
transport, endpoint, closes = sys.argv[1:]
entered = threading.Event()

def stay(message):
    entered.set()
    threading.Event().wait()

link = twinlink.open(transport, connect=endpoint)
link.receiver("down", handler=stay)
link.wait_ready(60)
print("ready", flush=True)
entered.wait(60)
for _ in range(3):
    link.sender("up").send(b"")
if closes == "True":
    link.close()
"""

FORKED_BY_MULTIPROCESSING = """
import multiprocessing, sys, twinlink

def send(transport, endpoint, count):
    link = twinlink.open(transport, connect=endpoint)
    link.wait_ready(60)
    for _ in range(count):
        link.sender("up").send(bytes(1000))

process = multiprocessing.get_context("fork").Process(target=send, args=(*sys.argv[1:3], int(sys.argv[3])))
process.start()
process.join()
print(process.exitcode)
"""


@pytest.mark.parametrize(("transport", "closes"), [("zeromq", False), ("zeromq", True), ("zenoh", False)])
def test_acks_are_read_though_a_handler_does_not_return_when_the_process_ends(
    transport: TransportName, closes: bool, endpoint: str
) -> None:
    command = [sys.executable, "-c", HANDLER_THAT_STAYS, transport, endpoint, str(closes)]
    with twinlink.open(transport, listen=endpoint, node="far") as far:
        far.receiver("up", handler=lambda message: None)
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
            assert child.stdout is not None
            assert child.stdout.readline() == "ready\n"
            far.wait_ready(patience())
            far.sender("down").send(b"")
            _, told = child.communicate(timeout=patience())
    assert child.returncode == 0
    assert "a handler is running" in told
    assert "not acknowledged" not in told


@pytest.mark.parametrize("transport", ["zeromq", "zenoh"])
def test_a_child_of_multiprocessing_closes_its_links_although_it_does_not_come_to_atexit(
    transport: TransportName, endpoint: str
) -> None:
    count = 200
    command = [sys.executable, "-c", FORKED_BY_MULTIPROCESSING, transport, endpoint, str(count)]
    with twinlink.open(transport, listen=endpoint) as far:
        got: list[int] = []
        far.receiver("up", handler=lambda message: got.append(message.sequence))
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=patience(), check=True)
        assert done.stdout == "0\n"
        wait_until(lambda: len(got) == count)
    assert got == list(range(count))
