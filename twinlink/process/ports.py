"""Free ports for a listener that starts later, which no other process is given in the meantime.

Another program can take a port between the moment when it was found free and its use.  So each process gives out ports
of a block of its own, which it claims by a socket that is bound to the block's first port until the process ends.
"""

import errno
import itertools
import os
import random
import socket
from collections.abc import Iterator

from ..errors import TransportError

HOST = "127.0.0.1"
FIRST, LAST = 10_000, 32_400  # below Linux's ephemeral ports, so that no outgoing connection takes one
BLOCK = 400  # ports


class _Claimed:
    """The block of this process: its ports in turn; a child of `os.fork` claims its own."""

    process = 0
    ports: Iterator[int] = iter(())


def free_ports(count: int = 1) -> int:
    """The first of ``count`` consecutive ports that are free at 127.0.0.1, for TCP and UDP.

    A port is returned again, and then only if it is free, when all others of the block have had their turn.

    Raises:
        TransportError: there are none.
    """
    if _Claimed.process != os.getpid():
        _Claimed.ports = itertools.cycle(_claim())
        _Claimed.process = os.getpid()
    found: list[int] = []
    for port in itertools.islice(_Claimed.ports, BLOCK + count):
        if found and port != found[-1] + 1:
            found.clear()
        if _is_free(port):
            found.append(port)
        else:
            found.clear()
        if len(found) == count:
            return found[0]
    raise TransportError(f"this process's ports at {HOST} are in use: no {count} consecutive ones of {BLOCK} are free")


def _claim() -> range:
    """The ports of a block that no process has, but for the first, which marks the block as claimed."""
    blocks = range(FIRST, LAST, BLOCK)
    for first in random.sample(blocks, len(blocks)):
        mark = socket.socket()
        try:
            mark.bind((HOST, first))
        except OSError as error:
            mark.close()
            if error.errno != errno.EADDRINUSE:
                raise TransportError(f"no port can be bound at {HOST}: {error.strerror}") from error
        else:
            mark.detach()  # the descriptor stays open until the process ends
            return range(first + 1, first + BLOCK)
    raise TransportError(f"all blocks of {BLOCK} ports from {FIRST} to {LAST} at {HOST} are claimed by other processes")


def _is_free(port: int) -> bool:
    try:
        for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
            with socket.socket(socket.AF_INET, kind) as probe:
                probe.bind((HOST, port))
    except OSError:
        return False
    return True
