"""Messages in a row that arrived in one frame, before an application takes them."""

from collections.abc import Iterator, Sequence
from typing import overload

from .message import Message

SPACIOUS = 4  # a frame this many times as long as what is kept of it keeps too much memory
_new = tuple.__new__  # a named tuple's own constructor takes three times as long


class Run(Sequence[Message]):
    """Consecutive messages of one sender, all as long: a sequence of `Message`, made as they are asked for.

    Attributes:
        flow, epoch, node, sent_ns, received_ns: of each, as `Message` says.
        first, length: their sequences.
        size: octets of each payload, at least one.
        octets: the payloads, one behind the other; a view of the frame.
    """

    __slots__ = "epoch", "first", "flow", "length", "node", "octets", "received_ns", "sent_ns", "size"

    def __init__(
        self,
        octets: memoryview,
        flow: str,
        first: int,
        length: int,
        size: int,
        epoch: int,
        node: str | None,
        sent_ns: int,
        received_ns: int,
    ) -> None:
        self.octets, self.flow = octets, flow
        self.first, self.length, self.size = first, length, size
        self.epoch, self.node, self.sent_ns, self.received_ns = epoch, node, sent_ns, received_ns

    def __len__(self) -> int:
        return self.length

    @property
    def end(self) -> int:
        """One more than the last sequence."""
        return self.first + self.length

    def part(self, begin: int, end: int) -> "Run":
        """Those with the indices from ``begin`` to ``end - 1``."""
        octets, first = self.octets[begin * self.size : end * self.size], self.first + begin
        return Run(
            octets, self.flow, first, end - begin, self.size, self.epoch, self.node, self.sent_ns, self.received_ns
        )

    def detached(self, count: int) -> "Run":
        """The first so many; a copy where an application that keeps them would keep a frame of many times as much."""
        part = self.part(0, count)
        if len(part.octets) * SPACIOUS < memoryview(self.octets.obj).nbytes:
            part.octets = memoryview(bytes(part.octets))
        return part

    @overload
    def __getitem__(self, at: int) -> Message: ...

    @overload
    def __getitem__(self, at: slice) -> Sequence[Message]: ...

    def __getitem__(self, at: int | slice) -> Message | Sequence[Message]:
        if isinstance(at, slice):
            begin, end, step = at.indices(self.length)
            return self.part(begin, max(begin, end)) if step == 1 else list(self)[at]
        place = range(self.length)[at]  # raises IndexError
        payload = bytes(self.octets[place * self.size : (place + 1) * self.size])
        fields = (payload, self.flow, self.first + place, self.epoch, self.node, self.sent_ns, self.received_ns)
        message: Message = _new(Message, fields)
        return message

    def __iter__(self) -> Iterator[Message]:
        flow, epoch, node, sent_ns, received_ns = self.flow, self.epoch, self.node, self.sent_ns, self.received_ns
        for sequence, payload in enumerate(self.payloads(), self.first):
            yield _new(Message, (payload, flow, sequence, epoch, node, sent_ns, received_ns))

    def payloads(self) -> list[bytes]:
        """A copy of each payload, so that an application that keeps one does not keep them all."""
        octets, size = bytes(self.octets), self.size
        return [octets[at : at + size] for at in range(0, len(octets), size)]
