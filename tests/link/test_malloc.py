"""What has been freed is used again; it goes back when a link is closed, and over Zenoh after a connection came."""

import ctypes
import resource
import subprocess
import sys

import pytest

from twinlink.testing import patience

MIB = 2**20
USE = """
import threading, twinlink
from pathlib import Path
from twinlink.testing import free_endpoint, wait_until

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

def use():
    freed = []
    for _ in range(600):
        freed.append(b"x" * 100_000)
        in_use.append(b"x" * 1000)

def use_in_a_thread():
    thread = threading.Thread(target=use)  # it has an arena of its own
    thread.start()
    thread.join()

in_use = []
"""
KEEPS_AND_CLOSES = """
link = twinlink.open("memory", listen="tcp/127.0.0.1:7447")
before = resident()
use_in_a_thread()
print(resident() - before)
link.close()
print(resident() - before)
"""
KEEPS_AND_MEETS = """
endpoint = free_endpoint()
link = twinlink.open("zenoh", listen=endpoint)
before = resident()
use_in_a_thread()
print(resident() - before)
peer = twinlink.open("zenoh", connect=endpoint)
wait_until(lambda: resident() - before < 20 * 2**20)
"""

SENDS_LONG_MESSAGES = """
import resource
link = twinlink.open("zeromq", listen=free_endpoint())

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

def send_and_free():
    frames = [b"x" * 2**20 for _ in range(4)]

send_and_free()
before = faults()
for _ in range(20):
    send_and_free()
print((faults() - before) // (20 * 4))
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="only glibc keeps memory like this")
class TestWhatIsFreeBelowSmallPiecesInUse:
    def test_goes_back_when_a_link_is_closed(self) -> None:
        free, left = run(KEEPS_AND_CLOSES)
        assert free > 40 * MIB
        assert left < 10 * MIB

    def test_goes_back_over_zenoh_after_a_connection_came(self) -> None:
        (free,) = run(KEEPS_AND_MEETS)
        assert free > 40 * MIB

    def test_is_used_again_by_the_next_long_messages(self) -> None:
        (faults,) = run(SENDS_LONG_MESSAGES)
        assert faults < 2**20 / resource.getpagesize() / 8


def run(program: str) -> list[int]:
    """The numbers that it prints; it must end well."""
    command = [sys.executable, "-c", USE + program]
    printed = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=patience(), check=True).stdout
    return [int(line) for line in printed.split()]
