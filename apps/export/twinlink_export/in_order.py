"""The messages of each stream in the order of their numbers: one that came on request came late."""

from collections.abc import Iterable, Iterator, Mapping

from twinlink.protocol.rangeset import RangeSet

from .source import Message, Stream

HELD_OCTETS = 256 * 1024 * 1024  # that came early; beyond it, the stream with most of them goes on without the late one


class _Line:
    """A stream: the numbers that will come, and the messages that came before their turn."""

    def __init__(self, recorded: RangeSet) -> None:
        self.numbers = (number for first, end in recorded for number in range(first, end))
        self.next = next(self.numbers, None)
        self.early: dict[int, Message] = {}
        self.octets = 0

    def turn(self) -> Iterator[Message]:
        """Those whose turn has come."""
        while self.next is not None and (message := self.early.pop(self.next, None)) is not None:
            self.octets -= len(message.payload)
            self.next = next(self.numbers, None)
            yield message

    def skip(self) -> Iterator[Message]:
        """Those that wait, without what they wait for."""
        last = max(self.early)
        for number in sorted(self.early):
            yield self.early.pop(number)
        self.octets = 0
        while self.next is not None and self.next <= last:
            self.next = next(self.numbers, None)


def in_order(
    messages: Iterable[Message], recorded: Mapping[Stream, RangeSet], most_octets: int = HELD_OCTETS
) -> Iterator[Message]:
    """Messages as they were recorded, each stream put in order for itself.

    Args:
        messages: those of one pass.
        recorded: the numbers of each stream that will come.
        most_octets: of messages that wait for one before them.
    """
    lines: dict[Stream, _Line] = {}
    held = 0
    for message in messages:
        line = lines.get(message.stream)
        if line is None:
            line = lines[message.stream] = _Line(recorded.get(message.stream, RangeSet()))
        if line.next is None or message.sequence < line.next:  # another went on without it
            yield message
            continue
        if message.sequence == line.next:
            line.next = next(line.numbers, None)
            yield message
            before = line.octets
            yield from line.turn()
            held -= before - line.octets
            continue
        payload = bytes(message.payload)  # not a view, which would keep the whole chunk
        line.early[message.sequence] = message._replace(payload=payload)
        line.octets += len(payload)
        held += len(payload)
        if held > most_octets:
            longest = max(lines.values(), key=lambda one: one.octets)
            held -= longest.octets
            yield from longest.skip()
    for line in lines.values():
        if line.early:
            yield from line.skip()
