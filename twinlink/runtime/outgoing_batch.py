"""A batch that a sender sends: what of it has gone, and what goes next."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from .payload import Payload, each_row, octets_of_each, rows_of

if TYPE_CHECKING:
    from ..npy import Array

# So many go at once, under the session's lock: some bundles, and half a millisecond of the others' time.
TOGETHER, TOGETHER_OCTETS = 1024, 256 * 1024
# What may leave in fragments goes alone, and so has a `sent_ns` of its own, by which fragment progress names it.
ALONE_OCTETS = 16 * 1024


class OutgoingBatch:
    """The messages of one `Sender.send_many`.

    Attributes:
        sizes: octets of each payload.
        longest: octets of the longest.
        size: octets of each where all are as long; else None.
        numbers: those that the first ones were sent with.
    """

    def __init__(self, payloads: "Iterable[Payload] | Array") -> None:
        """Raises TypeError, ConfigurationError."""
        self._messages: Sequence[bytes | memoryview] | None = None
        self._rows = rows_of(payloads)  # of an array: its octets, and how many rows
        if self._rows is None:
            self._messages = messages = octets_of_each(payloads)
            self.sizes = list(map(len, messages))
        else:
            octets, count = self._rows
            self.sizes = [len(octets) // max(1, count)] * count
        self.longest = max(self.sizes, default=0)
        self.size = self.longest if self.sizes.count(self.longest) == len(self.sizes) else None
        self.numbers: Sequence[int] = range(0)

    def __len__(self) -> int:
        return len(self.sizes)

    @property
    def is_sent(self) -> bool:
        """Whether all of it was sent."""
        return len(self.numbers) == len(self.sizes)

    @property
    def next_size(self) -> int:
        """Octets of the next payload."""
        return self.sizes[len(self.numbers)]

    def run_length(self, room: int) -> int:
        """How many of the next go together in a run, of at most ``room``; 0: none."""
        if not self.size:
            return 0
        return min(room, len(self) - len(self.numbers))

    def run(self, count: int) -> bytes | memoryview:
        """The next so many payloads, all as long, one behind the other."""
        first = len(self.numbers)
        if self._rows is None:
            return b"".join((self._messages or ())[first : first + count])
        size = self.size or 0
        return self._rows[0][first * size : (first + count) * size]

    def next_messages(self) -> tuple[Sequence[bytes | memoryview], Sequence[int]]:
        """The payloads that go next, and their sizes."""
        if self._messages is None and self._rows is not None:
            self._messages = each_row(*self._rows)
        first = len(self.numbers)
        sizes = self.sizes[first : first + TOGETHER]
        if max(sizes) > ALONE_OCTETS:
            short = next(at for at, size in enumerate(sizes) if size > ALONE_OCTETS)
            del sizes[max(1, short) :]
        end = first + max(1, min(len(sizes), TOGETHER_OCTETS // max(1, *sizes)))
        return (self._messages or ())[first:end], self.sizes[first:end]

    def on_sent(self, run: range) -> None:
        """The next ones were sent with these numbers."""
        numbers = self.numbers
        if not numbers:
            self.numbers = run
        elif isinstance(numbers, range) and numbers.stop == run.start:
            self.numbers = range(numbers.start, run.stop)
        else:
            self.numbers = [*numbers, *run]
