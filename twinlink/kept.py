"""Messages that somebody still owes an ack for, bounded by octets."""

from collections.abc import Iterable, Sequence

from .run import Entry, Run
from .wire import HEADER_OCTETS

KEEPING_OCTETS = 384  # what Python needs to keep a message, beside its payload


class Kept:
    """The kept messages of a flow, by ascending sequence.

    Attributes:
        entries: by sequence; here who owes an ack may be replaced, and whoever takes one out calls `removed`.  But
            what is in a `Run`, which is the entry of each of its messages, goes through `single` first.
        runs: how many there are.
        lost: what somebody will not get, and is kept for others.
        framing_octets: of a frame, beside its payload.
        room: the octets of the biggest payload that can be kept beside the others; below 0: none can.
    """

    def __init__(self, limit_octets: int, framing_octets: int) -> None:
        self.entries: dict[int, Entry | Run] = {}
        self.runs = 0
        self.lost: set[int] = set()
        self.room = limit_octets - KEEPING_OCTETS
        self._all_room = self.room
        self.framing_octets = framing_octets
        self._first = 0  # nothing below is kept
        self._end = 0  # nor from here on

    @property
    def octets(self) -> int:
        """Octets of all that is kept, with what Python needs beside the payloads."""
        return self._all_room - self.room

    def size(self, entry: Entry | Run) -> int:
        """Octets of its payload, or of each."""
        return len(entry[2]) - self.framing_octets

    def add(self, sequence: int, size: int, entry: Entry) -> None:
        """Keep a message with a payload of ``size`` octets."""
        self.entries[sequence] = entry
        self._end = sequence + 1
        self.room -= size + KEEPING_OCTETS

    def join(self, first: int, end: int) -> None:
        """Keep these as a run, if they can be one: all kept by themselves, of one length and owed by the same peers."""
        entries = [self.entries.get(sequence) for sequence in range(first, end)]
        singles = [one for one in entries if one is not None and not isinstance(one, Run)]
        if len(singles) == end - first and len({(owed_by, len(frame)) for _, owed_by, frame in singles}) == 1:
            run = Run.join(first, singles, self.framing_octets - HEADER_OCTETS)
            self.entries.update(dict.fromkeys(run.sequences, run))
            self.runs += 1

    def single(self, sequence: int) -> Entry:
        """What is kept of this message by itself: the run that it was part of, if any, is taken apart."""
        entry = self.entries[sequence]
        if not isinstance(entry, Run):
            return entry
        singles = entry.singles()
        self.entries.update(singles)
        self.runs -= 1
        return singles[sequence]

    def remove(self, sequence: int) -> None:
        """Take it out of `entries`."""
        frame = self.single(sequence)[2]
        del self.entries[sequence]
        self.removed(1, len(frame))

    def whole_run(self, epoch: int, records: Sequence[Sequence[int]]) -> Run | None:
        """The run that an ack's records begin with, if they are of all of it, and only ``epoch`` owes that.

        Else all runs that they are of are taken apart.
        """
        run = self.entries.get(records[0][0]) if records else None
        if isinstance(run, Run) and run.owed_by == {epoch} and run.is_all_of(records[: run.messages]):
            return run
        for record in records:
            if isinstance(self.entries.get(record[0]), Run):
                self.single(record[0])
        return None

    def remove_run(self, run: Run) -> None:
        """Take all of its messages out of `entries`."""
        for sequence in run.sequences:
            del self.entries[sequence]
        self.runs -= 1
        self.removed(run.messages, run.messages * len(run.frame))

    def removed(self, count: int, octets: int) -> None:
        """So many have been taken out of `entries`; ``octets`` of all their frames."""
        self.room += octets + count * (KEEPING_OCTETS - self.framing_octets)

    def mend(self, end: int) -> None:
        """An interruption came between two steps: only what is below ``end`` was sent, and the sums are of that."""
        for sequence in [one for one in self.entries if one >= end]:
            del self.entries[sequence]
        for run in {entry.first: entry for entry in self.entries.values() if isinstance(entry, Run)}.values():
            self.entries.update({one: it for one, it in run.singles().items() if self.entries.get(one) is run})
        self.runs = 0
        self.lost &= self.entries.keys()
        sizes = sum(map(self.size, self.entries.values()))
        self.room = self._all_room - sizes - KEEPING_OCTETS * len(self.entries)

    def forget_lost(self, sequences: Iterable[int]) -> int:
        """These have been taken out of `entries`; returns how many of them were lost to somebody before."""
        lost = self.lost.intersection(sequences)
        self.lost -= lost
        return len(lost)

    def release(self) -> None:
        """Keep no frames any more, nor who owes an ack: only the sequences."""
        self.entries = dict.fromkeys(self.entries, (0, frozenset(), bytes(self.framing_octets)))
        self.runs = 0
        self.room = self._all_room - len(self.entries) * KEEPING_OCTETS

    def oldest(self) -> int | None:
        """The lowest sequence that is kept; None without any."""
        if not self.entries:
            return None
        # Not next(iter(entries)): a dictionary passes the places of all that have left it, each time.
        while self._first not in self.entries:
            self._first += 1
        return self._first

    def yields(self, excess: int, up: frozenset[int]) -> bool:
        """Whether the oldest can make room for so many octets, and nobody who is ``up`` owes an ack for any of them."""
        oldest = self.oldest()
        for sequence in range(self._end if oldest is None else oldest, self._end):
            entry = self.entries.get(sequence)
            if entry is None:
                continue
            if entry[1] & up:
                return False
            excess -= self.size(entry) + KEEPING_OCTETS
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

    def owe(self, epoch: int, waiting: range, up: frozenset[int], most: int) -> int:
        """Peer ``epoch`` owes an ack, too, for the last of these, up to one that nobody who is ``up`` owes.

        Or up to one that is longer than the ``most`` octets that it takes.  Returns the first number that it owes; the
        end of the range where there is none.
        """
        first, owed_by, with_it = waiting.stop, frozenset[int](), frozenset({epoch})
        while first > waiting.start and (entry := self.entries.get(first - 1)) is not None and entry[1] & up:
            if self.size(entry) > most:
                break
            first -= 1
            entry = self.single(first)
            if entry[1] is not owed_by:  # mostly all of them are owed by the same peers
                owed_by, with_it = entry[1], entry[1] | {epoch}
            self.entries[first] = (entry[0], with_it, entry[2])
        return first

    def is_owed_by(self, peers: frozenset[int]) -> bool:
        """Whether any of these peers owes an ack."""
        return any(entry[1] & peers for entry in self.entries.values())

    def owing(self) -> frozenset[int]:
        """The peers that owe an ack for any of them."""
        return frozenset().union(*(entry[1] for entry in self.entries.values()))
