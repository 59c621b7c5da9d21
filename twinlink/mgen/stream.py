"""The octets of one TCP connection from MGEN, cut into messages.

MGEN has no framing besides its packets' size field.  A message of several packets (fragments) is joined by putting
them one behind the other, headers and all, so that what leaves the bridge is what entered it.
"""

from collections.abc import Iterator
from typing import NamedTuple

from ..errors import MalformedPayload
from . import message
from .message import Flag, Protocol

_FIRST = 256 * 1024  # octets of a connection's buffer to begin with; it grows to the longest message


class Whole(NamedTuple):
    """One message, complete.  ``octets`` has the octet for the protocol before it, and is valid until the next one."""

    octets: memoryview
    flow: int
    sequence: int
    sent_ns: int
    fragments: int


class Stream:
    """Receives into its own buffer: ask for `room`, write there, and `feed` how much was written.

    Attributes:
        incomplete: messages that ended before their last fragment came.
        too_long: messages longer than the limit, which were left out.
    """

    def __init__(self, limit: int) -> None:
        """``limit``: octets that a message may have."""
        self.incomplete = 0
        self.too_long = 0
        self._limit = limit
        self._view = memoryview(bytearray(_FIRST))
        self._message = self._fragment = self._end = 1  # where each begins; octet 0 is for the protocol
        self._first: message.Start | None = None  # of the message under way
        self._fragments = 0
        self._leaves_out = False  # the message under way is too long

    @property
    def under_way(self) -> int:
        """Octets of a message that is not complete."""
        return self._end - self._message

    def room(self) -> memoryview:
        """Where the next octets go."""
        if self._end == len(self._view):
            larger = memoryview(bytearray(2 * len(self._view)))
            larger[: self._end] = self._view
            self._view = larger
        return self._view[self._end :]

    def feed(self, octets: int) -> Iterator[Whole]:
        """Take in what was written to `room`; iterate to the end.

        Raises:
            MalformedPayload: this is no MGEN stream, or not any more; where the next packet begins cannot be known.
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
        """The connection has ended: what is under way will not be completed."""
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
        """Make room: what is left of the buffer's content goes to its beginning."""
        gone = self._message - 1
        if gone:
            self._view[1 : self._end - gone] = bytes(self._view[self._message : self._end])
            self._message, self._fragment, self._end = 1, self._fragment - gone, self._end - gone
