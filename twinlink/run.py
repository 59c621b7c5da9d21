"""Messages in a row that wait together, kept as the body of one bundle.  No I/O, no clock."""

from array import array
from collections.abc import Sequence
from itertools import repeat
from typing import NamedTuple

from .message import Ack
from .wire import REFUSED

Entry = tuple[int, frozenset[int], bytes]  # monotonic ns sent, epochs of the peers that owe an ack, frame

new_ack = tuple.__new__  # a named tuple's own constructor takes three times as long


class Run(NamedTuple):
    """What is kept of each of these messages in place of an `Entry`: they leave, and are acknowledged, all at once.

    A hundred thousand that waited for a peer are there in three quarters of the time.  Whoever has to do with one of
    them by itself asks `Kept.single`, which takes the run apart.

    The first three fields are the first message's, as in `Entry`; who owes an ack and the frame's length are the same
    for all.
    """

    sent_mono_ns: int
    owed_by: frozenset[int]
    frame: bytes
    first: int
    all_sent_mono_ns: "array[int]"
    body: bytes  # the frames, without what the transport adds to each, ...
    added: bytes  # ... which is here

    @classmethod
    def join(cls, first: int, entries: Sequence[Entry], added_octets: int) -> "Run":
        """Of messages ``first`` and following, whose frames have one length; ``added_octets`` by the transport."""
        end = len(entries[0][2]) - added_octets
        body = b"".join([entry[2][:end] for entry in entries])
        added = b"".join([entry[2][end:] for entry in entries])
        return cls(*entries[0], first, array("q", [entry[0] for entry in entries]), body, added)

    @property
    def messages(self) -> int:
        """How many."""
        return len(self.all_sent_mono_ns)

    @property
    def sequences(self) -> range:
        """Their numbers."""
        return range(self.first, self.first + self.messages)

    def singles(self) -> dict[int, Entry]:
        """What is to be kept of each by itself."""
        n, m = len(self.body) // self.messages, len(self.added) // self.messages
        return {
            self.first + k: (sent, self.owed_by, self.body[k * n : k * n + n] + self.added[k * m : k * m + m])
            for k, sent in enumerate(self.all_sent_mono_ns)
        }

    def is_all_of(self, records: Sequence[Sequence[int]]) -> bool:
        """Whether these, of an ack, are of all messages and refuse none."""
        sequences, _, t2_ns = zip(*records, strict=True)
        return sequences == tuple(self.sequences) and REFUSED not in t2_ns

    def acks(
        self, records: Sequence[Sequence[int]], t3_ns: int, t4_ns: int, t4_mono_ns: int, epoch: int, flow: str
    ) -> list[Ack]:
        """What the records, of all messages, say."""
        round_trips_ns = [t4_mono_ns - sent for sent in self.all_sent_mono_ns]
        of_all = repeat(t3_ns), repeat(t4_ns), repeat(epoch), repeat(flow)
        sequences, t1_ns, t2_ns = zip(*records, strict=True)
        fields = zip(sequences, round_trips_ns, t1_ns, t2_ns, *of_all, strict=False)
        return list(map(new_ack, repeat(Ack), fields))
