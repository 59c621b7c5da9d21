"""Messages from the octets of one TCP connection from MGEN.

MGEN's only framing is the packets' size field.  The packets (fragments) of a message are concatenated, headers
included, so that the bridge delivers exactly what it received.
"""

from collections.abc import Iterator
from typing import NamedTuple

from twinlink.appkit import mgen_message as message
from twinlink.appkit.mgen_message import Flag, Protocol
from twinlink.errors import MalformedPayload

_FIRST = 256 * 1024  # initial octets of a connection's buffer, which grows to the longest message


class Whole(NamedTuple):
    """A complete message.  ``octets`` begins with the octet for the protocol, and is valid until the next one."""

    octets: memoryview
    flow: int
    sequence: int
    sent_ns: int
    fragments: int


class Stream:
    """Receives into its own buffer: read into `room`, then `feed` the number of octets.

    Attributes:
        incomplete: messages that ended before their last fragment came.
        too_long: messages longer than the limit, which are dropped.
    """

    def __init__(self, limit: int) -> None:
        """``limit``: greatest number of octets in a message."""
        self.incomplete = 0
        self.too_long = 0
        self._limit = limit
        self._view = memoryview(bytearray(_FIRST))
        self._message = self._fragment = self._end = 1  # offsets; octet 0 is for the protocol
        self._first: message.Start | None = None  # of the incomplete message
        self._fragments = 0
        self._leaves_out = False  # the incomplete message is too long

    @property
    def under_way(self) -> int:
        """Octets of the incomplete message."""
        return self._end - self._message

    def room(self) -> memoryview:
        """The free part of the buffer."""
        if self._end == len(self._view):
            larger = memoryview(bytearray(2 * len(self._view)))
            larger[: self._end] = self._view
            self._view = larger
        return self._view[self._end :]

    def feed(self, octets: int) -> Iterator[Whole]:
        """Process what was written to `room`; the iterator must be exhausted.

        Raises:
            MalformedPayload: the stream is not MGEN's, so that the start of the next packet is unknown.
        """
        self._end += octets
        while self._end - self._fragment >= message.HEADER.size:
            try:
                packet = message.start(self._view, self._fragment)
            except MalformedPayload:
                self._end = self._fragment
                raise
            if self._end - self._fragment < packet.size:
                break
            if self._first and (packet.flow, packet.sequence) != (self._first.flow, self._first.sequence):
                self._drop_begun()
            first = self._first = self._first or packet
            self._fragment += packet.size
            self._fragments += 1
            if self._leaves_out or self._fragment - self._message > self._limit:
                self._leaves_out = True
                self._message = self._fragment
            if packet.flags & Flag.CONTINUES:
                continue
            if self._leaves_out:
                self.too_long += 1
            else:
                self._view[self._message - 1] = Protocol.TCP
                yield Whole(
                    self._view[self._message - 1 : self._fragment],
                    first.flow,
                    first.sequence,
                    first.sent_ns,
                    self._fragments,
                )
            self._begin_message(self._fragment)
        self._move_down()

    def finish(self) -> None:
        """The connection has ended; an incomplete message is counted."""
        if self._first or self.under_way:
            self.incomplete += 1
            self._begin_message(self._end)

    def _drop_begun(self) -> None:
        self.incomplete += 1
        self._begin_message(self._fragment)

    def _begin_message(self, at: int) -> None:
        self._message = self._fragment = at
        self._first = None
        self._fragments = 0
        self._leaves_out = False

    def _move_down(self) -> None:
        """Make room by moving the unread octets to the start of the buffer."""
        gone = self._message - 1
        if gone:
            self._view[1 : self._end - gone] = bytes(self._view[self._message : self._end])
            self._message, self._fragment, self._end = 1, self._fragment - gone, self._end - gone
