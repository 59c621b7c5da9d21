"""What a link has freed goes back to the system when it is closed."""

import contextlib
import ctypes


def trim() -> None:
    """Have the C library give back what is free.

    glibc keeps an arena for each thread that comes and goes with a link, and in each of them all that is free below a
    small piece in use: tens of MiB when much was kept for a peer, and another arena the next time.
    """
    with contextlib.suppress(AttributeError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)
