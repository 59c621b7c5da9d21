"""A batch that a sender sends: what of it has gone, and what goes next."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from .payload import Payload, octets_of_each

if TYPE_CHECKING:
    from ..npy import Array

# So many go at once, under the session's lock: some bundles, and half a millisecond of the others' time.
RUN_MESSAGES, RUN_OCTETS = 1024, 256 * 1024


class OutgoingBatch:
    """The messages of one `Sender.send_many`.

    Attributes:
        sizes: octets of each payload.
        numbers: those that the first ones were sent with.
    """

    def __init__(self, payloads: "Iterable[Payload] | Array") -> None:
        """Raises TypeError, ConfigurationError."""
        self._messages = octets_of_each(payloads)
        self.sizes = list(map(len, self._messages))
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

    def next_run(self) -> tuple[Sequence[bytes | memoryview], Sequence[int]]:
        """The payloads that go next, and their sizes."""
        first = len(self.numbers)
        longest = max(self.sizes[first : first + RUN_MESSAGES])
        end = first + max(1, min(RUN_MESSAGES, RUN_OCTETS // max(1, longest)))
        return self._messages[first:end], self.sizes[first:end]

    def on_sent(self, run: range) -> None:
        """The next ones were sent with these numbers."""
        numbers = self.numbers
        if not numbers:
            self.numbers = run
        elif isinstance(numbers, range) and numbers.stop == run.start:
            self.numbers = range(numbers.start, run.stop)
        else:
            self.numbers = [*numbers, *run]
