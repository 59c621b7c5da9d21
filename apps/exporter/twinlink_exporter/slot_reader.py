"""Reads the slots that indications of RAN function 2 name from the gNB's shared memory (`twinlink_e3.ran_buffers`).

The gNB writes its rows in a circle and waits for no reader, and a row does not say which slot is in it.  So a copy of a
row counts only if the row was complete when the copy began, and if the gNB cannot have begun to write it again when the
copy was complete.

A row is complete when it is indicated if the gNB is one that writes first (`RanBuffers.written_first`, and agents that
name each cell of a slot).  The first `TRIAL` copies count only if their rows are the same when rule 3, below, applies;
if one is not, the gNB is of the other kind.  Any other gNB may indicate first: the row is complete when a later
indication has come, and `MAX_WRITE_NS` have passed.

Whether the gNB had come round is judged after the copy, when the indications that have come meanwhile were read.  It is
counted in slots, as a gNB does not write in every slot, and may write many at once to catch up:

1. It had if the newest indication is as many rows later as there are, but two.
2. It had not if the row of a slot two or more before it, which it writes again first, still begins as when it was
   copied, and rows do not begin alike from round to round.
3. Otherwise, it had not if an indication was read that the gNB made after the copy, or if none has come for
   `MAX_TRANSIT_NS`.  Until then, it is not known.  That none has come tells nothing if the row of rule 2 was written
   again, or, without such a row, if the gNB had come round had it written as often as before: an agent that stands
   still for longer indicates nothing, though the gNB goes on.

The gNB's clock is the one whose time is nearest to the indication's.  If none is within `MAX_AGE_NS`, this takes the
place of rule 3: it had not, unless the row before was written again, or this one may have been by a gNB that wrote in
each slot since the newest indication was read.

Indications come for every slot, so a step of more than one row means that slots were not indicated.  A gNB with several
cells writes a row for each in a slot; the indication names all of them, or the first and their number.  If so much time
passed that the gNB may have come round, it has not if the last row still begins as when it was copied.  Otherwise, the
number of rounds is estimated by how often it wrote before.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from twinlink_e3 import RanBuffers, SharedMemoryError, SlotIndication
from twinlink_e3.ran_buffers import (
    ANTENNA_OCTETS,
    BUFFERS,
    HEADER_OCTETS,
    SAMPLE_OCTETS,
    SYMBOL_OCTETS,
    SYMBOLS,
)
from twinlink_e3.shared_memory import SharedMemoryFile

from twinlink.slots import Clock
from twinlink.spectrum import SUBCARRIERS_PER_PRB

MAX_AGE_NS = 1_000_000_000
FRAME_NS, FRAMES = 10_000_000, 1024  # 3GPP TS 38.211 clause 4.3.1: the system frame number has 10 bits
MARK_OCTETS = SUBCARRIERS_PER_PRB * SAMPLE_OCTETS  # of a PRB: noise, which is never twice the same
MAX_BACK = 64  # slots before a slot whose rows are looked at
SPARE_ROWS = 2  # the one that is being written, and the next
MAX_TRANSIT_NS = 20_000_000  # of an indication, on a busy machine
TRIAL = 256  # copies: of an agent that indicates first, a tenth or more differs
MAX_WRITE_NS = 3_000_000  # after its indication, a row is complete: NVIDIA's agents were seen to take up to 1 ms
MAX_PAUSE_NS = 3_600_000_000_000  # between two indications: beyond, the gNB's clock was set meanwhile
_CLOCKS = {Clock.MONOTONIC: time.CLOCK_MONOTONIC, Clock.UNIX: time.CLOCK_REALTIME, Clock.TAI: time.CLOCK_TAI}


@dataclass(frozen=True, slots=True)
class IndicatedSlot:
    """An indication, numbered.

    Attributes:
        number: of its row, counted from the first that the gNB has written.
        last: of the last row of this slot: that of another cell, if the gNB has several.
        order: of the slot, counted from the first of our cell, with those that were not indicated.
        skipped: slots before this one that were not indicated.
        observed_ns: when the indication was read, Unix time.
        read_ns: the same, monotonic time.
    """

    indication: SlotIndication
    number: int
    last: int
    order: int
    skipped: int
    observed_ns: int
    read_ns: int


@dataclass(frozen=True, slots=True)
class _Mark:
    """How the copy of a slot begins and ends, and where that is in the shared memory."""

    number: int
    offset: int
    octets: bytes
    end_offset: int
    end_octets: bytes


class SlotReader:
    """The rows of one gNB.

    Args:
        slot_ns: duration of a slot.

    Attributes:
        clock: of the gNB's times, as last found.
    """

    def __init__(self, slot_ns: int) -> None:
        self.clock = Clock.UNKNOWN
        self._slot_ns = slot_ns
        self._file: SharedMemoryFile | None = None
        self._layout = RanBuffers()
        self._header = b""
        self._marks: dict[int, _Mark] = {}  # of the copies that count, or may, by the position of their rows
        self._counted = 0  # number of the last one that counts
        # Whether the last row that was written again begins as before, so that marks tell nothing; None: not yet known.
        self._repeats: bool | None = None
        self._written_first = False  # see `RanBuffers`, unless a copy has shown the contrary
        self._trial = 0  # copies that are to be compared with their rows again
        self._changed: tuple[int, int] | None = None  # number of one whose row was another then, and when
        self._newest: IndicatedSlot | None = None
        self._newest_read_ns = 0
        self._rows = self._slots = 1  # rows that the gNB wrote, and slots in which it did
        self._cells = 1  # most rows of a slot
        self._not_indicated = 0  # slots, since the last one of our cell
        self._unnamed = 0  # rows of the newest slot that its indication does not name, at most

    def is_open(self, name: str) -> bool:
        """Whether this shared memory is open, and the gNB has not made it anew, nor with another layout."""
        file = self._file
        if file is None or file.name != name or not file.is_current():
            return False
        try:
            return file.read(HEADER_OCTETS, 0) == self._header
        except SharedMemoryError:
            return False

    def open(self, name: str, *, names_cells: bool = False) -> None:
        """Open the shared memory; an agent that ``names_cells`` writes rows first.  Raises SharedMemoryError."""
        self.close()
        file = SharedMemoryFile(name)
        try:
            header = file.read(HEADER_OCTETS, 0)
            layout = RanBuffers.of(header)
            file.read(1, layout.octets - 1)
        except BaseException:
            file.close()
            raise
        self._file, self._header, self._layout = file, header, layout
        self._written_first, self._changed = layout.written_first or names_cells, None
        self._trial = TRIAL if self._written_first else 0

    def close(self) -> None:
        """Close the shared memory; the next slot is the first of another gNB."""
        if self._file:
            self._file.close()
        self._file, self._newest, self._repeats, self.clock = None, None, None, Clock.UNKNOWN
        self._marks.clear()
        self._counted = self._not_indicated = self._unnamed = 0
        self._cells = 1

    def indicated(self, indication: SlotIndication, observed_ns: int, ours: bool = True) -> IndicatedSlot | None:
        """Number an indication, in the order in which they come; None for one that came before.

        Args:
            indication: of a slot, with its row of our cell, and of the others.
            observed_ns: when it was read, Unix time.
            ours: whether our cell is in it; if not, only its rows count.

        Raises SharedMemoryError if there is no such row.
        """
        newest, rows = self._newest, self.rows
        places = [_checked_position(each, self._layout) for each in (indication, *indication.others)]
        if newest is None:
            end = _first_of(places, rows) - 1
        elif newest.indication == indication:
            return None
        else:
            end = _position(newest.indication, self._layout) + newest.last - newest.number
        steps = [(place - end) % rows or rows for place in places]
        last, named = max(steps), len(set(places))
        if newest is not None:
            last += rows * self._rounds(last, rows, self._slots_between(newest.indication, indication))
        self._count_missing(last - named, named, min(indication.n_cells or 1, rows))
        order = newest.order if newest else 0
        skipped = 0
        if ours:
            skipped, self._not_indicated = self._not_indicated, 0
            order += skipped + 1
        base = (newest.last if newest else 0) + last - max(steps)
        number, last = base + steps[0], base + max(steps)
        self._newest = IndicatedSlot(indication, number, last, order, skipped, observed_ns, time.monotonic_ns())
        return self._newest

    def _count_missing(self, between: int, named: int, cells: int) -> None:
        """Count the slots that were not indicated.

        Args:
            between: rows before those of a slot that its indication does not name, nor the one before.
            named: rows that its indication names.
            cells: of that slot, each of which may have a row.
        """
        between -= self._unnamed
        self._unnamed = max(0, cells - named)
        self._cells = max(self._cells, named, cells)
        self._not_indicated += -(-max(0, between) // self._cells)  # at least

    def written_ns(self, slot: IndicatedSlot) -> int | None:
        """Monotonic time from which the row of a slot is complete; None: not before a later indication comes."""
        if self._written_first:
            return slot.read_ns
        assert self._newest
        return slot.read_ns + MAX_WRITE_NS if self._newest.number > slot.number else None

    def all_read(self, now_ns: int) -> None:
        """There was no further indication at this monotonic time."""
        self._newest_read_ns = now_ns

    def read(
        self, slot: IndicatedSlot, antennas: Sequence[int], symbols: int, first_prb: int, n_prbs: int
    ) -> NDArray[np.float16] | None:
        """Copy a part of a slot; when further indications were read, `counts` tells whether the copy counts.

        Args:
            slot: which, with a complete row: `written_ns`.
            antennas: their numbers.
            symbols: mask of the symbols.
            first_prb, n_prbs: range of PRBs.

        Returns:
            Shape ``(antennas, symbols, n_prbs * 12, 2)``; None if it was read too late.

        Raises:
            SharedMemoryError: the shared memory is too short, or the row has no such antenna.
        """
        assert self._file
        self._judge_order()
        if not self._rows_left(slot):  # to copy those that are late would make the next ones late, too
            return None
        if max(antennas) >= self.antennas:
            raise SharedMemoryError(f"there is no antenna {max(antennas)}: a row has {self.antennas}")
        indication = slot.indication
        start = self._layout.offset(indication.fh_buffer_index, indication.fh_write_index)
        start += first_prb * SUBCARRIERS_PER_PRB * SAMPLE_OCTETS
        numbers = [symbol for symbol in range(SYMBOLS) if symbols >> symbol & 1]
        part = np.empty((len(antennas), len(numbers), n_prbs * SUBCARRIERS_PER_PRB, 2), np.float16)
        octets, size = part.data.cast("B"), n_prbs * SUBCARRIERS_PER_PRB * SAMPLE_OCTETS
        at = 0
        for antenna in antennas:
            for symbol in numbers:
                self._file.read_into(octets[at : at + size], start + antenna * ANTENNA_OCTETS + symbol * SYMBOL_OCTETS)
                at += size
        position = _position(indication, self._layout)
        first = start + antennas[0] * ANTENNA_OCTETS + numbers[0] * SYMBOL_OCTETS
        last = start + antennas[-1] * ANTENNA_OCTETS + numbers[-1] * SYMBOL_OCTETS + size - MARK_OCTETS
        mark = _Mark(slot.number, first, bytes(octets[:MARK_OCTETS]), last, bytes(octets[-MARK_OCTETS:]))
        if before := self._marks.get(position):
            self._repeats = before.octets == mark.octets
        self._marks[position] = mark
        return part

    @property
    def rows(self) -> int:
        """Rows that the gNB writes before it comes round."""
        return BUFFERS * self._layout.rows

    @property
    def antennas(self) -> int:
        """Antennas of a row."""
        return self._layout.antennas

    def counts(self, slot: IndicatedSlot, copied_ns: int) -> bool | None:
        """Whether the copy of a slot counts; None: not known before a further indication, or `MAX_TRANSIT_NS`.

        Copies are asked about in their order: those that count tell about the next ones.

        Args:
            slot: which.
            copied_ns: when the copy was complete, monotonic time.
        """
        counts = self._counts(slot, copied_ns)
        position = _position(slot.indication, self._layout)
        if counts:
            self._counted = slot.number
        elif counts is False and (mark := self._marks.get(position)) and mark.number == slot.number:
            del self._marks[position]
        return counts

    def _counts(self, slot: IndicatedSlot, copied_ns: int) -> bool | None:
        assert self._newest
        rows_left, spare = self._rows_left(slot), self._spare_rows
        if not rows_left:
            return False
        mark = self._mark_before(slot, range(spare, min(self.rows - spare, MAX_BACK) + 1))
        stands = mark is None or self._stands(mark)
        if mark and stands and self._tells(mark) and not self._trial:
            return True
        made_ns = self._newest_made_ns()
        if self.clock is Clock.UNKNOWN:
            if not stands or time.monotonic_ns() - self._newest_read_ns >= rows_left // self._cells * self._slot_ns:
                return False
            if not self._trial:
                return True
        if made_ns <= copied_ns:
            if self._newest_read_ns < copied_ns + MAX_TRANSIT_NS:
                return None
            if not stands or (mark is None and self._rows_since(made_ns, copied_ns) >= rows_left):
                return False
        return not self._trial or self._is_unchanged(slot)

    def _rows_since(self, made_ns: int, copied_ns: int) -> float:
        """Rows that the gNB may have written between two times, by how often it wrote before; 0 until that is known."""
        known = self._slots > self.rows
        return (copied_ns - made_ns) / self._slot_ns * self._rows / self._slots if known else 0.0

    def _is_unchanged(self, slot: IndicatedSlot) -> bool:
        """Whether the row of a slot is as it was copied."""
        mark = self._mark_before(slot, range(1))
        if mark and self._stands(mark) and self._reads(mark.end_offset, mark.end_octets):
            self._trial -= 1
            return True
        if mark and self._changed is None:
            self._changed = slot.number, time.monotonic_ns()
        return False

    def _judge_order(self) -> None:
        """A row that has changed, and that the gNB had not come round to then, was indicated before it was written."""
        made_ns = self._newest_made_ns()
        if self._changed is None:
            return
        assert self._newest
        number, changed_ns = self._changed
        if made_ns > changed_ns:
            may_have_come_round = self._newest.last - number >= self.rows - SPARE_ROWS
            self._written_first = self._written_first and may_have_come_round
            self._changed = None

    def _newest_made_ns(self) -> int:
        """Monotonic time at which the gNB made the newest indication; if its clock is not known, when it was read."""
        assert self._newest
        age = self._age_ns(self._newest.indication.timestamp)
        return self._newest.read_ns if age is None else time.monotonic_ns() - age

    def _rows_left(self, slot: IndicatedSlot) -> int:
        """Rows that the gNB may write after the newest indication before it comes to that of the slot."""
        assert self._newest
        return max(0, self.rows - self._spare_rows - (self._newest.last - slot.number))

    @property
    def _spare_rows(self) -> int:
        """Rows that the gNB may be writing, and the next one."""
        late = 0 if self._written_first else -(-MAX_WRITE_NS // self._slot_ns)
        return min((SPARE_ROWS + late) * self._cells, self.rows // 2)

    def _tells(self, mark: _Mark) -> bool:
        """Whether a row that begins as the mark says was not written again: noise differs, zeros do not."""
        return self._repeats is False and any(mark.octets)

    def _mark_before(self, slot: IndicatedSlot, backs: range) -> _Mark | None:
        """The mark of the first slot that has one, looking ``backs`` slots before this one."""
        position = _position(slot.indication, self._layout)
        for back in backs:
            mark = self._marks.get((position - back) % self.rows)
            if mark and mark.number == slot.number - back:
                return mark
        return None

    def _stands(self, mark: _Mark) -> bool:
        """Whether the row still begins as the mark says."""
        return self._reads(mark.offset, mark.octets)

    def _reads(self, offset: int, octets: bytes) -> bool:
        assert self._file
        try:
            return self._file.read(len(octets), offset) == octets
        except SharedMemoryError:  # it was cut short
            return False

    def _slots_between(self, earlier: SlotIndication, later: SlotIndication) -> int:
        """By their frame and slot numbers, which are the same again after 10.24 s; the times tell how often."""
        per_frame = FRAME_NS // self._slot_ns or 1
        slots = (later.sfn - earlier.sfn) * per_frame + later.slot - earlier.slot
        cycle, elapsed_ns = FRAMES * per_frame, later.timestamp - earlier.timestamp
        if elapsed_ns > MAX_PAUSE_NS:
            return slots
        return slots + cycle * round((elapsed_ns / self._slot_ns - slots) / cycle)

    def _rounds(self, step: int, rows: int, slots: int) -> int:
        """How often the gNB has come round between the newest indication and the next, so many slots later."""
        if slots * self._cells < rows or self._last_row_stands():  # not once: it writes at most one row a slot and cell
            if slots > 0:
                self._rows, self._slots = self._rows + step, self._slots + slots
            return 0
        return max(0, round((slots * self._rows / self._slots - step) / rows))

    def _last_row_stands(self) -> bool:
        """Whether the gNB has not written the row of the newest indication again, as far as that is known."""
        assert self._newest
        since = self._newest.number - self._counted  # a copy that does not count may be of a later round
        mark = self._mark_before(self._newest, range(since, min(self.rows, MAX_BACK)))
        return mark is not None and not self._repeats and self._stands(mark)

    def _age_ns(self, timestamp: int) -> int | None:
        """The age of a time of the gNB; finds the clock if it is not known, or no longer fits."""
        if (age := age_ns(self.clock, timestamp)) is not None:
            return age
        ages = {clock: time.clock_gettime_ns(number) - timestamp for clock, number in _CLOCKS.items()}
        nearest = min(ages, key=lambda clock: abs(ages[clock]))
        if abs(ages[nearest]) >= MAX_AGE_NS:
            self.clock = Clock.UNKNOWN
            return None
        self.clock = nearest
        return ages[nearest]


def age_ns(clock: Clock, timestamp: int) -> int | None:
    """How old a gNB's time of this clock is; None if it is not known, or off by `MAX_AGE_NS`."""
    if clock is Clock.UNKNOWN:
        return None
    age = time.clock_gettime_ns(_CLOCKS[clock]) - timestamp
    return age if abs(age) < MAX_AGE_NS else None


def _checked_position(indication: SlotIndication, layout: RanBuffers) -> int:
    """Raises SharedMemoryError if there is no such row."""
    layout.offset(indication.fh_buffer_index, indication.fh_write_index)
    return _position(indication, layout)


def _first_of(places: Sequence[int], rows: int) -> int:
    """The row of a slot from which on its others come soonest, in the circle."""
    return min(places, key=lambda first: max((place - first) % rows for place in places))


def _position(indication: SlotIndication, layout: RanBuffers) -> int:
    return indication.fh_buffer_index * layout.rows + indication.fh_write_index
