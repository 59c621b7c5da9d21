"""Unacknowledged messages, buffered for retransmission and bounded by octets."""

from bisect import bisect, bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate, repeat
from operator import attrgetter

from ..frames import MessageFrame
from .kept_run import KeptRun

ENTRY_OVERHEAD_OCTETS = 384  # what Python needs to keep a message, beside its payload

_NO_PEERS = frozenset[int]()
_first_of = attrgetter("first")

# Monotonic ns sent, epochs of the peers that owe an ack, frame.
UnackedMessage = tuple[int, frozenset[int], MessageFrame]


def run_cost(run: KeptRun) -> int:
    """What the messages of a run count for: as much as single ones, which they may become."""
    return run.octets + run.count * ENTRY_OVERHEAD_OCTETS


class RetransmitBuffer:
    """The kept messages of a flow: single ones, and runs.

    A run is one entry as long as the same is true of all its messages.  What concerns some of them splits it: from then
    on they are single ones.

    Attributes:
        singles: by sequence.  The peers that owe an ack may be replaced; a caller that removes one calls `on_removed`.
        runs: ascending.
        on_split: called when runs are kept as single messages: of each its first sequence, how many messages it has,
            and the octets of a payload.
        lost: of the single ones, what some peer will not get, and is kept for others.
        framing_octets: of a frame, beside its payload.
        room: the octets of the biggest payload that can be kept beside the others; below 0: none can.
    """

    def __init__(self, limit_octets: int, framing_octets: int) -> None:
        self.singles: dict[int, UnackedMessage] = {}
        self.runs: list[KeptRun] = []
        self.on_split: Callable[[Mapping[int, tuple[int, int]]], None] = lambda runs: None
        self.lost: set[int] = set()
        self.room = limit_octets - ENTRY_OVERHEAD_OCTETS
        self._all_room = self.room
        self.framing_octets = framing_octets
        self._first = 0  # no single one below is kept
        self._end = 0  # and nothing from here on

    def __len__(self) -> int:
        """How many messages are kept."""
        return len(self.singles) + sum(run.count for run in self.runs)

    def __bool__(self) -> bool:
        return bool(self.singles or self.runs)

    @property
    def entries(self) -> dict[int, UnackedMessage]:
        """`singles`, when all runs have been split: for what concerns every message, and is rare."""
        self.split(0, self._end)
        return self.singles

    @property
    def octets(self) -> int:
        """Octets of all that is kept, with what Python needs beside the payloads."""
        return self._all_room - self.room

    def size(self, entry: UnackedMessage) -> int:
        """Octets of its payload."""
        return len(entry[2]) - self.framing_octets

    def add(self, sequence: int, size: int, entry: UnackedMessage) -> None:
        """Keep a message with a payload of ``size`` octets."""
        self.singles[sequence] = entry
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
        self.singles.update(zip(range(first, end), entries, strict=False))
        self._end = end
        self.room -= octets
        return count

    # Runs

    def room_for(self, size: int) -> int:
        """How many messages with payloads of ``size`` octets can be kept beside the others."""
        return max(0, (self.room + ENTRY_OVERHEAD_OCTETS) // (size + ENTRY_OVERHEAD_OCTETS))

    def add_run(self, run: KeptRun) -> None:
        """Keep a run, which there is room for."""
        self.room -= run_cost(run)
        self._end = run.end
        if not self.singles:
            self._first = run.end
        self.runs.append(run)

    def run_of(self, sequence: int) -> KeptRun | None:
        """The run that has this message."""
        at = bisect(self.runs, sequence, key=_first_of) - 1
        return self.runs[at] if at >= 0 and sequence < self.runs[at].end else None

    def _runs_between(self, first: int, end: int) -> list[KeptRun]:
        """The runs that have some messages from ``first`` to ``end - 1``."""
        at = bisect(self.runs, first, key=_first_of)
        if at and self.runs[at - 1].end > first:
            at -= 1
        return self.runs[at : bisect_left(self.runs, end, key=_first_of)]

    def runs_of(self, epoch: int) -> list[KeptRun]:
        """The runs that a peer owes an ack for."""
        return [run for run in self.runs if epoch in run.unacked_by]

    def next_run(self, sequence: int) -> int:
        """Where the first run from this sequence on begins; the end of what is kept without any."""
        at = bisect(self.runs, sequence, key=_first_of)
        return self.runs[at].first if at < len(self.runs) else self._end

    def place_of(self, run: KeptRun) -> int:
        """Its index in `runs`."""
        return bisect(self.runs, run.first, key=_first_of) - 1

    def cut(self, run: KeptRun, count: int) -> KeptRun:
        """Keep a run that has not been transmitted as two, and return the first, of so many messages."""
        parts, at = run.cut(count), self.place_of(run)
        self.runs[at : at + 1] = parts
        return parts[0]

    def split(self, first: int, end: int) -> None:
        """Keep the messages of each run that has some from ``first`` to ``end - 1`` as single ones."""
        self.split_runs(self._runs_between(first, end))

    def split_runs(self, runs: Iterable[KeptRun]) -> None:
        """Keep the messages of these runs as single ones."""
        split = dict[int, tuple[int, int]]()
        for run in runs:
            entries = zip(repeat(run.sent_mono_ns), repeat(run.unacked_by), run.data_frames())
            self.singles.update(zip(range(run.first, run.end), entries, strict=False))
            self._first = min(self._first, run.first)
            del self.runs[self.place_of(run)]
            split[run.first] = run.count, run.size
        if split:
            self.on_split(split)  # once: what is in flight is put in order anew

    def single(self, sequence: int) -> UnackedMessage | None:
        """The entry of a message, of which the run is split; None where it is not kept."""
        if self.runs:
            self.split(sequence, sequence + 1)
        return self.singles.get(sequence)

    def owed_by(self, sequence: int) -> frozenset[int]:
        """The peers that owe an ack for a message; none where it is not kept."""
        entry = self.singles.get(sequence)
        if entry is not None:
            return entry[1]
        run = self.run_of(sequence) if self.runs else None
        return _NO_PEERS if run is None else run.unacked_by

    def kept_as(self, sequence: int) -> int:
        """The sequence of its entry: that of the first message of its run, or its own."""
        run = self.run_of(sequence) if self.runs else None
        return sequence if run is None else run.first

    # Single messages

    def remove(self, sequence: int) -> None:
        """Take it out of `entries`."""
        if self.runs:
            self.split(sequence, sequence + 1)
        self.on_removed(1, len(self.singles.pop(sequence)[2]))

    def unacked_only_by(self, sequences: range, epoch: int) -> tuple[Sequence[int], Sequence[MessageFrame]] | None:
        """If peer ``epoch`` alone owes an ack for each of these: when they were sent, and their frames.  Else None."""
        entries = self.singles
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
        entries = self.entries
        for sequence in [one for one in entries if one >= end]:
            del entries[sequence]
        self.lost &= entries.keys()
        sizes = sum(map(self.size, entries.values()))
        self.room = self._all_room - sizes - ENTRY_OVERHEAD_OCTETS * len(entries)

    def forget_lost(self, sequences: Iterable[int]) -> int:
        """These have been taken out of `entries`; returns how many of them were lost to some peer before."""
        lost = self.lost.intersection(sequences)
        self.lost -= lost
        return len(lost)

    def release_frames(self) -> None:
        """Keep no frames any more, nor the peers that owe an ack: only the sequences."""
        self.singles = dict.fromkeys(self.entries, (0, _NO_PEERS, bytes(self.framing_octets)))
        self.room = self._all_room - len(self.singles) * ENTRY_OVERHEAD_OCTETS

    def oldest(self) -> int | None:
        """The lowest sequence that is kept; None without any."""
        runs, singles = self.runs, self.singles
        if not singles:
            return runs[0].first if runs else None
        # Not next(iter(singles)): a dictionary passes the places of all that have left it, each time.
        while self._first not in singles:
            self._first += 1
        return min(self._first, runs[0].first) if runs else self._first

    def can_evict(self, excess: int, pacing: frozenset[int]) -> bool:
        """Whether the oldest can make room for so many octets, and no ``pacing`` peer owes an ack for them."""
        oldest = self.oldest()
        for sequence in range(self._end if oldest is None else oldest, self._end):
            owed_by = self.owed_by(sequence)
            if not owed_by:
                continue
            if owed_by & pacing:
                return False
            excess -= self._size_of(sequence) + ENTRY_OVERHEAD_OCTETS
            if excess <= 0:
                break
        return True  # a single message may always be kept

    def between(self, low: int, high: int) -> list[int]:
        """The sequences from ``low`` to below ``high`` that are kept."""
        if (oldest := self.oldest()) is None:
            return []
        low, high = max(low, oldest), min(high, self._end)
        runs = [one for run in self._runs_between(low, high) for one in range(max(low, run.first), min(high, run.end))]
        if high - low > len(self.singles):
            return sorted([*runs, *(sequence for sequence in self.singles if low <= sequence < high)])
        return sorted([*runs, *(sequence for sequence in range(low, high) if sequence in self.singles)])

    def _size_of(self, sequence: int) -> int:
        entry = self.singles.get(sequence)
        run = self.run_of(sequence) if entry is None else None
        return run.size if run is not None else 0 if entry is None else self.size(entry)

    def add_receiver(self, epoch: int, queued: range, up: frozenset[int], max_octets: int) -> int:
        """Add a receiver to the newest ``queued`` messages; stop at the first that no peer that is ``up`` needs.

        Stop as well at one that is longer than the ``max_octets`` that the receiver takes.  Returns the first number
        that it owes an ack for; the end of the range where there is none.
        """
        self.split(queued.start, queued.stop)
        first, unacked_by, with_it = queued.stop, _NO_PEERS, frozenset({epoch})
        while first > queued.start and (entry := self.singles.get(first - 1)) is not None and entry[1] & up:
            if self.size(entry) > max_octets:
                break
            first -= 1
            if entry[1] is not unacked_by:  # mostly all of them are owed by the same peers
                unacked_by, with_it = entry[1], entry[1] | {epoch}
            self.singles[first] = (entry[0], with_it, entry[2])
        return first

    def is_unacked_by(self, peers: frozenset[int]) -> bool:
        """Whether any of these peers owes an ack."""
        of_runs = any(run.unacked_by & peers for run in self.runs)
        return of_runs or any(unacked_by & peers for _, unacked_by, _ in self.singles.values())

    def unacked_by(self) -> frozenset[int]:
        """The peers that owe an ack for any of them."""
        of_runs = [run.unacked_by for run in self.runs]
        return _NO_PEERS.union(*of_runs, *(unacked_by for _, unacked_by, _ in self.singles.values()))
