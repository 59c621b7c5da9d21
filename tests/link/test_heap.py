"""What a link has freed goes back to the system when it is closed."""

import ctypes
import subprocess
import sys

import pytest

MIB = 2**20
KEEPS_AND_CLOSES = """
import threading, twinlink
from pathlib import Path

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

def use():
    freed = []
    for _ in range(600):
        freed.append(b"x" * 100_000)
        in_use.append(b"x" * 1000)

in_use = []
link = twinlink.open("memory", listen="tcp/127.0.0.1:7447")
before = resident()
thread = threading.Thread(target=use)  # it has an arena of its own
thread.start()
thread.join()
print(resident() - before)
link.close()
print(resident() - before)
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="only glibc keeps memory like this")
def test_close_gives_back_what_is_free_below_small_pieces_in_use() -> None:
    command = [sys.executable, "-c", KEEPS_AND_CLOSES]
    printed = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True).stdout
    free, left = map(int, printed.split())
    assert free > 40 * MIB
    assert left < 10 * MIB
