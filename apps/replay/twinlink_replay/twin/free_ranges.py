"""Flow ``sensing``: which PRBs the gNB's MAC left free in each slot, for the records of that slot."""

import numpy as np
from numpy.typing import NDArray

import twinlink
from twinlink.sensing import SensingRanges

from ..blocks.observer import Record

SLOTS = 1024  # remembered: half a second at 30 kHz
MAX_APART_NS = 1_000_000_000  # frame and slot numbers are the same again after 10.24 s

Place = tuple[int, int, int]  # the sender's session, frame, slot in it


class FreeRanges:
    """The newest slots' ranges; `take` on one thread, `of` on another.

    Attributes:
        slots: how many came.
        missing: slots that the exporter could not read.
    """

    def __init__(self) -> None:
        self.slots = self.missing = 0
        self._ranges: dict[Place, SensingRanges] = {}

    def take(self, message: twinlink.Message) -> None:
        """Take in a message.  Raises MalformedPayload."""
        ranges = SensingRanges.decode(message.payload)
        place = message.epoch, ranges.sfn, ranges.slot
        self._ranges.pop(place, None)  # so that it becomes the newest
        self._ranges[place] = ranges
        if len(self._ranges) > SLOTS:
            del self._ranges[next(iter(self._ranges))]
        self.slots += 1
        self.missing += ranges.missing

    def of(self, record: Record) -> NDArray[np.bool_] | None:
        """The record's PRBs that were free in all of its symbols, bool, shape ``(n_prbs,)``; None if not known."""
        if record.place is None:
            return None
        sfn, slot, symbols = record.place
        ranges = self._ranges.get((record.epoch, sfn, slot))
        if ranges is None or abs(ranges.observed_ns - record.observed_ns) > MAX_APART_NS:
            return None
        free = np.zeros(record.n_prbs, np.bool_)
        for first_symbol, count, first_prb, prbs in ranges.ranges:
            covered = ((1 << count) - 1) << first_symbol
            if symbols & ~covered == 0:
                first = first_prb - record.first_prb
                free[max(first, 0) : max(first + prbs, 0)] = True
        return free
