"""Reads the ranges that indications of RAN function 1 name from shared memory (`twinlink_e3.sensing_ring`)."""

from twinlink_e3 import SensingIndication, SensingRing
from twinlink_e3.sensing_ring import ENTRY, HEADER_OCTETS, RANGE, SensingEntry
from twinlink_e3.shared_memory import SharedMemoryFile

from twinlink.sensing import FreeRange, SensingRanges

_NUMBERS = 2**32


class SensingReader:
    """The entries of one gNB.

    Attributes:
        missing: entries since the last one that was read, which were not indicated or read too late.
    """

    def __init__(self) -> None:
        self._file: SharedMemoryFile | None = None
        self._ring = SensingRing()
        self._last: int | None = None  # number of the last entry

    def read(self, indication: SensingIndication, observed_ns: int) -> SensingRanges | None:
        """The ranges of a slot; None if the gNB has overwritten them, which the next one counts as missing.

        Raises:
            SharedMemoryError: there is no such shared memory, or no such entry.
            ValueError: a range is none of symbols and PRBs.
        """
        file = self._open(indication.shm_name)
        start = self._ring.offset(indication.shm_write_idx)
        octets = file.read(self._ring.entry_octets, start)
        before = SensingEntry(*ENTRY.unpack_from(octets))
        after = SensingEntry(*ENTRY.unpack(file.read(ENTRY.size, start)))
        count = min(indication.n_ranges, before.n_ranges, self._ring.max_ranges)
        if before != after or (before.sfn, before.slot) != (indication.sfn, indication.slot):
            return None
        ranges = RANGE.iter_unpack(octets[ENTRY.size : ENTRY.size + count * RANGE.size])
        missing = 0 if self._last is None else (before.number - self._last - 1) % _NUMBERS
        found = SensingRanges(
            before.sfn, before.slot, tuple(FreeRange(*entry) for entry in ranges), observed_ns, before.time_ns,
            before.beam, before.number, missing,
        )  # fmt: skip
        self._last = before.number
        return found

    def close(self) -> None:
        """Close the shared memory."""
        if self._file:
            self._file.close()
        self._file, self._last = None, None

    def _open(self, name: str) -> SharedMemoryFile:
        """The shared memory, also after the gNB has made it anew."""
        file = self._file
        if file is not None and file.name == name and file.is_current():
            return file
        self.close()
        file = SharedMemoryFile(name)
        try:
            self._ring = SensingRing.of(file.read(HEADER_OCTETS, 0))
        except BaseException:
            file.close()
            raise
        self._file = file
        return file
