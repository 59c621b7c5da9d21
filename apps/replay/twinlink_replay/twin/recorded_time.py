"""The time of records that are replayed: their own, so that decisions are the same at every pace.  No I/O, no clock.

A record that was sent long after it was observed, both by its sender's clock, is of a replay.  Intervals are then those
between records, and sync is what it was in recorded time: a silence, or missing records, end it as they do live.
"""

import hashlib

from twinlink.fidelity import REPLAYED_NS
from twinlink.sync import State, Sync, Thresholds

from ..blocks.observer import Record

SET_BACK_NS = 1_000_000_000  # what is earlier than the last record by more begins anew, as a recording that is looped


def is_replayed(record: Record) -> bool:
    """Whether a record is of a replay: an exporter sends one within milliseconds."""
    return record.sent_ns - record.observed_ns > REPLAYED_NS


def session_of(node: str, record: Record) -> str:
    """A session for the ids of blocks that is the same in each replay, and another for each twin."""
    return hashlib.blake2b(f"{node} {record.observed_ns}".encode(), digest_size=4).hexdigest()


class RecordedTime:
    """The time of one replay.

    Attributes:
        wall_ns: Unix time of the newest record, on its exporter's clock.
        monotonic_ns: the same for intervals: it goes on where the recording begins anew.
        in_sync: whether the twin was in sync when it came.
        lapsed_ns: Unix time and monotonic time at which the records before it became too old; None: they did not.
    """

    def __init__(self, thresholds: Thresholds) -> None:
        self.wall_ns = self.monotonic_ns = 0
        self.in_sync = False
        self.lapsed_ns: tuple[int, int] | None = None
        self._out_after_ns = round(thresholds.out_after * 1e9)
        self._sync = Sync(thresholds)
        self._sequence: int | None = None
        self._offset_ns = 0

    def take(self, record: Record) -> None:
        """Take in the next record."""
        now_ns = record.observed_ns + self._offset_ns
        self.lapsed_ns = None
        if self._sequence is not None:
            if now_ns < self.monotonic_ns - SET_BACK_NS:
                self._offset_ns += self.monotonic_ns - now_ns
            now_ns = max(record.observed_ns + self._offset_ns, self.monotonic_ns)
            if now_ns - self.monotonic_ns > self._out_after_ns:
                self.lapsed_ns = self.wall_ns + self._out_after_ns, self.monotonic_ns + self._out_after_ns
            if record.sequence > self._sequence + 1:
                self._sync.missed(record.sequence - self._sequence - 1, now_ns)
        self._sequence, self.wall_ns, self.monotonic_ns = record.sequence, record.observed_ns, now_ns
        self._sync.arrived(record.sequence, now_ns, now_ns, now_ns)
        self._sync.look(now_ns)
        self.in_sync = self._sync.state is State.IN_SYNC
