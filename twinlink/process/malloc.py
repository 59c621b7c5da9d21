"""Keeps freed memory for the next large message, and gives it back when a link is closed."""

import contextlib
import ctypes

REUSED_OCTETS = 4 * 1024 * 1024  # a flood of 1 MB messages is no quicker with more, and more stays free unused


def keep_freed_memory() -> None:
    """Have the C library keep what long messages free for the next ones.

    glibc gives blocks above a threshold back at once, and the end of a heap above twice that.  Every page that it asks
    for again is a fault: in a flood of 1 MB messages that takes a third of the time and more.  The threshold rises to
    the longest such block that was freed so far (mallopt(3), M_MMAP_THRESHOLD), so here is one, whose pages no thread
    touches.
    """
    bytes(REUSED_OCTETS)


def trim() -> None:
    """Have the C library give back what is free.

    glibc keeps an arena for each thread that comes and goes with a link, and in each of them all that is free below a
    small piece in use: tens of MiB when much was kept for a peer, and another arena the next time.
    """
    with contextlib.suppress(AttributeError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)
