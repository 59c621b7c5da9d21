"""The octets of transport ``tcp`` on one connection (docs/protocol.md, section 8).

A connector begins with `MAGIC` and its epoch in 8 octets, 0 for none; the listener answers with `MAGIC` and an octet:
`ADMITTED`, or `FORBIDDEN` before it ends the connection.  Then come messages, in both directions:

    0               1               2               3
    +---------------+---------------+---------------+---------------+
    | octets that follow (32), network order                        |
    +---------------+---------------+---------------+---------------+
    | octets of the topic (8), 1 to 255     | topic ...             |
    +---------------+---------------+---------------+---------------+
    | frame ...                                                     |

With no octets that follow it is a ping, with one octet 0 the answer to that.
"""

import socket
from struct import Struct

from ..protocol.frames import MessageFrame, SplitFrame
from .base import Frame
from .receive_buffers import ReceiveBuffers
from .stream_connection import JOINED_OCTETS, Octets, StreamConnection, split

MAGIC = b"twinlink/tcp/1\r\n"
EPOCH_OCTETS = 8
ADMITTED, FORBIDDEN = b"\0", b"\1"
LENGTH_OCTETS = 4
PING, PONG = bytes(LENGTH_OCTETS), b"\0\0\0\1\0"

_head = Struct("!IB").pack


def encode(topic: bytes, frame: MessageFrame) -> tuple[Frame, ...]:
    """A message as the parts of what is sent."""
    head = _head(1 + len(topic) + len(frame), len(topic))
    if type(frame) is SplitFrame:
        return b"".join((head, topic, frame.header)), frame.payload
    if len(frame) < JOINED_OCTETS:
        return (b"".join((head, topic, frame)),)
    return head + topic, frame


class TcpStream(StreamConnection):
    """As `StreamConnection`; ``most``: octets of the longest message, ``epoch``: of a connector, its own."""

    first_octets = MAGIC

    def __init__(
        self,
        opened: socket.socket,
        unsent_limit: int,
        buffers: ReceiveBuffers,
        now: float,
        *,
        is_listeners: bool,
        most: int,
        epoch: int | None = None,
    ) -> None:
        super().__init__(opened, unsent_limit, buffers, now)
        self._is_listeners = is_listeners
        self._most = most
        self._own_epoch = epoch or 0

    def greet(self) -> None:
        """Say the epoch."""
        self.transmit((MAGIC + self._own_epoch.to_bytes(EPOCH_OCTETS),))

    # Receiving

    def _shake_hands(self, octets: bytes) -> bytes:
        end = len(MAGIC) + (EPOCH_OCTETS if self._is_listeners else 1)
        self.begins = octets[:end]
        if not MAGIC.startswith(octets[: len(MAGIC)]):
            self.refused = "it does not speak this protocol"
            self.abort()
        elif len(octets) >= end:
            if self._is_listeners:
                self._on_greeting(octets[len(MAGIC) : end])
            elif octets[len(MAGIC) : end] == ADMITTED:
                self.is_open = True
            else:
                self.refused, self.is_forbidden = "it refuses the key of this node", True
            return octets[end:]
        return octets

    def _on_greeting(self, epoch: bytes) -> None:
        self.epoch = int.from_bytes(epoch) or None
        self.is_forbidden = self.refuses()
        self.transmit((MAGIC + (FORBIDDEN if self.is_forbidden else ADMITTED),))
        self.is_open = not self.is_forbidden
        if self.is_forbidden:
            self.finish()

    def _parse(self, octets: Octets, end: int) -> int:
        at, self._wanted = 0, 0
        while end - at >= LENGTH_OCTETS:
            begin = at + LENGTH_OCTETS
            length = int.from_bytes(octets[at:begin])
            if length > self._most:
                self.abort()
                return end
            if (after := begin + length) > end:
                self._wanted = after - at
                break
            if length > 1:
                self.inbox_octets += length
                self.inbox.append(split(octets, begin, after))
            elif not length:
                self.transmit((PONG,))
            at = after
        return at

    # Control

    def ping(self, now: float) -> None:
        """Have the other side answer."""
        self.pinged_s = now
        self.transmit((PING,))

    def say_close(self) -> None:
        """The end of what this side sends is the whole farewell."""
        self.finish()
