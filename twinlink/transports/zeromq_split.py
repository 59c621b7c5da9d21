"""Long messages over ZeroMQ in two parts, ``[split/<flow> + header, payload]``: neither side joins nor splits them.

A node that reads them subscribes to ``split/`` as long as to ``traffic/``.  While a connection has subscribed to
traffic alone, that of an older node or of a plain reader, messages are ``[traffic/<flow>, header + payload]`` as others
are.
"""

import atexit
import os

import zmq
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


def descriptor(told: zmq.Frame) -> int | None:
    """Of the connection that says that it has subscribed to something, or not any more; None: it has ended."""
    try:
        return int(told.get("__fd"))
    except zmq.ZMQError:
        return None


class TrafficReaders:
    """What a publisher's connections have subscribed to, of messages.

    By connection: to subscribe twice, or to one's own harm, changes nothing for the others.
    """

    def __init__(self) -> None:
        # By descriptor: inode of its socket, which tells whether that is still open, and topics.
        self._topics: dict[int, tuple[int | None, set[bytes]]] = {}

    def changed(self, fd: int, topic: bytes, begins: bool) -> None:
        """A connection has subscribed to a prefix, or not any more."""
        if topic == HELLO_TOPIC or not (topic == SPLIT or topic.startswith(TRAFFIC) or TRAFFIC.startswith(topic)):
            return
        inode, topics = self._topics.get(fd, (None, set()))
        if inode is None or inode != _inode(fd):
            topics = set()
        if begins:
            topics.add(topic)
        else:
            topics.discard(topic)
        self._topics[fd] = _inode(fd), topics

    @property
    def split(self) -> bool:
        """Whether all that read messages read them in two parts."""
        readers = list(self._topics.items())
        return all(SPLIT in topics for fd, (inode, topics) in readers if topics and inode == _inode(fd) is not None)


def _inode(fd: int) -> int | None:
    try:
        return os.fstat(fd).st_ino
    except OSError:
        return None
