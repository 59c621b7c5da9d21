"""Long messages over ZeroMQ in two parts, ``[split/<flow> + header, payload]``: neither side joins nor splits them.

A node that reads them subscribes to ``split/`` as long as to ``traffic/``.  While there is any other subscription to
traffic, of an older node or of a plain reader, its messages are ``[traffic/<flow>, header + payload]`` as others are.
"""

import atexit

from zmq.utils.garbage import gc

from ..process import exit_hooks
from ..protocol.frames import HEADER_OCTETS, HELLO_TOPIC, AnyFrame, SplitFrame, received_split

SPLIT, TRAFFIC = b"split/", b"traffic/"
REFERENCE_OCTETS = 256 * 1024  # of a payload: below, to copy it takes less time than pyzmq takes to give it back
# pyzmq's thread that takes back what libzmq has sent by reference, and the two of its context: once in a process.
GIVING_BACK_THREADS = 3

# pyzmq would end that thread before our links are closed, as its hook is the younger one; they may still send.
atexit.unregister(gc._atexit)
exit_hooks.when_closed(gc._atexit)


def threads() -> int:
    """How many more threads it takes to send by reference."""
    return 0 if gc.is_alive() else GIVING_BACK_THREADS


def first_part(topic: bytes, frame: SplitFrame) -> bytes:
    """What stands before the payload, on the ``traffic/`` topic of a flow."""
    return SPLIT + topic[len(TRAFFIC) :] + frame.header


def received(first: bytes, payload: memoryview) -> tuple[bytes, AnyFrame]:
    """Topic and frame of the parts of a message; both empty if it cannot have any."""
    at = len(first) - HEADER_OCTETS
    if at <= len(SPLIT):
        return b"", b""
    return TRAFFIC + first[len(SPLIT) : at], received_split(first[at:], payload)


class TrafficReaders:
    """Counts what a publisher's connections have subscribed to.

    Attributes:
        split: whether all that read messages read them in two parts.
    """

    def __init__(self) -> None:
        self.split = False
        self._of_split = self._of_traffic = 0

    def changed(self, topic: bytes, change: int) -> None:
        """One more subscription to a prefix (1), or one less (-1)."""
        if topic == SPLIT:
            self._of_split += change
        elif topic != HELLO_TOPIC and (topic.startswith(TRAFFIC) or TRAFFIC.startswith(topic)):
            self._of_traffic += change
        self.split = self._of_traffic <= self._of_split
