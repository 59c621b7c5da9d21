"""A mailbox in the memory of a PLC: how a frame travels through registers or a data block.

The server has one mailbox that the client writes and one that it reads, each in a memory of its own, from octet 0 on::

     0                   1                   2                   3
     0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    |           sequence            |            waiting            |
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    |                      length of the frame                      |
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    |                           frame ...

All integers are unsigned and in network byte order.  Another *sequence* means another frame; it counts from 1 to 65535
and then from 1 again; 0: no frame yet.  *waiting* counts the frames behind this one in the server.

A frame that needs several requests is written from its second part on and its first part, with the sequence, last.  It
is read from its first part on, and the next takes its place when its last octet was read.
"""

import struct
import threading
from abc import abstractmethod
from collections import deque
from dataclasses import dataclass

from twinlink.transports import Endpoint

from ..frames import ACK_ONE, HEADER_OCTETS
from .polled import PolledChannel

HEAD = struct.Struct("!HHI")
MOST_SEQUENCE = 0xFFFF


@dataclass(frozen=True)
class Memory:
    """Memory of a server, and what a request may carry.

    Attributes:
        octets: of the memory of one mailbox.
        written_at_once, read_at_once: octets that one request writes or reads.
    """

    octets: int
    written_at_once: int
    read_at_once: int

    @property
    def greatest_payload(self) -> int:
        """Octets of payload that fit."""
        return self.octets - HEAD.size - HEADER_OCTETS

    def round_trips(self, octets: int, direction: str) -> int:
        """Requests of one exchange with a payload of so many octets."""
        message, answer = HEAD.size + HEADER_OCTETS + octets, HEAD.size + ACK_ONE.size
        written, read = (message, answer) if direction == "rw-dt" else (answer, message)
        return -(-written // self.written_at_once) + -(-read // self.read_at_once)


# Modbus Application Protocol V1.1b3: a unit has 65,536 registers of two octets; functions 16 and 3 take 123 and 125.
MODBUS = Memory(65536 * 2, 123 * 2, 125 * 2)
# A data block of S7 has at most 64 KiB; the PDU of 480 octets, which python-snap7's server grants, has these headers.
S7 = Memory(65536, 480 - 35, 480 - 18)


class WrittenMailbox:
    """The mailbox that the client writes, at the server.

    Attributes:
        memory: of ``octets`` octets.
    """

    def __init__(self, octets: int) -> None:
        self.memory = bytearray(octets)
        self._sequence = 0

    def take(self) -> bytes | None:
        """After a request that wrote octet 0: the new frame; None if there is none, or its length cannot be true."""
        sequence, _, length = HEAD.unpack_from(self.memory)
        if sequence == self._sequence or length > len(self.memory) - HEAD.size:
            return None
        self._sequence = sequence
        return bytes(self.memory[HEAD.size : HEAD.size + length])


class ReadMailbox:
    """The mailbox that the client reads, at the server; for several threads.

    Args:
        octets: of its memory.
        queue: the frames that wait.
    """

    def __init__(self, octets: int, queue: deque[bytes]) -> None:
        self.memory = bytearray(octets)
        self._queue = queue
        self._sequence = 0
        self._end = 0  # of the frame that is not read yet; 0: it is
        self._lock = threading.Lock()

    def queued(self) -> None:
        """After a frame was queued: put it in, or count it among those that wait."""
        with self._lock:
            if self._end:
                struct.pack_into("!H", self.memory, 2, self._waiting())
            else:
                self._fill()

    def was_read(self, end: int) -> None:
        """After a request that read up to octet ``end``: replace a frame that was read."""
        with self._lock:
            if self._end and end >= self._end:
                self._end = 0
                self._fill()

    def _fill(self) -> None:
        if not self._queue:
            return
        frame = self._queue.popleft()
        self._end = HEAD.size + len(frame)
        self._sequence = self._sequence % MOST_SEQUENCE + 1
        self.memory[HEAD.size : self._end] = frame
        HEAD.pack_into(self.memory, 0, self._sequence, self._waiting(), len(frame))

    def _waiting(self) -> int:
        return min(len(self._queue), 0xFFFF)


class MailboxChannel(PolledChannel):
    """A system whose server has memory, which its client writes and reads.

    A backend fills `write_at` and `read_at`, and calls `arrived` with what `written.take` returns and `read.was_read`.

    Attributes:
        memory: of the server.
        written, read: its two mailboxes.
    """

    memory: Memory

    def __init__(self, endpoint: Endpoint, listening: bool, node: str, options: dict[str, object]) -> None:
        super().__init__(endpoint, listening, node, options)
        self.written = WrittenMailbox(self.memory.octets)
        self.read = ReadMailbox(self.memory.octets, self.outgoing)
        self._own = self._others = 0  # sequences

    @abstractmethod
    def write_at(self, first: int, octets: bytes) -> None:
        """At the client: write by one request.  Raises PeerLost."""

    @abstractmethod
    def read_at(self, first: int, count: int) -> bytes:
        """At the client: read by one request.  Raises PeerLost."""

    def put(self, topic: bytes, frame: bytes | bytearray) -> None:
        """Write the frame, or queue it for the client's polls.  Raises PeerLost."""
        super().put(topic, frame)
        if self.listening:
            self.read.queued()

    def write(self, topic: bytes, frame: bytes | bytearray) -> None:
        """Write the frame into the mailbox, its first part last."""
        self._own = self._own % MOST_SEQUENCE + 1
        image = HEAD.pack(self._own, 0, len(frame)) + frame
        step = self.memory.written_at_once
        for first in (*range(step, len(image), step), 0):
            self.write_at(first, image[first : first + step])

    def poll(self) -> bytes | None:
        """Read the mailbox: in one request what the expected frame takes, then the rest."""
        expected = HEADER_OCTETS + self.expected if self.reflects else ACK_ONE.size
        image = self.read_at(0, min(HEAD.size + expected, self.memory.read_at_once))
        sequence, behind, length = HEAD.unpack_from(image)
        if sequence == self._others:
            self.behind = 0
            return None
        end = HEAD.size + length
        while len(image) < end:
            image += self.read_at(len(image), min(end - len(image), self.memory.read_at_once))
        self._others, self.behind = sequence, behind
        return image[HEAD.size : end]
