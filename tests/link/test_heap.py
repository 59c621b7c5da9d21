"""What a link has freed goes back to the system when it is closed."""

import ctypes
import threading
from pathlib import Path

import pytest

import twinlink
from twinlink.testing.base import free_endpoint

PIECES, OCTETS = 600, 100_000


def resident_octets() -> int:
    """What this process has in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="only glibc keeps memory like this")
def test_close_gives_back_what_is_free_below_small_pieces_in_use() -> None:
    in_use = []

    def use() -> None:
        freed = []
        for _ in range(PIECES):
            freed.append(b"x" * OCTETS)
            in_use.append(b"x" * 1000)

    link = twinlink.open("memory", listen=free_endpoint())
    before = resident_octets()
    thread = threading.Thread(target=use)  # an arena of its own
    thread.start()
    thread.join()
    assert resident_octets() - before > PIECES * OCTETS / 2  # although it is free
    link.close()
    assert resident_octets() - before < PIECES * OCTETS / 4
