"""The reorder buffer of one sender session on one flow: what is held until what is missing has come."""

from collections.abc import Iterator, Sequence

from ...message import Message
from ..rangeset import RangeSet


class ReorderBuffer:
    """Begins with a gap and ends when everything below ``end`` has been released, in order and once.

    Attributes:
        next_due: the next number to be released.
        end: one more than the highest number known to have been sent.
        missing: neither here nor given up.
    """

    def __init__(self, due: int) -> None:
        self.next_due = due
        self.end = due
        self.missing = RangeSet()
        self._held: dict[int, Message] = {}
        self._abandoned = RangeSet()  # given up, not released yet
        self._silent = RangeSet()  # of them: not to be reported

    def expect(self, end: int) -> tuple[int, int] | None:
        """Everything below ``end`` has been sent; returns the range that is now found missing."""
        if end <= self.end:
            return None
        found = (self.end, end)
        self.missing.add(*found)
        self.end = end
        return found

    def hold(self, message: Message) -> bool:
        """Take in a message below ``end``; False when it has come, or been given up, before."""
        sequence = message.sequence
        if sequence not in self.missing:
            return False
        self._held[sequence] = message  # first: what is neither held nor missing would be waited for in vain
        self.missing.remove(sequence)
        return True

    def hold_run(self, messages: Sequence[Message]) -> bool:
        """Take in messages in a row; False, and none is taken, unless all of them are missing."""
        first, end = messages[0].sequence, messages[-1].sequence + 1
        if not self.missing.covers(first, end):
            return False
        self._held.update(zip(range(first, end), messages, strict=True))
        self.missing.take(first, end)
        return True

    def abandon(self, ranges: Sequence[tuple[int, int]], silently: bool) -> int:
        """These will not come; returns how many of them were missing."""
        count = 0
        for first, end in ranges:
            for abandoned in self.missing.take(first, end):
                count += abandoned[1] - abandoned[0]
                self._abandoned.add(*abandoned)
                if silently:
                    self._silent.add(*abandoned)
        return count

    def abandon_all(self) -> None:
        """Nothing more will come."""
        self.abandon([(self.next_due, self.end)], silently=False)

    def drop_held(self) -> int:
        """Take what is held for missing; returns how many messages that were."""
        held, self._held = self._held, {}
        for sequence in held:
            self.missing.add(sequence, sequence + 1)
        return len(held)

    def is_abandoned(self, sequence: int) -> bool:
        """Whether this was given up, and has not been released yet."""
        return sequence in self._abandoned

    def release(self) -> Iterator[Message | tuple[int, int, bool]]:
        """What is due: messages, and ranges ``(first, end, silently)`` that were given up, in order.

        The caller adds 1 to `next_due` for a message, and calls `skip` for a range; else, as when Ctrl-C comes before,
        it is due again.
        """
        while (due := self.next_due) < self.end:
            message = self._held.get(due)
            if message is not None:
                yield message
                del self._held[due]
                continue
            self._abandoned.take(0, due)
            abandoned = self._abandoned.first_range()
            if abandoned is None or abandoned[0] != self.next_due:
                return
            first, end = abandoned
            quiet = self._silent.first_range()
            silently = quiet is not None and quiet[0] == first
            if quiet is not None:  # a range of which only a part is silent is released in parts
                end = quiet[1] if silently else min(end, quiet[0])
            yield first, end, silently

    def skip(self, first: int, end: int) -> None:
        """This range, which was given up, has been released."""
        self._abandoned.take(first, end)
        self._silent.take(first, end)
        self.next_due = end

    @property
    def octets(self) -> int:
        """Octets of payload that wait here."""
        return sum(len(message.payload) for message in list(self._held.values()))

    @property
    def held(self) -> int:
        """How many messages wait here."""
        return len(self._held)

    @property
    def complete(self) -> bool:
        """Whether everything has been released."""
        return self.next_due == self.end
