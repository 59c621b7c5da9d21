"""Unacknowledged messages, buffered for retransmission and bounded by octets."""

from bisect import bisect
from collections.abc import Iterable, Sequence
from itertools import accumulate, repeat

from ..frames import MessageFrame

ENTRY_OVERHEAD_OCTETS = 384  # what Python needs to keep a message, beside its payload

# Monotonic ns sent, epochs of the peers that owe an ack, frame.
UnackedMessage = tuple[int, frozenset[int], MessageFrame]


class RetransmitBuffer:
    """The kept messages of a flow, by ascending sequence.

    Attributes:
        entries: by sequence.  The peers that owe an ack may be replaced; a caller that removes one calls `on_removed`.
        lost: what some peer will not get, and is kept for others.
        framing_octets: of a frame, beside its payload.
        room: the octets of the biggest payload that can be kept beside the others; below 0: none can.
    """

    def __init__(self, limit_octets: int, framing_octets: int) -> None:
        self.entries: dict[int, UnackedMessage] = {}
        self.lost: set[int] = set()
        self.room = limit_octets - ENTRY_OVERHEAD_OCTETS
        self._all_room = self.room
        self.framing_octets = framing_octets
        self._first = 0  # nothing below is kept
        self._end = 0  # nor from here on

    @property
    def octets(self) -> int:
        """Octets of all that is kept, with what Python needs beside the payloads."""
        return self._all_room - self.room

    def size(self, entry: UnackedMessage) -> int:
        """Octets of its payload."""
        return len(entry[2]) - self.framing_octets

    def add(self, sequence: int, size: int, entry: UnackedMessage) -> None:
        """Keep a message with a payload of ``size`` octets."""
        self.entries[sequence] = entry
        self._end = sequence + 1
        self.room -= size + ENTRY_OVERHEAD_OCTETS

    def add_all(
        self,
        first: int,
        frames: Sequence[MessageFrame],
        sizes: Sequence[int],
        sent_mono_ns: int,
        unacked_by: frozenset[int],
    ) -> int:
        """Keep messages in a row with payloads of these sizes, as many as there is room for; returns how many."""
        count, room = len(frames), self.room + ENTRY_OVERHEAD_OCTETS
        octets = sum(sizes) + count * ENTRY_OVERHEAD_OCTETS
        if octets > room:
            sums = list(accumulate(map(ENTRY_OVERHEAD_OCTETS.__add__, sizes), initial=0))
            count = bisect(sums, room) - 1
            if count <= 0:
                return 0
            octets = sums[count]
        end = first + count
        entries = zip(repeat(sent_mono_ns), repeat(unacked_by), frames)  # without an end but that of the frames
        self.entries.update(zip(range(first, end), entries, strict=False))
        self._end = end
        self.room -= octets
        return count

    def remove(self, sequence: int) -> None:
        """Take it out of `entries`."""
        self.on_removed(1, len(self.entries.pop(sequence)[2]))

    def unacked_only_by(self, sequences: range, epoch: int) -> tuple[Sequence[int], Sequence[MessageFrame]] | None:
        """If peer ``epoch`` alone owes an ack for each of these: when they were sent, and their frames.  Else None."""
        entries = self.entries
        try:
            sent_mono_ns, unacked_by, frames = zip(*[entries[sequence] for sequence in sequences], strict=True)
        except KeyError:
            return None
        if unacked_by[0] != {epoch} or unacked_by.count(unacked_by[0]) != len(sequences):
            return None
        return sent_mono_ns, frames

    def on_removed(self, count: int, octets: int) -> None:
        """So many have been taken out of `entries`; ``octets`` of all their frames."""
        self.room += octets + count * (ENTRY_OVERHEAD_OCTETS - self.framing_octets)

    def recover_after_interrupt(self, end: int) -> None:
        """An interruption came between two steps: only what is below ``end`` was sent, and the sums are of that."""
        for sequence in [one for one in self.entries if one >= end]:
            del self.entries[sequence]
        self.lost &= self.entries.keys()
        sizes = sum(map(self.size, self.entries.values()))
        self.room = self._all_room - sizes - ENTRY_OVERHEAD_OCTETS * len(self.entries)

    def forget_lost(self, sequences: Iterable[int]) -> int:
        """These have been taken out of `entries`; returns how many of them were lost to some peer before."""
        lost = self.lost.intersection(sequences)
        self.lost -= lost
        return len(lost)

    def release_frames(self) -> None:
        """Keep no frames any more, nor the peers that owe an ack: only the sequences."""
        self.entries = dict.fromkeys(self.entries, (0, frozenset(), bytes(self.framing_octets)))
        self.room = self._all_room - len(self.entries) * ENTRY_OVERHEAD_OCTETS

    def oldest(self) -> int | None:
        """The lowest sequence that is kept; None without any."""
        if not self.entries:
            return None
        # Not next(iter(entries)): a dictionary passes the places of all that have left it, each time.
        while self._first not in self.entries:
            self._first += 1
        return self._first

    def can_evict(self, excess: int, pacing: frozenset[int]) -> bool:
        """Whether the oldest can make room for so many octets, and no ``pacing`` peer owes an ack for them."""
        oldest = self.oldest()
        for sequence in range(self._end if oldest is None else oldest, self._end):
            entry = self.entries.get(sequence)
            if entry is None:
                continue
            if entry[1] & pacing:
                return False
            excess -= self.size(entry) + ENTRY_OVERHEAD_OCTETS
            if excess <= 0:
                break
        return True  # a single message may always be kept

    def between(self, low: int, high: int) -> list[int]:
        """The sequences from ``low`` to below ``high`` that are kept."""
        if (oldest := self.oldest()) is None:
            return []
        low, high = max(low, oldest), min(high, self._end)
        if high - low > len(self.entries):
            return [sequence for sequence in self.entries if low <= sequence < high]
        return [sequence for sequence in range(low, high) if sequence in self.entries]

    def add_receiver(self, epoch: int, queued: range, up: frozenset[int], max_octets: int) -> int:
        """Add a receiver to the newest ``queued`` messages; stop at the first that no peer that is ``up`` needs.

        Stop as well at one that is longer than the ``max_octets`` that the receiver takes.  Returns the first number
        that it owes an ack for; the end of the range where there is none.
        """
        first, unacked_by, with_it = queued.stop, frozenset[int](), frozenset({epoch})
        while first > queued.start and (entry := self.entries.get(first - 1)) is not None and entry[1] & up:
            if self.size(entry) > max_octets:
                break
            first -= 1
            if entry[1] is not unacked_by:  # mostly all of them are owed by the same peers
                unacked_by, with_it = entry[1], entry[1] | {epoch}
            self.entries[first] = (entry[0], with_it, entry[2])
        return first

    def is_unacked_by(self, peers: frozenset[int]) -> bool:
        """Whether any of these peers owes an ack."""
        return any(unacked_by & peers for _, unacked_by, _ in self.entries.values())

    def unacked_by(self) -> frozenset[int]:
        """The peers that owe an ack for any of them."""
        return frozenset().union(*(unacked_by for _, unacked_by, _ in self.entries.values()))
